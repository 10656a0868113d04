"""Array files: their header, their writer, and the checks in front of every map."""

import errno
import io
import os
import socket
import tempfile
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.naming import case
from tests.slabs import opened

from fieldslab.schemas.arrays import (
    HEADER,
    ArrayWriter,
    count_array_bytes,
    make_array_header,
    map_array,
    view_bytes,
)
from fieldslab.schemas.digest import BLOCK, XXH3
from fieldslab.schemas.errors import DamagedArray, NotASlab
from fieldslab.schemas.fields import DtypeName

DTYPES = [np.dtype(name).newbyteorder("<") for name in get_args(DtypeName)]
SHAPES = [(0,), (1,), (7,), (3, 2), (2, 0, 5), (1, 2, 3, 4, 5)]


def map_path(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Map an array of the field `x`."""
    with opened(path.parent) as folder:
        return map_array(folder, path.name, dtype, shape, "x")


def write(path: Path, items: np.ndarray, *cuts: int) -> np.ndarray:
    """Write an array in pieces that end at `cuts`; returns the digests."""
    writer = ArrayWriter(path, items.dtype, items.shape[1:])
    for piece in np.split(items, cuts):
        writer.append(piece)
    shape, digests = writer.close()
    assert shape == items.shape
    return digests


def test_numpy_reads_every_header() -> None:
    """numpy's own parser takes our header, and finds in it what we put there."""
    for dtype, shape in product(DTYPES, SHAPES):
        data = make_array_header(dtype, shape)
        stream = io.BytesIO(data)
        with case(dtype, shape):
            assert len(data) == HEADER
            assert data[:8] == b"\x93NUMPY\x01\x00"
            assert data[8:10] == (HEADER - 10).to_bytes(2, "little")
            assert data[-1:] == b"\n"
            assert np.lib.format.read_magic(stream) == (1, 0)
            assert np.lib.format.read_array_header_1_0(stream) == (shape, False, dtype)
            assert stream.tell() == HEADER


def test_header_is_numpys_own_text() -> None:
    """Our header is the text that numpy writes, with more spaces behind it."""
    for dtype, shape in product(DTYPES, SHAPES):
        stream = io.BytesIO()
        described = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, described)
        written = stream.getvalue()
        assert make_array_header(dtype, shape)[10:].rstrip() == written[10:].rstrip(), (
            dtype,
            shape,
        )


def test_header_has_room_for_the_largest_shape() -> None:
    """Thirty-one lengths of 2^48 still fit in front of the data."""
    assert len(make_array_header(np.dtype("<c16"), (2**48,) * 31)) == HEADER


def test_numpy_and_we_read_what_was_written(tmp_path: Path) -> None:
    """`numpy.load(mmap_mode="r")` and `map_array` give the array that was written."""
    for number, (dtype, shape) in enumerate(product(DTYPES, SHAPES)):
        path = tmp_path / f"{number}.npy"
        items = np.random.default_rng(1).integers(0, 2, count_array_bytes(dtype, shape), np.uint8)
        items = items.view(dtype).reshape(shape)
        write(path, items)
        with case(dtype, shape):
            loaded = np.load(path, mmap_mode="r", allow_pickle=False)
            mapped = map_path(path, dtype, shape)
            for array in (loaded, mapped):
                assert (array.dtype, array.shape) == (dtype, shape)
                assert array.tobytes() == items.tobytes()
                assert not array.flags.writeable
            assert mapped.flags.c_contiguous


EDGES = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1, 5 * BLOCK + 3]


def test_appending_in_pieces(tmp_path: Path) -> None:
    """However items come, around every edge of a block, file and digests are the same."""
    for size, first in product(EDGES, EDGES):
        path = tmp_path / f"{size}-{first}.npy"
        items = np.random.default_rng(size).integers(0, 256, size, np.uint8)
        cut = min(first, size)
        with case(size, first):
            digests = write(path, items, cut, (cut + size) // 2)
            assert path.read_bytes() == make_array_header(items.dtype, (size,)) + items.tobytes()
            assert digests.tolist() == XXH3.compute_blocks(memoryview(items.data)).tolist()


@given(st.lists(st.integers(0, 3 * BLOCK), max_size=6))
def test_any_pieces(sizes: list[int]) -> None:
    """Any sequence of pieces gives the file and the digests of their sum."""
    items = np.arange(sum(sizes), dtype="<u4").view(np.uint8)[: sum(sizes)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.npy"
        digests = write(path, items, *np.cumsum(sizes).tolist())
        assert path.read_bytes()[HEADER:] == items.tobytes()
    assert digests.tolist() == XXH3.compute_blocks(memoryview(items.data)).tolist()


def test_items_wider_than_a_block(tmp_path: Path) -> None:
    """An item may span blocks, and arrive as a slice that is not contiguous."""
    items = np.arange(6 * 40_000, dtype="<i2").reshape(6, 40_000)
    digests = write(tmp_path / "a.npy", items[::2], 1)
    assert np.load(tmp_path / "a.npy").tolist() == items[::2].tolist()
    assert digests.tolist() == XXH3.compute_blocks(view_bytes(items[::2])).tolist()


def test_writer_never_overwrites(tmp_path: Path) -> None:
    """A file that is there already, or a link, is left alone."""
    (tmp_path / "a.npy").write_bytes(b"precious")
    (tmp_path / "b.npy").symlink_to(tmp_path / "elsewhere")
    for name in ("a.npy", "b.npy"):
        with pytest.raises(FileExistsError):
            ArrayWriter(tmp_path / name, np.dtype("u1"))
    assert (tmp_path / "a.npy").read_bytes() == b"precious"
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("items", [np.zeros(3, "i2"), np.zeros((3, 2), "i4"), np.zeros(3, ">i4")])
def test_writer_casts_nothing(items: np.ndarray, tmp_path: Path) -> None:
    """Items of another dtype, byte order or shape are refused."""
    writer = ArrayWriter(tmp_path / "a.npy", np.dtype("<i4"))
    with pytest.raises(TypeError, match=r"a\.npy"):
        writer.append(items)


def test_writer_keeps_no_descriptor_open(tmp_path: Path) -> None:
    """Thousands of writers at work need no open file each."""
    before = len(os.listdir("/dev/fd"))
    writers = [ArrayWriter(tmp_path / f"{n}.npy", np.dtype("u1")) for n in range(50)]
    for writer in writers:
        writer.append(np.zeros(2 * BLOCK + 1, "u1"))
    assert len(os.listdir("/dev/fd")) == before


ITEMS = np.arange(10, dtype="<i4").reshape(5, 2)


def refuse(path: Path, shape: tuple[int, ...] = (5, 2), dtype: str = "<i4") -> str:
    """The message with which a file is refused."""
    with pytest.raises(DamagedArray) as caught:
        map_path(path, np.dtype(dtype), shape)
    assert str(caught.value).startswith(f"{path}: ")
    assert caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize("size", [0, 1, 10, HEADER - 1, HEADER, HEADER + 39, HEADER + 41, 10**6])
def test_wrong_size_is_refused(size: int, tmp_path: Path) -> None:
    """A file that is a byte too short or too long is refused, with both sizes."""
    write(tmp_path / "a.npy", ITEMS)
    os.truncate(tmp_path / "a.npy", size)
    assert f"expected '{HEADER + 40} bytes', found '{size} bytes'" in refuse(tmp_path / "a.npy")


def test_every_byte_of_the_header_counts(tmp_path: Path) -> None:
    """A header that differs in any one byte is refused, with the offset."""
    write(tmp_path / "a.npy", ITEMS)
    whole = (tmp_path / "a.npy").read_bytes()
    for index in [*range(130), *range(130, HEADER, 97), HEADER - 1]:
        changed = bytearray(whole)
        changed[index] ^= 4
        (tmp_path / "a.npy").write_bytes(changed)
        assert f"wrong header (field x, offset {index}," in refuse(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("<i4", (10,)), ("<i4", (2, 5)), ("<u4", (5, 2)), ("<f4", (5, 2)), ("<i8", (5,))],
)
def test_another_dtype_or_shape_of_the_same_size(
    dtype: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Bytes are never read as something else than what was written."""
    write(tmp_path / "a.npy", ITEMS)
    assert "wrong header" in refuse(tmp_path / "a.npy", shape, dtype)


@pytest.mark.parametrize("shape", [(2**48, 2**48), (2**62,), (2**64,), (2**300, 3)])
def test_giant_shapes_are_refused_unallocated(shape: tuple[int, ...], tmp_path: Path) -> None:
    """A size beyond any memory is compared with the file before anything else is done."""
    write(tmp_path / "a.npy", ITEMS)
    assert "wrong size" in refuse(tmp_path / "a.npy", shape)


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there is damage, with the system's reason."""
    assert os.strerror(errno.ENOENT) in refuse(tmp_path / "a.npy")


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link is refused even where it leads to the right file; so is one that leads nowhere."""
    write(tmp_path / "a.npy", ITEMS)
    (tmp_path / "link.npy").symlink_to("a.npy")
    (tmp_path / "loose.npy").symlink_to("nowhere")
    for name in ("link.npy", "loose.npy"):
        with pytest.raises(NotASlab, match="links in a slab are not followed"):
            map_path(tmp_path / name, ITEMS.dtype, ITEMS.shape)


def test_only_regular_files(tmp_path: Path) -> None:
    """A directory, a pipe (without waiting for a writer), a socket or a device is refused."""
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "socket"))
        for name in ("directory", "pipe", "socket"):
            refuse(tmp_path / name)
    assert "not a regular file" in refuse(Path("/dev/zero"))


def test_refusing_leaves_no_descriptor(tmp_path: Path) -> None:
    """A refused file is closed again; so is one that was mapped."""
    write(tmp_path / "a.npy", ITEMS)
    before = len(os.listdir("/dev/fd"))
    maps = [map_path(tmp_path / "a.npy", ITEMS.dtype, (5, 2)) for _ in range(20)]
    for _ in range(20):
        refuse(tmp_path / "a.npy", (5, 3))
    assert len(os.listdir("/dev/fd")) == before
    assert all(np.array_equal(mapped, ITEMS) for mapped in maps)
