"""Lists of lists, of text, of bytes and of structs, and maps: packed, written again, repaired."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from tests.nesting import MASK, NUMBERS, flatten_structs, make_nested_table, read_rows
from tests.servers.web import WebServer
from tests.slabs import array_path, flip, poke, redigest

from fieldslab.packer import concat, copy_slab, pack, repack, repair, verify
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import NullsFound, SourceInconsistent, SourceUnsupported, UsageError

ROWS = 60


def write_parquet(table: pa.Table, path: Path) -> pa.Table:
    """Write row groups, each of which becomes a shard."""
    pq.write_table(table, path, row_group_size=20)
    return pq.read_table(path)


def write_ipc(table: pa.Table, path: Path) -> pa.Table:
    """Write a file of record batches."""
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, 20)
    return pa.ipc.open_file(path).read_all()


def write_orc(table: pa.Table, path: Path) -> pa.Table:
    """Write an ORC file."""
    orc.write_table(table, path)
    return orc.read_table(path)


def write_lines(table: pa.Table, path: Path) -> pa.Table:
    """Write JSON lines, which have no bytes; their lists of objects stay JSON unless cast."""
    table = table.select(["id", "texts", "lists", "boxes"])
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return table


SOURCES: dict[str, Callable[[pa.Table, Path], pa.Table]] = {
    "rows.parquet": write_parquet,
    "rows.arrow": write_ipc,
    "rows.orc": write_orc,
    "rows.jsonl": write_lines,
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Parquet file with every nested type."""
    path = tmp_path_factory.mktemp("nested") / "rows.parquet"
    write_parquet(make_nested_table(ROWS), path)
    return path


@pytest.fixture(scope="module")
def whole(source: Path) -> Path:
    """The slab of it, in three shards."""
    pack(source, source.with_name("whole.slab"), nulls=MASK, shard_size=1)
    return source.with_name("whole.slab")


@pytest.fixture
def slab(whole: Path, tmp_path: Path) -> Path:
    """A copy of the slab, to be damaged."""
    copy_slab(whole, tmp_path / "x.slab")
    return tmp_path / "x.slab"


@pytest.mark.parametrize("name", SOURCES)
def test_values_are_those_that_pyarrow_reads(tmp_path: Path, name: str, cli: Any) -> None:
    """Packed, shuffled, and exported, each row is what pyarrow reads from the source."""
    read = SOURCES[name](make_nested_table(ROWS, seed=len(name)), tmp_path / name)
    expected = flatten_structs(read)
    nulls = {key: "mask" for key in MASK if name != "rows.jsonl"}
    cast = {"boxes": "nested"} if name == "rows.jsonl" else {}
    packed = pack(tmp_path / name, tmp_path / "a.slab", nulls=nulls, cast=cast, shard_size=1)
    slab = open_slab(tmp_path / "a.slab")
    assert read_rows(slab, range(ROWS)) == expected
    assert {slab.fields[key].kind for key in ("texts", "lists")} == {"nested"}
    assert verify(slab.path, against=tmp_path / name).ok

    repack(slab.path, tmp_path / "b.slab", shuffle=1, shard_size=2000)
    shuffled = open_slab(tmp_path / "b.slab")
    assert verify(shuffled.path).ok
    ids = shuffled["id"][:]
    assert sorted(ids.tolist()) == list(range(ROWS)) != ids.tolist()
    order = {key: [values[row] for row in ids] for key, values in expected.items()}
    assert read_rows(shuffled, range(ROWS)) == order

    assert cli("export", slab.path, "-o", tmp_path / "again.parquet").code == 0
    table = pq.read_table(tmp_path / "again.parquet")
    assert {key: table[key].to_pylist() for key in table.column_names} == expected
    again = pack(tmp_path / "again.parquet", tmp_path / "c.slab", nulls=nulls, shard_size=1)
    assert again.manifest.id == packed.manifest.id
    assert pack(slab, tmp_path / "d.slab", shard_size=1).manifest.id == packed.manifest.id


def test_some_rows_and_fields_are_written_again(whole: Path, tmp_path: Path) -> None:
    """`repack` keeps chosen rows; `concat` joins slabs, one of which lacks a field."""
    repack(whole, tmp_path / "few.slab", where="id in [3, 10, 17, 31, 59]")
    expected = read_rows(open_slab(whole), [3, 10, 17, 31, 59])
    few = open_slab(tmp_path / "few.slab")
    assert read_rows(few, range(len(few))) == expected
    repack(whole, tmp_path / "less.slab", exclude="lists")
    union = open_slab([whole, tmp_path / "less.slab"], missing="null")
    rows = read_rows(union, [5, ROWS + 5])
    assert rows["lists"] == [rows["lists"][0], None]
    assert rows["texts or null"][0] == rows["texts or null"][1]
    concat([whole, tmp_path / "few.slab"], tmp_path / "both.slab")
    both = open_slab(tmp_path / "both.slab")
    assert read_rows(both, range(ROWS, len(both))) == expected
    assert verify(both.path).ok


def test_compressed_rows_are_the_same(source: Path, whole: Path, tmp_path: Path) -> None:
    """With `compress`, rows are the same, also written again and one by one."""
    pack(source, tmp_path / "z.slab", nulls=MASK, compress=["texts*", "lists*"])
    slab, plain = open_slab(tmp_path / "z.slab"), open_slab(whole)
    assert slab.fields["texts"].compression is not None
    assert read_rows(slab, range(ROWS)) == read_rows(plain, range(ROWS))
    assert slab[7]["texts or null"] == plain[7]["texts or null"]
    assert verify(slab.path, against=source).ok
    repack(slab.path, tmp_path / "y.slab", shuffle=2)
    shuffled = open_slab(tmp_path / "y.slab")
    assert read_rows(shuffled, range(ROWS)) == read_rows(plain, shuffled["id"][:])


def test_fields_of_different_lists_are_not_joined(whole: Path, tmp_path: Path) -> None:
    """Lists of text and lists of bytes under one name are refused with both types."""
    pack(pa.table({"texts": [[b"a"]]}), tmp_path / "other.slab")
    pack(open_slab(whole), tmp_path / "same.slab", fields="texts")
    with pytest.raises(UsageError, match=r"lists of text.*lists of binary"):
        open_slab([tmp_path / "same.slab", tmp_path / "other.slab"])


NULLS: list[tuple[pa.Array, str, list[str]]] = [
    (pa.array([["a"], None]), "1 null", ["mask"]),
    (pa.array([["a"], ["b", None]]), "a null in a list", ["mask", "x"]),
    (pa.array([[[1], []], [None, [1, 2]]]), "a null in a list", ["mask"]),
    (pa.array([[[1], []], [[2, None]]]), "a null inside a list of lists", ["0"]),
]


@pytest.mark.parametrize(("array", "problem", "values"), NULLS)
def test_nulls_need_an_option(
    tmp_path: Path, array: pa.Array, problem: str, values: list[str]
) -> None:
    """Nulls of rows, of lists in lists and of numbers are named with row and option, which hold."""
    table = pa.table({"a": array})
    with pytest.raises(NullsFound, match=problem) as caught:
        pack(table, tmp_path / "no.slab")
    assert caught.value.context["row"] == 1
    for value in values:
        shown = "VALUE" if value != "mask" else "mask"
        assert f'nulls={{"a": "{shown}"}}' in str(caught.value)
        pack(table, tmp_path / f"{value}.slab", nulls={"a": value})
        rows = read_rows(open_slab(tmp_path / f"{value}.slab"), [0, 1])["a"]
        kept = {"mask": None, "x": "x", "0": 0}[value]
        assert str(rows) == str(array.to_pylist()).replace("None", repr(kept))
    pack(table, tmp_path / "json.slab", cast={"a": "json"}, nulls={"a": "mask"})


def test_lists_are_told_to_be_nested(tmp_path: Path) -> None:
    """Lists of one length are a shape, unless a cast says otherwise that the error names."""
    table = pa.table({"a": pa.array([[[1, 2]], [[3, 4], [5, 6]]], NUMBERS)})
    pack(table, tmp_path / "shape.slab")
    assert open_slab(tmp_path / "shape.slab").fields["a"].shape == (2,)
    pack(table, tmp_path / "nested.slab", cast={"a": "nested"})
    nested = open_slab(tmp_path / "nested.slab")
    assert nested.fields["a"].describe() == "lists of int32 lists"
    assert nested[1]["a"][1].tolist() == [5, 6]
    rows = [[[1, 2]]] * 500
    rows[300] = [[1, 2], [3]]
    pq.write_table(pa.table({"a": rows}), tmp_path / "a.parquet")
    with pytest.raises(SourceInconsistent, match=r'cast=\{"a": "nested"\}') as caught:
        pack(tmp_path / "a.parquet", tmp_path / "b.slab")
    assert caught.value.context["row"] == 300


def test_what_is_no_list_of_lists_is_refused(tmp_path: Path) -> None:
    """Three levels, and columns that are no lists of lists, are refused with the cast to JSON."""
    deep = pa.table({"a": pa.array([[[["x"]]]])})
    with pytest.raises(SourceUnsupported, match="deeper than two levels") as caught:
        pack(deep, tmp_path / "a.slab")
    assert 'cast={"a": "json"}' in str(caught.value)
    with pytest.raises(SourceUnsupported, match="not lists of lists"):
        pack(pa.table({"a": [1]}), tmp_path / "a.slab", cast={"a": "nested"})


def test_the_commands_show_lists(whole: Path, cli: Any) -> None:
    """`info` has a line for each field with its type, and `head` its lists, also as JSON."""
    lines = cli("info", whole).out.splitlines()
    shown = [line.split()[:3] for line in lines]
    for line in (["texts", "nested", "text[*]"], ["lists", "nested", "int32[*,*]"]):
        assert line in shown
    told = [json.loads(line)["values"] for line in cli("head", whole, "--json").out.splitlines()]
    expected = read_rows(open_slab(whole), range(len(told)))
    assert [row["texts or null"] for row in told] == expected["texts or null"]
    assert [row["lists or null"] for row in told] == expected["lists or null"]
    assert "; " in cli("head", whole).out


def test_verify_finds_lists_that_do_not_add_up(slab: Path) -> None:
    """Lengths that do not add up to their row are found, also where all digests agree."""
    poke(array_path(slab, "texts", "lists.values", shard=1), np.array([2**30], "<i4"), offset=8)
    redigest(slab)
    report = verify(slab)
    assert [problem.field for problem in report.problems] == ["texts"]
    assert "as many elements as their row" in report.problems[0].problem


def test_verify_against_the_source_names_the_list(tmp_path: Path) -> None:
    """Lists that are cut elsewhere, of the same bytes, differ from the source in a length."""
    pq.write_table(pa.table({"a": [["x"], ["ab", "c"]]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [["x"], ["a", "bc"]]}), tmp_path / "b.parquet")
    pack(tmp_path / "a.parquet", tmp_path / "x.slab")
    (problem,) = verify(tmp_path / "x.slab", against=tmp_path / "b.parquet").problems
    assert (problem.field, problem.rows) == ("a", (1, 1))
    assert "length of list 0" in problem.problem
    assert (problem.expected, problem.found) == ("1", "2")


def test_damage_is_repaired_from_a_copy_and_from_the_source(
    slab: Path, whole: Path, source: Path
) -> None:
    """Damaged arrays of lists are written again, by a copy or by the source."""
    for options in ({"from_": whole}, {"against": source}):
        for role in ("lists.values", "lists.offsets", "values", "offsets"):
            flip(array_path(slab, "lists or null", role, shard=1), 3)
        assert not verify(slab).ok
        assert repair(slab, **options).ok  # type: ignore[arg-type]
        assert verify(slab).ok
        assert read_rows(open_slab(slab), range(ROWS)) == read_rows(open_slab(whole), range(ROWS))


def test_a_mirror_reads_lists(whole: Path, tmp_path: Path, serve: Callable[..., WebServer]) -> None:
    """At a URL, lists are read block by block, and are right."""
    server = serve(whole.parent)
    remote = open_slab(f"{server.url}/whole.slab", cache_dir=tmp_path / "cache")
    rows = [50, 3, 59, 3]
    assert read_rows(remote, rows) == read_rows(open_slab(whole), rows)
    assert remote[44]["texts"] == open_slab(whole)[44]["texts"]
