"""Fields: their arrays, their dtypes, and what cannot be."""

from typing import Any, get_args

import numpy as np
import pytest

from fieldslab.schemas.fields import (
    CategoryTable,
    DtypeName,
    Field,
    Kind,
    Logical,
    make_file_stem,
)


def field(kind: Kind = "fixed", **members: Any) -> Field:
    """A field with the members that its kind demands."""
    needed: dict[str, dict[str, Any]] = {
        "image": {"codec": "jpeg"},
        "categorical": {"dtype": "int32", "categories": ("a",)},
    }
    return Field(name="x", stem="00-x", kind=kind, **(needed.get(kind, {}) | members))


@pytest.mark.parametrize(
    ("kind", "roles"),
    [
        ("fixed", ["values"]),
        ("categorical", ["values"]),
        ("ragged", ["values", "offsets"]),
        ("text", ["values", "offsets"]),
        ("binary", ["values", "offsets"]),
        ("image", ["values", "offsets", "size"]),
    ],
)
def test_arrays_of_each_kind(kind: Kind, roles: list[str]) -> None:
    """Every kind has the arrays of FORMAT.md, in that order, and `valid` last."""
    assert [spec.role for spec in field(kind).list_arrays()] == roles
    assert [spec.role for spec in field(kind, nullable=True).list_arrays()] == [*roles, "valid"]
    assert field(kind).find_contradiction() is None


def test_arrays_of_indexed_and_coded_images() -> None:
    """An index and codes stand behind the sizes, in front of `valid`."""
    image = field("image", index=0, coded=True, nullable=True)
    assert [spec.role for spec in image.list_arrays()] == [
        "values",
        "offsets",
        "size",
        "points.values",
        "points.offsets",
        "codec",
        "valid",
    ]
    points = ("points.values", np.dtype("<u2"), (5,), "point", "points.offsets", None)
    assert image.list_arrays()[3] == points
    assert image.find_contradiction() is None


def test_arrays_tell_dtype_shape_and_count() -> None:
    """An array's spec says how large one item is and how many there are."""
    values, offsets = field("ragged", dtype="float16", shape=(2, 3)).list_arrays()
    assert values.item_bytes == 12
    assert values == ("values", np.dtype("<f2"), (2, 3), "element", "offsets", None)
    assert offsets[:4] == ("offsets", np.dtype("<u8"), (), "row+1")
    assert field("image").list_arrays()[2][:4] == ("size", np.dtype("<u4"), (2,), "row")


def test_storage_is_little_endian() -> None:
    """Stored numbers are little-endian, whatever the machine; bytes have no order."""
    for name in get_args(DtypeName):
        stored = field(dtype=name).storage
        assert stored == np.dtype(name), name
        assert stored.str[0] in "<|", name


def test_item_bytes() -> None:
    """`item_bytes` is exact in unbounded integers; a 0 counts as 1 for the widest item only."""
    huge = field(dtype="int16", shape=(2**40, 2**40, 3))
    assert huge.item_bytes == huge.widest_item == 6 * 2**80
    empty = field(dtype="int16", shape=(2**40, 0))
    assert (empty.item_bytes, empty.widest_item) == (0, 2**41)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_view_of_times(unit: Any) -> None:
    """Timestamps and durations are gathered as numpy's own types of the same width."""
    time = field(dtype="int64", logical=Logical("timestamp", unit=unit, timezone="UTC"))
    span = field(dtype="int64", logical=Logical("duration", unit=unit))
    assert (time.view, span.view) == (np.dtype(f"<M8[{unit}]"), np.dtype(f"<m8[{unit}]"))


def test_view_of_all_else_is_the_storage() -> None:
    """Other logical types change nothing about what is gathered."""
    for logical in (None, Logical("uuid"), Logical("date", unit="ms"), Logical("time", unit="ns")):
        assert field(dtype="int64", logical=logical).view == np.dtype("<i8")


IMPOSSIBLE = [
    (field("text", dtype="int8"), "stored as bytes"),
    (field("image", shape=(2,)), "stored as bytes"),
    (field("categorical", dtype="int64"), "int32 scalars"),
    (field("categorical", shape=(2,)), "int32 scalars"),
    (field("categorical", table=CategoryTable(1, 1)), "either"),
    (field("categorical", categories=None), "either"),
    (field("categorical", categories=("a", "b", "a")), "twice"),
    (field("fixed", categories=("a",)), "has no categories"),
    (field("text", table=CategoryTable(1, 1)), "has no categories"),
    (field("image", codec=None), "`codec`"),
    (field("binary", codec="jpeg"), "`codec`"),
    (field("binary", index=8), "`index`"),
    (field("fixed", coded=True), "`coded`"),
    (field(dtype="int64", logical=Logical("enum", names=("a",), codes=(1, 2))), "differ in length"),
    (field(dtype="int64", logical=Logical("enum", codes=(1,))), "differ in length"),
    (field(dtype="int64", logical=Logical("timestamp")), "needs a `unit`"),
    (field(dtype="int32", logical=Logical("timestamp", unit="s")), "stored as int64"),
    (field(dtype="float64", logical=Logical("duration", unit="s")), "stored as int64"),
    (field(dtype="int32", logical=Logical("date")), "needs a `unit`"),
    (field(dtype="int32", logical=Logical("time")), "needs a `unit`"),
]


def test_impossible_combinations() -> None:
    """Members that contradict each other are found, with a reason."""
    for contradiction, reason in IMPOSSIBLE:
        assert reason in (contradiction.find_contradiction() or ""), contradiction


@pytest.mark.parametrize(
    ("ordinal", "name", "expected"),
    [
        (0, "image", "00-image"),
        (7, "Größe (cm)", "07-gr_e_cm"),
        (12, "../../etc/passwd", "12-etc_passwd"),
        (100, "猫", "100-field"),
        (3, "", "03-field"),
        (4, "a" * 300, "04-" + "a" * 40),
        (5, "\x00\n", "05-field"),
    ],
)
def test_stem_is_a_safe_file_name(ordinal: int, name: str, expected: str) -> None:
    """Whatever a field is called, its files have plain names."""
    assert make_file_stem(ordinal, name) == expected
