"""`--cast`: every type to every sensible target; what does not survive is an error with its row."""

import datetime
import decimal
import random
import struct
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.naming import case
from tests.packer.readback import Readback, difference

from fieldslab.packer import pack
from fieldslab.schemas.errors import FieldslabError, SourceInconsistent, SourceUnsupported


def cast(path: Path, array: pa.Array, target: str, **options: Any) -> Readback:
    """Pack one column with a cast and read it back."""
    pack(pa.table({"a": array}), path / "slab", cast={"a": target}, force=True, **options)
    return Readback(path / "slab")


def refused(path: Path, array: pa.Array, target: str) -> FieldslabError:
    """The error of a cast, which must leave nothing behind."""
    with pytest.raises(FieldslabError) as caught:
        pack(pa.table({"a": array}), path / "slab", cast={"a": target})
    assert list(path.iterdir()) == []
    assert caught.value.context["field"] == "a"
    return caught.value


INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "float32", "float64"]


@pytest.mark.parametrize("source", [*INTEGERS, *FLOATS, "bool"])
def test_small_numbers_go_everywhere(tmp_path: Path, source: str) -> None:
    """0 and 1 can be every kind of number, and come out as numpy's astype makes them."""
    values = np.array([0, 1, 1, 0, 1]).astype(source)
    for target in [*INTEGERS, *FLOATS, "bool"]:
        back = cast(tmp_path, pa.array(values), target)
        assert difference(back.column("a"), list(values.astype(target))) is None, target
        assert back.fields["a"].get("dtype", "uint8") == target


@pytest.mark.parametrize("target", INTEGERS)
def test_limits_of_integers(tmp_path: Path, target: str) -> None:
    """The smallest and the largest integer fit; the next ones are refused with their row."""
    limits = np.iinfo(target)
    wide = pa.int64() if limits.max < 2**63 else pa.uint64()
    low = int(limits.min)
    inside = pa.array([low, int(limits.max)], wide)
    assert cast(tmp_path, inside, target).values("a").tolist() == [low, int(limits.max)]
    (tmp_path / "more").mkdir()
    outside = [(pa.array([0, -1]), pa.int64())] if low == 0 else []
    if limits.max < 2**63 - 1:
        outside += [(pa.array([0, int(limits.max) + 1]), pa.int64())]
        outside += [(pa.array([0.0, float(int(limits.max) + 1)]), pa.float64())]
        outside += [(pa.array(["0", str(int(limits.max) + 1)]), pa.string())]
    else:
        outside += [(pa.array([0.0, float(limits.max)]), pa.float64())]
    for array, _ in outside:
        error = refused(tmp_path / "more", array, target)
        assert isinstance(error, SourceInconsistent)
        assert error.context["row"] == 1


BAD = [
    (pa.array([1.0, 1.5]), "int32"),
    (pa.array([1.0, np.nan]), "int32"),
    (pa.array([1.0, -np.inf]), "int64"),
    (pa.array([1, 2]), "bool"),
    (pa.array([1.0, 0.5]), "bool"),
    (pa.array([1.0, 1e39]), "float32"),
    (pa.array([1.0, -1e39]), "bfloat16"),
    (pa.array([1.0, 3.4e38]), "bfloat16"),
    (pa.array([1, 70000]), "float16"),
    (pa.array([1.0, 65520.0], pa.float32()), "float16"),
    (pa.array(["1", "one"]), "int8"),
    (pa.array(["1", " 1"]), "float32"),
    (pa.array(["1", "1e999"]), "float64"),
    (pa.array(["1", "1e39"]), "float32"),
    (pa.array(["1", "maybe"]), "bool"),
    (pa.array(["1", "1e6"]), "float16"),
    (pa.array([b"a", b"\xff"]), "text"),
    (pa.array([b"a", b"\xff"], pa.binary(1)), "text"),
    (pa.array([decimal.Decimal("1.00"), decimal.Decimal("1.25")]), "int32"),
    (pa.array([[1], [300]]), "int8"),
    (pa.array([[1, 2], [3, 300]], pa.list_(pa.int32(), 2)), "u1"),
    (pa.array([0, 2**31], pa.timestamp("us")), "int32"),
]


def test_no_silent_loss(tmp_path: Path) -> None:
    """What a target cannot hold is an error that names column and row, never a wrapped value."""
    for array, target in BAD:
        padded = pa.concat_arrays([array.slice(0, 1)] * 999 + [array.slice(1, 1), array])
        with case(array, target):
            error = refused(tmp_path, padded, target)
            assert isinstance(error, SourceInconsistent)
            assert error.context["row"] == 999
            assert "cast" in str(error)


IMPOSSIBLE = [
    (pa.array([b"1"]), "int8"),
    (pa.array([b"12"], pa.binary(2)), "float32"),
    (pa.array([{"x": b"1"}]), "int8"),
    (pa.array([[1]]), "text"),
    (pa.array([["a"]]), "binary"),
    (pa.array([1]), "binary"),
    (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "int64"),
    (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), "text"),
    (pa.array([b"1"]), "bool"),
]


@pytest.mark.parametrize(("array", "target"), IMPOSSIBLE)
def test_impossible_casts(tmp_path: Path, array: pa.Array, target: str) -> None:
    """A type that can never be cast so is refused before data is read."""
    name = "a"
    with pytest.raises(
        SourceUnsupported, match=f"cannot become {target}|stored as it is"
    ) as caught:
        pack(pa.table({name: array}), tmp_path / "slab", cast={name: target})
    assert str(caught.value.context["field"]).startswith(name)
    assert list(tmp_path.iterdir()) == []


def test_rounding_to_floats(tmp_path: Path) -> None:
    """Numbers are rounded to the nearest float, NaN and infinities stay what they are."""
    wide = np.array([0.1, 1 / 3, 1e-45, -0.0, np.inf, -np.inf, 2.0**24 + 1, 65504.0])
    for target in ("float16", "float32"):
        values = wide[:-2] if target == "float16" else wide
        stored = cast(tmp_path, pa.array(values), target).values("a")
        assert stored.tobytes() == values.astype(target).tobytes()
    assert np.isnan(cast(tmp_path, pa.array([np.nan]), "float16").values("a")).all()
    large = np.array([2**53 + 1, 2**63 - 1, -(2**24) - 1])
    for target in ("float32", "float64"):
        stored = cast(tmp_path, pa.array(large), target).values("a")
        assert stored.tolist() == [float(np.dtype(target).type(int(value))) for value in large]


def test_bfloat16(tmp_path: Path) -> None:
    """bfloat16 is the upper half of float32, rounded to nearest even."""
    values = np.array(
        [1, -2.5, 3.14159265, 1e-40, 3.38e38, np.inf, -0.0, 1.00390625, 1.01171875], np.float32
    )

    def nearest(value: float) -> int:
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        low, high = bits & 0xFFFF, bits >> 16
        return high + (low > 0x8000 or (low == 0x8000 and high & 1))

    back = cast(tmp_path, pa.array(values), "bf16")
    assert back.fields["a"]["logical"] == {"type": "bfloat16"}
    assert back.values("a").tolist() == [nearest(float(value)) for value in values]
    assert back.values("a").dtype == np.uint16
    (nan,) = cast(tmp_path, pa.array([np.nan]), "bf16").values("a")
    assert nan & 0x7F80 == 0x7F80
    assert nan & 0x7F
    lists = cast(tmp_path, pa.array([[1.0, 2.0], [3.0]]), "bf16")
    assert [row.tolist() for row in lists.column("a")] == [[0x3F80, 0x4000], [0x4040]]


def test_decimals(tmp_path: Path) -> None:
    """Decimals become the nearest float64, exact integers, or text with every digit."""
    draw = random.Random(3)
    digits = [decimal.Decimal(draw.randrange(-(10**17), 10**17)).scaleb(-9) for _ in range(500)]
    digits += [decimal.Decimal("2.675"), decimal.Decimal("0"), decimal.Decimal("-0.000000001")]
    for kind in (pa.decimal128(38, 9), pa.decimal256(60, 9)):
        array = pa.array(digits, kind)
        values = cast(tmp_path, array, "f8").values("a")
        assert values.tolist() == [float(value) for value in digits]
        texts = cast(tmp_path, array, "text").column("a")
        assert [decimal.Decimal(text) for text in texts] == digits
    for kind in (pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(20, 2)):
        whole = pa.array([decimal.Decimal("-12.00"), decimal.Decimal("7")], kind)
        assert cast(tmp_path, whole, "i2").values("a").tolist() == [-12, 7]
        assert cast(tmp_path, whole, "f4").values("a").tolist() == [-12, 7]
    large = pa.array([decimal.Decimal(2**64 - 1)], pa.decimal128(38, 0))
    assert cast(tmp_path, large, "u8").values("a").tolist() == [2**64 - 1]


MOMENT = datetime.datetime(2024, 2, 29, 23, 59, 58, 123456)
TEXTS = [
    (pa.array([-7, 2**60]), ["-7", str(2**60)]),
    (pa.array([0.1, 1e300]), ["0.1", "1e+300"]),
    (pa.array([True, False]), ["true", "false"]),
    (pa.array([MOMENT, None]), ["2024-02-29 23:59:58.123456", None]),
    (pa.array([MOMENT.date()]), ["2024-02-29"]),
    (pa.array([MOMENT.time()]), ["23:59:58.123456"]),
    (pa.array(["a", None]).dictionary_encode(), ["a", None]),
    (pa.array([b"\xc3\xa9", None], pa.binary_view()), ["é", None]),
    (pa.array([b"ab"], pa.binary(2)), ["ab"]),
    (
        pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([bytes(range(16)), None], pa.binary(16))
        ),
        [str(uuid.UUID(bytes=bytes(range(16)))), None],
    ),
    (pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([5])), ["5", "5"]),
]


@pytest.mark.parametrize(("array", "expected"), TEXTS)
def test_to_text(tmp_path: Path, array: pa.Array, expected: list[str | None]) -> None:
    """Scalars of any kind become text; nulls stay nulls."""
    back = cast(tmp_path, array, "text", nulls="a=mask")
    assert back.fields["a"]["kind"] == "text"
    assert back.column("a") == expected


@pytest.mark.parametrize(
    ("array", "target", "expected"),
    [
        (pa.array(["1.5", "-inf", "NaN"]), "f4", np.array([1.5, -np.inf, np.nan], "f4")),
        (pa.array(["1.5"], pa.string_view()), "f2", np.array([1.5], "f2")),
        (pa.array(["true", "0"]), "bool", np.array([True, False])),
        (pa.array(["18446744073709551615"]), "u8", np.array([2**64 - 1], "u8")),
        (pa.array(["7", "7"]).dictionary_encode(), "i1", np.array([7, 7], "i1")),
        (pa.array([5, 6], pa.date32()), "i8", np.array([5, 6], "i8")),
        (pa.array([5, 6], pa.timestamp("ns", "UTC")), "f8", np.array([5, 6], "f8")),
        (pa.array([5], pa.duration("s")), "i2", np.array([5], "i2")),
    ],
)
def test_to_numbers(tmp_path: Path, array: pa.Array, target: str, expected: np.ndarray) -> None:
    """Text is parsed, dictionaries are decoded, times are the integers they are stored as."""
    assert difference(cast(tmp_path, array, target).column("a"), list(expected)) is None


LISTS: list[tuple[pa.Array, str, Sequence[Any]]] = [
    (pa.array([[1, 2], [], [3]]), "f4", [[1, 2], [], [3]]),
    (pa.array([["1", "2"], ["3"]]), "i2", [[1, 2], [3]]),
    (pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64(), 2)), "f2", [[1, 2], [3, 4]]),
    (pa.array([[[1], [2]], [[3], [4]]]), "u1", [[[1], [2]], [[3], [4]]]),
    (pa.array([[1, 2], [3]], pa.list_view(pa.int64())), "i4", [[1, 2], [3]]),
    (pa.array([[300, 2], [3]])[1:], "i1", [[3]]),
    (
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.float64(), [2, 2], permutation=[1, 0]),
            pa.array([[1.0, 2.0, 3.0, 4.0]], pa.list_(pa.float64(), 4)),
        ),
        "f4",
        [[[1, 3], [2, 4]]],
    ),
]


@pytest.mark.parametrize(("array", "target", "expected"), LISTS)
def test_lists(tmp_path: Path, array: pa.Array, target: str, expected: Sequence[Any]) -> None:
    """Lists are cast element by element; what a slice hides is not looked at."""
    back = cast(tmp_path, array, target)
    dtype = {
        "f4": "float32",
        "i2": "int16",
        "f2": "float16",
        "u1": "uint8",
        "i4": "int32",
        "i1": "int8",
    }[target]
    rows = [np.array(row, dtype) for row in expected]
    assert difference(back.column("a"), rows) is None


def test_hidden_elements_are_not_cast(tmp_path: Path) -> None:
    """Elements under a null row cannot spoil a cast."""
    array = pa.ListArray.from_arrays([0, 1, 3], [1, 999, 999], mask=pa.array([False, True]))
    back = cast(tmp_path, array, "i1", nulls="a=mask")
    assert difference(back.column("a"), [np.array([1], np.int8), None]) is None


def test_to_categories_and_back(tmp_path: Path) -> None:
    """Text and numbers become categories, dictionaries become text and bytes."""
    back = cast(tmp_path, pa.array(["b", "a", None, "b"]), "categorical", nulls="a=mask")
    assert (back.column("a"), back.categories("a")) == (["b", "a", None, "b"], ["b", "a"])
    assert cast(tmp_path, pa.array([3, 1, 3]), "categorical").column("a") == ["3", "1", "3"]
    words = pa.array(["x", "y", "x"]).dictionary_encode()
    assert cast(tmp_path, words, "text").column("a") == ["x", "y", "x"]
    assert cast(tmp_path, words, "binary").column("a") == [b"x", b"y", b"x"]


def test_patterns_and_structs(tmp_path: Path) -> None:
    """A cast may name a pattern or a struct; an exact name wins."""
    table = pa.table({"f1": [1], "f2": [2], "s": pa.array([{"u": 1, "v": 2}])})
    pack(table, tmp_path / "slab", cast={"f*": "f4", "s": "i1", "f2": "f2"})
    fields = Readback(tmp_path / "slab").fields
    assert [fields[name]["dtype"] for name in ("f1", "f2", "s.u", "s.v")] == [
        "float32",
        "float16",
        "int8",
        "int8",
    ]


def test_null_columns(tmp_path: Path) -> None:
    """A column of the null type is refused, and admitted with a type and a mask."""
    array = pa.nulls(3)
    with pytest.raises(SourceUnsupported, match=r"field a, found null\).*exclude="):
        pack(pa.table({"a": array}), tmp_path / "slab")
    assert cast(tmp_path, array, "f4", nulls="a=mask").column("a") == [None] * 3
    assert cast(tmp_path, array, "text", nulls="a=mask").column("a") == [None] * 3
    assert cast(tmp_path, array, "i8", nulls="a=4").values("a").tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    ("target", "exact", "rounded"),
    [
        ("f4", [2**24, -(2**62), 0, 3 * 2**40], [2**24 + 1, -(2**24) - 1, 2**63 - 1]),
        ("f8", [2**53, -(2**63), 2**62 + 2**10], [2**53 + 1, 2**62 + 1]),
        ("f2", [2048, -65504], [2049]),
        ("bf16", [256, 2**63 - 2**55], [257, -300_001]),
    ],
)
def test_rounded_integers_are_counted(
    tmp_path: Path, target: str, exact: list[int], rounded: list[int]
) -> None:
    """Integers that a float cannot hold become the nearest that it can, and a warning counts them.

    So they do inside lists; what can be held is no matter for a warning.
    """
    column = pa.array([*exact, *rounded, None])
    packed = pack(pa.table({"a": column}), tmp_path / "x", cast={"a": target}, nulls={"a": "mask"})
    (warning,) = packed.warnings
    assert warning.startswith(f"a: {len(rounded)} integer")
    lists = pa.array([exact, rounded])
    packed = pack(pa.table({"a": lists}), tmp_path / "y", cast={"a": target})
    assert packed.warnings[0].startswith(f"a: {len(rounded)} integer")
    assert pack(pa.table({"a": exact}), tmp_path / "z", cast={"a": target}).warnings == ()


def test_unsigned_and_stacked_integers_are_counted(tmp_path: Path) -> None:
    """The count covers uint64 and every column of a stack."""
    columns = {"a": pa.array([2**64 - 1, 2**63], pa.uint64()), "b": pa.array([1, 2**40 + 1])}
    packed = pack(pa.table(columns), tmp_path / "x", stack={"s": "*"}, cast={"*": "f4"})
    assert packed.warnings[0].startswith("s: 2 integers that float32 cannot hold")
