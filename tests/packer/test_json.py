"""`--cast COLUMN=json`: any type as strict JSON text."""

import datetime
import decimal
import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.naming import case
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.schemas.errors import FieldslabError, SourceInconsistent, SourceUnreadable


def strict(text: str) -> Any:
    """Parse JSON as strictly as it is defined."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    return json.loads(text, parse_constant=refuse, object_pairs_hook=members)


def packed(path: Path, source: Any) -> list[Any]:
    """The column `a` as JSON, parsed again; None for a null."""
    pack(source, path / "slab", cast="a=json", nulls="a=mask", force=True)
    back = Readback(path / "slab")
    assert (back.fields["a"]["kind"], back.fields["a"]["logical"]) == ("text", {"type": "json"})
    return [None if text is None else strict(text) for text in back.column("a")]


MOMENT = datetime.datetime(2024, 2, 29, 23, 59, 58, 123456)
SCALARS: list[tuple[pa.Array, list[Any]]] = [
    (pa.array([2**63 - 1, None]), [2**63 - 1, None]),
    (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
    (
        pa.array([1.5, float("nan"), float("inf"), float("-inf"), -0.0]),
        [1.5, "NaN", "Infinity", "-Infinity", -0.0],
    ),
    (pa.array([np.float16(1.5), np.float16("nan")]), [1.5, "NaN"]),
    (pa.array([True, None]), [True, None]),
    (pa.array(['"é\n\x00\u2028', ""]), ['"é\n\x00\u2028', ""]),
    (pa.array(["x" * 50, None], pa.string_view()), ["x" * 50, None]),
    (pa.array([b"\x00\xff", b""]), ["AP8=", ""]),
    (pa.array([b"\x00\xff"], pa.binary(2)), ["AP8="]),
    (pa.array([decimal.Decimal("1.10")], pa.decimal128(38, 2)), ["1.10"]),
    (pa.array([MOMENT]), ["2024-02-29T23:59:58.123456"]),
    (pa.array([MOMENT], pa.timestamp("us", "UTC")), ["2024-02-29T23:59:58.123456Z"]),
    (pa.array([1], pa.timestamp("ns")), ["1970-01-01T00:00:00.000000001"]),
    (pa.array([MOMENT.date()]), ["2024-02-29"]),
    (pa.array([MOMENT.time()]), ["23:59:58.123456"]),
    (pa.array([7], pa.duration("ms")), [7]),
    (
        pa.array([(1, -2, 3)], pa.month_day_nano_interval()),
        [{"months": 1, "days": -2, "nanoseconds": 3}],
    ),
    (pa.nulls(2), [None, None]),
    (pa.array(["a", "b", None, "a"]).dictionary_encode(), ["a", "b", None, "a"]),
    (pa.DictionaryArray.from_arrays([0, 1], pa.array([1, None])), [1, None]),
    (
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16), None], pa.binary(16))),
        [str(uuid.UUID(int=0)), None],
    ),
    (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([3, 0], pa.int8())), [True, False]),
    (pa.RunEndEncodedArray.from_arrays([2, 3], pa.array([5, None])), [5, 5, None]),
]

POINTS = pa.array([{"x": 1, "y": [b"a"]}, None, {"x": None, "y": None}])
PAIRS = pa.array([[("k", 1), ("k", None)], None, []], pa.map_(pa.string(), pa.int64()))
CODES, CHILDREN = (
    pa.array([0, 1, 0], pa.int8()),
    [pa.array([1, 9, None]), pa.array(["x", "y", "z"])],
)
NESTED: list[tuple[pa.Array, list[Any]]] = [
    (POINTS, [{"x": 1, "y": ["YQ=="]}, None, {"x": None, "y": None}]),
    (PAIRS, [[["k", 1], ["k", None]], None, []]),
    (pa.array([[1, None], None, []], pa.list_view(pa.int64())), [[1, None], None, []]),
    (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), [[1, 2], None]),
    (pa.array([[[1], []], [], None]), [[[1], []], [], None]),
    (pa.array([[{"n": float("nan")}], [None]]), [[{"n": "NaN"}], [None]]),
    (pa.array([["a", None]], pa.list_(pa.string_view())), [["a", None]]),
    (pa.array([[None], None], pa.list_(pa.null())), [[None], None]),
    (pa.UnionArray.from_sparse(CODES, CHILDREN), [1, "y", None]),
    (pa.UnionArray.from_dense(CODES, pa.array([0, 2, 1], pa.int32()), CHILDREN), [1, "z", 9]),
    (
        pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], ["n", "n"]),
        [{"n": 1, "n#2": 3}, {"n": 2, "n#2": 4}],
    ),
    (pa.array([{}, None], pa.struct([])), [{}, None]),
    (
        pa.StructArray.from_arrays([PAIRS, pa.nulls(3)], ["m", "z"]),
        [{"m": [["k", 1], ["k", None]], "z": None}, {"m": None, "z": None}, {"m": [], "z": None}],
    ),
]


def test_arrow(tmp_path: Path) -> None:
    """Every type becomes strict JSON, sliced or not; null rows stay null."""
    for array, expected in [*SCALARS, *NESTED]:
        with case(array.type):
            assert packed(tmp_path, pa.table({"a": array})) == expected
            part = pa.RecordBatch.from_arrays([array.slice(1)], ["a"])
            rows = packed(tmp_path, iter([part.slice(0, 0), part])) if len(part) else []
            assert rows == expected[1:]


@pytest.mark.parametrize("array", [POINTS, PAIRS, pa.array([[{"x": 1}], None])])
def test_parquet(tmp_path: Path, array: pa.Array) -> None:
    """What Parquet can nest, JSON can; values are those of `to_pylist`."""
    pq.write_table(pa.table({"a": array}), tmp_path / "a.parquet", row_group_size=2)
    actual = packed(tmp_path, tmp_path / "a.parquet")
    told = json.dumps(array.to_pylist(), default=lambda value: "YQ==")
    assert actual == json.loads(told)


def test_of_a_struct_beside_its_parts(tmp_path: Path) -> None:
    """A struct can be JSON while another is flattened, and a pattern can name both."""
    table = pa.table({"a": pa.array([{"x": 1}]), "b": pa.array([{"x": 2}])})
    pack(table, tmp_path / "slab", cast="a=json")
    assert list(Readback(tmp_path / "slab").fields) == ["a", "b.x"]
    pack(table, tmp_path / "both", cast="*=json")
    assert list(Readback(tmp_path / "both").fields) == ["a", "b"]


BAD_TEXT = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")]
)


def test_invalid_text(tmp_path: Path) -> None:
    """Text that is not UTF-8 is an error with its row, nested or not."""
    table = pa.table({"a": pa.StructArray.from_arrays([BAD_TEXT], ["x"])})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(SourceInconsistent, match="UTF8") as caught:
        pack(tmp_path / "a.parquet", tmp_path / "slab", cast="a=json")
    assert caught.value.context["row"] == 1
    with pytest.raises(SourceInconsistent, match=r"not UTF-8.*cast=.*a\.x.*binary") as caught:
        pack(tmp_path / "a.parquet", tmp_path / "slab")
    assert caught.value.context["row"] == 1
    pack(tmp_path / "a.parquet", tmp_path / "slab", cast="a.x=binary")
    assert Readback(tmp_path / "slab").column("a.x") == [b"a", b"\xff"]


def test_unknown_zone(tmp_path: Path) -> None:
    """A time zone that nobody knows is an error, not a crash."""
    array = pa.array([1], pa.timestamp("s", "Mars/Phobos"))
    with pytest.raises(FieldslabError, match="Mars/Phobos"):
        pack(pa.table({"a": array}), tmp_path / "slab", cast="a=json")
    pack(pa.table({"a": array}), tmp_path / "slab")
    assert Readback(tmp_path / "slab").fields["a"]["logical"]["timezone"] == "Mars/Phobos"


HINTED = [
    (pa.array([decimal.Decimal("1.5")]), ["text", "f8"]),
    (pa.array([[decimal.Decimal("1.5")]]), ["json"]),
    (pa.UnionArray.from_sparse(CODES, CHILDREN)[:2], ["json"]),
    (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), ["json"]),
    (pa.array([[[[1], [2, 3]]]]), ["json"]),
    (pa.array([{}], pa.struct([])), ["json"]),
    (pa.array([[["a"]]]), ["json"]),
]


@pytest.mark.parametrize(("array", "casts"), HINTED)
def test_hints_hold(tmp_path: Path, array: pa.Array, casts: list[str]) -> None:
    """A refused type is named with its column, and the casts that the hint names admit it."""
    table = pa.table({"x": [1] * len(array), "a": array})
    with pytest.raises(FieldslabError) as caught:
        pack(table, tmp_path / "slab")
    assert caught.value.exit_code == 4
    assert caught.value.context["field"] == "a"
    assert 'exclude=["a"]' in str(caught.value)
    for cast in casts:
        assert f'cast={{"a": "{cast}"}}' in str(caught.value)
        pack(table, tmp_path / cast, cast=f"a={cast}")
        assert Readback(tmp_path / cast).rows == len(array)
    pack(table, tmp_path / "without", exclude="a")
    assert list(Readback(tmp_path / "without").fields) == ["x"]


def test_json_that_is_nested_too_deeply_is_named(tmp_path: Path) -> None:
    """No parser ends with an error of Python: neither of lines nor of COCO."""
    deep = b"[" * 100_000 + b"]" * 100_000
    lines = tmp_path / "x.jsonl"
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "1.jpg").write_bytes(b"\xff\xd8\xff")
    coco = tmp_path / "coco.json"
    annotated: dict[str, Any] = {"annotations": str(coco)}
    plain: dict[str, Any] = {}
    for path, content, source, settings in (
        (lines, b'{"a": %s}\n' % deep, lines, plain),
        (coco, b'{"images": [], "annotations": [{"x": %s}]}' % deep, folder, annotated),
    ):
        path.write_bytes(content)
        with case(path), pytest.raises(SourceUnreadable, match="recursion") as caught:
            pack(source, tmp_path / "slab", settings=settings)
        assert str(caught.value.context["file"]).startswith(str(path))
