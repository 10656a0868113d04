"""What every source of files with rows and columns must do: one battery for all kinds of files."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from tests.naming import case
from tests.packer.packing import content, interrupt, listing, pack_shards
from tests.packer.readback import Readback
from tests.servers.web import WebServer

from fieldslab.packer import pack, verify
from fieldslab.packer.options import parse_options
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.pack_source import pack_plan
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import PartNumber
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.packer.plan import make_plan
from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import NullsFound, SourceChanged, SourceError, SourceInconsistent

Serve = Callable[..., WebServer]
ROWS, FILES = 100, 4


def write_parquet(table: pa.Table, path: Path) -> None:
    """Parquet, two row groups."""
    pq.write_table(table, path, row_group_size=max(1, len(table) // 2))


def write_feather(table: pa.Table, path: Path) -> None:
    """An IPC file with compressed bodies, several record batches."""
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=30)


def write_stream(table: pa.Table, path: Path) -> None:
    """An IPC stream, several record batches."""
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=30)


def write_orc(table: pa.Table, path: Path) -> None:
    """ORC."""
    orc.write_table(table, path, compression="zstd")


def write_csv(table: pa.Table, path: Path) -> None:
    """CSV, compressed where the name says so."""
    with pa.output_stream(path, compression="detect") as stream:
        pc.write_csv(table, stream)


def write_jsonl(table: pa.Table, path: Path) -> None:
    """JSON lines, compressed where the name says so."""
    with pa.output_stream(path, compression="detect") as stream:
        for row in table.to_pylist():
            stream.write(json.dumps(row).encode() + b"\n")


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "a.parquet": write_parquet,
    "a.feather": write_feather,
    "a.arrows": write_stream,
    "a.orc": write_orc,
    "a.csv": write_csv,
    "a.csv.gz": write_csv,
    "a.jsonl": write_jsonl,
    "a.jsonl.zst": write_jsonl,
}
STREAMED_URLS = (".arrows", ".csv", ".gz", ".jsonl", ".zst")
"""Kinds that are read in one pass from URLs, which therefore have no parts."""


def make_table(seed: int, rows: int = ROWS) -> pa.Table:
    """Numbers, text with all signs that formats of text treat specially, and bools."""
    rng = np.random.default_rng(seed)
    words = ["", "a,b", 'say "x"', "two\nlines", "ü 漢 🙂", " spaces ", "\\", "NA", "7"]
    return pa.table(
        {
            "n": rng.integers(-(2**62), 2**62, rows),
            "x": rng.random(rows),
            "s": ["text", *(words[int(n)] for n in rng.integers(0, len(words), rows - 1))],
            "b": rng.random(rows) < 0.5,
        }
    )


@pytest.fixture(params=WRITERS)
def kind(request: pytest.FixtureRequest) -> str:
    """The name of a file of each kind."""
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path, kind: str) -> Path:
    """Some files of a kind."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for number in range(FILES):
        WRITERS[kind](make_table(number), folder / f"{number}{kind[1:]}")
    return folder


def check_values(slab: Path, tables: list[pa.Table]) -> None:
    """Every value is that of the tables, one behind the other, bit for bit."""
    back, table = Readback(slab), pa.concat_tables(tables)
    for name in ("n", "x", "b"):
        expected = table[name].to_numpy()
        assert back.values(name).dtype == expected.dtype
        assert back.values(name).tobytes() == expected.tobytes()
    assert back.column("s") == table["s"].to_pylist()


def test_values_and_slices(tmp_path: Path, folder: Path) -> None:
    """All rows of all files in their order, some rows of them, and some columns."""
    tables = [make_table(number) for number in range(FILES)]
    packed = pack(folder, tmp_path / "slab")
    assert not packed.warnings
    check_values(tmp_path / "slab", tables)
    assert verify(tmp_path / "slab", against=folder).ok
    pack(folder, tmp_path / "some", rows="95:210")
    check_values(tmp_path / "some", [pa.concat_tables(tables)[95:210]])
    pack(folder, tmp_path / "one", fields="s")
    assert list(Readback(tmp_path / "one").fields) == ["s"]
    assert Readback(tmp_path / "one").column("s") == pa.concat_tables(tables)["s"].to_pylist()


def test_partitions(tmp_path: Path, kind: str) -> None:
    """Hive partitions become columns."""
    for day in (1, 2):
        path = tmp_path / "raw" / f"day={day}" / kind
        path.parent.mkdir(parents=True)
        WRITERS[kind](make_table(day), path)
    pack(tmp_path / "raw", tmp_path / "slab")
    check_values(tmp_path / "slab", [make_table(1), make_table(2)])
    assert Readback(tmp_path / "slab").values("day").tolist() == [1] * ROWS + [2] * ROWS
    pack(tmp_path / "raw", tmp_path / "one", fields="day")
    assert Readback(tmp_path / "one").values("day").tolist() == [1] * ROWS + [2] * ROWS


def test_resume(tmp_path: Path, folder: Path) -> None:
    """A pack that is interrupted goes on from its finished shards, to the same slab."""
    expected = content(pack_shards(folder, tmp_path / "expected").path)
    interrupt(folder, tmp_path / "slab", 2)
    assert pack_shards(folder, tmp_path / "slab").reused_shards >= 2
    assert content(tmp_path / "slab") == expected


def test_parts(tmp_path: Path, folder: Path) -> None:
    """Parts of a plan make the slab of one process, each from the plan alone."""
    expected = content(pack(folder, tmp_path / "expected", shard_size=1000).path)
    options, plan = cast(PackOptions, {"shard_size": 1000}), tmp_path / "x.plan"
    write_plan_file([folder], tmp_path / "slab", plan, options)
    for number in (3, 1, 2):
        assert pack_part(plan, PartNumber(number, 3)).shards
    finish_parts(plan)
    assert content(tmp_path / "slab") == expected


def test_a_url(tmp_path: Path, folder: Path, serve: Serve) -> None:
    """Objects give the slab of the files, and one that is replaced meanwhile is named."""
    web = serve(folder)
    urls = [f"{web.url}/{name}" for name in listing(folder)]
    local = pack(folder, tmp_path / "local")
    remote = pack(urls, tmp_path / "remote")
    assert Readback(tmp_path / "remote").manifest["fields"] == [
        *Readback(tmp_path / "local").manifest["fields"]
    ]
    check_values(tmp_path / "remote", [make_table(number) for number in range(FILES)])
    if not urls[0].endswith(STREAMED_URLS):
        assert local.manifest.id == remote.manifest.id
    victim = folder / listing(folder)[3]
    for other in (victim.read_bytes() + b"?", victim.read_bytes()[:-8]):
        web.replaced.clear()
        plan = make_plan(find_source(urls), parse_options())
        web.replaced[victim.name] = other
        with case(len(other)), pytest.raises(SourceChanged) as caught:
            pack_plan(plan, tmp_path / "slab")
        assert caught.value.context["file"] == urls[3]


def test_change(tmp_path: Path, folder: Path, kind: str) -> None:
    """A file that is another one when it is read is named, whatever the new one is."""
    victim = folder / listing(folder)[2]
    original = victim.read_bytes()
    for other in (original[:40], original + b"?", b""):
        victim.write_bytes(original)
        plan = make_plan(find_source(folder), parse_options())
        victim.write_bytes(other)
        with case(other), pytest.raises(SourceChanged) as caught:
            pack_plan(plan, tmp_path / "slab")
        assert caught.value.context["file"] == str(victim)
    WRITERS[kind](make_table(9).select(["n", "x"]), victim)
    with pytest.raises((SourceInconsistent, NullsFound)) as differs:
        pack(folder, tmp_path / "slab")
    if ".jsonl" in kind:  # where a key is missing, it is null
        assert differs.value.context["field"] == "s"
    else:
        assert differs.value.context["file"] == str(victim)
        assert re.search(r"s: \w+ there, missing here", str(differs.value))


def damage(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Files that are cut off, or have a byte that was changed."""
    rng = np.random.default_rng(0)
    for size in (0, 1, 9, *map(int, rng.integers(10, len(data), 10)), len(data) - 1):
        yield f"cut to {size}", data[:size]
    for position in map(int, rng.integers(0, len(data), 40)):
        changed = bytearray(data)
        changed[position] ^= 1 << int(rng.integers(0, 8))
        yield f"changed at {position}", bytes(changed)


def test_damage(tmp_path: Path, folder: Path, kind: str) -> None:
    """A damaged file is a named error, or is read; nothing is left behind."""
    path = folder / listing(folder)[0]
    for name, data in damage(path.read_bytes()):
        path.write_bytes(data)
        with case(name), contextlib.suppress(SourceError):
            pack(path, tmp_path / "slab", force=True)
        assert listing(tmp_path) in (["raw"], ["raw", "slab"])
