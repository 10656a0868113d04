"""Chosen rows as a sequence that can also hand them over as one batch."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from fieldslab.reader.batch import Batch
from fieldslab.reader.rows import Rows, as_index, as_rows

if TYPE_CHECKING:
    from fieldslab.reader.slab import Slab


class Samples(Sequence[dict[str, Any]]):
    """Rows of a slab, one dict each, as `slab[row]` gives them; nothing is read before it is used.

    Loaders of other libraries ask for the rows of a batch and then join them. One that knows this
    class takes `batch` instead, which is one gather; one that does not still gets its rows.
    """

    def __init__(self, slab: "Slab", rows: Rows, fields: Sequence[str] | None = None) -> None:
        """Take row numbers of `slab`, and names of its fields: all if not given."""
        self.slab = slab
        self._rows = as_rows(rows, len(slab))
        self._fields = fields

    @cached_property
    def batch(self) -> Batch:
        """All of these rows; raises what `Slab.gather` raises."""
        return self.slab.gather(self._rows, self._fields)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> "Samples": ...
    def __getitem__(self, key: int | slice) -> "dict[str, Any] | Samples":
        if isinstance(key, slice):
            return Samples(self.slab, self._rows[key], self._fields)
        row = int(self._rows[as_index(key, len(self))])
        if self._fields is None:
            return self.slab[row]
        return {name: self.slab[name][row] for name in self._fields}

    def __repr__(self) -> str:
        return f"Samples({len(self)} rows)"
