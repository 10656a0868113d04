"""Resuming: a rerun takes over what was finished, and nothing else."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.packer.packing import (
    ROWS,
    SHARDS,
    batches,
    content,
    interrupt,
    listing,
    pack_shards,
    stop_after,
    table,
)

from fieldslab.packer.options import parse_options
from fieldslab.packer.outputs.commit import Staging, is_whole
from fieldslab.packer.outputs.journal import Journal
from fieldslab.packer.pack_source import pack_plan
from fieldslab.packer.plan import make_plan
from fieldslab.packer.source import Source, Unit
from fieldslab.packer.write.writers import ShardRecord
from fieldslab.schemas.errors import (
    SourceUnreadable,
)
from fieldslab.schemas.folder import get_partial_path


def test_reused_shards_make_the_same_slab(source: Path, out: Path, tmp_path: Path) -> None:
    """A slab that was packed in two runs is, byte for byte, the one packed in one."""
    whole = pack_shards(source, tmp_path / "whole.slab")
    interrupt(source, out, 3)
    packed = pack_shards(source, out)
    assert (packed.reused_shards, whole.reused_shards) == (3, 0)
    assert content(out) == content(whole.path)


def test_nothing_is_reused_for_other_options(source: Path, out: Path) -> None:
    """Other options are another plan: every shard is written anew."""
    interrupt(source, out, 2)
    packed = pack_shards(source, out, fields="x")
    assert packed.reused_shards == 0
    assert [field.name for field in packed.manifest.fields] == ["x"]


def test_nothing_is_reused_of_other_versions(source: Path, out: Path, tmp_path: Path) -> None:
    """Shards that other versions of a library wrote are dropped, and the pack says so."""
    interrupt(source, out, 3)
    path = get_partial_path(out) / "journal.jsonl"
    plan = Journal(path, "").read_plan()
    assert plan is not None
    journal = Journal(path, plan)
    records = journal.read()
    assert all({"fieldslab", "numpy", "pyarrow"} <= record.versions.keys() for record in records)
    older = {**records[1].versions, "pyarrow": "17.0"}
    journal.rewrite([records[0], replace(records[1], versions=older), records[2]])
    packed = pack_shards(source, out)
    assert (packed.reused_shards, packed.dropped_shards) == (2, 1)
    assert "1 finished shards of an earlier run were dropped" in packed.warnings[0]
    assert content(out) == content(pack_shards(source, tmp_path / "whole.slab").path)


@pytest.mark.parametrize("same_size", [True, False])
def test_nothing_is_reused_of_another_source(same_size: bool, source: Path, out: Path) -> None:
    """A source that changed since is packed from its beginning."""
    interrupt(source, out, 2)
    rows = table().slice(0, ROWS if same_size else ROWS - 1)
    rows = rows.set_column(0, "x", pa.array(rows["x"].to_numpy() + 1))
    pq.write_table(rows, source, row_group_size=ROWS // SHARDS)
    packed = pack_shards(source, out)
    assert packed.reused_shards == 0
    assert np.load(out / "shard-00000" / "00-x.values.npy")[0] == rows["x"][0].as_py()


def link_elsewhere(shard: Path) -> None:
    """Leave a link in the place of a shard."""
    elsewhere = shard.parents[2] / "elsewhere"
    shard.rename(elsewhere)
    shard.symlink_to(elsewhere)


def copy_another(shard: Path) -> None:
    """Put another shard, whole in itself, in the place of this one."""
    shutil.rmtree(shard)
    shutil.copytree(shard.with_name("shard-00000"), shard)


@pytest.mark.parametrize(
    "damage",
    [
        lambda shard: os.truncate(shard / "00-x.values.npy", 4100),
        lambda shard: (shard / "01-s.offsets.npy").unlink(),
        lambda shard: (shard / "extra.npy").write_bytes(b"x"),
        lambda shard: (shard / "digests.npy").write_bytes(bytes(4096 + 24)),
        lambda shard: shutil.rmtree(shard),
        link_elsewhere,
        copy_another,
    ],
    ids=["cut", "file lost", "file added", "digests lost", "lost", "link", "another one"],
)
def test_a_damaged_shard_is_not_reused(
    damage: Callable[[Path], Any], source: Path, out: Path, tmp_path: Path
) -> None:
    """A finished shard that is not what the journal says is written anew; the others stay."""
    interrupt(source, out, 3)
    damage(get_partial_path(out) / "slab" / "shard-00001")
    assert pack_shards(source, out).reused_shards == 2
    assert content(out) == content(pack_shards(source, tmp_path / "whole.slab").path)


def test_a_torn_journal(source: Path, out: Path, tmp_path: Path) -> None:
    """Wherever the journal was cut, its whole lines count, and the slab is the same."""
    interrupt(source, out, 3)
    left, kept = get_partial_path(out), tmp_path / "kept"
    left.rename(kept)
    journal = (kept / "journal.jsonl").read_bytes()
    expected = content(pack_shards(source, tmp_path / "whole.slab").path)
    for size in [*range(0, len(journal), 41), len(journal) - 1, len(journal)]:
        shutil.copytree(kept, left)
        os.truncate(left / "journal.jsonl", size)
        packed = pack_shards(source, out)
        assert packed.reused_shards == max(journal[:size].count(b"\n") - 1, 0)
        assert content(out) == expected
        shutil.rmtree(out)


def test_a_torn_line_hides_nothing_that_follows(source: Path, out: Path) -> None:
    """What is finished after a torn line was found is kept as well."""
    interrupt(source, out, 2)
    journal = get_partial_path(out) / "journal.jsonl"
    os.truncate(journal, journal.stat().st_size - 5)
    interrupt(source, out, 3)
    assert pack_shards(source, out).reused_shards == 3


@pytest.mark.parametrize("line", [b"\xff\xfe\n", b"0123 {}\n", b"\n", b"[" * 10_000 + b"\n"])
def test_a_foreign_line_in_the_journal(line: bytes, source: Path, out: Path) -> None:
    """A line that we did not write ends the journal."""
    interrupt(source, out, 2)
    journal = get_partial_path(out) / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:2], line, *lines[2:]]))
    assert pack_shards(source, out).reused_shards == 1


def test_a_record_of_another_form(tmp_path: Path) -> None:
    """A line with a right digest, but of another version of the record, is not believed."""
    record = ShardRecord(0, 1, [], [], "0" * 64, {}, 10, "shard-00000-0", {})
    journal = Journal(tmp_path / "journal", "plan")
    journal.rewrite([record])
    good = journal.path.read_bytes()
    journal.rewrite([])
    other = Journal(tmp_path / "other", '{"index": 1}')
    other.rewrite([])
    journal.path.write_bytes(good + other.path.read_bytes())
    assert journal.read() == [record]
    assert Journal(journal.path, "another plan").read() == []


def test_is_whole_never_follows_links(tmp_path: Path) -> None:
    """A link in the place of a shard, or nothing, is not whole."""
    record = ShardRecord(0, 0, [], [], "0" * 64, {}, 0, "shard-00000-0", {})
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    assert not any(is_whole(tmp_path / name, record) for name in ("link", "empty", "nothing"))


# Streams


class Unbounded(Source):
    """A source that can be read again, and does not say how many rows it has."""

    name = "unbounded"
    rereadable = True

    def __init__(self) -> None:
        self.schema = table().schema
        self.units = [Unit("rows", None, None, None)]

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Batches of a shard each."""
        yield from batches(table())

    def fingerprint(self) -> list[dict[str, Any]]:
        """Always the same."""
        return [{"path": "rows"}]


def test_an_interrupted_stream_that_can_be_read_again(out: Path, tmp_path: Path) -> None:
    """It starts over: no row is in the slab twice."""
    plan = make_plan(Unbounded(), parse_options(shard_size=1000))
    stop = stop_after(2)
    with pytest.raises(KeyboardInterrupt):
        pack_plan(plan, out, progress=lambda rows, bytes: stop(rows, bytes))
    assert pack_plan(plan, out).manifest.rows == ROWS
    pack_plan(plan, tmp_path / "whole.slab")
    assert content(out) == content(tmp_path / "whole.slab")


def test_an_interrupted_stream_leaves_nothing(out: Path) -> None:
    """A stream cannot be read again, so that nothing of it is kept."""
    interrupt(batches(table()), out, 2)
    assert listing(out.parent) == []


def test_a_killed_stream_is_never_mistaken_for_another(out: Path, tmp_path: Path) -> None:
    """Shards of a killed stream do not find their way into the slab of the next one."""
    interrupt(batches(table(1)), out, 2)
    with Staging(out, "p", {}, resumable=True):
        pass
    source = tmp_path / "first.parquet"
    pq.write_table(table(1), source, row_group_size=100)
    interrupt(source, out, 2)  # leaves shards, as a killed stream does
    packed = pack_shards(batches(table(2)), out)
    assert packed.reused_shards == 0
    assert packed.manifest.rows == ROWS
    values = [np.load(path) for path in sorted(out.glob("shard-*/00-x.values.npy"))]
    assert np.concatenate(values).tolist() == table(2)["x"].to_pylist()


def test_an_error_of_the_stream_is_not_one_of_the_output(out: Path) -> None:
    """An OSError while the source is read is not told as if the slab could not be written."""

    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(table().slice(0, 100))
        raise OSError(errno.EIO, "the network is down", "s3://bucket/rows")

    with pytest.raises(SourceUnreadable, match="the network is down"):
        pack_shards(broken(), out)
    assert listing(out.parent) == []
