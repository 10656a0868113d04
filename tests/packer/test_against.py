"""Verify --against: every value of a slab compared with the source it was packed from."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.slabs import array_path, poke

from fieldslab.packer import Problem, Report, pack, verify
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import SourceUnreadable
from fieldslab.schemas.folder import load_manifest

ROWS = 400
JPEG = b"\xff\xd8\xff\xc0\x00\x0b\x08" + bytes([0, 9, 0, 7]) + bytes(12)
OPTIONS: dict[str, Any] = {
    "nulls": ["weight=mask", "caption=mask", "late=0"],
    "rename": ["label=class"],
    "cast": ["small=f4"],
    "stack": ["x=x_*"],
    "compress": ["caption"],
}


def source() -> dict[str, Any]:
    """Columns of many kinds, with nulls."""
    rng = np.random.default_rng(0)
    number = np.arange(ROWS)
    vectors = pa.array(rng.integers(0, 99, ROWS * 6), pa.float32())
    lengths = rng.integers(0, 9, ROWS)
    return {
        "label": number % 5,
        "weight": [None if row % 10 == 3 else row / 8 for row in range(ROWS)],
        "small": number / 4,
        "late": [None if row > 390 else row for row in range(ROWS)],
        "caption": [None if row % 50 == 0 else f"row {row}" * (row % 4) for row in range(ROWS)],
        "tokens": pa.array(
            [rng.integers(0, 99, n).tolist() for n in lengths], pa.list_(pa.int32())
        ),
        "vector": pa.FixedSizeListArray.from_arrays(vectors, 6),
        "picture": [JPEG + bytes([row % 256]) * (row % 5) for row in range(ROWS)],
        "city": pa.array([f"city {row % 7}" for row in range(ROWS)]).dictionary_encode(),
        "x_0": number.astype(np.float32),
        "x_1": -number.astype(np.float32),
    }


def write(path: Path, columns: dict[str, Any], group: int = 90) -> Path:
    """Write columns as Parquet in several row groups."""
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source as Parquet."""
    return write(tmp_path_factory.mktemp("source") / "a.parquet", source())


@pytest.fixture(scope="module")
def slab(parquet: Path) -> Path:
    """The source, packed into several shards with options of all kinds; not to be changed."""
    path = parquet.with_name("a.slab")
    pack(parquet, path, shard_size=2000, **OPTIONS)
    assert len(load_manifest(path).shards) > 2
    return path


@pytest.fixture
def own(slab: Path, tmp_path: Path) -> Path:
    """A copy of the slab, to be damaged."""
    return Path(shutil.copytree(slab, tmp_path / "own.slab"))


def the_problem(report: Report) -> Problem:
    """The one problem of a report."""
    assert [str(problem) for problem in report.problems[1:]] == []
    assert not report.ok
    return report.problems[0]


def changed(column: str, change: Callable[[list[Any]], None]) -> dict[str, Any]:
    """The source with one column changed."""
    columns = source()
    kept = pa.table(columns)[column].type
    values = pa.table(columns)[column].to_pylist()
    change(values)
    return columns | {column: pa.array(values, kept)}


def test_what_was_packed_equals_its_source(slab: Path, parquet: Path) -> None:
    """Packed with the recorded options again, every value is the same."""
    report = verify(slab, against=parquet)
    assert report.problems == []
    assert report.scope == "compared with the source"


def test_cuts_of_the_source_do_not_matter(slab: Path, tmp_path: Path) -> None:
    """Other row groups, other files, an object in memory: the values count alone."""
    columns = source()
    assert verify(slab, against=write(tmp_path / "b.parquet", columns, group=37)).ok
    table = pa.table(columns)
    for part in range(4):
        pq.write_table(table.slice(part * 100, 100), tmp_path / f"part-{part}.parquet")
    assert verify(slab, against=[str(tmp_path / "part-*.parquet")]).ok
    assert verify(slab, against=table).ok


def test_a_slab_of_rows_is_compared_with_these_rows(tmp_path: Path, parquet: Path) -> None:
    """The recorded --rows and --fields choose what is compared."""
    pack(parquet, tmp_path / "b.slab", fields="label,tokens", rows="95:301", shard_size=500)
    assert verify(tmp_path / "b.slab", against=parquet).ok


def test_a_slab_packed_from_memory_is_compared_with_files(tmp_path: Path, parquet: Path) -> None:
    """What was packed from a table can be compared with the same rows in a file."""
    pack(pa.table(source()), tmp_path / "b.slab", **OPTIONS)
    assert verify(tmp_path / "b.slab", against=parquet).ok


def test_damaged_values_are_found_without_digests(own: Path, parquet: Path) -> None:
    """Values are compared even where no digest was looked at, and the place is named."""
    file = array_path(own, "small", shard=1)
    first = load_manifest(own).shards[0].rows
    poke(file, np.array([0.5, 0.5], "<f4"), 4 * 3)
    assert verify(own, quick=True).ok
    problem = the_problem(verify(own, quick=True, against=parquet))
    assert problem.field == "small"
    assert problem.rows == (first + 3, first + 4)
    assert (problem.file, problem.offset) == (str(file), HEADER + 4 * 3)
    assert (problem.expected, problem.found) == (str((first + 3) / 4), "0.5")


def _set(row: int, value: Any) -> Callable[[list[Any]], None]:
    def change(values: list[Any]) -> None:
        values[row] = value

    return change


@pytest.mark.parametrize(
    ("column", "field", "value", "text", "expected", "found"),
    [
        ("label", "class", 77, "value", "77", "1"),
        ("weight", "weight", 99.0, "value", "99.0", "25.125"),
        ("weight", "weight", None, "only one is null", "null", "a value"),
        ("caption", "caption", "row 2x1", "element 5", "120", "48"),
        ("caption", "caption", "longer", "length", "6 bytes", "7 bytes"),
        ("tokens", "tokens", [1] * 20, "length", "20 elements", "{} elements"),
        ("vector", "vector", [0.0] * 6, "element 0", "0.0", "{}"),
        ("picture", "picture", JPEG + b"z", "element 23", "122", "201"),
        ("city", "city", "city 0", "value", "0", "5"),
        ("x_1", "x", 5.0, "element 1", "5.0", "-201.0"),
    ],
)
def test_one_changed_value_is_found(
    slab: Path,
    tmp_path: Path,
    column: str,
    field: str,
    value: Any,
    text: str,
    expected: str,
    found: str,
) -> None:
    """A single value that differs is named: field, row, where in it, both values."""
    columns = changed(column, _set(201, value))
    problem = the_problem(verify(slab, against=write(tmp_path / "b.parquet", columns)))
    assert (problem.field, problem.rows) == (field, (201, 201))
    assert f"first in row 201: {text}" in problem.problem
    was = pa.table(source())[column][201].as_py()
    held: dict[str, Any] = {"tokens": lambda: len(was), "vector": lambda: np.float32(was[0])}
    shown = found.format(held[column]()) if column in held else found
    assert (problem.expected, problem.found) == (expected, shown)


def test_runs_of_rows_are_joined_over_batches_and_shards(slab: Path, tmp_path: Path) -> None:
    """A column that differs throughout is one problem, not one a row."""

    def change(values: list[Any]) -> None:
        values[:] = [value + 1 for value in values]

    report = verify(slab, against=write(tmp_path / "b.parquet", changed("label", change)))
    assert the_problem(report).rows == (0, ROWS - 1)


def test_rows_that_differ_apart_are_apart(slab: Path, tmp_path: Path) -> None:
    """Runs with equal rows between them are problems of their own, all counted."""

    def change(values: list[Any]) -> None:
        values[::4] = [-1] * len(values[::4])

    path = write(tmp_path / "b.parquet", changed("label", change))
    report = verify(slab, against=path, max_errors=3)
    assert report.count == ROWS // 4
    assert [problem.rows for problem in report.problems] == [(0, 0), (4, 4), (8, 8)]


def test_missing_and_added_rows_are_found(slab: Path, tmp_path: Path) -> None:
    """A source with more or fewer rows is said to have them; the common ones are compared."""
    table = pa.table(source())
    for part in (table.slice(0, 350), pa.concat_tables([table, table.slice(0, 1)])):
        pq.write_table(part, tmp_path / "b.parquet")
        for against in (tmp_path / "b.parquet", part):
            problem = the_problem(verify(slab, against=against))
            assert problem.problem == "source and slab differ in rows"
            assert (problem.expected, problem.found) == (str(part.num_rows), str(ROWS))


def test_other_fields_are_found(slab: Path, tmp_path: Path) -> None:
    """Fields that one of both lacks, or that are of another type, are named; the rest compared."""
    columns = source() | {"new": np.arange(ROWS), "label": np.arange(ROWS, dtype=np.int8) % 5}
    del columns["tokens"]
    report = verify(slab, against=write(tmp_path / "b.parquet", columns))
    texts = {problem.field: problem.problem for problem in report.problems}
    assert texts == {
        "class": "the field differs from the one in the source",
        "tokens": "the source has no such field",
        "new": "the slab lacks this field of the source",
    }
    assert verify(slab, against=tmp_path / "b.parquet", fields="vector,city").ok


def test_other_categories_are_found(tmp_path: Path) -> None:
    """Categories that no row uses are compared, too."""
    before = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", "b", "c"]))
    after = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", "b", "d"]))
    pack(pa.table({"k": before}), tmp_path / "a.slab")
    assert verify(tmp_path / "a.slab", against=pa.table({"k": before})).ok
    problem = the_problem(verify(tmp_path / "a.slab", against=pa.table({"k": after})))
    assert (problem.field, problem.expected, problem.found) == ("k", "'d'", "'c'")


def test_a_source_that_can_no_longer_be_packed_is_a_problem(slab: Path, tmp_path: Path) -> None:
    """New nulls, or a column that an option names and that is gone, are mismatches, not crashes."""
    nulls = changed("label", _set(300, None))
    report = verify(slab, against=write(tmp_path / "b.parquet", nulls))
    assert "cannot be packed as this slab was: " in the_problem(report).problem
    report = verify(slab, against=pa.table(nulls))
    problem = the_problem(report)
    assert "cannot be packed as this slab was: " in problem.problem
    assert problem.rows == (300, 300)
    gone = source()
    del gone["small"]
    report = verify(slab, against=write(tmp_path / "b.parquet", gone))
    assert "no such column" in the_problem(report).problem


def test_a_missing_source_is_an_error(slab: Path, tmp_path: Path) -> None:
    """Nothing to compare with is no mismatch."""
    with pytest.raises(SourceUnreadable):
        verify(slab, against=tmp_path / "nothing.parquet")


def test_damage_does_not_end_the_comparison(own: Path, parquet: Path) -> None:
    """A field whose files are broken is named, and the others are compared."""
    array_path(own, "vector", shard=0).unlink()
    poke(array_path(own, "small", shard=0), b"\xff")
    fields = {problem.field for problem in verify(own, against=parquet).problems}
    assert fields == {"vector", "small"}
