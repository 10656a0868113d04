"""Chosen rows as a sequence that can also hand them over as one batch."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, overload

import numpy as np

from fieldslab.reader.batch import Batch
from fieldslab.reader.draws.visits import check_visits, get_visits
from fieldslab.reader.rows import Rows, check_index, check_rows
from fieldslab.schemas.errors import DamagedImage
from fieldslab.schemas.fields import Field


class SampledSlab(Protocol):
    """What is asked of a `Slab` for samples of it."""

    @property
    def fields(self) -> Mapping[str, Field]:
        """See `Slab`."""

    def gather(
        self,
        rows: Rows,
        fields: Sequence[str] | None = None,
        *,
        decode: Mapping[str, Any] | None = None,
        epoch: int = 0,
        visits: Any = None,
    ) -> Batch:
        """See `Slab`."""

    def __len__(self) -> int: ...
    def __getitem__(self, name: str) -> Any: ...


class Samples(Sequence[dict[str, Any]]):
    """Rows of a slab, one dict each, as `slab[row]` gives them; nothing is read before it is used.

    Loaders of other libraries ask for the rows of a batch and then join them. One that knows this
    class takes `batch` instead, which is one gather; one that does not still gets its rows.
    """

    def __init__(
        self,
        slab: SampledSlab,
        rows: Rows,
        fields: Sequence[str] | None = None,
        decode: Mapping[str, Any] | None = None,
        epoch: int = 0,
        visits: np.ndarray | None = None,
        chain: Callable[[Batch, int], Any] | None = None,
    ) -> None:
        """Take row numbers of `slab`, names of its fields (all if not given), what is decoded.

        `visits` are those that the rows know (see `Visit`), or else counted here, if not given.
        `chain` is what a dataset does to a batch of an epoch.
        """
        self.slab = slab
        self.decode = decode or {}
        self.chain = chain
        self.epoch = epoch
        self._rows = check_rows(rows, len(slab))
        self._visits = check_visits(get_visits(rows) if visits is None else visits, self._rows)
        self._fields = fields

    @cached_property
    def batch(self) -> Batch:
        """All of these rows; raises what `Slab.gather` raises."""
        return self._gather_rows(self._rows, self._fields, self._visits)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> "Samples": ...
    def __getitem__(self, key: int | slice) -> "dict[str, Any] | Samples":
        if isinstance(key, slice):
            return Samples(
                self.slab,
                self._rows[key],
                self._fields,
                self.decode,
                self.epoch,
                self._visits[key],
                self.chain,
            )
        index = check_index(key, len(self))
        if self.chain is not None:
            row_alone, visits = self._rows[[index]], self._visits[[index]]
            batch = self._gather_rows(row_alone, self._fields, visits)
            _refuse_skipped_row(batch)
            return {
                name: _get_first_row(value) for name, value in self.chain(batch, self.epoch).items()
            }
        row = int(self._rows[index])
        names = list(self.slab.fields) if self._fields is None else self._fields
        sample = {name: self.slab[name][row] for name in names if name not in self.decode}
        if self.decode:
            images = self._gather_rows([row], list(self.decode), self._visits[[index]])
            _refuse_skipped_row(images)
            sample |= {name: images[name][0] for name in images}
        return sample

    def _gather_rows(self, rows: Rows, fields: Sequence[str] | None, visits: np.ndarray) -> Batch:
        batch = self.slab.gather(rows, fields, decode=self.decode, epoch=self.epoch, visits=visits)
        if batch.visits is None:
            batch.visits = visits
        return batch

    def __repr__(self) -> str:
        return f"Samples({len(self)} rows)"


def _refuse_skipped_row(batch: Batch) -> None:
    """Raise DamagedImage where `on_error="skip"` left nothing of a row."""
    if not len(batch.rows):
        failure = batch.failures[0]
        hint = 'A single row cannot be skipped: read batches, or set on_error="fill".'
        raise DamagedImage(failure.reason, field=failure.field, row=failure.row, hint=hint)


def _get_first_row(value: Any) -> Any:
    """Return the first row of a value of a batch: arrays or tensors."""
    if getattr(value, "_fields", None):  # `Jagged`, of one row
        return value.values
    return type(value)(each[0] for each in value) if isinstance(value, tuple) else value[0]
