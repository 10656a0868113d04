"""Reads a slab with `json` and `numpy.load` alone: an oracle that shares no code with fieldslab."""

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np


class Readback:
    """A slab read back: `fields` are the manifest's own dicts, by name."""

    def __init__(self, path: str | Path) -> None:
        """Read the manifest; arrays are loaded when they are asked for."""
        self._path = Path(path)
        self.manifest: dict[str, Any] = json.loads((self._path / "manifest.json").read_text())
        self.fields: dict[str, Any] = {field["name"]: field for field in self.manifest["fields"]}
        self.rows: int = self.manifest["rows"]

    def array(self, name: str, role: str, shard: int) -> np.ndarray | None:
        """One array of a field in one shard; None where there is no such file."""
        file = f"{self.fields[name]['stem']}.{role}.npy"
        path = self._path / f"shard-{shard:05d}" / file
        return np.load(path, mmap_mode="r") if path.exists() else None

    def column(self, name: str) -> list[Any]:
        """One value a row: ndarray (fixed, ragged), str, bytes, a category; None for a null."""
        rows: list[Any] = []
        for shard, told in enumerate(self.manifest["shards"]):
            part = self._shard(name, shard)
            assert len(part) == told["rows"], (name, shard)
            rows += part
        assert len(rows) == self.rows, name
        return rows

    def values(self, name: str) -> np.ndarray:
        """The `values` of all shards, one behind the other."""
        parts = [self.array(name, "values", index) for index in range(len(self.manifest["shards"]))]
        return np.concatenate([part for part in parts if part is not None] or [np.empty(0)])

    def _shard(self, name: str, shard: int) -> list[Any]:
        kind = self.fields[name]["kind"]
        values = self.array(name, "values", shard)
        assert values is not None, name
        offsets = self.array(name, "offsets", shard)
        valid = self.array(name, "valid", shard)
        rows: list[Any]
        if offsets is None:
            rows = list(values)
        else:
            assert offsets[0] == 0, name
            assert offsets[-1] == len(values), name
            rows = [values[a:b] for a, b in pairwise(offsets)]
        if valid is not None:
            assert len(valid) == len(rows), name
            assert not valid.all(), name
            for row, there in zip(rows, valid, strict=True):
                # What stands under a null is defined as well: nothing, zeros, the code -1.
                assert there or np.all(row == (-1 if kind == "categorical" else 0)), name
        there = np.ones(len(rows), bool) if valid is None else valid
        return [self._value(name, row) if ok else None for row, ok in zip(rows, there, strict=True)]

    def _value(self, name: str, row: Any) -> Any:
        kind = self.fields[name]["kind"]
        if kind == "categorical":
            return self.categories(name)[row]
        if kind == "text":
            return row.tobytes().decode()
        return row.tobytes() if kind in ("binary", "image") else row

    @cache  # noqa: B019  # lives as long as a test
    def categories(self, name: str) -> list[str]:
        """The categories of a field, from the manifest or from its table."""
        field = self.fields[name]
        if "categories" in field:
            return list(field["categories"])
        tables = self._path / "tables"
        text = np.load(tables / f"{field['stem']}.categories.values.npy").tobytes()
        ends = np.load(tables / f"{field['stem']}.categories.offsets.npy").tolist()
        return [text[a:b].decode() for a, b in pairwise(ends)]


def difference(actual: list[Any], expected: list[Any]) -> str | None:
    """The first row that differs, told; None where all are equal, bit for bit."""
    if len(actual) != len(expected):
        return f"{len(actual)} rows, not {len(expected)}"
    for row, (a, b) in enumerate(zip(actual, expected, strict=True)):
        if not same(a, b):
            return f"row {row}: {a!r}, not {b!r}"
    return None


def same(actual: Any, expected: Any) -> bool:
    """Equal in type and, for arrays, in dtype, shape and every bit."""
    if isinstance(expected, np.ndarray | np.generic):
        return (
            isinstance(actual, np.ndarray | np.generic)
            and actual.dtype == expected.dtype
            and actual.shape == expected.shape
            and actual.tobytes() == expected.tobytes()
        )
    return type(actual) is type(expected) and bool(actual == expected)
