"""A table with columns of every type that a slab holds, in the types that it gives back."""

import datetime
import json
import uuid
from typing import Any

import numpy as np
import pyarrow as pa

NUMBERS = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)


def make_table(rows: int = 50) -> pa.Table:
    """Make the table; some columns have nulls."""
    rng, numbers = np.random.default_rng(0), np.arange(rows)
    hidden = rng.random(rows) < 0.2
    small = numbers.astype(np.int32)

    def keep(values: list[Any]) -> list[Any]:
        return [None if hide else value for hide, value in zip(hidden, values, strict=True)]

    def nest(array: pa.Array, *shape: int) -> pa.Array:
        for size in reversed(shape):
            array = pa.FixedSizeListArray.from_arrays(array, size)
        return array

    texts = pa.array([f"é{row}" * (row % 3) for row in numbers], pa.large_string())
    documents = pa.array([f'{{"a": {row}}}' for row in numbers], pa.large_string())
    keys = pa.array([uuid.UUID(int=int(row)).bytes for row in numbers], pa.binary(16))
    codes = pa.array(small % 3, mask=hidden)
    names = pa.array(["z", "y", "x", "unused"], pa.large_string())
    columns = {
        **{name: pa.array(rng.integers(0, 100, rows).astype(name)) for name in NUMBERS},
        "bool": pa.array(numbers % 3 == 0),
        "bool or null": pa.array(numbers % 3 == 0, mask=hidden),
        "float or null": pa.array(rng.random(rows), mask=hidden),
        **{f"timestamp {unit}": pa.array(numbers, pa.timestamp(unit)) for unit in ("ms", "ns")},
        "zone": pa.array(numbers, pa.timestamp("us", "Europe/Berlin"), mask=hidden),
        **{f"duration {unit}": pa.array(numbers, pa.duration(unit)) for unit in ("s", "ns")},
        "time32": pa.array(small).cast(pa.time32("ms")),
        "time64": pa.array(numbers).cast(pa.time64("us")),
        "date": pa.array(small).cast(pa.date32()),
        "text": texts,
        "text or null": pa.array(keep(texts.to_pylist()), pa.large_string()),
        "binary": pa.array([b"\xff" * row for row in numbers], pa.large_binary()),
        "json": pa.ExtensionArray.from_storage(pa.json_(pa.large_string()), documents),
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), keys),
        "bytes or null": pa.array(keep([bytes([row]) * 5 for row in numbers]), pa.binary(5)),
        "category": pa.array(
            ["ab"[row % 2] for row in numbers], pa.large_string()
        ).dictionary_encode(),
        "ordered or null": pa.DictionaryArray.from_arrays(codes, names, ordered=True),
        "matrix": nest(pa.array(rng.random(rows * 6)), 3, 2),
        "vector or null": pa.array(keep([[row, 1] for row in numbers]), pa.list_(pa.int32(), 2)),
        "bools": nest(pa.array(rng.random(rows * 4) < 0.5), 4),
        "moments": nest(pa.array(np.arange(rows * 2), pa.timestamp("us")), 2),
        "ragged": pa.array([range(row % 4) for row in numbers], pa.large_list(pa.int16())),
        "ragged or null": pa.array(
            keep([range(row % 4) for row in numbers]), pa.large_list(pa.float32())
        ),
        "ragged pairs": pa.array(
            [[[1.0, row]] * (row % 4) for row in numbers],
            pa.large_list(pa.list_(pa.float32(), 2)),
        ),
        "ragged dates": pa.array(
            [[datetime.date(2020, 1, 1)] * (row % 4) for row in numbers],
            pa.large_list(pa.date32()),
        ),
        "lists of text": pa.array(
            [texts.to_pylist()[: row % 4] for row in numbers], pa.large_list(pa.large_string())
        ),
        "lists of text or null": pa.array(
            keep([["a", None][: row % 3] for row in numbers]), pa.large_list(pa.large_string())
        ),
        "lists of bytes": pa.array(
            [[b"\xff" * row] * (row % 3) for row in numbers], pa.large_list(pa.large_binary())
        ),
        "lists": pa.array(
            [[[row]] * (row % 4) for row in numbers], pa.large_list(pa.large_list(pa.int16()))
        ),
        "lists or null": pa.array(
            keep([[[row] * 2, None, []][: row % 4] for row in numbers]),
            pa.large_list(pa.large_list(pa.float32())),
        ),
        "label": pa.array(numbers % 3),
    }
    features = {"label": {"_type": "ClassLabel", "names": ["a", "b", "c"]}}
    described = json.dumps({"info": {"features": features}})
    table = pa.table(columns)
    for name in ("lists", "lists or null"):  # which could be rectangular otherwise
        index = table.schema.get_field_index(name)
        marked = table.schema.field(name).with_metadata({"fieldslab:nested": "ragged"})
        table = table.set_column(index, marked, table[name])
    return table.replace_schema_metadata({"note": "kept", "huggingface": described})
