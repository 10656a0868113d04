"""Zarr as a source: values as zarr gives them, warnings, and what is refused."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.naming import case
from tests.packer.readback import Readback, difference
from tests.servers.s3 import Bucket
from zarr.codecs import BloscCodec
from zarr.dtype import VariableLengthBytes

import fieldslab.packer.sources.array_source as array_source
from fieldslab.packer import pack
from fieldslab.packer.options import parse_options
from fieldslab.packer.pack_source import pack_plan
from fieldslab.packer.plan import make_plan
from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import (
    SourceChanged,
    SourceInconsistent,
    SourceNotFound,
    SourceUnreadable,
    SourceUnsupported,
)
from fieldslab.schemas.stores.store import open_store

ROWS = 37


@pytest.fixture(params=[2, 3])
def version(request: pytest.FixtureRequest) -> int:
    """A version of the format."""
    return int(request.param)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Zarr warns of dtypes that are not in the standard of version 3."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def make_group(path: Path, version: int) -> Any:
    """A group at a path."""
    return zarr.open_group(path, mode="w", zarr_format=version)  # type: ignore[arg-type]


def test_values(tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dtypes, chunks, byte orders, nested groups and the order of axes keep every value."""
    monkeypatch.setattr(array_source, "WINDOW_BYTES", 700)
    rng = np.random.default_rng(0)
    group = make_group(tmp_path / "x", version)
    arrays: dict[str, Any] = {
        name: rng.integers(0, 99, (ROWS, 3)).astype(name)
        for name in ("i1", "i4", "u8", "f2", "f4", "f8", "c8", ">i4", ">f8")
    }
    arrays["deep/er/bool"] = rng.random(ROWS) < 0.5
    arrays["image"] = rng.integers(0, 256, (ROWS, 4, 5, 3), np.uint8)
    arrays["ms"] = np.arange(ROWS).astype("M8[ms]")
    arrays["text"] = np.array([f"ü{row}" * (row % 3) for row in range(ROWS)])
    for number, (name, array) in enumerate(arrays.items()):
        chunks = (1 + 5 * number, *[max(1, length - 1) for length in array.shape[1:]])
        group.create_array(name, data=array, chunks=chunks, order="F" if number % 2 else "C")
    words = group.create_array("words", shape=(ROWS,), chunks=(8,), dtype=str)
    words[:] = arrays["words"] = np.array([f"漢{row}" for row in range(ROWS)], dtype=object)
    told = {"units": "m, NaN where unknown", "scale_factor": 0.5, "_FillValue": float("nan")}
    group["i4"].attrs.update(told)
    kind = VariableLengthBytes()
    blobs = group.create_array("blobs", shape=(ROWS,), chunks=(8,), dtype=kind)
    blobs[:] = arrays["blobs"] = np.array([b"\0x\xff" * (row % 4) for row in range(ROWS)], object)
    pack(tmp_path / "x", tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert back.fields["i4"]["attributes"] == told | {"_FillValue": "NaN"}
    assert set(back.fields) == set(arrays)
    for name, array in arrays.items():
        with case(name):
            stored = group[name][:]
            if name == "blobs":
                assert back.column(name) == array.tolist()
                continue
            if name in ("text", "words"):
                assert back.column(name) == [str(value) for value in stored]
                continue
            values = array.view("i8") if name == "ms" else stored
            expected = list(values.astype(values.dtype.newbyteorder("<")))
            assert difference(back.column(name), expected) is None
    pack(tmp_path / "x" / "deep", tmp_path / "deep")
    assert list(Readback(tmp_path / "deep").fields) == ["er/bool"]
    pack(tmp_path / "x" / "i4", tmp_path / "one")
    assert list(Readback(tmp_path / "one").fields) == ["i4"]


def test_values_of_any_length_are_read_by_their_size(tmp_path: Path) -> None:
    """Large values are not read all at once: their size is sampled, not that of a reference."""
    group = make_group(tmp_path / "x", 3)
    kind = VariableLengthBytes()
    blobs = group.create_array("x", shape=(400,), chunks=(4,), dtype=kind)
    blobs[:] = np.array([b"%03d" % row + bytes(300_000) for row in range(400)], object)
    source = find_source(tmp_path / "x")
    largest = max(unit.bytes or 0 for unit in source.units)
    assert 20 << 20 < largest < 40 << 20
    assert sum(unit.rows or 0 for unit in source.units) == 400
    batches = source.read(source.units[-1], [0], 1 << 20)
    assert [value.as_py()[:3] for batch in batches for value in batch.column(0)][-1] == b"399"


def test_fill_values_shards_and_dimensions(tmp_path: Path) -> None:
    """Chunks that are not stored are the fill value, with a warning; names of axes are kept."""
    group = make_group(tmp_path / "x", 3)
    array = group.create_array(
        "x", shape=(40, 2), chunks=(5, 2), shards=(10, 2), dtype="f4", fill_value=7,
        dimension_names=["time", "axis"],
    )  # fmt: skip
    array[:15] = 1
    packed = pack(tmp_path / "x", tmp_path / "slab")
    (warning,) = packed.warnings
    assert "chunks are not stored: their rows are the fill value" in warning
    back = Readback(tmp_path / "slab")
    assert np.array_equal(back.values("x"), array[:])
    assert back.fields["x"]["attributes"] == {"dimensions": ["time", "axis"]}
    zarr.consolidate_metadata(tmp_path / "x")
    pack(tmp_path / "x", tmp_path / "again")
    assert np.array_equal(Readback(tmp_path / "again").values("x"), array[:])


def test_refused(tmp_path: Path, version: int) -> None:
    """Codecs that may hold objects are refused by name, as are other lengths and folders."""
    group = make_group(tmp_path / "x", version)
    group.create_array("x", data=np.arange(9), chunks=(4,))
    group.create_array("y", data=np.arange(9), chunks=(4,))
    group.create_array("lat", data=np.arange(3), chunks=(3,))
    with pytest.raises(SourceInconsistent, match="9 rows, as x, y") as lengths:
        pack(tmp_path / "x", tmp_path / "slab")
    assert lengths.value.context["found"] == "lat: 3"
    pack(tmp_path / "x", tmp_path / "slab", exclude="lat")
    metadata = tmp_path / "x" / "x" / ("zarr.json" if version == 3 else ".zarray")
    told = json.loads(metadata.read_text())
    if version == 3:
        told["codecs"].insert(0, {"name": "numcodecs.pickle", "configuration": {}})
    else:
        told["filters"] = [{"id": "pickle", "protocol": 5}]
    metadata.write_text(json.dumps(told))
    with pytest.raises(SourceUnsupported, match="pickle' is not read") as caught:
        pack(tmp_path / "x", tmp_path / "other", exclude="lat")
    assert caught.value.context["field"] == "x"
    metadata.write_text("{")
    with pytest.raises(SourceUnreadable, match="damaged or unreadable metadata of Zarr") as damaged:
        pack(tmp_path / "x", tmp_path / "other")
    assert damaged.value.context["file"] == str(metadata)
    metadata.unlink()
    root = tmp_path / "x" / ("zarr.json" if version == 3 else ".zarray")
    kind = {"zarr_format": version, "node_type": "array", "shape": [3], "codecs": []}
    of_3: list[dict[str, Any]] = [{"attributes": [1]}, {"node_type": "group", "attributes": [1]}]
    wrong: list[dict[str, Any]] = [{"codecs": 5}, {"codecs": [5]}, {"filters": [5]}]
    wrong += [{"compressor": 5}, {"codecs": [{"name": "pickle"}], "shape": 5}]
    for members in [*wrong, *(of_3 if version == 3 else [])]:
        root.write_text(json.dumps(kind | members))
        with case(members), pytest.raises(SourceUnreadable, match="Zarr") as caught_bad:
            pack(tmp_path / "x", tmp_path / "other")
        assert str(caught_bad.value.context["file"]).startswith(str(tmp_path / "x"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceNotFound, match="no Zarr group or array"):
        pack(tmp_path / "empty", tmp_path / "other", from_="zarr")


def test_a_damaged_chunk_is_named(tmp_path: Path, version: int) -> None:
    """The error says which chunk cannot be read, and what the library said."""
    group = make_group(tmp_path / "x", version)
    group.create_array("x", data=np.arange(90), chunks=(10,))
    chunk = tmp_path / "x" / "x" / ("c/4" if version == 3 else "4")
    chunk.write_bytes(chunk.read_bytes()[:-9])
    with pytest.raises(SourceUnreadable, match=rf"Zarr, {chunk.relative_to(tmp_path / 'x/x')}: "):
        pack(tmp_path / "x", tmp_path / "slab")


def test_a_bucket(tmp_path: Path, bucket: Bucket, version: int) -> None:
    """Shards, blosc, missing chunks and globs at URLs; a chunk that is cut off or gone is named."""
    store = open_store(bucket.url, bucket.options)
    options: Any = {"storage_options": bucket.options}
    for name in ("a", "b"):
        group = make_group(tmp_path / f"{name}.zarr", version)
        more: Any = {"shards": (20,)} if version == 3 else {}
        some = group.create_array(
            "some", shape=(40,), dtype="i4", chunks=(10,), fill_value=7, **more
        )
        some[20:] = np.arange(20)
        codec: Any = BloscCodec() if version == 3 else {"id": "blosc"}
        group.create_array("blosc", data=np.arange(40), chunks=(10,), compressors=codec)
        for path in (tmp_path / f"{name}.zarr").rglob("*"):
            if path.is_file():
                store.write(path.relative_to(tmp_path).as_posix(), path)
    expected = pack(f"{tmp_path}/*.zarr", tmp_path / "local")
    packed = pack(f"{bucket.url}/*.zarr", tmp_path / "remote", **options)
    assert packed.manifest.id == expected.manifest.id
    assert [line.rpartition("/")[2] for line in packed.warnings] == [
        line.rpartition("/")[2] for line in expected.warnings
    ]
    assert "chunks are not stored" in packed.warnings[0]
    chunk = "blosc/" + ("c/2" if version == 3 else "2")
    source = find_source(f"{bucket.url}/b.zarr", **options)
    plan = make_plan(source, parse_options())
    data = bytes(store.read(f"b.zarr/{chunk}"))
    store.delete(f"b.zarr/{chunk}")
    with pytest.raises(SourceChanged) as gone:
        pack_plan(plan, tmp_path / "slab")
    assert gone.value.context["file"] == f"{bucket.url}/b.zarr/{chunk}"
    store.write(f"b.zarr/{chunk}", data[:-5])
    with pytest.raises(SourceUnreadable, match=f"Zarr, {chunk[6:]}: it should have") as cut:
        pack(f"{bucket.url}/b.zarr", tmp_path / "slab", **options)
    assert cut.value.context["file"] == f"{bucket.url}/b.zarr/blosc"
    with pytest.raises(SourceNotFound, match="no Zarr group or array"):
        pack(f"{bucket.url}/c.zarr", tmp_path / "slab", from_="zarr", **options)
