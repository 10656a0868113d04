"""What a LitData stream may not do: run code, import modules, or point out of its directory."""

import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from litdata import Graph, Jpeg
from tests.packer.sources.litdata.streams import (
    change_index,
    chunks,
    is_arrow,
    read_all,
    write_stream,
)

from fieldslab.packer import pack
from fieldslab.packer.source import find_source
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import FieldslabError, SourceUnreadable, SourceUnsupported


class Canary:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.file),)


def _member(*keys: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(index: dict[str, Any]) -> None:
        inner: Any = index
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value

    return change


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    """An object that was not unpickled so far, and is not afterwards."""
    return Canary(tmp_path / "unpickled")


WRITTEN: dict[str, dict[str, Any]] = {
    "plain": {},
    "frames": {"compression": "zstd"},
    "one frame a chunk": {"compression": "zstd", "compression_level": "chunk"},
    "one frame an item": {"compression": "zstd", "compression_level": "sample"},
}

FORMATS = (
    "pickle",
    "graph",
    "graph:pickle",
    "pickle:int",
    "int",
    "float",
    "bool",
    "str",
    "text",
    "bytes",
    "json",
    "file:pickle",
    "image:pickle",
    "jpeg",
    "pil",
    "tensor",
    "numpy",
    "no_header_tensor:17",
    "no_header_numpy:14",
    "no_header_numpy:pickle",
    "jpeg_array",
    "tensor:graph",
    "PICKLE",
    "",
)


def test_the_canary_sings() -> None:
    """Unpickling the canary does leave a file: the other tests would notice."""
    pickled = pickle.dumps(Canary(Path(f"/proc/{os.getpid()}/nowhere")))
    with pytest.raises(OSError, match="nowhere"):
        pickle.loads(pickled)


@pytest.mark.parametrize("options", WRITTEN.values(), ids=WRITTEN)
def test_pickled_leaves_are_refused_by_name(
    tmp_path: Path, canary: Canary, options: dict[str, Any]
) -> None:
    """A leaf of Python objects is refused by name; the others pack when it is left out."""
    stream = write_stream(tmp_path / "stream", lambda row: {"good": row, "bad": canary}, **options)
    with pytest.raises(SourceUnsupported, match=r"never read.*field bad.*exclude=.*bad"):
        pack(stream, tmp_path / "out.slab")
    with pytest.raises(SourceUnsupported, match="field bad"):
        pack(stream, tmp_path / "out.slab", cast={"bad": "json"})
    pack(stream, tmp_path / "out.slab", exclude=["bad"])
    assert open_slab(tmp_path / "out.slab").gather([7])["good"].tolist() == [7]
    assert not canary.file.exists()


@pytest.mark.parametrize("options", WRITTEN.values(), ids=WRITTEN)
def test_an_index_that_lies_about_formats_runs_nothing(
    tmp_path: Path, canary: Canary, options: dict[str, Any]
) -> None:
    """Whatever the index calls a pickled leaf, it is refused, bytes or numbers, never unpickled."""
    stream = write_stream(tmp_path / "stream", lambda row: (row, canary), **options)
    for form in FORMATS:
        change_index(stream, _member("config", "data_format", 1, value=form))
        try:
            pack(stream, tmp_path / "out.slab", force=True)
        except FieldslabError:
            continue
        kind = open_slab(tmp_path / "out.slab").fields["1"].kind
        assert kind in ("binary", "fixed", "ragged"), form  # numbers if the sizes happen to fit
    assert not canary.file.exists()


def test_graphs_are_refused_by_name(tmp_path: Path, canary: Canary) -> None:
    """Graphs hold pickled parts, in both of their forms."""
    whole = write_stream(tmp_path / "whole", lambda row: {"g": Graph(data=canary), "n": row})
    parts = write_stream(tmp_path / "parts", lambda row: {"g": Graph(x=torch.ones(2)), "n": row})
    for stream in (whole, parts):
        with pytest.raises(SourceUnsupported, match=r"field g.*found graph"):
            pack(stream, tmp_path / "out.slab")
    assert not canary.file.exists()


def test_an_index_cannot_call_the_arrow_layout_pickled(tmp_path: Path, canary: Canary) -> None:
    """In the Arrow layout formats are not used: pickled bytes in it stay bytes."""
    pickled = pickle.dumps(canary)
    stream = write_stream(tmp_path / "stream", lambda row: {"a": pickled, "b": row})
    assert is_arrow(stream)
    for form in FORMATS:
        change_index(stream, _member("config", "data_format", 1, value=form))
        assert read_all(find_source(stream))["a"].to_pylist() == [pickled] * 20
    assert not canary.file.exists()


def test_an_arrow_part_of_pickled_types_runs_nothing(tmp_path: Path, canary: Canary) -> None:
    """Arrow's old way to pickle types into a schema is not followed."""
    stream = write_stream(tmp_path / "stream", lambda row: {"a": row}, rows=1)
    metadata = {
        "ARROW:extension:name": "arrow.py_extension_type",
        "ARROW:extension:metadata": pickle.dumps(canary),
    }
    schema = pa.schema([pa.field("a", pa.int64(), metadata=metadata)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array([5])], schema=schema))
    part = sink.getvalue().to_pybytes()
    (chunk,) = chunks(stream)
    head = chunk.read_bytes()[:12]
    chunk.write_bytes(head + part + len(part).to_bytes(4, "little") + b"LDARW01\0")
    change_index(stream, lambda index: index["chunks"][0].update(chunk_bytes=10))
    assert read_all(find_source(stream))["a"].to_pylist() == [5]
    assert not canary.file.exists()


@pytest.mark.parametrize("form", ["mystery", "jpeg_array", "tensor_v2:3", ""])
def test_unknown_formats_are_refused_by_name(tmp_path: Path, form: str) -> None:
    """A format that fieldslab does not know is refused before anything is read of it."""
    stream = write_stream(
        tmp_path / "stream", lambda row: {"a": Jpeg(bytes=b"x", max_quality=None), "b": row}
    )
    change_index(stream, _member("config", "data_format", 0, value=form))
    with pytest.raises(SourceUnsupported, match=r"field a.*exclude=.*a"):
        pack(stream, tmp_path / "out.slab")
    pack(stream, tmp_path / "out.slab", exclude=["a"])


def test_a_tree_in_the_index_imports_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    """The tree of a defaultdict names a module, which is not imported."""
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    stream = write_stream(tmp_path / "stream", lambda row: (row, row + 1))
    context = {"default_factory_module": "evil_module", "default_factory_name": "x"}
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    tree: dict[str, Any] = {"type": "collections.defaultdict", "children_spec": [leaf, leaf]}
    tree["context"] = context | {"dict_context": ["a", "b"]}
    change_index(stream, lambda index: index["config"].update(data_spec=json.dumps([1, tree])))
    assert find_source(stream).schema.names == ["a", "b"]
    assert "evil_module" not in sys.modules


@pytest.mark.parametrize("name", ["../out.bin", "/etc/passwd", "a/../../b", "", "a\nb", 7, None])
def test_chunks_lie_in_the_directory(tmp_path: Path, name: Any) -> None:
    """A chunk's file name that leads out of the directory is refused."""
    stream = write_stream(tmp_path / "stream", lambda row: (row,), rows=2)
    chunks(stream)[0].rename(tmp_path / "out.bin")
    change_index(stream, lambda index: index["chunks"][0].update(filename=name))
    with pytest.raises(SourceUnreadable, match="not a path inside the directory"):
        find_source(stream)


LIES: dict[str, Callable[[dict[str, Any]], None]] = {
    "no config": lambda index: index.pop("config"),
    "no chunks": lambda index: index.pop("chunks"),
    "chunks of text": _member("chunks", value="x"),
    "a chunk that is a number": _member("chunks", 0, value=3),
    "rows as text": _member("chunks", 0, "chunk_size", value="8"),
    "negative rows": _member("chunks", 0, "chunk_size", value=-1),
    "too many rows": _member("chunks", 0, "chunk_size", value=2**40),
    "other rows": _member("chunks", 0, "chunk_size", value=9),
    "true rows": _member("chunks", 0, "chunk_size", value=True),
    "infinite bytes": _member("chunks", 0, "chunk_bytes", value=float("inf")),
    "formats of numbers": _member("config", "data_format", value=[1, 2]),
    "a format too many": _member("config", "data_format", value=["int", "int"]),
    "no formats": _member("config", "data_format", value=None),
    "no tree": _member("config", "data_spec", value=None),
    "a tree that is none": _member("config", "data_spec", value="[1, 5]"),
    "a tree of another protocol": _member("config", "data_spec", value="[2, {}]"),
    "a nested tree": _member(
        "config",
        "data_spec",
        value="[1, " + '{"type": "builtins.list", "context": null, "children_spec": [' * 5000,
    ),
    "a level of its own": _member("config", "compression_level", value="best"),
    "encryption in words": _member("config", "encryption", value="yes"),
    "compression in numbers": _member("config", "compression", value=4),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_an_index_that_contradicts_itself_is_a_named_error(tmp_path: Path, lie: Any) -> None:
    """Damage in the index is told with its file, before anything is allocated for it."""
    stream = write_stream(tmp_path / "stream", lambda row: torch.ones(1, 2), rows=8)
    change_index(stream, lie)
    with pytest.raises(SourceUnreadable, match=r"stream/\S+: damaged"):
        read_all(find_source(stream, "litdata"))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"a": 1}', "[" * 10**5, "\udcff{}"])
def test_an_index_that_is_no_json_is_a_named_error(tmp_path: Path, text: str) -> None:
    """An index that cannot be parsed is told as one."""
    (tmp_path / "index.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(SourceUnreadable, match="damaged LitData index"):
        find_source(tmp_path, "litdata")


@pytest.mark.parametrize("loader", ["TemporalArrayLoader", "MyLoader"])
def test_other_loaders_are_refused_by_name(tmp_path: Path, loader: str) -> None:
    """A stream for a loader with a layout of its own is refused."""
    stream = write_stream(tmp_path / "stream", lambda row: (row,))
    change_index(stream, _member("config", "item_loader", value=loader))
    with pytest.raises(SourceUnsupported, match=f"found {loader}"):
        find_source(stream)


def test_mosaic_shards_are_refused(tmp_path: Path) -> None:
    """litdata reads MosaicML's shards as well; fieldslab does not, and says so."""
    (tmp_path / "index.json").write_text('{"shards": [], "version": 2}')
    with pytest.raises(SourceUnsupported, match="MosaicML"):
        find_source(tmp_path)
