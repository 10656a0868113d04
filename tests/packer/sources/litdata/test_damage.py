"""Damaged LitData chunks: named errors with chunk and row, never a crash, never a wrong size."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from litdata import Jpeg
from tests.packer.sources.litdata.streams import change_index, chunks, read_all, write_stream

from fieldslab.packer import pack
from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import (
    FieldslabError,
    SourceChanged,
    SourceInconsistent,
    SourceUnreadable,
)


def leaves(row: int) -> dict[str, Any]:
    """An item of every kind of leaf."""
    return {
        "image": Jpeg(bytes=bytes([255, 216, 255, row]) * 9, max_quality=None),
        "x": torch.full((2, 3), row),
        "n": row,
        "text": "text",
        "list": [row, row],
        "flag": True,
    }


def columns(row: int) -> dict[str, Any]:
    """An item that litdata stores in the Arrow layout."""
    return {"image": bytes([255, 216, 255, row]) * 9, "n": row, "text": "text", "list": [row]}


STREAMS: dict[str, tuple[Callable[[int], Any], dict[str, Any]]] = {
    "leaves": (leaves, {}),
    "Arrow": (columns, {}),
    "frames": (leaves, {"compression": "zstd"}),
    "one frame a chunk": (leaves, {"compression": "zstd", "compression_level": "chunk"}),
    "one frame an item": (leaves, {"compression": "zstd", "compression_level": "sample"}),
}


@pytest.fixture(params=STREAMS)
def stream(request: Any, tmp_path: Path) -> Path:
    """A stream of 20 rows in chunks of 8."""
    item, options = STREAMS[request.param]
    return write_stream(tmp_path / "stream", item, 20, 8, **options)


def test_a_chunk_that_is_cut_off_is_named(stream: Path) -> None:
    """Whatever is missing at the end of a chunk, the error names the file."""
    chunk = chunks(stream)[1]
    data = chunk.read_bytes()
    for keep in (0, 3, 10, 40, len(data) // 2, len(data) - 13, len(data) - 1):
        chunk.write_bytes(data[:keep])
        with pytest.raises(SourceUnreadable, match=chunk.name):
            read_all(find_source(stream))


def test_a_cut_off_chunk_names_the_first_row_that_is_lost(tmp_path: Path) -> None:
    """The row is counted through the stream, and told before anything is packed."""
    stream = write_stream(tmp_path / "stream", leaves, 20, 8)
    chunk = chunks(stream)[1]
    data = chunk.read_bytes()
    offsets = struct.unpack_from("<9I", data, 4)
    for row in (0, 3, 7):
        chunk.write_bytes(data[: offsets[row] + 5])
        with pytest.raises(SourceUnreadable, match=rf"{chunk.name}: damaged.*row {8 + row},"):
            find_source(stream)


def test_a_missing_chunk_is_named(stream: Path) -> None:
    """A chunk that the index lists and the directory lacks is told when the stream is opened."""
    chunk = chunks(stream)[2]
    chunk.unlink()
    with pytest.raises(SourceUnreadable, match=f"{chunk.name}: .*No such file"):
        find_source(stream)


def test_sizes_that_contradict_each_other_name_the_row(tmp_path: Path) -> None:
    """A leaf's size that does not add up is told with the row, not read past."""
    stream = write_stream(tmp_path / "stream", leaves, 20, 8)
    source = find_source(stream)
    chunk = chunks(stream)[0]
    data = bytearray(chunk.read_bytes())
    (start,) = struct.unpack_from("<I", data, 4 + 4 * 5)
    data[start] += 1
    rewrite(chunk, bytes(data))
    with pytest.raises(
        SourceUnreadable, match=rf"{chunk.name}: .*row 5, expected 1.., found 1..\)"
    ):
        read_all(source)


def rewrite(path: Path, data: bytes) -> None:
    """New content for a file that looks the same from outside."""
    info = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


@pytest.mark.parametrize(
    ("format", "problem"),
    [
        ("int", "not one number"),
        ("bool", "not one number"),
        ("tensor", "header"),
        ("no_header_tensor:17", "the shape does not match"),
        ("json", "not a list or dict"),
        ("numpy", "header"),
        ("pil", "mode|header"),
    ],
)
def test_leaves_that_are_something_else_name_the_row(
    tmp_path: Path, format: str, problem: str
) -> None:
    """Bytes that are not what the index calls them are an error, with field and row."""
    stream = write_stream(tmp_path / "stream", lambda row: (row, "some text" if row else "t"))
    change_index(stream, lambda index: index["config"].update(data_format=["int", format]))
    with pytest.raises(FieldslabError, match=f"({problem}).*field 1"):
        pack(stream, tmp_path / "out.slab")


def test_array_headers_that_lie_allocate_nothing(tmp_path: Path) -> None:
    """Shapes in a header are believed only where the bytes are there."""
    stream = write_stream(tmp_path / "stream", lambda row: {"x": torch.zeros(2, 3)}, 1, 1)
    (chunk,) = chunks(stream)
    data = chunk.read_bytes()
    offset = data.index(struct.pack(">II", 2, 3))
    for shape in [(2**32 - 1, 2**32 - 1), (0, 2**32 - 1), (2**32 - 1, 0), (3, 3), (0, 0), (6, 1)]:
        chunk.write_bytes(data[:offset] + struct.pack(">II", *shape) + data[offset + 8 :])
        if shape == (6, 1):
            assert read_all(find_source(stream))["x"].to_pylist() == [[[0.0]] * 6]
            continue
        with pytest.raises(FieldslabError, match=r"the shape does not match.*row 0"):
            pack(stream, tmp_path / "out.slab")


def test_frames_must_state_the_size_that_they_have(tmp_path: Path) -> None:
    """A zstd frame that states another size, or none, is not inflated."""
    honest = zstandard.ZstdCompressor()
    silent = zstandard.ZstdCompressor(write_content_size=False)
    stream = write_stream(
        tmp_path / "stream", leaves, compression="zstd", compression_level="chunk"
    )
    for chunk in chunks(stream)[:1]:
        inflated = zstandard.decompress(chunk.read_bytes())
        for data in (silent.compress(inflated), honest.compress(bytes(2**28))):
            chunk.write_bytes(data)
            with pytest.raises(SourceUnreadable, match=rf"{chunk.name}: .*another size"):
                read_all(find_source(stream))
    framed = write_stream(tmp_path / "framed", leaves, compression="zstd")
    chunk = chunks(framed)[0]
    lying = bytearray(chunk.read_bytes())
    offset = 24 + 4 * 9 + 20  # the first frame's uncompressed length
    struct.pack_into("<I", lying, offset, 2**31)
    chunk.write_bytes(lying)
    with pytest.raises(SourceUnreadable, match=rf"{chunk.name}: .*a zstd frame of"):
        read_all(find_source(framed))


def test_a_stream_that_changes_is_told(stream: Path) -> None:
    """A chunk or an index that was rewritten since the stream was opened is an error."""
    for name in (chunks(stream)[1].name, "index.json"):
        source = find_source(stream)
        path = stream / name
        data = path.read_bytes()
        path.write_bytes(data + b" ")
        with pytest.raises(SourceChanged, match=name.replace(".", r"\.")):
            read_all(source)
        path.write_bytes(data)
    source = find_source(stream)
    chunks(stream)[1].unlink()
    with pytest.raises(SourceChanged, match="disappeared"):
        read_all(source)


def test_a_chunk_that_changes_while_it_is_read_is_told(stream: Path) -> None:
    """The last look at a chunk comes after its last row."""
    source = find_source(stream)
    unit = source.units[0]
    reading = source.read(unit, list(range(len(source.schema))), 1)
    next(reading)
    os.utime(unit.name, ns=(1, 1))
    with pytest.raises(SourceChanged):
        list(reading)


def test_an_arrow_part_with_other_columns_is_told(tmp_path: Path) -> None:
    """A column that only an unsampled chunk has is known from the index, or an error."""
    stream = write_stream(
        tmp_path / "stream",
        lambda row: {"a": row} | ({"b": "x"} if row in (20, 23) else {}),
        60,
        10,
    )
    table = read_all(find_source(stream))
    assert table["b"].to_pylist() == ["x" if row in (20, 23) else None for row in range(60)]
    change_index(stream, lambda index: index["config"].update(types=None))
    with pytest.raises(SourceInconsistent, match="columns that the sampled ones do not have"):
        read_all(find_source(stream))


@settings(max_examples=60)
@given(st.data())
@pytest.mark.parametrize("name", STREAMS)
def test_any_damage_is_a_named_error_or_rows_of_the_right_number(
    name: str, tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    """Bytes changed anywhere in a chunk never crash, and never change how many rows there are."""
    folder = tmp_path_factory.getbasetemp() / f"damaged {name}"
    if not folder.exists():
        item, options = STREAMS[name]
        write_stream(folder, item, 5, 8, **options)
        (folder / "whole").write_bytes(chunks(folder)[0].read_bytes())
    whole = (folder / "whole").read_bytes()
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        offset = data.draw(st.integers(0, len(whole) - 1))
        size = data.draw(st.sampled_from([1, 4]))
        value = data.draw(st.binary(min_size=size, max_size=size))
        damaged[offset : offset + size] = value[: len(whole) - offset]
    chunks(folder)[0].write_bytes(damaged)
    rows, error = count_rows(folder)
    if error is None:
        assert rows == 5
    else:
        assert error.context.get("file") or error.context.get("field")
        assert json.dumps(error.as_dict())


def count_rows(folder: Path) -> tuple[int, FieldslabError | None]:
    """Rows that a stream gives until it ends, or until a named error, which is returned."""
    rows = 0
    try:
        source = find_source(folder)
        for unit in source.units:
            for batch in source.read(unit, list(range(len(source.schema))), 2**20):
                rows += batch.num_rows
    except FieldslabError as error:
        return rows, error
    return rows, None
