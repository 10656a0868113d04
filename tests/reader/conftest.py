"""One slab with a field of every kind, and what each of its rows must be."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reader.windowing import EPISODES
from tests.slabs import Column, categorical, images, ragged, write_slab

from fieldslab.reader import Slab, open_slab
from fieldslab.schemas.fields import Logical

ROWS = 300
SHARDS = (7, 1, 200, 92)
LONG_NAMES = [f"category {number} é" for number in range(5)]


@dataclass(frozen=True)
class Example:
    """A slab on disk and the values it was written from."""

    path: Path
    columns: Mapping[str, Any]

    def value(self, name: str, row: int) -> Any:
        """What `slab[row][name]` must be."""
        column = self.columns[name]
        if not isinstance(column, Column):
            return column[row]
        if column.valid is not None and not column.valid[row]:
            return None
        if column.categories is not None:
            return column.categories[column.values[row]]
        if column.logical is not None:
            return np.int64(column.values[row]).view(f"<M8[{column.logical.unit}]")
        return column.values[row]

    def values(self, name: str, rows: Any) -> list[Any]:
        """What a gather of these rows must hold; null rows as they are stored."""
        column = self.columns[name]
        values = column.values if isinstance(column, Column) else column
        return [values[row] for row in rows]


def make_columns() -> dict[str, Any]:
    """Columns of every kind, all of them different in every row."""
    rng = np.random.default_rng(5)
    numbers = np.arange(ROWS)
    words = [f"row {row}: größe" * (row % 4) for row in range(ROWS)]
    return {
        "label": numbers,
        "box": rng.random((ROWS, 2, 3)).astype("f4"),
        "flag": numbers % 3 == 0,
        "caption": words,
        "blob": [bytes([row % 256]) * (row % 9) for row in range(ROWS)],
        "tokens": ragged([range(row, row + row % 6) for row in range(ROWS)], "int32"),
        "points": ragged([rng.random((row % 5, 2)) for row in range(ROWS)], "float64", (2,)),
        "photo": images(
            [rng.bytes(row % 50) for row in range(ROWS)],
            np.stack([numbers, numbers + 1], 1),
            points=[[[row, point, 0, 1, 2] for point in range(row % 4)] for row in range(ROWS)],
            codes=numbers % 6,
        ),
        "colour": categorical(numbers % 3, ["red", "", "größe"]),
        "place": categorical(numbers % 5, LONG_NAMES, table=True),
        "score": Column(numbers, "fixed", "int64", valid=numbers % 10 != 4),
        "remark": Column(words, "text", valid=(numbers < 8) | (numbers % 7 != 0)),
        "time": Column(numbers, "fixed", "int64", logical=Logical("timestamp", "us")),
    }


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    """The slab, and what was written."""
    columns = make_columns()
    path = write_slab(tmp_path_factory.mktemp("example") / "all.slab", columns, SHARDS)
    return Example(path, columns)


@pytest.fixture
def slab(example: Example) -> Slab:
    """The slab, freshly opened."""
    return open_slab(example.path)


@pytest.fixture(scope="session")
def series(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Episodes over four shards, with names, and tokens of any number a row."""
    rows = np.arange(ROWS)
    columns = {
        "x": rows,
        "state": np.stack([rows, -rows], 1).astype("f4"),
        "episode": EPISODES,
        "name": [f"episode {number}" for number in EPISODES],
        "arm": categorical(EPISODES % 2, ["left", "right"]),
        "tokens": ragged([range(row, row + row % 4) for row in range(ROWS)], "int32"),
        "packed": np.arange(ROWS * 5, dtype="u2").reshape(ROWS, 5),
    }
    return open_slab(
        write_slab(tmp_path_factory.mktemp("series") / "a.slab", columns, [7, 1, 200, 92])
    )
