"""LitData streams: what litdata wrote comes out as litdata itself reads it."""

import hashlib
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from litdata import Jpeg
from litdata.streaming.item_loader import TokensLoader
from litdata.utilities.encryption import FernetEncryption
from tests.forking import run_python
from tests.packer.sources.litdata.streams import (
    change_index,
    chunks,
    is_arrow,
    litdata_rows,
    read_all,
    write_stream,
    write_tokens,
)

from fieldslab.packer import pack
from fieldslab.packer.source import find_source
from fieldslab.packer.sources.litdata.source import LitDataOpener
from fieldslab.packer.sources.parquet.source import ParquetSource
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import (
    SourceInconsistent,
    SourceUnreadable,
    UsageError,
)

ROOT = Path(__file__).parents[4]
PHOTOS = pq.read_table(ROOT / "examples" / "photos.parquet", columns=["image"])
JPEGS: list[bytes] = [
    value["bytes"] if isinstance(value, dict) else value
    for value in PHOTOS.column("image").slice(0, 40).to_pylist()
]


def photo(row: int) -> dict[str, Any]:
    """The usual item: an encoded picture, two numbers and a path."""
    return {"image": JPEGS[row], "label": row % 7 - 3, "index": row, "path": f"größe/{row:04}.jpg"}


def media(row: int) -> dict[str, Any]:
    """The same, with the picture as litdata's media type: another layout on disk."""
    return photo(row) | {"image": Jpeg(bytes=JPEGS[row], max_quality=None)}


def mixed(row: int) -> dict[str, Any]:
    """Arrays, text of any length, numbers and flags."""
    return {
        "x": torch.arange(6).reshape(2, 3) + row,
        "y": np.full((2, 2), row / 4, np.float16),
        "z": torch.tensor([1.0, row]),
        "text": "ü" * (row % 31),
        "blob": bytes(range(row % 29)),
        "flag": row % 3 == 0,
        "ratio": row / 8,
    }


LAYOUTS = {"arrow": photo, "leaves": media}

WRITTEN: dict[str, dict[str, Any]] = {
    "plain": {},
    "frames of items": {"compression": "zstd"},
    "one frame a chunk": {"compression": "zstd", "compression_level": "chunk"},
    "one frame an item": {"compression": "zstd", "compression_level": "sample"},
}

ITEMS: dict[str, Callable[[int], Any]] = {
    "tuple": lambda row: (row, "a" * row, bytes(row), row / 2, row % 2 == 0),
    "list": lambda row: [row, {"a": row, "b": -row}],
    "one leaf": lambda row: row,
    "one leaf of bytes": lambda row: bytes(row),
    "nested": lambda row: {"a": {"b": row, "c": "x"}, "t": (row, torch.ones(2, row % 2 + 1))},
    "flat, Arrow": lambda row: {"a": row, "b": f"r{row}", "c": row / 2, "d": bytes(row)},
    "nested, Arrow": lambda row: {"a": {"b": row, "c": {"d": f"r{row}"}}, "e": row % 2 == 0},
}


@pytest.mark.parametrize("item", [photo, media])
def test_pictures_with_labels_keep_names_bytes_and_dtypes(tmp_path: Path, item: Any) -> None:
    """The usual stream packs to the same names, each picture to the byte, label to int64."""
    stream = write_stream(tmp_path / "stream", item, rows=40)
    assert is_arrow(stream) == (item is photo)
    pack(stream, tmp_path / "out.slab")
    slab = open_slab(tmp_path / "out.slab")
    assert list(slab.fields) == ["image", "label", "index", "path"]
    batch = slab.gather(np.arange(len(slab)))
    actual = [hashlib.sha256(batch["image"][row]).hexdigest() for row in range(40)]
    assert actual == [hashlib.sha256(jpeg).hexdigest() for jpeg in JPEGS]
    assert batch["label"].dtype == np.int64
    assert batch["label"].tolist() == [row % 7 - 3 for row in range(40)]
    assert slab[33]["path"] == "größe/0033.jpg"


@pytest.mark.parametrize("options", WRITTEN.values(), ids=WRITTEN)
def test_every_compression_reads_as_litdata_reads_it(tmp_path: Path, options: Any) -> None:
    """Leaves come out the same however litdata compressed the chunks."""
    stream = write_stream(tmp_path / "stream", mixed, **options)
    actual = read_all(find_source(stream)).to_pylist()
    # litdata inflates whole chunks where they lie and removes them: it reads after us.
    assert actual == litdata_rows(stream)


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("item", ITEMS.values(), ids=ITEMS)
def test_every_shape_of_item_reads_as_litdata_reads_it(
    tmp_path: Path, item: Any, compression: str | None
) -> None:
    """Names and values are those of the item, in both layouts, compressed or not."""
    stream = write_stream(tmp_path / "stream", item, compression=compression)
    source = find_source(stream)
    # litdata cannot read the tuples and lists that it wrote with compression="zstd".
    expected = litdata_rows(write_stream(tmp_path / "plain", item))
    actual = read_flat(source)
    assert actual.column_names == list(expected[0])
    assert actual.to_pylist() == expected


def read_flat(source: Any) -> pa.Table:
    """Every row, structs flattened as `pack` flattens them."""
    table = read_all(source)
    while any(pa.types.is_struct(kind) for kind in table.schema.types):
        table = table.flatten()
    return table


def test_the_arrow_layout_of_every_codec(tmp_path: Path) -> None:
    """litdata compresses the Arrow part where text prevails; it reads the same."""
    stream = write_stream(
        tmp_path / "stream",
        lambda row: {"a": "same " * 50, "b": row},
        rows=600,
        chunk=600,
        compression="zstd",
    )
    assert is_arrow(stream)
    assert json.loads((stream / "index.json").read_text())["config"]["ipc_compression"] == "zstd"
    table = read_all(find_source(stream), [1])
    assert table.column_names == ["b"]
    assert table["b"].to_pylist() == list(range(600))


def test_a_small_batch_gives_the_same_rows(tmp_path: Path) -> None:
    """The size of batches does not change what is read, and a row larger than it comes alone."""
    for name, item in LAYOUTS.items():
        source = find_source(write_stream(tmp_path / name, item, rows=12, chunk=5))
        whole = read_all(source, batch=2**30)
        assert read_all(source, batch=1).equals(whole)
        batches = list(source.read(source.units[0], [0], 1))
        assert [batch.num_rows for batch in batches] == [1] * 5


def test_nulls_of_the_arrow_layout_are_nulls(tmp_path: Path) -> None:
    """A missing value is a null, also where a chunk's column holds nothing else."""
    stream = write_stream(
        tmp_path / "stream", lambda row: {"a": None if row < 10 else f"r{row}", "b": row}, chunk=5
    )
    with pytest.raises(Exception, match=r'nulls=\{"a": "mask"\}'):
        pack(stream, tmp_path / "out.slab")
    pack(stream, tmp_path / "out.slab", nulls={"a": "mask"})
    batch = open_slab(tmp_path / "out.slab").gather([3, 12])
    assert batch.valid["a"].tolist() == [False, True]


def test_a_column_of_two_types_is_refused_by_name(tmp_path: Path) -> None:
    """litdata infers types for each chunk: where they differ, nothing is cast."""
    stream = write_stream(
        tmp_path / "stream", lambda row: {"a": {"x": 1} if row < 10 else {"y": 1}}, chunk=5
    )
    with pytest.raises(SourceInconsistent, match=r"another type.*field a, .*struct.*x: .*y: "):
        find_source(stream)


def correct_sizes(stream: Path, index: dict[str, Any]) -> None:
    """Let the index say how large each chunk file is."""
    for entry in index["chunks"]:
        entry["chunk_bytes"] = (stream / entry["filename"]).stat().st_size


def test_a_chunk_in_another_layout_is_refused(tmp_path: Path) -> None:
    """A stream put together from both layouts is refused, whichever comes first."""
    arrow, leaves = (write_stream(tmp_path / name, photo_or) for name, photo_or in LAYOUTS.items())
    for stream, other in ((arrow, leaves), (leaves, arrow)):
        mixed_up = Path(shutil.copytree(stream, tmp_path / f"{stream.name} with {other.name}"))
        shutil.copy(chunks(other)[-2], chunks(mixed_up)[-2])
        change_index(mixed_up, partial(correct_sizes, mixed_up))
        with pytest.raises(SourceInconsistent, match="another layout"):
            read_all(find_source(mixed_up))


# Tokens


@pytest.mark.parametrize("dtype", [torch.uint16, torch.int64])
def test_tokens_are_documents_or_blocks(tmp_path: Path, dtype: torch.dtype) -> None:
    """Without a block a row is a document; with one, rows are what TokensLoader gives."""
    documents = [torch.arange(row * 10, row * 10 + 1 + row % 17).to(dtype) for row in range(60)]
    stream = write_tokens(tmp_path / "stream", lambda row: documents[row], 60, 150)
    source = find_source(stream)
    assert source.schema.names == ["tokens"]
    assert read_all(source)["tokens"].to_pylist() == [document.tolist() for document in documents]
    blocks = find_source(stream, settings={"block": 32})
    expected = litdata_rows(stream, item_loader=TokensLoader(block_size=32))
    assert [row["tokens"] for row in read_all(blocks).to_pylist()] == [r["value"] for r in expected]
    pack(stream, tmp_path / "ragged.slab")
    assert open_slab(tmp_path / "ragged.slab").fields["tokens"].kind == "ragged"
    done = pack(stream, tmp_path / "fixed.slab", settings={"block": 32})
    assert open_slab(tmp_path / "fixed.slab").fields["tokens"].shape == (32,)
    tokens = sum(map(len, documents))
    left_out = tokens - 32 * len(expected)
    assert f"{left_out} of {tokens} tokens left out" in " ".join(done.warnings)


def test_a_block_is_for_tokens(tmp_path: Path) -> None:
    """A block is refused where the stream was not written for TokensLoader."""
    stream = write_stream(tmp_path / "stream", photo)
    with pytest.raises(UsageError, match=r"block.*PyTreeLoader"):
        LitDataOpener([str(stream)], block=32)
    with pytest.raises(UsageError, match=r"key\"\]: the stream is not encrypted"):
        LitDataOpener([str(stream)], key="key.json")
    with pytest.raises(UsageError, match=r"key_password_file.* needs .*key"):
        LitDataOpener([str(stream)], key_password_file="password")
    tokens = write_tokens(tmp_path / "tokens", lambda row: torch.arange(9), 9, 30)
    with pytest.raises(UsageError, match="at least 1"):
        LitDataOpener([str(tokens)], block=0)


# Encrypted, remote, Parquet


@pytest.mark.parametrize("level", ["chunk", "sample"])
def test_encrypted_chunks_need_their_key(tmp_path: Path, level: Any) -> None:
    """Encrypted chunks are refused without a key, or with another, and read with the right one."""
    lock = FernetEncryption("a secret", level)
    lock.save(str(tmp_path / "key.json"))
    (tmp_path / "password").write_text("a secret\n")
    (tmp_path / "wrong").write_text("a guess\n")
    stream = write_stream(tmp_path / "stream", mixed, encryption=lock)
    with pytest.raises(UsageError, match=r"the stream is encrypted.*key.*FILE"):
        find_source(stream)
    key = str(tmp_path / "key.json")
    with pytest.raises(SourceUnreadable, match="wrong key or password"):
        LitDataOpener([str(stream)], key=key, key_password_file=str(tmp_path / "wrong"))
    with pytest.raises(UsageError, match=r"key\"\]: cannot be opened"):
        LitDataOpener([str(stream)], key=str(tmp_path / "none"))
    with pytest.raises(UsageError, match=r"key\"\]: not a key"):
        LitDataOpener([str(stream)], key=str(tmp_path / "password"))
    source = LitDataOpener([str(stream)], key=key, key_password_file=str(tmp_path / "password"))
    assert read_all(source).to_pylist() == litdata_rows(stream, encryption=lock)


@pytest.mark.parametrize("options", WRITTEN.values(), ids=WRITTEN)
def test_a_remote_stream_is_downloaded_by_litdata(tmp_path: Path, options: Any) -> None:
    """A stream behind a URL reads the same as the directory, and leaves nothing behind."""
    stream = write_stream(tmp_path / "stream", mixed, **options)
    expected = read_all(find_source(stream))
    before = sorted(path.name for path in stream.iterdir())
    assert read_all(find_source(f"local:{stream}")).equals(expected)
    assert sorted(path.name for path in stream.iterdir()) == before
    with pytest.raises(SourceUnreadable, match="cannot be downloaded"):
        find_source(f"local:{tmp_path}/nowhere")


def test_reading_leaves_the_stream_as_it_was(tmp_path: Path) -> None:
    """Nothing is written to, renamed in or removed from the directory."""
    for number, options in enumerate(WRITTEN.values()):
        stream = write_stream(tmp_path / str(number), mixed, **options)
        before = {path: path.read_bytes() for path in stream.iterdir()}
        read_all(find_source(stream))
        assert {path: path.read_bytes() for path in stream.iterdir()} == before


def test_an_index_of_parquet_goes_to_parquet(tmp_path: Path) -> None:
    """Where the index is one of Parquet files, these are read, in the order of the index."""
    for name, first in {"b.parquet": 0, "a.parquet": 3}.items():
        table = pa.table({"a": pa.array(range(first, first + 3), pa.int16())})
        pq.write_table(table, tmp_path / name)
    entry = {"chunk_bytes": 400, "chunk_size": 3, "dim": None}
    config = {"data_format": ["Int16"], "data_spec": None, "item_loader": "ParquetLoader"}
    index = {"chunks": [entry | {"filename": n} for n in ("b.parquet", "a.parquet")]}
    (tmp_path / "index.json").write_text(json.dumps(index | {"config": config}))
    source = find_source(tmp_path, "litdata")
    assert isinstance(source, ParquetSource)
    assert read_all(source)["a"].to_pylist() == [0, 1, 2, 3, 4, 5]
    assert source.schema.field("a").type == pa.int16()


def test_parquet_beside_an_index_goes_where_it_belongs(tmp_path: Path) -> None:
    """A stream with a Parquet file of keys is a stream; an index of something else is none."""
    stream = write_stream(tmp_path / "stream", photo)
    (stream / "keys").mkdir()
    pq.write_table(pa.table({"key": [1]}), stream / "keys" / "shard-00000.parquet")
    assert find_source(stream).name == "litdata"
    pq.write_table(pa.table({"key": [1]}), tmp_path / "a.parquet")
    (tmp_path / "index.json").write_text('{"pages": []}')
    assert find_source(tmp_path / "a.parquet").name == "parquet"
    shutil.rmtree(stream)
    assert find_source(tmp_path).name == "parquet"


# Packing


def test_the_slab_does_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    """The source goes to other processes by its paths, and the slabs have the same id."""
    stream = write_stream(tmp_path / "stream", media, rows=40)
    single = pack(stream, tmp_path / "one.slab", shard_size="100K")
    two = pack(stream, tmp_path / "two.slab", shard_size="100K", jobs=2)
    assert len(single.manifest.shards) > 2
    assert single.manifest.id == two.manifest.id


def test_a_source_survives_pickling(tmp_path: Path) -> None:
    """What a worker process gets reads the same rows."""
    for name, options in WRITTEN.items():
        source = find_source(write_stream(tmp_path / name, mixed, **options))
        assert read_all(pickle.loads(pickle.dumps(source))).equals(read_all(source))


def test_arrays_that_differ_from_the_sampled_ones_are_named(tmp_path: Path) -> None:
    """A row of another length is an error with its number, and packs where rows may differ."""
    stream = write_stream(
        tmp_path / "stream", lambda row: {"x": torch.ones(5 if row == 15 else 4, 3)}, 60, 10
    )
    with pytest.raises(SourceInconsistent, match=r"field x, row 15.*tensor=.*float32\[\*,3\]"):
        pack(stream, tmp_path / "out.slab", shard_size="100")
    pack(stream, tmp_path / "out.slab", tensor={"x": "f4[*,3]"})
    lengths = open_slab(tmp_path / "out.slab").gather(np.arange(60))["x"].lengths
    assert lengths.tolist() == [4] * 15 + [5] + [4] * 44


def test_optimize_writes_what_is_read(tmp_path: Path) -> None:
    """A stream from `litdata.optimize` itself, with its worker process, packs."""
    code = (
        "import sys, litdata\n"
        "def item(row):\n"
        "    return {'row': row, 'text': 'x' * row}\n"
        "if __name__ == '__main__':\n"
        "    litdata.optimize(item, list(range(50)), sys.argv[1], num_workers=1, "
        "chunk_bytes='1KB', start_method='fork')\n"
    )
    (tmp_path / "program.py").write_text(code)
    run_python(tmp_path / "program.py", tmp_path / "stream")
    pack(tmp_path / "stream", tmp_path / "out.slab")
    batch = open_slab(tmp_path / "out.slab").gather(np.arange(50))
    assert sorted(batch["row"].tolist()) == list(range(50))
    assert [len(batch["text"][index]) for index in range(50)] == batch["row"].tolist()


def test_importing_the_packer_loads_neither_litdata_nor_torch() -> None:
    """The library is loaded where a stream needs it, and not before."""
    code = (
        "import sys, fieldslab.packer, fieldslab.packer.sources.litdata.source; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / ".ns")},
    )
    assert not {"torch", "litdata"} & set(done.stdout.split())


def test_without_litdata_the_error_says_what_to_install(tmp_path: Path) -> None:
    """A stream that needs the library names the command that installs it."""
    arrays = write_stream(tmp_path / "arrays", mixed)
    tokens = write_tokens(tmp_path / "tokens", lambda row: torch.arange(9), 9, 30)
    code = (
        "import sys\n"
        "sys.modules['litdata'] = None\n"
        "from fieldslab.packer.source import find_source\n"
        "from fieldslab.schemas.errors import SourceUnsupported\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        find_source(path)\n"
        "    except SourceUnsupported as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, arrays, tokens],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / ".ns")},
    )
    assert done.stdout.count("pip install 'litdata>=0.2.76' 'zstd>=1.5'") == 2
