"""`--nulls`: what becomes of nulls, in rows, in lists and in structs."""

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.naming import case
from tests.packer.readback import Readback, difference

from fieldslab.packer import pack
from fieldslab.schemas.errors import FieldslabError, NullsFound, UsageError


def packed(path: Path, array: pa.Array, name: str = "a", **options: Any) -> Readback:
    """Pack one column and read it back."""
    pack(pa.table({name: array}), path / "slab", **options)
    return Readback(path / "slab")


def refused(path: Path, array: pa.Array, **options: Any) -> FieldslabError:
    """The error of packing one column, which must leave nothing behind."""
    with pytest.raises(FieldslabError) as caught:
        pack(pa.table({"a": array}), path / "slab", **options)
    assert list(path.iterdir()) == []
    return caught.value


UUID = "12345678-1234-5678-1234-567812345678"
FLOAT16 = pa.array([np.float16(1.5), None])
TENSOR = pa.ExtensionArray.from_storage(
    pa.fixed_shape_tensor(pa.int8(), [2]), pa.array([[1, 2], None], pa.list_(pa.int8(), 2))
)
VALUES: list[tuple[pa.Array, str, list[Any]]] = [
    # column, VALUE, the two rows
    (pa.array([1, None], pa.int8()), "-5", [np.int8(1), np.int8(-5)]),
    (
        pa.array([2**53 + 1, None], pa.int64()),
        "9007199254740993",
        [np.int64(2**53 + 1), np.int64(2**53 + 1)],
    ),
    (pa.array([1, None], pa.uint64()), str(2**64 - 1), [np.uint64(1), np.uint64(2**64 - 1)]),
    (FLOAT16, "0.5", [np.float16(1.5), np.float16(0.5)]),
    (pa.array([1.5, None], pa.float32()), "nan", [np.float32(1.5), np.float32("nan")]),
    (pa.array([1.5, None]), "-0.0", [np.float64(1.5), np.float64(-0.0)]),
    (pa.array([True, None]), "true", [np.True_, np.True_]),
    (
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([5, None], pa.int8())),
        "0",
        [np.True_, np.False_],
    ),
    (pa.array(["é", None]), "", ["é", ""]),
    (pa.array(["é", None], pa.string_view()), "ñ", ["é", "ñ"]),
    (pa.array([b"\xff", None]), "none", [b"\xff", b"none"]),
    (pa.array(["x", None]).dictionary_encode(), "unknown", ["x", "unknown"]),
    (
        pa.array([b"ab", None], pa.binary(2)),
        "cd",
        [np.frombuffer(b"ab", np.uint8), np.frombuffer(b"cd", np.uint8)],
    ),
    (
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16), None], pa.binary(16))),
        UUID,
        [np.zeros(16, np.uint8), np.frombuffer(uuid.UUID(UUID).bytes, np.uint8)],
    ),
    (
        pa.array([0, None], pa.timestamp("ms", "UTC")),
        "1970-01-01T00:00:01Z",
        [np.int64(0), np.int64(1000)],
    ),
    (pa.array([0, None], pa.timestamp("s")), "-7", [np.int64(0), np.int64(-7)]),
    (pa.array([0, None], pa.date32()), "1970-01-03", [np.int32(0), np.int32(2)]),
    (pa.array([0, None], pa.time32("s")), "00:01:01", [np.int32(0), np.int32(61)]),
    (pa.array([0, None], pa.duration("s")), "3", [np.int64(0), np.int64(3)]),
    # in lists VALUE stands for elements, and fills null rows of fixed shape
    (
        pa.array([[1, None], [None]], pa.list_(pa.int16())),
        "9",
        [np.array([1, 9], np.int16), np.array([9], np.int16)],
    ),
    (
        pa.array([[1, None], None], pa.list_(pa.int16(), 2)),
        "9",
        [np.array([1, 9], np.int16), np.array([9, 9], np.int16)],
    ),
    (
        pa.array([[[1.5], [None]], None], pa.list_(pa.list_(pa.float32()))),
        "0",
        [np.array([[1.5], [0]], np.float32), np.zeros((2, 1), np.float32)],
    ),
    (TENSOR, "7", [np.array([1, 2], np.int8), np.array([7, 7], np.int8)]),
]


def test_value(tmp_path: Path) -> None:
    """A value stands for every null, in the field's own type; no validity array is left."""
    for array, value, expected in VALUES:
        with case(array.type, value):
            back = packed(tmp_path, array, nulls={"a": value}, force=True)
            assert difference(back.column("a"), expected) is None
            assert not back.fields["a"].get("nullable")


@pytest.mark.parametrize(
    ("array", "value"),
    [
        (pa.array([1, None], pa.int8()), "300"),
        (pa.array([1, None], pa.int8()), "1.5"),
        (pa.array([1, None], pa.uint8()), "-1"),
        (pa.array([1.5, None], pa.float32()), "1e39"),
        (pa.array([1.5, None]), "zero"),
        (pa.array([True, None]), "7"),
        (pa.array([0, None], pa.date32()), "yesterday"),
        (pa.array([b"ab", None], pa.binary(2)), "abc"),
        (
            pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16), None], pa.binary(16))),
            "12345",
        ),
        (pa.array([[1, None]], pa.list_(pa.int16())), "70000"),
    ],
)
def test_value_that_does_not_fit(tmp_path: Path, array: pa.Array, value: str) -> None:
    """A value that the field cannot hold is refused before anything is written."""
    error = refused(tmp_path, array, nulls={"a": value})
    assert isinstance(error, UsageError)
    assert error.context["field"] == "a"
    assert error.context["found"] == value


def test_value_is_of_the_type_after_the_cast(tmp_path: Path) -> None:
    """With `--cast`, the value is of the field's type, not of the column's."""
    array = pa.array([1, None, 3])
    back = packed(tmp_path, array, cast="a=f4", nulls="a=nan")
    assert difference(back.column("a"), list(np.array([1, np.nan, 3], np.float32))) is None


def test_value_in_json(tmp_path: Path) -> None:
    """With `--cast a=json`, the value must be JSON."""
    array = pa.array([{"x": 1}, None])
    for value in ("{", "NaN"):
        error = refused(tmp_path, array, cast="a=json", nulls=f"a={value}")
        assert "not JSON" in str(error)
    assert packed(tmp_path, array, cast="a=json", nulls="a={}").column("a") == ['{"x": 1}', "{}"]


def test_value_cannot_be_a_list(tmp_path: Path) -> None:
    """Null rows of lists of any length have no value: they stay an error."""
    error = refused(tmp_path, pa.array([[1], None]), nulls="a=0")
    assert isinstance(error, NullsFound)
    assert error.context["row"] == 1


@pytest.mark.parametrize(
    ("array", "row"),
    [
        (pa.array([[1], [2, None]]), 1),
        (pa.array([[1], None, [], [2, None]]), 3),
        (pa.array([[1, 2], None, [1, None]], pa.list_(pa.int8(), 2)), 2),
        (pa.array([[[1], [2]], [None, [3]]], pa.list_(pa.list_(pa.int8(), 1))), 1),
        (pa.array([[[1], [2]], None, [[5], [None]]]), 2),
    ],
)
def test_null_inside_a_list(tmp_path: Path, array: pa.Array, row: int) -> None:
    """A mask covers rows: a null inside a list is an error that names the row."""
    error = refused(tmp_path, array, nulls="a=mask")
    assert isinstance(error, NullsFound)
    assert "inside a list" in str(error)
    assert error.context == {"field": "a", "row": row}


def test_null_lists_in_lists_cannot_be_replaced(tmp_path: Path) -> None:
    """A value is for elements: a null list inside a list stays an error."""
    error = refused(
        tmp_path, pa.array([[[1]], [None]], pa.list_(pa.list_(pa.int8(), 1))), nulls="a=3"
    )
    assert isinstance(error, NullsFound)
    assert error.context["row"] == 1


NAMES = ["x", "y", "s.u", "s.v"]


@pytest.mark.parametrize(
    ("nulls", "expected"),
    [
        ({"*": "mask"}, [None, None, None, None]),
        ({"*": "0"}, [0, 0, 0, 0]),
        ({"x": "1", "*": "mask"}, [1, None, None, None]),
        ({"*": "mask", "s": "2"}, [None, None, 2, 2]),
        ({"s": "2", "s.u": "3", "*": "4"}, [4, 4, 3, 4]),
        ({"[xy]": "5", "s.*": "6"}, [5, 5, 6, 6]),
    ],
)
def test_precedence(tmp_path: Path, nulls: dict[str, str], expected: list[int | None]) -> None:
    """An exact name wins over patterns and structs, of which the later one wins."""
    struct = pa.array([{"u": 1, "v": None}, None])
    table = pa.table({"x": pa.array([1, None]), "y": pa.array([None, 1]), "s": struct})
    pack(
        table.cast(
            pa.schema(
                [
                    ("x", pa.int64()),
                    ("y", pa.int64()),
                    ("s", pa.struct([("u", pa.int64()), ("v", pa.int64())])),
                ]
            )
        ),
        tmp_path / "slab",
        nulls=nulls,
    )
    back = Readback(tmp_path / "slab")
    last = [back.column(name)[0 if name == "y" else 1] for name in NAMES]
    assert [None if value is None else int(value) for value in last] == expected


def test_counts_are_of_the_rows_asked_for(tmp_path: Path) -> None:
    """Nulls outside of `--rows` and `--limit` do not matter."""
    array = pa.array([None, *range(10), None])
    pq.write_table(pa.table({"a": array}), tmp_path / "a.parquet", row_group_size=4)
    pack(tmp_path / "a.parquet", tmp_path / "slab", rows="1:11")
    assert Readback(tmp_path / "slab").values("a").tolist() == list(range(10))
    with pytest.raises(NullsFound, match="row 10"):
        pack(tmp_path / "a.parquet", tmp_path / "other", rows="1:12")


def test_message_counts_all_nulls(tmp_path: Path) -> None:
    """The footers tell how many nulls a column has, before anything is read."""
    for name in ("a", "b"):
        array = pa.array([None, 1, None])
        pq.write_table(
            pa.table({"s": pa.array([{"x": 1}, None, {"x": None}]), "a": array}),
            tmp_path / f"{name}.parquet",
            row_group_size=2,
        )
    with pytest.raises(NullsFound, match=r"^nulls in 2 columns \(found 's\.x: 4, a: 4'\)"):
        pack(tmp_path, tmp_path / "slab")
    with pytest.raises(NullsFound, match=r"^4 nulls \(field a\)"):
        pack(tmp_path, tmp_path / "slab", exclude="s.x")
    assert not (tmp_path / "slab").exists()


def test_mask_of_some_shards(tmp_path: Path) -> None:
    """Only shards with nulls have a validity array."""
    pq.write_table(pa.table({"a": [1, 2, None, 4, 5, 6]}), tmp_path / "a.parquet", row_group_size=2)
    pack(tmp_path / "a.parquet", tmp_path / "slab", nulls="a=mask", shard_size=1)
    back = Readback(tmp_path / "slab")
    assert [back.array("a", "valid", shard) is None for shard in range(3)] == [True, False, True]
    assert back.fields["a"]["nullable"] is True
    assert back.column("a") == [1, 2, None, 4, 5, 6]
