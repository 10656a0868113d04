"""Parquet files whose footers promise other rows or columns than there are."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.readback import Readback
from tests.packer.sources.parquet.thrift import group, int64, write

from fieldslab.packer import pack
from fieldslab.packer.source import find_source
from fieldslab.packer.write.result import PackResult
from fieldslab.schemas.errors import (
    FieldslabError,
    SourceInconsistent,
    SourceUnreadable,
    SourceUnsupported,
)

FIVE = [10, 11, 12, 13, 14]


def refused(
    tmp_path: Path, source: Path, error: type[FieldslabError], **options: object
) -> FieldslabError:
    """The error of a pack, which leaves nothing behind."""
    with pytest.raises(error) as caught:
        pack(source, tmp_path / "slab", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "slab").exists()
    return caught.value


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("fields", ["x", "x,y"])
def test_fewer_rows_than_promised(tmp_path: Path, fields: str, jobs: int) -> None:
    """Columns whose pages all lack the same rows are an error with both counts, and no slab."""
    schema = [group("schema", 3), int64("x"), int64("y"), int64("z")]
    path = write(tmp_path / "a.parquet", schema, 5, {"x": FIVE[:2], "y": FIVE[:2], "z": FIVE})
    error = refused(tmp_path, path, SourceInconsistent, fields=fields, jobs=jobs)
    assert error.context["file"] == f"{path} row group 0"
    assert error.context["expected"] == "5 rows"
    assert error.context["found"] == "2 rows"
    pack(path, tmp_path / "slab", fields="z")
    assert Readback(tmp_path / "slab").values("z").tolist() == FIVE


def test_fewer_rows_than_asked_for(tmp_path: Path) -> None:
    """`--rows` that the pages lack are missed as well; rows before the gap can be packed."""
    schema = [group("schema", 1), int64("x")]
    path = write(tmp_path / "a.parquet", schema, 5, {"x": FIVE[:3]})
    error = refused(tmp_path, path, SourceInconsistent, rows="2:4")
    assert error.context["found"] == "3 rows"
    pack(path, tmp_path / "slab", rows="1:3")
    assert Readback(tmp_path / "slab").values("x").tolist() == FIVE[1:3]


def test_rows_without_columns(tmp_path: Path) -> None:
    """Rows without a column are refused, where pyarrow would end the process."""
    path = write(tmp_path / "a.parquet", [group("schema", 0)], 5, {})
    error = refused(tmp_path, path, SourceUnsupported)
    assert "no columns" in error.problem
    assert error.context["file"] == str(path)
    pq.write_table(pa.table({"a": [1, 2]}).select([]), path)
    refused(tmp_path, path, SourceUnsupported)


def test_rows_with_partitions_alone(tmp_path: Path) -> None:
    """Rows without a column of their own have those of their partition."""
    folder = tmp_path / "data" / "year=2024"
    folder.mkdir(parents=True)
    write(folder / "a.parquet", [group("schema", 0)], 5, {})
    pack(tmp_path / "data", tmp_path / "slab")
    assert Readback(tmp_path / "slab").values("year").tolist() == [2024] * 5


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "beside others"])
def test_groups_without_members(tmp_path: Path, inside: bool) -> None:
    """A group without members is refused by name, with what is beside it; other columns are not."""
    schema = [group("schema", 3), group("g", 0), int64("x"), int64("y")]
    columns = {"x": FIVE, "y": FIVE[::-1]}
    if inside:
        schema = [group("schema", 3), group("g", 2), int64("a"), group("b", 0), *schema[2:]]
        columns = {"g.a": FIVE, **columns}
    path = write(tmp_path / "a.parquet", schema, 5, columns)
    error = refused(tmp_path, path, SourceUnsupported)
    assert "without members" in error.problem
    names = [failure.context["field"] for failure in (error, *error.others)]
    assert names == (["g.a", "g.b"] if inside else ["g"])
    pack(path, tmp_path / "slab", exclude="g")
    back = Readback(tmp_path / "slab")
    assert back.values("x").tolist() == FIVE
    assert back.values("y").tolist() == FIVE[::-1]


@pytest.mark.parametrize(
    ("columns", "promised"),
    [(["x"], 5), (["x", "y", "y"], 5), ([], 5), (["x", "y"], -5)],
    ids=["fewer", "more", "none", "negative rows"],
)
def test_row_groups_that_contradict_the_schema(
    tmp_path: Path, columns: list[str], promised: int
) -> None:
    """A row group with other columns than the schema, or a negative count of rows, is damage."""
    schema = [group("schema", 2), int64("x"), int64("y")]
    names = {name + "#" * index: FIVE for index, name in enumerate(columns)}
    path = write(tmp_path / "a.parquet", schema, 5, names, promised)
    error = refused(tmp_path, path, SourceUnreadable)
    assert "contradicts itself" in error.problem
    assert error.context["file"] == f"{path} row group 0"


def test_many_columns_are_sampled_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is opened as often for 1,100 columns as for 1,400: to open it takes its columns."""
    opened = []
    whole = pq.ParquetFile.__init__

    def counted(self: pq.ParquetFile, *args: object, **options: object) -> None:
        opened.append(1)
        whole(self, *args, **options)

    monkeypatch.setattr(pq.ParquetFile, "__init__", counted)
    times = []
    for count in (1100, 1400):
        path = tmp_path / f"{count}.parquet"
        pq.write_table(pa.table({f"b{index}": [b"%d" % index] for index in range(count)}), path)
        opened.clear()
        packed: PackResult = pack(path, tmp_path / "slab", force=True)
        assert packed.manifest.rows == 1
        times.append(len(opened))
    assert times[0] == times[1]
    assert Readback(tmp_path / "slab").column("b1399") == [b"1399"]


def test_many_files_are_opened_in_their_order(tmp_path: Path) -> None:
    """Footers are read at the same time; files keep their order, and the first error counts."""
    for number in range(100):
        path = tmp_path / f"{number:03}.parquet"
        pq.write_table(pa.table({"x": [number]}), path)
    assert [unit.file for unit in find_source(tmp_path).units] == [
        str(tmp_path / f"{number:03}.parquet") for number in range(100)
    ]
    for number in (70, 40):
        (tmp_path / f"{number:03}.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(SourceUnreadable, match=r"040\.parquet"):
        find_source(tmp_path)
