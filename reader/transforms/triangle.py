"""Symmetric matrices out of the pairs above their diagonal."""

from math import isnan
from typing import Any

import numpy as np

from fieldslab.reader.batch import Batch, Values
from fieldslab.reader.buffers import Allocator
from fieldslab.reader.transforms.transform import FRESH, Transform, explain_not_numeric
from fieldslab.reader.var_len import Ragged
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field


class UpperTriangle(Transform):
    """Pairs (i, j), i < j < n, as symmetric matrices (rows, n, n, *shape) of the same dtype.

    Pairs stand row by row: (0, 1), (0, 2) ... (0, n-1), (1, 2) ... (n-2, n-1), as
    `numpy.triu_indices(n, 1)` counts them. A fixed field is (n * (n-1) / 2, *shape). A ragged one
    holds the first of these pairs, in the same places: what is left when `--ragged` cuts the
    padding behind the last pair. The pairs of k < n particles alone, counted as those of a k x k
    matrix, are something else: their places depend on k.

    Parameters
    ----------
    n
        Rows and columns of a matrix.
    fill
        What stands on the diagonal, and where there is no pair.
    padding
        Pairs that hold nothing but this value are none; all pairs are taken as they are if not
        given. Particles that are not there leave such pairs between those of others, where no
        cut removes them: give it, and fixed and ragged fields make the same matrices.
    """

    def __init__(self, field: str, n: int = 100, fill: Any = 0, padding: Any = None) -> None:
        if n < 1:
            raise UsageError("the matrix must have at least one row", field=field, found=n)
        self.field = field
        self.n = n
        self.fill = fill
        self.padding = padding
        # The place of each cell's pair; those of the diagonal lie one behind the last pair.
        self._pairs = n * (n - 1) // 2
        self._places = np.full((n, n), self._pairs)
        above = np.triu_indices(n, 1)
        self._places[above] = np.arange(self._pairs)
        self._places.T[above] = np.arange(self._pairs)

    def __call__(self, batch: Batch, memory: Allocator = FRESH) -> dict[str, Values]:
        """See `Transform`."""
        rows = batch[self.field]
        if not isinstance(rows, np.ndarray | Ragged):
            raise UsageError("UpperTriangle: the field has no rows of pairs", field=self.field)
        values = rows.values if isinstance(rows, Ragged) else rows
        shape = values.shape[1:] if isinstance(rows, Ragged) else values.shape[2:]
        out = memory.allocate_array(self.field, (len(rows), self.n, self.n, *shape), values.dtype)
        pairs = np.empty((self._pairs + 1, *shape), values.dtype)
        for index, row in enumerate(rows):
            if len(row) > self._pairs:
                raise UsageError(
                    "UpperTriangle: more pairs than the matrix has above its diagonal",
                    field=self.field,
                    row=int(batch.rows[index]),
                    expected=self._pairs,
                    found=len(row),
                )
            pairs[: len(row)] = row
            pairs[len(row) :] = self.fill
            if self.padding is not None:
                pairs[self._find_padding_pairs(pairs)] = self.fill
            np.take(pairs, self._places, axis=0, out=out[index], mode="clip")
        return {self.field: out}

    def explain_misfit(self, field: Field) -> str | None:
        """See `Transform`."""
        if field.kind == "fixed" and field.shape[:1] != (self._pairs,):
            return f"{self.n} x {self.n} have {self._pairs} pairs, not {list(field.shape)}"
        if field.kind not in ("fixed", "ragged"):
            return "its rows are no pairs"
        return explain_not_numeric(field)

    def _find_padding_pairs(self, pairs: np.ndarray) -> np.ndarray:
        """Find the pairs that are padding: bool[pairs]."""
        nan = isinstance(self.padding, float) and isnan(self.padding)
        same = np.isnan(pairs) if nan else pairs == self.padding
        absent: np.ndarray = same.reshape(len(pairs), -1).all(axis=1)
        return absent
