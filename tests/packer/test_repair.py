"""Repair makes every file again what pack wrote, or says what it could not, and harms nothing."""

import errno
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.jpegs import encode, photograph
from tests.naming import case
from tests.repairs import (
    DAMAGE,
    Subject,
    flip_blocks,
    make_subject,
    read_content,
    repair_from,
    run_round,
)
from tests.servers.web import run_web_server
from tests.slabs import array_path, flip

from fieldslab.packer import pack, repair
from fieldslab.packer.write.directories import lock_directory
from fieldslab.reader import open_slab
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import (
    Busy,
    DamagedManifest,
    IncompleteSlab,
    OutputExists,
    SlabChanged,
    UsageError,
)
from fieldslab.schemas.fields import Role
from fieldslab.schemas.folder import get_partial_path
from fieldslab.schemas.manifest import MANIFEST


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """A source and its slab, with fields of every kind."""
    return make_subject(tmp_path_factory.mktemp("subject"))


@pytest.fixture
def slab(subject: Subject, tmp_path: Path) -> Path:
    """A copy of the slab, to be damaged."""
    path = tmp_path / "x.slab"
    subject.restore(path)
    return path


def test_every_kind_of_damage_is_repaired(subject: Subject, slab: Path) -> None:
    """After damage of each kind, all files are as they were, from the source or from a copy."""
    for number, (kind, damage) in enumerate(DAMAGE.items()):
        helper = ("source", "copy")[number % 2]
        with case(kind, helper):
            subject.restore(slab)
            damage(slab, random.Random(number))
            assert repair_from(subject, slab, helper)
            assert read_content(slab) == subject.content


def test_what_was_replaced_is_said(subject: Subject, slab: Path, cli: Any) -> None:
    """Each file is named by what it is to the slab, also where no block of it was damaged."""
    flip(slab / "shard-00001" / "03-vector.values.npy", 9 - HEADER)
    done = cli("repair", slab, "--from", subject.slab)
    first, last = done.out.splitlines()
    assert first.endswith("wrong header (header of values of field vector, shard 1)")
    assert ": header of values of field vector, shard 1 repaired, " in last
    flip(slab / "shard-00000" / "01-text.values.npy", 9)
    (slab / "shard-00001" / "digests.npy").unlink()
    lines = cli("repair", slab, "--from", subject.slab).out.splitlines()
    assert "1 block, damaged (values of field text, shard 0)" in lines[0]
    assert lines[1].endswith("(digest table of shard 1)")
    assert ": 1 block in 1 file; digest table of shard 1 repaired, " in lines[2]
    assert "nothing to repair" in cli("repair", slab, "--from", subject.slab).out


def test_a_thousand_blocks_are_repaired(subject: Subject, slab: Path) -> None:
    """Nearly all blocks of all arrays may be damaged at once."""
    flip_blocks(slab, random.Random(0), 1000)
    report = repair(slab, against=subject.source)
    assert report.ok
    assert report.repaired_blocks > 90
    assert read_content(slab) == subject.content


def test_a_killed_repair_leaves_nothing_worse(subject: Subject, tmp_path: Path) -> None:
    """Each file is as before or as it should be; the next repair ends it and removes leftovers."""
    for number in (0, 6, 14):  # two are killed once, one twice
        with case(number):
            run_round(subject, tmp_path / "x.slab", random.Random(number))


def test_offsets_of_many_blocks_are_repaired(tmp_path: Path) -> None:
    """Offsets are counted on from those in the block in front of the damaged ones."""
    texts = [f"{n}" * (n % 5) for n in range(30_000)]
    pq.write_table(pa.table({"s": texts}), tmp_path / "a.parquet", row_group_size=7000)
    slab = tmp_path / "a.slab"
    pack(tmp_path / "a.parquet", slab)
    content = read_content(slab)
    for blocks in ((0,), (1,), (3,), (1, 2), (0, 1, 2, 3)):
        with case(blocks):
            for block in blocks:
                flip(array_path(slab, "s", "offsets"), block * BLOCK + 8)
                flip(array_path(slab, "s"), 0)
            assert repair(slab, against=tmp_path / "a.parquet").ok
            assert read_content(slab) == content


def test_offsets_in_a_file_of_wrong_size_still_tell_rows(subject: Subject, slab: Path) -> None:
    """Where offsets are right, but their file was cut or grew, values beside them are repaired."""
    pairs: tuple[tuple[Role, Role], ...] = (
        ("offsets", "values"),
        ("points.offsets", "points.values"),
    )
    for role, values in pairs:
        with case(role):
            flip(array_path(slab, "image", values, shard=1))
            with array_path(slab, "image", role, shard=1).open("ab") as file:
                file.write(b"more")
            assert repair(slab, against=subject.source).ok
            assert read_content(slab) == subject.content


def test_rows_that_were_left_out_are_left_out_again(tmp_path: Path) -> None:
    """Where damaged images were left out, the rows behind them keep their places."""
    images = [encode(photograph(64, 64, n % 3), quality=95) for n in range(60)]
    images[5] = images[33] = b"no image"
    table = pa.table({"image": images, "n": np.arange(60)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=20)
    slab = tmp_path / "a.slab"
    pack(tmp_path / "a.parquet", slab, image=["image"], on_error="skip", shard_size=1)
    content = read_content(slab)
    for shard in (0, 1, 2):
        flip(array_path(slab, "n", shard=shard), 40)
        flip(array_path(slab, "image", shard=shard), 900)
    assert repair(slab, against=tmp_path / "a.parquet").ok
    assert read_content(slab) == content


def test_streams_and_sequences_are_repaired(tmp_path: Path) -> None:
    """A source whose units have no known number of rows is read from its beginning."""
    rows = pa.table({"x": np.arange(40_000), "s": [str(n) for n in range(40_000)]})
    slab = tmp_path / "a.slab"
    pack(iter(rows.to_batches(1000)), slab, shard_size="64K")
    content = read_content(slab)
    flip(array_path(slab, "x", shard=2), 10)
    flip(array_path(slab, "s", "offsets", shard=1), 10)
    assert repair(slab, against=iter(rows.to_batches(1000))).repaired_blocks == 1
    assert repair(slab, against=iter(rows.to_batches(1000))).ok
    assert read_content(slab) == content


def test_what_cannot_be_repaired_is_named(subject: Subject, slab: Path, cli: Any) -> None:
    """Where the source has changed, other blocks are repaired; the exit code is that of damage."""
    table = pq.read_table(subject.source)
    numbers = table.column("number").to_pylist()
    numbers[7] = -1
    source = slab.with_name("changed.parquet")
    changed = table.set_column(0, "number", pa.array(numbers, pa.int64()))
    pq.write_table(changed, source, row_group_size=40)
    for name in ("number", "vector"):
        flip(array_path(slab, name))
    before = array_path(slab, "number").read_bytes()
    done = cli("repair", slab, "--against", source, "--json")
    assert done.code == 1
    report = done.json
    assert [Path(file["file"]).name for file in report["repaired"]] == ["03-vector.values.npy"]
    [problem] = report["problems"]
    assert problem["field"] == "number"
    assert array_path(slab, "number").read_bytes() == before
    done = cli("repair", slab, "--against", subject.source)
    assert (done.code, done.out.splitlines()[0][:9]) == (0, "repaired ")
    assert done.out.splitlines()[-1].startswith("OK: ")


def test_a_block_that_a_disk_may_yet_give_is_not_lost(
    subject: Subject, slab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with an unreadable block that nobody has stays; with a copy, it is written anew."""
    file, copy = array_path(slab, "vector"), tmp_path / "copy.slab"
    subject.restore(copy)
    flip(array_path(copy, "vector"), 2 * BLOCK)
    flip(file, 4 * BLOCK)
    inode, read = file.stat().st_ino, os.preadv

    def fail(fd: int, buffers: list[memoryview], offset: int) -> int:
        stop = offset + sum(map(len, buffers))
        bad = HEADER + 2 * BLOCK
        if os.fstat(fd).st_ino == inode and offset <= bad < stop:
            raise OSError(errno.EIO, "Input/output error")
        return read(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", fail)
    report = repair(slab, from_=copy)
    assert not report.ok
    assert not report.repaired
    assert file.stat().st_ino == inode
    assert repair(slab, from_=copy, against=subject.source).repaired_blocks == 2
    assert read_content(slab) == subject.content


def test_a_dry_run_changes_nothing(subject: Subject, slab: Path, cli: Any) -> None:
    """What is damaged is listed, with exit code 1, and every file stays as it is."""
    flip(array_path(slab, "tokens"))
    array_path(slab, "text").unlink()
    before = read_content(slab)
    done = cli("repair", slab, "--dry-run")
    assert done.code == 1
    assert "01-text.values.npy" in done.out
    assert "2 problems found" in done.out.replace("3 problems", "2 problems")
    assert read_content(slab) == before


def test_a_damaged_manifest_comes_from_a_copy(subject: Subject, slab: Path) -> None:
    """No source tells what a manifest was; a copy does, if it is one of this slab."""
    manifest = slab / MANIFEST
    data = bytearray(manifest.read_bytes())
    data[100] ^= 1
    manifest.write_bytes(data)
    with pytest.raises(DamagedManifest, match="name a copy"):
        repair(slab, against=subject.source)
    assert repair(slab, from_=subject.slab).ok
    assert read_content(slab) == subject.content
    manifest.unlink()
    assert repair(slab, from_=subject.slab).ok
    assert read_content(slab) == subject.content
    for path in [manifest, *slab.rglob("digests.npy")]:
        path.unlink()
    with pytest.raises(IncompleteSlab, match="Nothing in the directory shows"):
        repair(slab, from_=subject.slab)


def test_a_copy_of_another_slab_is_refused(subject: Subject, slab: Path, tmp_path: Path) -> None:
    """A copy has the same id, and there must be something to repair from."""
    other = tmp_path / "other.slab"
    pack(subject.source, other, nulls=["number=mask"], fields=["number"])
    with pytest.raises(SlabChanged, match="another slab"):
        repair(slab, from_=other)
    with pytest.raises(UsageError, match="nothing to repair from"):
        repair(slab)
    shuffled = tmp_path / "shuffled.slab"
    pack(subject.source, shuffled, fields=["text"], shuffle=0)
    flip(array_path(shuffled, "text"))
    with pytest.raises(UsageError, match="shuffled"):
        repair(shuffled, against=subject.source)


def test_a_copy_at_a_url_gives_only_what_is_damaged(subject: Subject, slab: Path) -> None:
    """Of a copy on a web server, the manifest, headers, tables and damaged blocks are fetched."""
    flip(array_path(slab, "vector"), 3 * BLOCK)
    flip(array_path(slab, "text", shard=1), 5)
    with run_web_server(subject.slab) as server:
        assert repair(slab, from_=server.url).ok
        fetched = server.count_bytes()
    assert read_content(slab) == subject.content
    assert fetched < len(subject.content[MANIFEST]) + 2 * (BLOCK + HEADER) + 20_000


def test_readers_go_on_and_others_wait(subject: Subject, slab: Path) -> None:
    """Who has the slab open reads on, repaired rows from the next opening on; one repairs."""
    opened = open_slab(slab)
    vectors = np.array(opened["vector"][:5])
    flip(array_path(slab, "tokens"))
    lock = lock_directory(get_partial_path(slab))
    try:
        with pytest.raises(Busy):
            repair(slab, against=subject.source)
    finally:
        os.close(lock)
    assert repair(slab, against=subject.source).ok
    assert (opened["vector"][:5] == vectors).all()
    tokens = opened["tokens"][5]  # mapped only now
    assert (open_slab(slab)["tokens"][5] == tokens).all()
    assert not get_partial_path(slab).exists()
    get_partial_path(slab).write_text("in the way")
    with pytest.raises(OutputExists):
        repair(slab, against=subject.source)


def test_other_files_are_deleted_only_when_told_to(subject: Subject, slab: Path) -> None:
    """A file that does not belong there is a problem that is left, or is deleted."""
    for folder in (slab, slab / "shard-00001"):
        (folder / "notes.txt").write_text("mine")
    assert len(repair(slab, against=subject.source).problems) == 2
    assert len(repair(slab, delete=True).deleted) == 2
    assert repair(slab, dry_run=True).ok


def test_both_a_copy_and_a_source_may_help(subject: Subject, slab: Path, tmp_path: Path) -> None:
    """What is damaged in the copy, too, comes from the source."""
    copy = tmp_path / "copy.slab"
    subject.restore(copy)
    for place in (slab, copy):
        flip(array_path(place, "story"))
    flip(array_path(slab, "wide"))
    report = repair(slab, from_=copy)
    assert (report.repaired_blocks, len(report.problems)) == (1, 1)
    assert repair(slab, from_=copy, against=subject.source).ok
    assert read_content(slab) == subject.content


def test_reports_are_json(subject: Subject, slab: Path) -> None:
    """The report of a repair goes through JSON."""
    flip(array_path(slab, "vector"))
    report = repair(slab, from_=subject.slab)
    members = json.loads(json.dumps(report.as_dict()))
    assert members["repaired"][0]["blocks"] == members["repaired_blocks"] == 1
