"""Every leaf format: values, dtypes and shapes, beside what litdata itself gives."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from litdata import Audio, File, Image, Jpeg, Pil, Text, Video
from litdata.streaming.serializers import JsonLeaf, JsonSerializer
from PIL import Image as Pillow
from tests.packer.sources.litdata.streams import read_all, write_stream

from fieldslab.packer import pack
from fieldslab.packer.source import find_source
from fieldslab.packer.sources.litdata.items import RowBytes
from fieldslab.packer.sources.litdata.nested_values import NotNested, decode_nested
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import SourceUnsupported

TORCH = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.uint16,
    torch.complex64,
    torch.complex128,
]
NUMPY = [
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
    np.float16,
    np.float32,
    np.float64,
    np.bool_,
    np.complex64,
    np.complex128,
]
SHAPES = [(), (4,), (2, 3), (1, 2, 3, 2)]


def packed(tmp_path: Path, item: Any, rows: int = 20, **options: Any) -> Any:
    """Every row of a stream of these items, written, packed and gathered."""
    stream = write_stream(tmp_path / "stream", item, rows)
    pack(stream, tmp_path / "out.slab", **options)
    return open_slab(tmp_path / "out.slab").gather(np.arange(rows))


@pytest.mark.parametrize("dtype", TORCH, ids=str)
def test_tensors_of_every_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    """A tensor of any rank becomes a fixed field of its dtype and shape."""

    def item(row: int) -> dict[str, torch.Tensor]:
        counted = {shape: torch.arange(row, row + int(np.prod(shape))) % 2 for shape in SHAPES}
        return {f"x{len(s)}": values.to(dtype).reshape(s) for s, values in counted.items()}

    batch = packed(tmp_path, item)
    for shape in SHAPES:
        actual = batch[f"x{len(shape)}"]
        expected = np.stack([item(row)[f"x{len(shape)}"].numpy() for row in range(20)])
        assert actual.dtype == expected.dtype
        assert actual.shape == (20, *shape)
        assert actual.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", NUMPY)
def test_arrays_of_every_dtype(tmp_path: Path, dtype: Any) -> None:
    """An array becomes a fixed field of its dtype and shape; bytes are kept, NaNs too."""
    rng = np.random.default_rng(1)

    def item(row: int) -> dict[str, np.ndarray]:
        most = 2 if dtype is np.bool_ else 256
        bits = rng.integers(0, most, 6 * np.dtype(dtype).itemsize, np.uint8)
        return {"x": bits.view(dtype).reshape(2, 3), "y": bits.view(dtype)}

    items = [item(row) for row in range(20)]
    batch = packed(tmp_path, lambda row: items[row])
    for name in ("x", "y"):
        expected = np.stack([item[name] for item in items])
        assert batch[name].dtype == expected.dtype
        assert batch[name].tobytes() == expected.tobytes()


def test_arrays_of_any_first_length_are_ragged(tmp_path: Path) -> None:
    """Rows may differ in their first length, down to zero."""

    def item(row: int) -> dict[str, Any]:
        return {
            "boxes": np.full((row % 4, 4), row, np.float32),
            "points": torch.full((row % 3, 2, 2), row),
            "line": torch.arange(row % 5),
            "none": np.zeros((0, 3), np.int16),
        }

    batch = packed(tmp_path, item)
    for row in range(20):
        for name, expected in item(row).items():
            assert np.array_equal(batch[name][row], np.asarray(expected)), (name, row)
    assert batch["boxes"].values.shape[1:] == (4,)


def test_arrays_of_any_inner_length_are_nested(tmp_path: Path) -> None:
    """Rows that differ in another length than the first become lists of lists, or JSON."""
    stream = write_stream(
        tmp_path / "stream", lambda row: {"x": np.full((2, 1 + row % 3), row, np.int8), "y": 1}
    )
    pack(stream, tmp_path / "nested.slab")
    nested = open_slab(tmp_path / "nested.slab")
    assert nested["x"][:].tolist() == [[[row] * (1 + row % 3)] * 2 for row in range(len(nested))]
    pack(stream, tmp_path / "out.slab", cast={"x": "json"})
    assert json.loads(open_slab(tmp_path / "out.slab")[4]["x"]) == [[4, 4], [4, 4]]


@pytest.mark.parametrize("odd", [torch.ones(2, 2).to(torch.int8), torch.ones(2, 2, 2)])
def test_arrays_of_several_types_are_refused(tmp_path: Path, odd: torch.Tensor) -> None:
    """litdata lets dtype and rank change between rows; nothing is cast, the rest packs."""
    for place in (0, 19):
        items = [{"x": torch.ones(2, 2), "y": torch.ones(1, 1)} for _ in range(20)]
        items[place]["x"] = odd
        stream = write_stream(tmp_path / f"{place}", items.__getitem__)
        with pytest.raises(
            SourceUnsupported, match=r"(differs|different types).*field x.*exclude="
        ):
            pack(stream, tmp_path / f"{place}.slab")
        pack(stream, tmp_path / f"{place}.slab", exclude=["x"])


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "CMYK", "I;16", "I", "F"])
def test_raw_pixels_become_arrays(tmp_path: Path, mode: str) -> None:
    """Pillow images that litdata stored as pixels are what numpy makes of them."""
    rng = np.random.default_rng(2)
    pictures = [
        Pillow.frombytes(mode, (5, 3), rng.bytes(len(Pillow.new(mode, (5, 3)).tobytes())))
        for _ in range(20)
    ]
    batch = packed(tmp_path, lambda row: {"p": pictures[row], "row": row})
    expected = np.stack([np.asarray(picture) for picture in pictures])
    assert batch["p"].dtype == expected.dtype
    assert batch["p"].tobytes() == expected.tobytes()


def test_raw_pixels_of_a_palette_are_refused(tmp_path: Path) -> None:
    """litdata drops the palette, so that the pixels would mean nothing."""
    picture = Pillow.new("P", (5, 3))
    stream = write_stream(tmp_path / "stream", lambda row: {"p": Pil(image=picture), "row": row})
    with pytest.raises(SourceUnsupported, match=r"this mode.*field p, .*found P"):
        pack(stream, tmp_path / "out.slab")


def test_media_stay_the_bytes_that_were_written(tmp_path: Path) -> None:
    """No file is decoded, whatever litdata would do with it, and be it no such file at all."""
    files = {
        "jpeg": (Jpeg, {"max_quality": None}),
        "image": (Image, {}),
        "file": (File, {}),
        "video": (Video, {}),
        "audio": (Audio, {}),
    }

    def content(row: int, name: str) -> bytes:
        return f"{name} {row} ".encode() * row

    batch = packed(
        tmp_path,
        lambda row: (
            {
                name: kind(bytes=content(row, name), **options)
                for name, (kind, options) in files.items()
            }
            | {"text": Text(text="ñ" * row)}
        ),
    )
    for name in files:
        assert [bytes(batch[name][row]) for row in range(20)] == [
            content(row, name) for row in range(20)
        ]
    assert [batch["text"][row] for row in range(20)] == ["ñ" * row for row in range(20)]


def test_lists_beside_media_keep_their_type(tmp_path: Path) -> None:
    """Lists of numbers become ragged fields, all other lists and dicts JSON text."""

    def item(row: int) -> dict[str, Any]:
        return {
            "image": Jpeg(bytes=b"\xff\xd8\xff", max_quality=None),
            "boxes": [row / 2] * (row % 3),
            "ids": list(range(row % 4)),
            "flags": [True, False][: row % 3],
            "grid": [[row, row + 1]] * (row % 2),
            "words": ["ä", "b"][: row % 3],
            "people": [{"name": "x", "age": row, "size": 1.5, "ok": True, "more": None}],
            "empty": [],
        }

    stream = write_stream(tmp_path / "stream", item)
    table = read_all(find_source(stream))
    for name in ("boxes", "ids", "flags", "grid"):
        assert table[name].to_pylist() == [item(row)[name] for row in range(20)]
    for name in ("words", "people", "empty"):
        assert isinstance(table.schema.field(name).type, pa.JsonType)
        assert [json.loads(text) for text in table[name].to_pylist()] == [
            item(row)[name] for row in range(20)
        ]
    assert table.drop(["image", "words", "people", "empty"]).to_pylist() == [
        {key: value for key, value in row.items() if key in ("boxes", "ids", "flags", "grid")}
        for row in litdata_rows_of_lists(stream)
    ]


def litdata_rows_of_lists(stream: Path) -> list[dict[str, Any]]:
    """Rows as litdata reads them, with lists left whole."""
    from litdata import StreamingDataset
    from litdata.streaming.serializers import BytesSerializer

    dataset = StreamingDataset(str(stream), serializers={"jpeg": BytesSerializer()})
    return [dataset[row] for row in range(len(dataset))]


NESTED = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=5)
    | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4), inner, max_size=4)
        | st.lists(
            st.fixed_dictionaries({"a": st.text(max_size=3) | st.none(), "b": st.integers()}),
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(st.lists(NESTED, max_size=5) | st.dictionaries(st.text(max_size=4), NESTED, max_size=5))
def test_nested_values_read_as_litdata_reads_them(value: Any) -> None:
    """What litdata's serializer writes, its reader and ours give the same value for."""
    data, _ = JsonSerializer().serialize(JsonLeaf(value))
    assert decode_nested(data) == JsonSerializer().deserialize(data)
    text = json.dumps(value).encode()
    assert decode_nested(text) == value


@given(st.binary(max_size=40), st.integers(0, 11))
def test_nested_values_from_any_bytes_are_a_value_or_an_error(data: bytes, tag: int) -> None:
    """Damaged nested values are told, and no count in them is believed."""
    for damaged in (data, bytes([tag]) + data, bytes([tag]) + b"\xff\xff\xff\x7f" + data):
        try:
            decode_nested(damaged)
        except NotNested:
            continue


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=30),
    st.booleans(),
    st.booleans(),
)
def test_gathered_rows_are_slices(rows: list[tuple[int, int]], same: bool, exact: bool) -> None:
    """Copying many rows together gives what slicing gives, row by row."""
    data = np.random.default_rng(3).integers(0, 256, 2000, np.uint8)
    lengths = np.array([rows[0][0] if same else length for length, _ in rows], np.int64)
    gaps = np.array([rows[0][1] if same else gap for _, gap in rows], np.int64)
    starts = np.cumsum(lengths + gaps) - lengths
    if exact and rows:
        data = data[: starts[-1] + lengths[-1]]
    actual = RowBytes(data, starts, lengths).gather().to_pylist()
    assert actual == [
        data[start : start + length].tobytes()
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
