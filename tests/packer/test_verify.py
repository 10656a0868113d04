"""Verify finds whatever is not what pack wrote, and names the rows."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.slabs import (
    Column,
    array_path,
    categorical,
    flip,
    images,
    lie,
    poke,
    ragged,
    redigest,
    write_slab,
)

from fieldslab.packer import Problem, Report, verify
from fieldslab.packer.check import digests
from fieldslab.packer.check.block_check import BlockRuns, check_blocks
from fieldslab.packer.check.sampling import parse_sample
from fieldslab.schemas import native
from fieldslab.schemas.access import find_shard_folder
from fieldslab.schemas.arrays import HEADER, make_array_header
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import IncompleteSlab, NotASlab, UnknownField, UsageError
from fieldslab.schemas.fields import Role
from fieldslab.schemas.folder import load_manifest, open_slab_files
from fieldslab.schemas.manifest import MANIFEST

ROWS = 9
SHARDS = (4, 5)


def columns() -> dict[str, object]:
    """One column of every kind."""
    number = np.arange(ROWS, dtype=np.int64)
    return {
        "number": Column(number, "fixed", "int64", valid=number != 3),
        "flag": number % 2 == 0,
        "vector": np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3),
        "tokens": ragged([range(row) for row in range(1, ROWS + 1)], "int32"),
        "text": [f"row {row}" for row in range(ROWS)],
        "image": images([bytes([row]) * 50 for row in range(ROWS)], np.ones((ROWS, 2), np.uint32)),
        "city": categorical(number % 3, ["Rome", "Oslo", "Lima"]),
        "street": categorical(number % 2, ["Elm", "Oak"], table=True),
    }


@pytest.fixture
def slab(tmp_path: Path) -> Path:
    """A small slab with every kind of field, in two shards."""
    return write_slab(tmp_path / "a.slab", columns(), SHARDS)


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    """A slab of many blocks: 40 rows of 24 KB each as bytes, and as fixed vectors."""
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, (40, 24_000), np.uint8)
    values = {"bytes": [row.tobytes() for row in data], "vector": data}
    return write_slab(tmp_path / "blocks.slab", values, (25, 15))


def the_problem(report: Report) -> Problem:
    """The one problem of a report."""
    assert [str(problem) for problem in report.problems[1:]] == []
    assert not report.ok
    return report.problems[0]


def test_a_whole_slab_is_whole(slab: Path) -> None:
    """Nothing is wrong with what was written; every byte of data was read."""
    report = verify(slab)
    assert report.problems == []
    assert report.ok
    assert (report.rows, report.fields) == (ROWS, 8)
    files = [file for file in slab.rglob("*.npy") if file.name != "digests.npy"]
    assert report.bytes == sum(file.stat().st_size - HEADER for file in files)
    assert str(report).startswith(f"OK: {slab}: 9 rows, 8 fields, ")


def test_a_slab_without_rows_is_whole(tmp_path: Path) -> None:
    """No shards, nothing to check, no problem."""
    assert verify(write_slab(tmp_path / "a.slab", {"x": np.empty(0, np.int32)})).ok


def test_any_flipped_bit_is_found(slab: Path) -> None:
    """A bit of any file, header or data or table or manifest, is found, and its file is named."""
    pick = random.Random(0).randrange
    for file in sorted(path for path in slab.rglob("*") if path.is_file()):
        whole = file.read_bytes()
        places = {0, HEADER - 1, HEADER, len(whole) - 1, pick(len(whole))}
        for place in sorted(place for place in places if place < len(whole)):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << pick(8)
            file.write_bytes(damaged)
            report = verify(slab)
            assert not report.ok, (file, place)
            assert {problem.file for problem in report.problems} == {str(file)}, (file, place)
            file.write_bytes(whole)
    assert verify(slab).ok


@pytest.mark.parametrize(
    ("name", "role", "offset", "shard", "rows"),
    [
        ("number", "values", 0, 1, (4, 8)),
        ("number", "valid", 3, 0, (0, 3)),
        ("vector", "values", 30, 1, (4, 8)),
        ("text", "offsets", 8, 1, (4, 8)),
        ("image", "size", 8, 0, (0, 3)),
        ("street", "categories.values", 4, None, (0, 8)),
    ],
)
def test_rows_of_a_small_array_are_those_of_its_block(
    slab: Path, name: str, role: Role, offset: int, shard: int | None, rows: tuple[int, int]
) -> None:
    """A block of a small array holds every row of the shard; a category table serves all rows."""
    file = array_path(slab, name, role, shard)
    flip(file, offset)
    problem = the_problem(verify(slab))
    assert (problem.field, problem.file, problem.offset) == (name, str(file), HEADER)
    assert problem.rows == rows
    assert problem.expected != problem.found


@pytest.mark.parametrize("block", [0, 1, 4, 8])
def test_rows_of_a_block_of_bytes_come_from_the_offsets(blocks: Path, block: int) -> None:
    """A damaged block names the rows that have bytes in it, and no other."""
    for name in ("bytes", "vector"):
        file = array_path(blocks, name, shard=0)
        flip(file, block * BLOCK + 17)
        problem = the_problem(verify(blocks))
        first, last = block * BLOCK // 24_000, (min((block + 1) * BLOCK, 600_000) - 1) // 24_000
        assert problem.rows == (first, last)
        assert problem.offset == HEADER + block * BLOCK
        flip(file, block * BLOCK + 17)


def test_much_data_is_digested_without_the_lock(
    blocks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is digested by the other code, once a slab is large, is found whole or damaged alike."""
    monkeypatch.setattr(digests, "_digests", digests._digests)  # put back when the test ends
    monkeypatch.setattr(digests, "WORTH", 0)
    assert verify(blocks).ok
    assert digests._digests is native.digest_blocks
    assert verify(blocks).ok
    file = array_path(blocks, "vector", "values", 1)
    for index in (0, BLOCK - 1, 3 * BLOCK + 7, 15 * 24_000 - 1):
        flip(file, index)
        problem = the_problem(verify(blocks))
        assert problem.file == str(file)
        assert problem.offset == HEADER + index // BLOCK * BLOCK
        flip(file, index)


def test_rows_behind_damaged_offsets_are_all_rows(blocks: Path) -> None:
    """Where the offsets are damaged too, a damaged block may hold any row of the shard."""
    flip(array_path(blocks, "bytes", shard=1), 100)
    flip(array_path(blocks, "bytes", "offsets", shard=1), 100)
    report = verify(blocks)
    assert [problem.rows for problem in report.problems] == [(25, 39), (25, 39)]


def test_neighbouring_blocks_are_one_problem(blocks: Path) -> None:
    """A run of damaged blocks takes one line."""
    poke(array_path(blocks, "vector", shard=0), bytes(3 * BLOCK), BLOCK)
    problem = the_problem(verify(blocks))
    assert problem.problem == "3 blocks do not match their digests"
    assert problem.offset == HEADER + BLOCK
    assert problem.rows == (BLOCK // 24_000, (4 * BLOCK - 1) // 24_000)


def test_a_damaged_digest_table_is_told_from_damaged_values(blocks: Path) -> None:
    """A flipped digest is said to be one, with the rows under it, and the values to be intact."""
    table = blocks / "shard-00000" / "digests.npy"
    flip(table, 8 * 3)
    problem = the_problem(verify(blocks))
    assert problem.file == str(table)
    assert problem.offset == HEADER + 8 * 3
    assert problem.problem == (
        "digest table is damaged; the values in 00-bytes.values.npy are intact"
    )
    assert problem.rows == (3 * BLOCK // 24_000, (4 * BLOCK - 1) // 24_000)


def test_a_lost_digest_table_is_told_from_damaged_values(blocks: Path) -> None:
    """Without its digest table, a shard's root still tells whether the values are intact."""
    table = blocks / "shard-00000" / "digests.npy"
    table.unlink()
    assert the_problem(verify(blocks)).problem.endswith("; the values are intact")
    flip(array_path(blocks, "vector", shard=0))
    texts = [problem.problem for problem in verify(blocks).problems]
    assert len(texts) == 2
    assert "not what pack wrote" in texts[1]


def test_damage_of_table_and_values_is_both_named(blocks: Path) -> None:
    """With a damaged table, blocks that differ from it are named all the same."""
    flip(blocks / "shard-00001" / "digests.npy", 0)
    flip(array_path(blocks, "vector", shard=1), 0)
    problems = verify(blocks).problems
    assert [problem.field for problem in problems] == [None, "bytes", "vector"]
    assert "digest table is damaged" in problems[0].problem


def test_a_damaged_manifest_is_a_problem(slab: Path) -> None:
    """The manifest's own checksum covers what no reader needs, too."""
    file = slab / MANIFEST
    file.write_bytes(file.read_bytes().replace(b"2000-01-01", b"2000-01-02"))
    problem = the_problem(verify(slab))
    assert problem.file == str(file)
    assert "checksum" in problem.problem


def _extra_file(slab: Path) -> Path:
    path = slab / "shard-00000" / "notes.txt"
    path.write_text("x")
    return path


def _extra_shard(slab: Path) -> Path:
    path = slab / "shard-00002"
    path.mkdir()
    return path


def _truncated(slab: Path) -> Path:
    path = array_path(slab, "vector", shard=1)
    path.write_bytes(path.read_bytes()[:-4])
    return path


def _longer(slab: Path) -> Path:
    path = array_path(slab, "vector", shard=1)
    path.write_bytes(path.read_bytes() + b"\0")
    return path


def _missing(slab: Path) -> Path:
    path = array_path(slab, "text", shard=0)
    path.unlink()
    return path


def _linked(slab: Path) -> Path:
    path = array_path(slab, "text", shard=0)
    path.rename(slab.parent / "elsewhere.npy")
    path.symlink_to(slab.parent / "elsewhere.npy")
    return path


def _pipe(slab: Path) -> Path:
    path = array_path(slab, "text", shard=0)
    path.unlink()
    os.mkfifo(path)
    return path


def _linked_folder(slab: Path) -> Path:
    path = slab / "shard-00001"
    path.rename(slab.parent / "elsewhere")
    path.symlink_to(slab.parent / "elsewhere")
    return path


def _missing_folder(slab: Path) -> Path:
    path = slab / "shard-00001"
    path.rename(slab.parent / "elsewhere")
    return path


def _swapped(slab: Path) -> Path:
    """Two arrays of one dtype and shape in each other's place."""
    path = array_path(slab, "city", shard=0)
    other = array_path(slab, "street", shard=0)
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (_extra_file, "does not belong here"),
        (_extra_shard, "does not belong here"),
        (_truncated, "wrong size"),
        (_longer, "wrong size"),
        (_missing, "No such file"),
        (_pipe, "not a regular file"),
        (_missing_folder, "No such file"),
        (_swapped, "does not match its digest"),
    ],
)
def test_wrong_files_are_found(slab: Path, damage: Callable[[Path], Path], text: str) -> None:
    """Files that are missing, cut, swapped or too many are found, also by --quick."""
    path = damage(slab)
    for quick in (False, True):
        problems = verify(slab, quick=quick).problems
        assert str(path) in {problem.file for problem in problems}, quick
        assert text in problems[0].problem, quick


@pytest.mark.parametrize("link", [_linked, _linked_folder])
def test_links_are_refused_unless_they_are_followed(
    slab: Path, link: Callable[[Path], Path]
) -> None:
    """A link in a slab ends the check with what to do; followed, it is what it leads to."""
    path = link(slab)
    with pytest.raises(NotASlab, match=r"links in a slab are not followed.*cp -RL") as caught:
        verify(slab)
    assert caught.value.context["file"] == path
    assert verify(slab, follow_links=True).ok


def test_harmless_files_are_no_problem(slab: Path) -> None:
    """What file managers and network file systems leave behind is let be."""
    for name in (".DS_Store", ".nfs00001", "Thumbs.db", "desktop.ini"):
        (slab / name).write_text("x")
        (slab / "shard-00000" / name).write_text("x")
    assert verify(slab).ok


@pytest.mark.parametrize(
    ("name", "role", "values", "text", "row"),
    [
        ("tokens", "offsets", np.array([0, 1, 9, 6, 10], "<u8"), "offsets do not rise", 2),
        ("tokens", "offsets", np.array([1, 1, 3, 6, 10], "<u8"), "offsets do not rise", 0),
        ("tokens", "offsets", np.array([0, 1, 3, 6, 9], "<u8"), "offsets do not rise", 3),
        ("text", "offsets", np.array([0, 5, 10, 2**63, 20], "<u8"), "offsets do not rise", 2),
        ("flag", "values", np.array([1, 0, 2, 0], "u1"), "neither 0 nor 1", 2),
        ("number", "valid", np.array([1, 1, 255, 0], "u1"), "neither 0 nor 1", 2),
        ("city", "values", np.array([0, 1, 3, 0], "<i4"), "a code has no category", 2),
        ("street", "values", np.array([0, -2, 1, 0], "<i4"), "a code has no category", 1),
    ],
)
def test_rules_hold_even_where_digests_agree(
    slab: Path, name: str, role: Role, values: np.ndarray, text: str, row: int
) -> None:
    """Offsets, flags and codes are checked themselves: digests agree with a bad writer's bytes."""
    file = array_path(slab, name, role)
    poke(file, values)
    redigest(slab)
    ways: list[dict[str, Any]] = [{}, {"quick": True}, {"sample": "100%"}]
    for way in ways:
        with case(way):
            problem = the_problem(verify(slab, **way))
            assert text in problem.problem
            assert problem.file == str(file)
            assert problem.rows is not None
            assert problem.rows[0] <= row <= problem.rows[1]


def test_nulls_are_counted(slab: Path) -> None:
    """A validity array with other nulls than the manifest counts is a problem."""
    poke(array_path(slab, "number", "valid"), np.array([1, 0, 1, 0], "u1"))
    redigest(slab)
    problem = the_problem(verify(slab))
    assert (problem.expected, problem.found) == ("1", "2")


def test_offsets_are_followed_from_block_to_block(tmp_path: Path) -> None:
    """Offsets that decrease from one block to the next are found, whatever is read at a time."""
    slab = write_slab(tmp_path / "a.slab", {"t": ["x"] * 20_000})
    per_block = BLOCK // 8
    offsets = np.arange(20_001, dtype="<u8")
    offsets[per_block - 1] = 20_000
    poke(array_path(slab, "t", "offsets"), offsets)
    redigest(slab)
    for part in (1, 2, 3, 4):
        report = verify(slab, sample=f"{part}/4")
        assert report.ok == (part != 3)
    assert not verify(slab).ok


def test_quick_does_not_read_values(slab: Path) -> None:
    """With `quick`, damaged values pass and damaged offsets do not."""
    flip(array_path(slab, "vector"))
    assert verify(slab, quick=True).ok
    assert verify(slab, quick=True).bytes < verify(slab).bytes
    flip(array_path(slab, "text", "offsets"))
    assert the_problem(verify(slab, quick=True)).field == "text"


def test_parts_of_a_sample_cover_every_block_once(blocks: Path) -> None:
    """Of t parts, exactly one finds a damaged block; together they read every byte."""
    flip(array_path(blocks, "vector", shard=1), BLOCK)
    reports = [verify(blocks, sample=f"{part}/7") for part in range(1, 8)]
    assert sum(not report.ok for report in reports) == 1
    assert sum(report.bytes for report in reports) == verify(blocks).bytes


def test_a_random_sample_reads_its_share(blocks: Path) -> None:
    """A share or a size reads about so many blocks; all of them find any damage."""
    whole = verify(blocks).bytes
    assert BLOCK < verify(blocks, sample="25%").bytes < whole / 2
    assert 4 * BLOCK < verify(blocks, sample="512K").bytes <= 8 * BLOCK
    assert verify(blocks, sample="1T").bytes == whole
    flip(array_path(blocks, "bytes"), 5)
    assert not verify(blocks, sample="100%").ok


@pytest.mark.parametrize("sample", ["0.1%", "33%", "100%", "64K", "1/1", "2/3"])
def test_a_sample_never_leaves_its_blocks(sample: str) -> None:
    """Chosen runs lie inside, rise, and do not overlap."""
    for total in (0, 1, 10, 1000):
        runs = list(parse_sample(sample, total)(0, total))
        edges = [edge for run in runs for edge in run]
        assert edges == sorted(set(edges)) or all(a < b for a, b in runs), total
        assert all(0 <= start < stop <= total for start, stop in runs), total
        if total and sample != "2/3":
            assert runs, total


@pytest.mark.parametrize("sample", ["", "5", "0%", "101%", "0/3", "4/3", "x%", "1/0", "5 %%", 0.5])
def test_a_sample_that_means_nothing_is_refused(slab: Path, sample: object) -> None:
    """Anything but a share, a part or a size is a usage error; a bare number is bytes or not."""
    if sample == "5":
        assert verify(slab, sample=sample).ok
        return
    with pytest.raises(UsageError, match="sample"):
        verify(slab, sample=sample)  # type: ignore[arg-type]


def test_quick_and_sample_exclude_each_other(slab: Path) -> None:
    """A call that contradicts itself is a usage error."""
    with pytest.raises(UsageError, match="quick"):
        verify(slab, quick=True, sample="5%")


def test_only_chosen_fields_are_checked(slab: Path) -> None:
    """`fields` takes names and patterns; an unknown one is an error that lists the fields."""
    flip(array_path(slab, "vector"))
    assert verify(slab, fields="number,t*").ok
    assert verify(slab, fields=["t*"]).fields == 2
    assert not verify(slab, fields=["vector"]).ok
    with pytest.raises(UnknownField, match="number, flag"):
        verify(slab, fields="vektor")


def test_problems_are_counted_beyond_those_kept(slab: Path) -> None:
    """`max_errors` bounds what is kept and told, not what is counted."""
    for name in ("number", "flag", "vector", "tokens"):
        flip(array_path(slab, name))
    told: list[Problem] = []
    report = verify(slab, max_errors=3, tell=told.append)
    assert report.count == 4
    assert told == report.problems
    assert len(told) == 3
    assert str(report).startswith(f"FAILED: 4 problems in {slab}, 3 of them shown; ")


def test_progress_adds_up(slab: Path) -> None:
    """Progress is told of every byte that the report counts."""
    steps: list[int] = []
    report = verify(slab, progress=lambda rows, bytes: steps.append(bytes))
    assert sum(steps) == report.bytes


def test_what_is_no_slab_is_an_error(tmp_path: Path) -> None:
    """There is nothing to report on: the error says what is there instead."""
    with pytest.raises(NotASlab, match="does not exist"):
        verify(tmp_path / "nothing.slab")
    (tmp_path / "half.slab" / "shard-00000").mkdir(parents=True)
    with pytest.raises(IncompleteSlab):
        verify(tmp_path / "half.slab")


def test_a_failing_read_is_a_problem(slab: Path) -> None:
    """What the system says when a read fails becomes a problem with rows and offset."""
    folder = find_shard_folder(open_slab_files(slab), 1, first_row=4)
    file = next(file for file in folder.files if file.field.name == "vector")
    fd = os.open(folder.path / file.name, os.O_WRONLY)  # every read of it fails
    try:
        checked = check_blocks(fd, BlockRuns(folder, file, ((0, 1),), None))
    finally:
        os.close(fd)
    (problem,) = checked.problems
    assert problem.problem == "cannot be read: Bad file descriptor"
    assert (problem.rows, problem.offset, problem.field) == ((4, 8), HEADER, "vector")


def test_giant_counts_are_not_believed(slab: Path) -> None:
    """A manifest that claims 2^40 rows costs no memory: the files are too small."""
    manifest = load_manifest(slab)
    shard = manifest.shards[0]
    huge = type(shard)(2**40, shard.elements, shard.nulls, shard.root)
    lie(slab, rows=2**40, shards=(huge,))
    report = verify(slab)
    assert report.count >= 8
    assert all(problem.file is not None for problem in report.problems)


def test_problems_are_one_line_each(tmp_path: Path) -> None:
    """A name that would act upon a terminal is escaped in a problem's line."""
    slab = write_slab(tmp_path / "a.slab", {"evil\x1b[31m\nname": np.arange(3)})
    flip(array_path(slab, "evil\x1b[31m\nname"))
    line = str(the_problem(verify(slab)))
    assert line.isprintable()
    assert line.startswith(r"evil\x1b[31m\nname rows 0..2: ")


def test_quick_does_not_blame_arrays_for_a_damaged_table(slab: Path) -> None:
    """Where the digest table is damaged and values are not read, only the table is told."""
    table = slab / "shard-00001" / "digests.npy"
    for entry in range((table.stat().st_size - HEADER) // 8):
        flip(table, 8 * entry)
        problem = the_problem(verify(slab, quick=True))
        assert problem.file == str(table)
        assert "only a full verify can tell" in problem.problem
        flip(table, 8 * entry)
    assert verify(slab).ok


def test_a_failed_report_says_what_to_do(slab: Path) -> None:
    """The verdict ends with what to do about it; that of a whole slab does not."""
    assert verify(slab).hint is None
    flip(array_path(slab, "number"))
    assert str(verify(slab)).endswith(
        "`fieldslab repair` repairs it from a copy or from the source."
    )


def _sparse(slab: Path, blocks: int) -> Path:
    """A slab of a fixed field whose values and digest table were never written, resealed."""
    rows = blocks * BLOCK // 8
    manifest = load_manifest(slab)
    shard = type(manifest.shards[0])(rows, (), (), manifest.shards[0].root)
    lie(slab, rows=rows, shards=(shard,))
    for file, dtype, items in (
        (array_path(slab, "x"), "<i8", rows),
        (slab / "shard-00000/digests.npy", "<u8", blocks),
    ):
        file.write_bytes(make_array_header(np.dtype(dtype), (items,)))
        os.truncate(file, HEADER + 8 * items)
    return slab


def test_holes_are_not_read(tmp_path: Path) -> None:
    """A file of a TiB that was never written is told damaged without reading it."""
    slab = _sparse(write_slab(tmp_path / "a.slab", {"x": np.arange(9)}), 2**24)
    report = verify(slab)
    problems = [problem.problem for problem in report.problems]
    assert any("never written" in problem for problem in problems)
    assert report.bytes == 2**40


def test_holes_are_checked_like_zeros(tmp_path: Path) -> None:
    """Zeros that were never written are right where they should be zeros, else they are not."""
    rows = 1200 * BLOCK // 8
    slab = write_slab(tmp_path / "a.slab", {"x": np.zeros(rows, np.int64)})
    file, content = array_path(slab, "x"), np.zeros(1, np.int64).tobytes()
    with file.open("r+b") as opened:
        opened.truncate(HEADER)
        opened.truncate(HEADER + 8 * rows)
    assert file.stat().st_blocks * 512 < 2**20
    assert verify(slab).ok
    poke(file, b"\1", 600 * BLOCK)  # in the midst of the hole
    assert the_problem(verify(slab)).rows == (600 * BLOCK // 8, 601 * BLOCK // 8 - 1)
    poke(file, content, 600 * BLOCK)
    assert verify(slab).ok
    slab = write_slab(tmp_path / "b.slab", {"x": np.ones(rows, np.int64)})
    file = array_path(slab, "x")
    with file.open("r+b") as opened:
        opened.truncate(HEADER + BLOCK)
        opened.truncate(HEADER + 8 * rows)
    report = verify(slab)
    rows_wrong = [problem.rows for problem in report.problems if problem.rows]
    assert min(first for first, _ in rows_wrong) == BLOCK // 8
    assert max(last for _, last in rows_wrong) == rows - 1
    assert sum(last - first + 1 for first, last in rows_wrong) == rows - BLOCK // 8
