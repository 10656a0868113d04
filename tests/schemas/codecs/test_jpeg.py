"""Headers of JPEG images: what they state, and a word for whatever else the bytes are."""

import struct

import numpy as np
import pytest
from tests.guarded import Guarded
from tests.jpegs import SAMPLINGS, UNUSUAL, encode, frame_header, photograph

from fieldslab.schemas.codecs import jpeg

PIXELS = photograph(21, 34)
WHOLE = encode(PIXELS, quality=80)
MEMORY = Guarded(20_000)
BLOCKS = {"grey": (1, 1), "4:4:4": (1, 1), "4:2:2": (2, 1), "4:4:0": (1, 2), "4:2:0": (2, 2)}


def read(data: bytes) -> tuple[int, np.ndarray]:
    """Status and header of an image, against a guard page."""
    header = np.empty(jpeg.FIELDS, np.int64)
    return jpeg.read_header(MEMORY.put(data, True), len(data), header), header


def without(data: bytes, marker: int) -> bytes:
    """The image less its segments of one kind."""
    start = bytes([0xFF, marker])
    while start in data:
        at = data.index(start)
        data = data[:at] + data[at + 2 + struct.unpack_from(">H", data, at + 2)[0] :]
    return data


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_header_says_size_sampling_and_where_the_scan_begins(sampling: str) -> None:
    """For each sampling that is supported."""
    data = encode(PIXELS, sampling, restart_marker_blocks=9)
    status, header = read(data)
    assert status == jpeg.OK
    assert header[[jpeg.HEIGHT, jpeg.WIDTH]].tolist() == [21, 34]
    assert header[[jpeg.ACROSS, jpeg.DOWN]].tolist() == list(BLOCKS[sampling])
    assert header[jpeg.COMPONENTS] == (1 if sampling == "grey" else 3)
    assert header[jpeg.INTERVAL] == 9
    scan = data.index(b"\xff\xda")
    assert header[jpeg.SCAN] == scan + 2 + struct.unpack_from(">H", data, scan + 2)[0]


def test_tables_are_found_for_each_component() -> None:
    """Quantisers where DQT has them, Huffman tables where DHT has them."""
    _, header = read(WHOLE)
    quantisers = header[jpeg.QUANTISERS : jpeg.QUANTISERS + 3]
    assert [WHOLE[at // 2] for at in quantisers] == [6, 7, 7]  # of quality 80
    assert (quantisers & 1).tolist() == [0, 0, 0]
    for first, numbers in ((jpeg.DC_TABLE, [0, 1, 1]), (jpeg.AC_TABLE, [4, 5, 5])):
        assert header[first : first + 3].tolist() == numbers
        for number in numbers:
            at = header[jpeg.HUFFMAN + number]
            assert WHOLE[at - 1] == (number // 4) * 16 + number % 4


def test_quantisers_may_have_sixteen_bits() -> None:
    """They say so where they stand."""
    at = frame_header(WHOLE)
    wide = b"\xff\xdb" + struct.pack(">HB", 131, 0x10) + bytes(128)
    status, header = read(WHOLE[:at] + wide + WHOLE[at:])
    assert status == jpeg.OK
    assert header[jpeg.QUANTISERS] == 2 * (at + 5) + 1
    assert header[jpeg.QUANTISERS + 1] % 2 == 0


@pytest.mark.parametrize("kind", UNUSUAL)
def test_other_kinds_are_unsupported(kind: str) -> None:
    """Another decoder is to be asked for them."""
    assert read(UNUSUAL[kind](PIXELS))[0] == jpeg.UNSUPPORTED


@pytest.mark.parametrize("kind", ["progressive", "lossless"])
def test_the_size_is_known_of_unsupported_kinds(kind: str) -> None:
    """So that limits can be told before another decoder is asked."""
    _, header = read(UNUSUAL[kind](PIXELS))
    assert header[[jpeg.HEIGHT, jpeg.WIDTH]].tolist() == [21, 34]


def test_colours_are_told_as_libjpeg_tells_them() -> None:
    """JFIF means Y, Cb and Cr; else Adobe's word counts; else the names of the components."""
    adobe = encode(PIXELS, "4:4:4", keep_rgb=True)
    at = adobe.index(b"Adobe")
    assert read(adobe)[0] == jpeg.UNSUPPORTED
    assert read(adobe[: at + 11] + b"\1" + adobe[at + 12 :])[0] == jpeg.OK
    assert read(without(adobe, 0xEE))[0] == jpeg.UNSUPPORTED  # named R, G and B
    assert read(WHOLE[:20] + without(adobe, 0xEE)[2:])[0] == jpeg.OK
    assert read(without(WHOLE, 0xE0))[0] == jpeg.OK


def test_every_cut_header_is_truncated() -> None:
    """And nothing behind the cut is read."""
    scan = int(read(WHOLE)[1][jpeg.SCAN])
    assert [read(WHOLE[:length])[0] for length in range(3)] == [jpeg.NOT_JPEG] * 3
    assert {read(WHOLE[:length])[0] for length in range(3, scan)} == {jpeg.TRUNCATED}
    assert read(WHOLE[:scan])[0] == jpeg.OK


@pytest.mark.parametrize("marker", [0xC4, 0xDB])
def test_missing_tables_are_damage(marker: int) -> None:
    """No table is made up."""
    assert read(without(WHOLE, marker))[0] == jpeg.DAMAGED


def test_stray_bytes_are_damage() -> None:
    """Between segments stand markers, or bytes to fill."""
    at = frame_header(WHOLE)
    assert read(WHOLE[:at] + b"\0" + WHOLE[at:])[0] == jpeg.DAMAGED
    assert read(WHOLE[:at] + b"\xff" + WHOLE[at:])[0] == jpeg.OK


def test_any_byte_may_be_any_other() -> None:
    """No header makes a place outside the image, whatever one of its bytes becomes."""
    scan = int(read(WHOLE)[1][jpeg.SCAN])
    header = np.empty(jpeg.FIELDS, np.int64)
    seen = set()
    for at in range(scan):
        for value in (0, 1, 0x7F, 0xC2, 0xFF, WHOLE[at] ^ 0x10):
            data = WHOLE[:at] + bytes([value]) + WHOLE[at + 1 : scan]
            status = jpeg.read_header(MEMORY.put(data, True), scan, header)
            if status == jpeg.OK:
                places = header[jpeg.QUANTISERS : jpeg.QUANTISERS + 3] // 2
                assert places.max() + 64 <= scan
                assert header[jpeg.HUFFMAN : jpeg.HUFFMAN + 8].max() + 16 <= scan
                assert header[jpeg.SCAN] <= scan
            seen.add(status)
    assert seen == {jpeg.OK, jpeg.UNSUPPORTED, jpeg.NOT_JPEG, jpeg.TRUNCATED, jpeg.DAMAGED}
