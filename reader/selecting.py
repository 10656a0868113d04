"""Views of a slab by what its rows hold, or by their numbers: methods of `Slab`."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fieldslab.reader.column import Column
from fieldslab.reader.rowfiles import open_row_file
from fieldslab.reader.rows import Rows, check_integer, check_rows
from fieldslab.reader.slab_storage import Storage
from fieldslab.reader.var_len import VarLenValues
from fieldslab.reader.views import ChosenRows, View, choose_rows, find_stored_rows
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.rowfile import SUFFIX, read_row_file, write_row_file

if TYPE_CHECKING:
    from fieldslab.reader.batch import Batch
    from fieldslab.schemas.conditions.filtering import Values

_MOST_PIECES = 4
"""Where more shards than these hold a piece of rows, the rows are copied together."""


class Selectable:
    """Rows of a slab, of which others can be chosen. Views share everything with the slab."""

    def __init__(self, storage: Storage, view: View) -> None:
        self._storage = storage
        self._view = view

    def names(self, fields: Sequence[str] | None = None) -> list[str]:
        """Return names of the given fields, each once; of all by default. Raises UnknownField."""
        if fields is None:
            return list(self._storage.fields)
        if isinstance(fields, str):
            raise UsageError(
                "`fields` must be a list of names", found=fields, hint=f"Give [{fields!r}]."
            )
        for name in fields:
            self._storage.check_field_name(name)
        return list(dict.fromkeys(fields))

    def select(self, rows: Rows | str | os.PathLike[str]) -> Self:
        """Choose rows by number, in the order given: a view.

        Parameters
        ----------
        rows
            Row numbers of this slab or view, where negative ones count from the end; or the path of
            a `.npy` file of them, or of a `.rows` file that `save` wrote, whose numbers are those
            of the slab, not of a view. `.rows` files are mapped, not read into memory.

        Raises
        ------
        RowOutOfRange, UsageError
            There is no such row; the file holds something else.
        SlabChanged
            The `.rows` file was saved for another slab.
        """
        storage, total = self._storage, self._storage.manifest.rows
        if isinstance(rows, str | os.PathLike):
            path = Path(rows)
            if path.suffix == SUFFIX:
                if self._view != range(total):
                    hint = "Select from the slab that was opened."
                    problem = "a file of rows cannot select from a view"
                    raise UsageError(problem, file=path, hint=hint)
                numbers = read_row_file(path, storage.manifest.id, total)
                return type(self)(storage, ChosenRows(numbers, total))
            rows = open_row_file(path)
        numbers = check_rows(rows, len(self._view))
        return type(self)(storage, choose_rows(self._view, numbers, total))

    def where(self, expression: Any) -> Self:
        """Choose the rows for which an expression is true: a view, in the order of this one.

        Only the fields in the expression are read, a batch at a time. Fixed fields with one value a
        row, text, binary and categorical fields can be compared, the last by name. A comparison
        with null is not true.

        Parameters
        ----------
        expression
            `pyarrow.compute.Expression`, such as `pc.field("label") == 3`, or a text, such as
            "label in [3, 5] and not is_null(caption)". In a text, times are written in ISO 8601,
            members of structs with dots, and names with spaces or signs as `field("user id")`.

        Raises UsageError for an expression that does not fit, and what `gather` raises.
        """
        from fieldslab.schemas.conditions.filtering import find_rows

        storage = self._storage
        rows = find_rows(
            expression, storage.fields, self._list_categories, self._read_values, len(self._view)
        )
        storage.changes.check()  # values were looked at in the maps
        return type(self)(storage, choose_rows(self._view, rows, storage.manifest.rows))

    def split(
        self,
        parts: Mapping[str, float],
        *,
        seed: int = 0,
        by: str | Sequence[str] | None = None,
        stratify: str | None = None,
    ) -> dict[str, Self]:
        """Split the rows into parts by hashes of what they hold: views by name.

        The same content always comes to the same part, whatever its row, shard or slab: rows that
        are added later move none that is there. Sizes are those asked for on average.

        Parameters
        ----------
        parts
            Fraction of each part by name, with a sum of 1, such as {"train": 0.9, "val": 0.1}.
        seed
            Another seed gives other parts.
        by
            Names of the fields that decide: rows with the same values stay together, such as those
            of a user or a patient. Default: all fields, which reads all data.
        stratify
            Name of a field: each of its values is split by the fractions, exact to a row (or to
            the rows that `by` keeps together). Added rows may then move rows near the borders.

        Raises UnknownField, UsageError, and what `gather` raises.
        """
        from fieldslab.reader.splitting import split_rows

        storage = self._storage
        names = list(storage.fields) if by is None else [by] if isinstance(by, str) else list(by)
        for name in [*names, *([] if stratify is None else [stratify])]:
            storage.check_field_name(name)
        if not names:
            raise UsageError("`by` names no field")
        rows = split_rows(
            parts,
            check_integer("seed", seed),
            names,
            stratify,
            storage.fields,
            self._list_categories,
            self._gather_range,
            len(self._view),
        )
        total = storage.manifest.rows
        return {
            name: type(self)(storage, choose_rows(self._view, numbers, total))
            for name, numbers in rows.items()
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save which rows of the slab this view has, as a file `NAME.rows` for `select`.

        It is bound to the slab's id. A file that is there is replaced, in one step.

        Raises UsageError for another suffix; OutputDenied, NoSpace, OutputError.
        """
        file = Path(path)
        if file.suffix != SUFFIX:
            raise UsageError(f"files of rows end in {SUFFIX}", file=file)
        rows = find_stored_rows(self._view, np.arange(len(self._view)))
        manifest = self._storage.manifest
        write_row_file(file, manifest.id, manifest.rows, rows)

    def _gather_range(self, rows: range, names: list[str]) -> "Batch":
        from fieldslab.reader.reading import read_batch

        numbers = np.arange(rows.start, rows.stop)
        return read_batch(self._storage, self._view, numbers, names, self._storage.pool, exact=True)

    def _read_values(self, rows: range, names: list[str]) -> "dict[str, Values]":
        """Read rows of this view: in place where one shard has them, else gathered."""
        values: dict[str, Values] = {}
        part, copied = self._view[rows.start : rows.stop], names
        if isinstance(part, range) and part.step == 1:
            for name in names:
                column = Column(self._storage, self._storage.load_field(name), part)
                shared = column.find_in_place(part)
                if shared is not None:
                    values[name] = _to_values(shared, column.find_valid_in_place(part))
            copied = [name for name in names if name not in values]
        if copied:
            batch = self._gather_range(rows, copied)
            for name in copied:
                values[name] = _to_values(batch[name], batch.valid.get(name))
        return values

    def _split_at_shards(self, rows: range) -> Iterator[range]:
        """Split rows of this view where a shard ends, unless shards are small."""
        part = self._view[rows.start : rows.stop]
        if not part or not isinstance(part, range) or part.step != 1:
            yield rows
            return
        pieces = list(self._storage.directory.split_by_shard(part.start, part.stop))
        if len(pieces) > _MOST_PIECES:
            yield rows
            return
        first = rows.start
        for _, start, stop in pieces:
            yield range(first, first + stop - start)
            first += stop - start

    def _list_categories(self, name: str) -> Sequence[str]:
        return list(self._storage.load_field(name).categories)


def _to_values(column: Any, valid: np.ndarray | None) -> "Values":
    if isinstance(column, np.ndarray):
        return column, None, valid
    lists = column.values
    if isinstance(lists, VarLenValues):
        return lists.values, column.offsets, valid, (lists.offsets, lists.valid)
    return column.values, column.offsets, valid
