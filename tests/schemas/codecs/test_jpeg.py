"""Headers of JPEG images: what they state, and a word for whatever else the bytes are."""

import struct
from typing import Any

import pytest
from tests.guarded import Guarded
from tests.jpegs import SAMPLINGS, UNUSUAL, encode, frame_header, photograph

from fieldslab.schemas.codecs import jpeg
from fieldslab.schemas.codecs.baseline import read_header
from fieldslab.schemas.jit import make_zero_record

PIXELS = photograph(21, 34)
WHOLE = encode(PIXELS, quality=80)
MEMORY = Guarded(20_000)
BLOCKS = {"grey": (1, 1), "4:4:4": (1, 1), "4:2:2": (2, 1), "4:4:0": (1, 2), "4:2:0": (2, 2)}


def read(data: bytes) -> tuple[int, Any]:
    """Status and frame of an image, against a guard page."""
    frame = make_zero_record(jpeg.FRAME)
    return read_header(MEMORY.put(data, True), len(data), frame), frame


def without(data: bytes, marker: int) -> bytes:
    """The image less its segments of one kind."""
    start = bytes([0xFF, marker])
    while start in data:
        offset = data.index(start)
        data = data[:offset] + data[offset + 2 + struct.unpack_from(">H", data, offset + 2)[0] :]
    return data


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_header_says_size_sampling_and_where_the_scan_begins(sampling: str) -> None:
    """For each sampling that is supported."""
    data = encode(PIXELS, sampling, restart_marker_blocks=9)
    status, frame = read(data)
    assert status == jpeg.OK
    assert (frame.height, frame.width) == (21, 34)
    assert (frame.across, frame.down) == BLOCKS[sampling]
    assert frame.components == (1 if sampling == "grey" else 3)
    assert frame.interval == 9
    scan = data.index(b"\xff\xda")
    assert frame.scan == scan + 2 + struct.unpack_from(">H", data, scan + 2)[0]


def test_tables_are_found_for_each_component() -> None:
    """Quantisers where DQT has them, Huffman tables where DHT has them."""
    _, frame = read(WHOLE)
    assert [WHOLE[offset // 2] for offset in frame.quantisers] == [6, 7, 7]  # of quality 80
    assert (frame.quantisers & 1).tolist() == [0, 0, 0]
    for tables, numbers in ((frame.dc_tables, [0, 1, 1]), (frame.ac_tables, [4, 5, 5])):
        assert tables.tolist() == numbers
        for number in numbers:
            assert WHOLE[frame.huffman[number] - 1] == (number // 4) * 16 + number % 4


def test_quantisers_may_have_sixteen_bits() -> None:
    """They say so where they stand."""
    offset = frame_header(WHOLE)
    wide = b"\xff\xdb" + struct.pack(">HB", 131, 0x10) + bytes(128)
    status, frame = read(WHOLE[:offset] + wide + WHOLE[offset:])
    assert status == jpeg.OK
    assert frame.quantisers[0] == 2 * (offset + 5) + 1
    assert frame.quantisers[1] % 2 == 0


@pytest.mark.parametrize("kind", UNUSUAL)
def test_other_kinds_are_unsupported(kind: str) -> None:
    """Another decoder is to be asked for them."""
    assert read(UNUSUAL[kind](PIXELS))[0] == jpeg.UNSUPPORTED


@pytest.mark.parametrize("kind", ["progressive", "lossless"])
def test_the_size_is_known_of_unsupported_kinds(kind: str) -> None:
    """So that limits can be told before another decoder is asked."""
    _, frame = read(UNUSUAL[kind](PIXELS))
    assert (frame.height, frame.width) == (21, 34)


def test_colours_are_told_as_libjpeg_tells_them() -> None:
    """JFIF means Y, Cb and Cr; else Adobe's word counts; else the names of the components."""
    adobe = encode(PIXELS, "4:4:4", keep_rgb=True)
    offset = adobe.index(b"Adobe")
    assert read(adobe)[0] == jpeg.UNSUPPORTED
    assert read(adobe[: offset + 11] + b"\1" + adobe[offset + 12 :])[0] == jpeg.OK
    assert read(without(adobe, 0xEE))[0] == jpeg.UNSUPPORTED  # named R, G and B
    assert read(WHOLE[:20] + without(adobe, 0xEE)[2:])[0] == jpeg.OK
    assert read(without(WHOLE, 0xE0))[0] == jpeg.OK


def test_every_cut_header_is_truncated() -> None:
    """And nothing behind the cut is read."""
    scan = int(read(WHOLE)[1].scan)
    assert [read(WHOLE[:length])[0] for length in range(3)] == [jpeg.NOT_JPEG] * 3
    assert {read(WHOLE[:length])[0] for length in range(3, scan)} == {jpeg.TRUNCATED}
    assert read(WHOLE[:scan])[0] == jpeg.OK


@pytest.mark.parametrize("marker", [0xC4, 0xDB])
def test_missing_tables_are_damage(marker: int) -> None:
    """No table is made up."""
    assert read(without(WHOLE, marker))[0] == jpeg.DAMAGED


def test_stray_bytes_are_damage() -> None:
    """Between segments stand markers, or bytes to fill."""
    offset = frame_header(WHOLE)
    assert read(WHOLE[:offset] + b"\0" + WHOLE[offset:])[0] == jpeg.DAMAGED
    assert read(WHOLE[:offset] + b"\xff" + WHOLE[offset:])[0] == jpeg.OK


def test_any_byte_may_be_any_other() -> None:
    """No header makes a place outside the image, whatever one of its bytes becomes."""
    scan = int(read(WHOLE)[1].scan)
    frame = make_zero_record(jpeg.FRAME)
    seen = set()
    for index in range(scan):
        for value in (0, 1, 0x7F, 0xC2, 0xFF, WHOLE[index] ^ 0x10):
            data = WHOLE[:index] + bytes([value]) + WHOLE[index + 1 : scan]
            status = read_header(MEMORY.put(data, True), scan, frame)
            if status == jpeg.OK:
                assert frame.quantisers.max() // 2 + 64 <= scan
                assert frame.huffman.max() + 16 <= scan
                assert frame.scan <= scan
            seen.add(status)
    assert seen == {jpeg.OK, jpeg.UNSUPPORTED, jpeg.NOT_JPEG, jpeg.TRUNCATED, jpeg.DAMAGED}
