"""One column of every type that is packed as it is: values, how Arrow holds them, what comes out.

Values are made by numpy, Arrow arrays are made from them, and what must come out is told again in
numpy: nothing here goes through fieldslab.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

ROWS = 23
_RANDOM = np.random.default_rng(7)


@dataclass(frozen=True)
class Case:
    """A column: `build` makes an Arrow array of `rows`, which may hold None; `expect` a row.

    `parquet` is False where Parquet cannot hold the type.
    """

    name: str
    rows: Sequence[Any]
    build: Callable[[Sequence[Any]], pa.Array]
    kind: str
    expect: Callable[[Any], Any]
    told: dict[str, Any] = field(default_factory=dict)
    parquet: bool = True

    def expected(self, rows: Sequence[Any]) -> list[Any]:
        """What the slab must hold for these rows."""
        return [None if row is None else self.expect(row) for row in rows]


def _typed(kind: pa.DataType) -> Callable[[Sequence[Any]], pa.Array]:
    return lambda rows: pa.array(list(rows), kind)


def _stored(kind: Any, storage: pa.DataType) -> Callable[[Sequence[Any]], pa.Array]:
    return lambda rows: pa.ExtensionArray.from_storage(kind, pa.array(list(rows), storage))


def _bits(dtype: str) -> np.ndarray:
    """Values of any bits: every NaN payload, -0.0 and infinity may occur."""
    size = np.dtype(dtype).itemsize
    values = _RANDOM.integers(0, 256, ROWS * size, dtype=np.uint8).view(dtype).copy()
    if np.dtype(dtype).kind == "f":
        special = {
            2: [0x7E01, 0xFC01, 0x8000],
            4: [0x7FC00001, 0xFF800001, 0x80000000],
            8: [0x7FF8000000000001, 0xFFF0000000000001, 0x8000000000000000],
        }
        values[:3] = np.array(special[size], f"u{size}").view(dtype)
        values[3] = np.inf
    else:
        values[:2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    return values


def _floats(kind: pa.DataType, dtype: str) -> Callable[[Sequence[Any]], pa.Array]:
    """Through buffers: `pa.array` of Python floats would tidy up NaN payloads."""

    def build(rows: Sequence[Any]) -> pa.Array:
        values = np.array([np.zeros((), dtype) if row is None else row for row in rows], dtype)
        mask = np.array([row is None for row in rows], bool)
        return pa.array(values, kind, mask=mask)

    return build


def _encoded(inner: Callable[[Sequence[Any]], pa.Array]) -> Callable[[Sequence[Any]], pa.Array]:
    """Run-end encoded, with runs of three where the rows allow."""

    def build(rows: Sequence[Any]) -> pa.Array:
        starts = [row for row in range(len(rows)) if row == 0 or rows[row] is not rows[row - 1]]
        ends = pa.array([*starts[1:], len(rows)][: len(starts)], pa.int32())
        return pa.RunEndEncodedArray.from_arrays(ends, inner([rows[index] for index in starts]))

    return build


def _thrice(rows: Sequence[Any]) -> list[Any]:
    return [rows[row // 3] for row in range(len(rows))]


def _dictionary(
    index: pa.DataType, inner: Callable[[Sequence[Any]], pa.Array], *, ordered: bool = False
) -> Callable[[Sequence[Any]], pa.Array]:
    """A dictionary in order of first appearance, every second null as a null in the dictionary."""

    def build(rows: Sequence[Any]) -> pa.Array:
        known: list[Any] = []
        codes: list[int | None] = []
        for position, row in enumerate(rows):
            if row is None and position % 2:
                codes.append(None)
                continue
            if row not in known:
                known.append(row)
            codes.append(known.index(row))
        if ordered:
            order = sorted(
                range(len(known)), key=lambda offset: (known[offset] is None, known[offset] or "")
            )
            codes = [None if code is None else order.index(code) for code in codes]
            known = [known[index] for index in order]
        return pa.DictionaryArray.from_arrays(pa.array(codes, index), inner(known), ordered=ordered)

    return build


def _views(element: pa.DataType, *, large: bool) -> Callable[[Sequence[Any]], pa.Array]:
    """List views whose elements lie backwards, with gaps and hidden elements under nulls."""

    def build(rows: Sequence[Any]) -> pa.Array:
        values: list[Any] = [1]
        offsets, sizes = [], []
        for row in reversed(rows):
            offsets.append(len(values))
            hidden = [9, 9] if row is None else list(row)
            sizes.append(len(hidden))
            values += [*hidden, 1]
        width = pa.int64() if large else pa.int32()
        cls = pa.LargeListViewArray if large else pa.ListViewArray
        return cls.from_arrays(
            pa.array(offsets[::-1], width),
            pa.array(sizes[::-1], width),
            pa.array(values, element),
            mask=pa.array([row is None for row in rows], pa.bool_()),
        )

    return build


def _hidden(kind: pa.DataType) -> Callable[[Sequence[Any]], pa.Array]:
    """Lists whose null rows hide elements."""

    def build(rows: Sequence[Any]) -> pa.Array:
        shown = [[7, 7, 7] if row is None else row for row in rows]
        full = pa.array(shown, kind)
        return type(full).from_arrays(
            full.offsets, full.values, mask=pa.array([row is None for row in rows], pa.bool_())
        )

    return build


def _hidden_fixed(element: pa.DataType, size: int) -> Callable[[Sequence[Any]], pa.Array]:
    def build(rows: Sequence[Any]) -> pa.Array:
        shown = [[7] * size if row is None else row for row in rows]
        values = pa.array([value for row in shown for value in row], element)
        mask = pa.array([row is None for row in rows], pa.bool_())
        return pa.FixedSizeListArray.from_arrays(values, size, mask=mask)

    return build


def _tensor(dtype: pa.DataType, shape: list[int], order: list[int]) -> Case:
    kind = pa.fixed_shape_tensor(dtype, shape, permutation=order)
    numpy = np.dtype(dtype.to_pandas_dtype())
    size = int(np.prod(shape))
    rows = [list(map(int, row)) for row in _RANDOM.integers(0, 99, (ROWS, size))]
    return Case(
        f"tensor{''.join(map(str, order))}",
        rows,
        _stored(kind, pa.list_(dtype, size)),
        "fixed",
        lambda row: np.ascontiguousarray(np.array(row, numpy).reshape(shape).transpose(order)),
        {"dtype": numpy.name, "shape": [shape[axis] for axis in order]},
    )


def _lists(element: str, low: int = 0, high: int = 7) -> list[list[int]]:
    top = min(np.iinfo(element).max, 10**6) if np.dtype(element).kind in "iu" else 100
    rows = [_RANDOM.integers(0, top, _RANDOM.integers(low, high)).tolist() for _ in range(ROWS)]
    if low == 0:
        rows[0] = rows[5] = []
    return rows


def _words() -> list[str]:
    words = ["", "a", "ä", "漢字", "🙂 " * 9, "x" * 300, "a\x00b", "line\nline", "é"]
    return [words[int(row)] for row in _RANDOM.integers(0, len(words), ROWS)]


def _blobs() -> list[bytes]:
    return [_RANDOM.bytes(int(size)) for size in _RANDOM.integers(0, 40, ROWS)]


def _as(dtype: str, *shape: int) -> Callable[[Any], Any]:
    if shape:
        return lambda row: np.array(row, dtype).reshape(shape)
    return lambda row: np.array(row, dtype)[()]


def _flat(dtype: str, *trailing: int) -> Callable[[Any], Any]:
    return lambda row: np.array(row, dtype).reshape(-1, *trailing)


def _same(row: Any) -> Any:
    return row


def _fixed_bytes(row: bytes) -> np.ndarray:
    return np.frombuffer(row, np.uint8)


def _numbers() -> list[Case]:
    cases = []
    for bits in (8, 16, 32, 64):
        for sign in ("", "u"):
            name = f"{sign}int{bits}"
            rows = [int(value) for value in _bits(name)]
            told = {"dtype": name}
            cases.append(Case(name, rows, _typed(getattr(pa, name)()), "fixed", _as(name), told))
    for bits in (16, 32, 64):
        name = f"float{bits}"
        build = _floats(getattr(pa, name)(), name)
        cases.append(Case(name, list(_bits(name)), build, "fixed", _same, {"dtype": name}))
    flags = [bool(value) for value in _RANDOM.integers(0, 2, ROWS)]
    told = {"dtype": "bool"}
    cases.append(Case("bool", flags, _typed(pa.bool_()), "fixed", np.bool_, told))
    bool8 = _stored(pa.bool8(), pa.int8())
    bytes8 = [-3, 0, 1, 0, *map(int, _RANDOM.integers(-128, 128, ROWS - 4))]
    cases.append(Case("bool8", bytes8, bool8, "fixed", np.bool_, told))
    return cases


def _times() -> list[Case]:
    long = [int(value) for value in _RANDOM.integers(-(2**61), 2**61, ROWS)]
    short = [int(value) for value in _RANDOM.integers(0, 86_400, ROWS)]
    days = [int(value) for value in _RANDOM.integers(-99_999, 99_999, ROWS)]
    cases = [
        Case(
            "date32",
            days,
            _typed(pa.date32()),
            "fixed",
            _as("int32"),
            {"dtype": "int32", "logical": {"type": "date", "unit": "D"}},
        ),
        Case(
            "date64",
            [day * 86_400_000 for day in days],
            _typed(pa.date64()),
            "fixed",
            _as("int64"),
            {"dtype": "int64", "logical": {"type": "date", "unit": "ms"}},
            parquet=False,
        ),  # Parquet keeps the days alone
    ]
    for unit, kind in (
        ("s", pa.time32("s")),
        ("ms", pa.time32("ms")),
        ("us", pa.time64("us")),
        ("ns", pa.time64("ns")),
    ):
        dtype = f"int{kind.bit_width}"
        told = {"dtype": dtype, "logical": {"type": "time", "unit": unit}}
        cases.append(
            Case(
                f"time_{unit}", short, _typed(kind), "fixed", _as(dtype), told, parquet=unit != "s"
            )
        )
    for unit in ("s", "ms", "us", "ns"):
        for zone in (None, "UTC", "Europe/Paris", "+05:30"):
            logical = {"type": "timestamp", "unit": unit} | ({"timezone": zone} if zone else {})
            cases.append(
                Case(
                    f"timestamp_{unit}_{zone}",
                    long if unit != "s" else days,
                    _typed(pa.timestamp(unit, zone)),
                    "fixed",
                    _as("int64"),
                    {"dtype": "int64", "logical": logical},
                    parquet=unit != "s",
                )
            )
        logical = {"type": "duration", "unit": unit}
        told = {"dtype": "int64", "logical": logical}
        cases.append(
            Case(f"duration_{unit}", long, _typed(pa.duration(unit)), "fixed", _as("int64"), told)
        )
    return cases


def _strings() -> list[Case]:
    cases = []
    for name in ("string", "large_string", "string_view"):
        cases.append(Case(name, _words(), _typed(getattr(pa, name)()), "text", _same))
    for name in ("binary", "large_binary", "binary_view"):
        cases.append(Case(name, _blobs(), _typed(getattr(pa, name)()), "binary", _same))
    fixed = [_RANDOM.bytes(5) for _ in range(ROWS)]
    told = {"dtype": "uint8", "shape": [5], "logical": {"type": "bytes"}}
    cases.append(Case("fixed_binary", fixed, _typed(pa.binary(5)), "fixed", _fixed_bytes, told))
    ids = [uuid.UUID(bytes=_RANDOM.bytes(16)).bytes for _ in range(ROWS)]
    told = {"dtype": "uint8", "shape": [16], "logical": {"type": "uuid"}}
    build = _stored(pa.uuid(), pa.binary(16))
    cases.append(Case("uuid", ids, build, "fixed", _fixed_bytes, told))
    documents = [f'{{"a": {row}}}' for row in range(ROWS)]
    build = _stored(pa.json_(pa.string()), pa.string())
    cases.append(Case("json", documents, build, "text", _same, {"logical": {"type": "json"}}))
    build = _stored(pa.opaque(pa.string(), "thing", "maker"), pa.string())
    cases.append(Case("opaque", _words(), build, "text", _same))
    return cases


def _categories() -> list[Case]:
    cases = []
    words = _words()
    for sign in ("", "u"):
        for bits in (8, 16, 32, 64):
            index = getattr(pa, f"{sign}int{bits}")()
            build = _dictionary(index, _typed(pa.string()))
            parquet = (sign, bits) == ("", 32)
            cases.append(
                Case(
                    f"dictionary_{sign}{bits}", words, build, "categorical", _same, parquet=parquet
                )
            )
    for name in ("large_string", "string_view"):
        build = _dictionary(pa.int32(), _typed(getattr(pa, name)()))
        cases.append(
            Case(
                f"dictionary_{name}",
                words,
                build,
                "categorical",
                _same,
                parquet=name == "large_string",
            )
        )
    build = _dictionary(pa.int8(), _typed(pa.string()), ordered=True)
    cases.append(
        Case(
            "dictionary_ordered",
            words,
            build,
            "categorical",
            _same,
            {"attributes": {"ordered": True}},
            parquet=False,
        )
    )
    build = _dictionary(pa.int8(), _typed(pa.int64()))
    wide = [int(value) * 2**55 + 1 for value in _RANDOM.integers(0, 5, ROWS)]
    told = {"dtype": "int64"}
    cases.append(Case("dictionary_int64", wide, build, "fixed", _as("int64"), told, parquet=False))
    build = _dictionary(pa.int16(), _typed(pa.binary()))
    cases.append(
        Case(
            "dictionary_binary",
            [word.encode() for word in words],
            build,
            "binary",
            _same,
            parquet=False,
        )
    )
    build = _dictionary(pa.int16(), _typed(pa.list_(pa.int16())))
    pairs = [[int(value), 1] for value in _RANDOM.integers(0, 5, ROWS)]
    told = {"dtype": "int16"}
    cases.append(
        Case("dictionary_list", pairs, build, "ragged", _flat("int16"), told, parquet=False)
    )
    return cases


def _runs() -> list[Case]:
    numbers = [int(value) for value in _bits("int64")]
    texts, lists = _words(), _lists("int16")
    told = {"dtype": "int64"}
    return [
        Case(
            "runs_int64",
            _thrice(numbers),
            _encoded(_typed(pa.int64())),
            "fixed",
            _as("int64"),
            told,
            parquet=False,
        ),
        Case(
            "runs_string",
            _thrice(texts),
            _encoded(_typed(pa.string())),
            "text",
            _same,
            parquet=False,
        ),
        Case(
            "runs_view",
            _thrice(texts),
            _encoded(_typed(pa.string_view())),
            "text",
            _same,
            parquet=False,
        ),
        Case(
            "runs_list",
            _thrice(lists),
            _encoded(_typed(pa.list_(pa.int16()))),
            "ragged",
            _flat("int16"),
            {"dtype": "int16"},
            parquet=False,
        ),
        Case(
            "runs_dictionary",
            _thrice(texts),
            _encoded(_dictionary(pa.int8(), _typed(pa.string()))),
            "categorical",
            _same,
            parquet=False,
        ),
    ]


def _nested() -> list[Case]:
    small, told = _lists("int16"), {"dtype": "int16"}
    flat = _flat("int16")
    fours = _lists("int32", 4, 5)
    square = [[row[:2], row[2:]] for row in fours]
    triples = [[[1, 2, 3]] * int(n) for n in _RANDOM.integers(0, 4, ROWS)]
    triples[:2] = [[], [[4, 5, 6], [7, 8, 9]]]
    cubes = [[[[row, 1], [2, 3]]] for row in range(ROWS)]
    stamps = [[row, row + 1] for row in range(ROWS)]
    fixed = {"dtype": "int32", "shape": [4]}
    return [
        Case("list", small, _typed(pa.list_(pa.int16())), "ragged", flat, told),
        Case("large_list", small, _typed(pa.large_list(pa.int16())), "ragged", flat, told),
        Case("list_hidden", small, _hidden(pa.list_(pa.int16())), "ragged", flat, told),
        Case(
            "list_view", small, _views(pa.int16(), large=False), "ragged", flat, told, parquet=False
        ),
        Case(
            "large_list_view",
            small,
            _views(pa.int16(), large=True),
            "ragged",
            flat,
            told,
            parquet=False,
        ),
        Case(
            "list_bool",
            [[bool(v % 2) for v in row] for row in small],
            _typed(pa.list_(pa.bool_())),
            "ragged",
            _flat("bool"),
            {"dtype": "bool"},
        ),
        Case(
            "list_float16",
            small,
            lambda rows: pa.array(
                [None if r is None else [np.float16(v) for v in r] for r in rows],
                pa.list_(pa.float16()),
            ),
            "ragged",
            _flat("float16"),
            {"dtype": "float16"},
        ),
        Case(
            "list_timestamp",
            stamps,
            _typed(pa.list_(pa.timestamp("us", "UTC"))),
            "ragged",
            _flat("int64"),
            {"dtype": "int64", "logical": {"type": "timestamp", "unit": "us", "timezone": "UTC"}},
        ),
        Case(
            "list_fixed_binary",
            [[b"abc", b"def"][: row % 3] for row in range(ROWS)],
            _typed(pa.list_(pa.binary(3))),
            "ragged",
            lambda row: np.frombuffer(b"".join(row), np.uint8).reshape(-1, 3),
            {"dtype": "uint8", "shape": [3], "logical": {"type": "bytes"}},
        ),
        Case(
            "list_dictionary",
            [[v % 3 for v in row] for row in small],
            lambda rows: pa.array(rows, pa.list_(pa.dictionary(pa.int8(), pa.int16()))),
            "ragged",
            flat,
            told,
            parquet=False,
        ),
        Case("fixed_list", fours, _typed(pa.list_(pa.int32(), 4)), "fixed", _as("int32", 4), fixed),
        Case("fixed_hidden", fours, _hidden_fixed(pa.int32(), 4), "fixed", _as("int32", 4), fixed),
        Case(
            "fixed_fixed",
            square,
            _typed(pa.list_(pa.list_(pa.int32(), 2), 2)),
            "fixed",
            _as("int32", 2, 2),
            {"dtype": "int32", "shape": [2, 2]},
            parquet=False,
        ),
        Case(
            "list_of_fixed",
            triples,
            _typed(pa.list_(pa.list_(pa.int8(), 3))),
            "ragged",
            _flat("int8", 3),
            {"dtype": "int8", "shape": [3]},
        ),
        Case(
            "square",
            square,
            _typed(pa.list_(pa.list_(pa.int32()))),
            "fixed",
            _as("int32", 2, 2),
            {"dtype": "int32", "shape": [2, 2]},
        ),
        Case(
            "triples",
            triples,
            _typed(pa.large_list(pa.list_(pa.int8()))),
            "ragged",
            _flat("int8", 3),
            {"dtype": "int8", "shape": [3]},
        ),
        Case(
            "cubes",
            cubes,
            _typed(pa.list_(pa.list_view(pa.large_list(pa.int8())))),
            "fixed",
            _as("int8", 1, 2, 2),
            {"dtype": "int8", "shape": [1, 2, 2]},
            parquet=False,
        ),
        _tensor(pa.int32(), [4], [0]),
        _tensor(pa.float32(), [2, 3], [1, 0]),
        _tensor(pa.int16(), [2, 3, 4], [2, 0, 1]),
    ]


def writable(table: pa.Table) -> pa.Table:
    """A table for Parquet, which cannot write nulls inside of dictionaries: they move out."""
    for index, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            encoded = table.column(index).cast(column.type.value_type).dictionary_encode()
            table = table.set_column(index, column, encoded.cast(column.type))
    return table


CASES = [*_numbers(), *_times(), *_strings(), *_categories(), *_runs(), *_nested()]
