"""Random rows of every nested type, and what a slab of them should hold."""

import random
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.reader import Slab

WORDS = ["", "a", "größe", "🐈" * 3, "a longer text, to have more than a few bytes"]
MASK = {"* or null": "mask"}
NUMBERS = pa.list_(pa.list_(pa.int32()))


def make_nested_table(rows: int, seed: int = 0) -> pa.Table:
    """Make a table with a column of each nested type; those named so have nulls."""
    rng = random.Random(seed)

    def repeat(make: Any, most: int = 5) -> list[Any]:
        return [make() for _ in range(rng.randrange(most))]

    def or_null(make: Any) -> Any:
        return None if rng.random() < 0.2 else make()

    def word() -> str:
        return rng.choice(WORDS)

    def numbers() -> list[int]:
        return repeat(lambda: rng.randrange(-(2**31), 2**31))

    def box() -> dict[str, Any]:
        return {"name": word(), "at": rng.random(), "points": numbers()}

    def pairs() -> list[tuple[str, float]]:
        return [(f"{number} {word()}", rng.random()) for number in range(rng.randrange(4))]

    def column(make: Any, kind: pa.DataType) -> pa.Array:
        return pa.array([make() for _ in range(rows)], kind)

    texts, blobs = pa.list_(pa.string()), pa.list_(pa.binary())
    boxes = pa.struct({"name": pa.string(), "at": pa.float64(), "points": pa.list_(pa.int64())})
    return pa.table(
        {
            "id": pa.array(range(rows)),
            "texts": column(lambda: repeat(word), texts),
            "texts or null": column(lambda: or_null(lambda: repeat(lambda: or_null(word))), texts),
            "blobs": column(lambda: repeat(lambda: word().encode()), blobs),
            "lists": column(lambda: repeat(numbers), NUMBERS),
            "lists or null": column(
                lambda: or_null(lambda: repeat(lambda: or_null(numbers))), NUMBERS
            ),
            "boxes": column(lambda: repeat(box), pa.list_(boxes)),
            "map": column(pairs, pa.map_(pa.string(), pa.float64())),
        }
    )


def flatten_structs(table: pa.Table) -> dict[str, list[Any]]:
    """Return the rows of each field: a list of structs, or a map, has one for each member."""
    rows: dict[str, list[Any]] = {}
    for name in table.column_names:
        values = table[name].to_pylist()
        if name == "map":
            rows["map.key"] = [[key for key, _ in row] for row in values]
            rows["map.value"] = [[value for _, value in row] for row in values]
        elif name == "boxes":
            for member in ("name", "at", "points"):
                rows[f"boxes.{member}"] = [[box[member] for box in row] for row in values]
        else:
            rows[name] = values
    return rows


def read_rows(slab: Slab, rows: Any) -> dict[str, list[Any]]:
    """Gather rows, as lists of Python, None for nulls."""
    batch = slab.gather(rows)
    result = {}
    for name in batch:
        values = batch[name].tolist()
        valid = batch.valid.get(name, np.ones(len(values), bool))
        result[name] = [
            value if is_valid else None for value, is_valid in zip(values, valid, strict=True)
        ]
    return result


def to_python(value: Any) -> Any:
    """Turn what `slab[i]` gives into plain Python."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [to_python(item) for item in value] if isinstance(value, list) else value
