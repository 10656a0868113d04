"""Every Arrow type that is packed as it is, in every layout that Arrow and Parquet can give it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import naming
from tests.packer.cases import CASES, ROWS, Case, writable
from tests.packer.readback import Readback, difference

from fieldslab.packer import pack
from fieldslab.schemas.errors import NullsFound


def table_of(cases: Iterable[Case], rows: Callable[[Case], Sequence[Any]]) -> pa.Table:
    """A table with one column a case."""
    return pa.table({case.name: case.build(list(rows(case))) for case in cases})


def check(slab: Path, cases: Iterable[Case], rows: Callable[[Case], Sequence[Any]]) -> None:
    """Every field of a slab is what its case says, row by row and bit by bit."""
    back = Readback(slab)
    wrong = {}
    for case in cases:
        field = {"dtype": "uint8", "shape": []} | back.fields[
            case.name
        ]  # the defaults are left out
        told = {"kind": case.kind} | case.told
        actual = {key: field.get(key) for key in told}
        if actual != told:
            wrong[case.name] = f"{actual}, not {told}"
        elif problem := difference(back.column(case.name), case.expected(rows(case))):
            wrong[case.name] = problem
    assert wrong == {}


def every(case: Case) -> Sequence[Any]:
    """All rows of a case."""
    return case.rows


def holed(case: Case) -> Sequence[Any]:
    """The rows of a case with nulls between them."""
    return [None if index % 4 in (1, 2) else row for index, row in enumerate(case.rows)]


def _plain(table: pa.Table) -> Any:
    return table


def _sliced(table: pa.Table) -> Any:
    return pa.Table.from_batches([table.combine_chunks().to_batches()[0].slice(3, 13)])


def _chunked(table: pa.Table) -> Any:
    batch = table.combine_chunks().to_batches()[0]
    cuts = [0, 1, 1, 4, 11, 11, ROWS]
    return pa.Table.from_batches([batch.slice(a, b - a) for a, b in pairwise(cuts)])


def _batches(table: pa.Table) -> Any:
    return iter(_chunked(table).to_batches())


def _reader(table: pa.Table) -> Any:
    return _chunked(table).to_reader()


def _ipc(table: pa.Table) -> Any:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=5):
            writer.write_batch(batch)
    return pa.ipc.open_file(sink.getvalue())


MEMORY = {
    "table": _plain,
    "sliced": _sliced,
    "chunked": _chunked,
    "batches": _batches,
    "reader": _reader,
    "ipc": _ipc,
}
PARQUET = [case for case in CASES if case.parquet]


@pytest.mark.parametrize("nulls", [False, True], ids=["full", "nulls"])
@pytest.mark.parametrize("layout", MEMORY)
def test_arrow(tmp_path: Path, layout: str, nulls: bool) -> None:
    """Every type comes out of memory bit for bit, whatever the layout of the batches."""
    rows = holed if nulls else every
    table = table_of(CASES, rows)
    cut = slice(3, 16) if layout == "sliced" else slice(None)
    pack(MEMORY[layout](table), tmp_path / "slab", nulls="*=mask")
    check(tmp_path / "slab", CASES, lambda case: rows(case)[cut])


def _one_file(table: pa.Table, folder: Path) -> Any:
    pq.write_table(table, folder / "a.parquet", row_group_size=5)
    return folder / "a.parquet"


def _one_group(table: pa.Table, folder: Path) -> Any:
    pq.write_table(
        table,
        folder / "a.parquet",
        data_page_version="2.0",
        compression="zstd",
        use_dictionary=False,
        write_page_checksum=True,
        data_page_size=64,
        write_batch_size=3,
    )
    return folder / "a.parquet"


def _several_files(table: pa.Table, folder: Path) -> Any:
    cuts = [0, 7, 7, 8, ROWS]
    for index, (start, stop) in enumerate(pairwise(cuts)):
        part = table.slice(start, stop - start)
        columns = part.schema.names if index % 2 else part.schema.names[::-1]
        pq.write_table(part.select(columns), folder / f"{index}.parquet", row_group_size=3)
    return folder


def _empty_groups(table: pa.Table, folder: Path) -> Any:
    """Row groups without rows at the start, in the middle and at the end."""
    with pq.ParquetWriter(folder / "a.parquet", table.schema) as writer:
        for start, rows in ((0, 0), (0, 9), (9, 0), (9, ROWS - 9), (0, 0)):
            writer.write_table(table.slice(start, rows), row_group_size=None)
    groups = pq.ParquetFile(folder / "a.parquet").metadata
    assert 0 in [groups.row_group(index).num_rows for index in range(groups.num_row_groups)]
    return folder / "a.parquet"


FILES = {
    "row groups": _one_file,
    "pages": _one_group,
    "files": _several_files,
    "empty groups": _empty_groups,
}


@pytest.mark.parametrize("nulls", [False, True], ids=["full", "nulls"])
@pytest.mark.parametrize("layout", FILES)
def test_parquet(tmp_path: Path, layout: str, nulls: bool) -> None:
    """Every type comes out of Parquet bit for bit, whatever its row groups, pages and files."""
    rows = holed if nulls else every
    source = FILES[layout](writable(table_of(PARQUET, rows)), tmp_path)
    pack(source, tmp_path / "slab", nulls="*=mask", shard_size=700)
    check(tmp_path / "slab", PARQUET, rows)
    assert len(Readback(tmp_path / "slab").manifest["shards"]) > 1 or layout == "pages"


@pytest.mark.parametrize("in_memory", [True, False], ids=["arrow", "parquet"])
def test_no_rows(tmp_path: Path, in_memory: bool) -> None:
    """A table without rows becomes a slab without rows that still knows its fields."""
    cases = CASES if in_memory else PARQUET
    table = table_of(cases, lambda case: [])
    source: Any = table if in_memory else tmp_path / "a.parquet"
    if not in_memory:
        pq.write_table(table, source)
    pack(source, tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert list(back.fields) == [case.name for case in cases]
    assert (back.rows, back.manifest["shards"]) == (0, [])
    shapes_need_rows = {"square", "triples", "cubes"}
    for case in cases:
        assert case.name in shapes_need_rows or back.fields[case.name]["kind"] == case.kind


@pytest.mark.parametrize("in_memory", [True, False], ids=["arrow", "parquet"])
def test_structs(tmp_path: Path, in_memory: bool) -> None:
    """A struct becomes one field a child; a null struct is a null in each of them."""
    # Parquet cannot write string views inside of structs.
    cases = CASES if in_memory else [case for case in PARQUET if "_view" not in case.name]
    columns = table_of(cases, holed)
    columns = columns if in_memory else writable(columns)
    arrays = columns.combine_chunks().to_batches()[0].columns
    mask = pa.array([row % 5 == 0 for row in range(ROWS)])
    names = [case.name for case in cases]
    inner = pa.StructArray.from_arrays(arrays, names=names, mask=mask)
    outer = pa.StructArray.from_arrays(
        [inner], names=["in"], mask=pa.array([row == 3 for row in range(ROWS)])
    )
    table = pa.table({"out": outer})
    source: Any = table.slice(1) if in_memory else tmp_path / "a.parquet"
    if not in_memory:
        pq.write_table(table, source, row_group_size=4)
    pack(source, tmp_path / "slab", nulls={"out": "mask"})
    renamed = [replace(case, name=f"out.in.{case.name}") for case in cases]

    def rows(case: Case) -> Sequence[Any]:
        actual = [
            None if index % 5 == 0 or index == 3 else row for index, row in enumerate(holed(case))
        ]
        return actual[1:] if in_memory else actual

    check(tmp_path / "slab", renamed, rows)


def test_nulls_are_an_error(tmp_path: Path) -> None:
    """By default a null stops the pack, with the name of the column and a row or a count."""
    for case in CASES:
        with naming.case(case.name):
            check_refused(case, tmp_path)


def check_refused(case: Case, folder: Path) -> None:
    """Nulls of a case stop the pack of a table, and that of a file."""
    table = table_of([case], holed)
    with pytest.raises(NullsFound, match=r"nulls .*row 1\).*nulls=") as caught:
        pack(table, folder / "slab")
    assert caught.value.context == {"field": case.name, "row": 1}
    if case.parquet:
        pq.write_table(writable(table), folder / "a.parquet", row_group_size=6)
        with pytest.raises(NullsFound) as caught:
            pack(folder / "a.parquet", folder / "slab")
        assert caught.value.context["field"] == case.name
        kind = str(table.schema.types[0])
        counted = "list" not in kind and "tensor" not in kind
        holes = list(holed(case)).count(None)
        assert f"{holes} nulls" in str(caught.value) or not counted
    assert not (folder / "slab").exists()


def test_schema_may_call_columns_nullable(tmp_path: Path) -> None:
    """Whether a field is nullable comes from its values, not from the schema."""
    pack(table_of(CASES, every), tmp_path / "slab")
    fields = Readback(tmp_path / "slab").fields.values()
    assert not any(field.get("nullable") for field in fields)
    assert not list((tmp_path / "slab").rglob("*.valid.npy"))
