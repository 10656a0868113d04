"""Windows: neighbouring rows, or neighbouring elements of one field, as samples."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from fieldslab.reader.batch import Batch
from fieldslab.reader.buffers import Allocator
from fieldslab.reader.rows import ShardDirectory, check_integer, wrap_rows
from fieldslab.reader.runs import Runs
from fieldslab.reader.slab_storage import Storage
from fieldslab.reader.stored.sizes import count_stored_bytes
from fieldslab.reader.views import View
from fieldslab.schemas.errors import RowOutOfRange, UsageError
from fieldslab.schemas.fields import Field

Edges = Literal["repeat", "zeros"]
"""What stands in place of rows that a window has beyond its run: the nearest row, or zeros."""
_ONE = np.ones(1, np.int64)


class WindowReader(Protocol):
    """Reads the batches of an order whose positions stand for windows: see `Order.windows`."""

    @property
    def fields(self) -> Mapping[str, Field]:
        """The fields of a batch, as they are in it."""

    def is_regular(self, names: Sequence[str]) -> bool:
        """Tell whether batches of some fields may be cut out of larger ones."""

    def count_bytes(self, names: Sequence[str], windows: int) -> int:
        """Estimate the bytes of some fields in so many windows."""

    @property
    def span(self) -> int:
        """Rows from the first to the last of a window; 0 where nothing is to be read ahead."""

    def list_rows(self, starts: np.ndarray) -> np.ndarray:
        """List the rows of windows, int64[n], to be read ahead."""

    def read(
        self,
        starts: np.ndarray,
        names: Sequence[str],
        memory: Allocator,
        batches_in_turn: int = 1,
        visits: np.ndarray | None = None,
    ) -> Batch:
        """Read windows that start at rows, int64[n]; memory is that of `read_batch`."""


class WindowShape:
    """Which rows belong to a window, counted from its start.

    Attributes
    ----------
    length, delta_indices
        As they were given to `Windows`, the latter as arrays.
    first, last
        The least and the largest index of all.
    """

    def __init__(
        self, length: int | None, delta_indices: Mapping[str, Sequence[int]] | None
    ) -> None:
        """Raises UsageError."""
        if (length is None) == (delta_indices is None):
            raise UsageError("give either `length` or `delta_indices`")
        self.length = None if length is None else check_integer("length", length, least=1)
        self.delta_indices = {
            name: _check_indices(name, indices) for name, indices in (delta_indices or {}).items()
        }
        every = [*self.delta_indices.values()] or [np.arange(self.length or 1)]
        self.first = min(int(indices.min()) for indices in every)
        self.last = max(int(indices.max()) for indices in every)
        if delta_indices is not None:  # other fields have the row at 0
            self.first, self.last = min(self.first, 0), max(self.last, 0)

    def find_indices(self, name: str) -> np.ndarray | None:
        """Find the indices of a field: int64[rows]; None where it has the row at 0 alone."""
        return self.delta_indices.get(name) if self.length is None else np.arange(self.length)

    def group_fields(self, names: Sequence[str]) -> list["_FieldGroup"]:
        """Group fields by their indices."""
        if self.length is not None:
            return [_FieldGroup(np.arange(self.length), [*names], ["is_pad"])]
        groups: dict[bytes, _FieldGroup] = {}
        for name in names:
            indices = self.delta_indices.get(name)
            key = b"" if indices is None else indices.tobytes()
            group = groups.setdefault(key, _FieldGroup(indices, [], []))
            group.names.append(name)
            if indices is not None:
                group.masks.append(f"{name}_is_pad")
        return [*groups.values()]

    def describe_field(self, name: str, field: Field) -> Field:
        """Describe a field as it is in a batch of windows."""
        indices = self.find_indices(name)
        if indices is None or field.variable:
            return field
        return msgspec.structs.replace(field, shape=(len(indices), *field.shape))


class _FieldGroup(NamedTuple):
    """Fields with the same indices, and the names of their masks."""

    indices: np.ndarray | None
    names: list[str]
    masks: list[str]


class RowWindows:
    """Windows of neighbouring rows of a slab or view. Any thread may use it: a `WindowReader`.

    Attributes
    ----------
    shape
        Which rows a window has.
    runs
        What no window goes beyond; None for all rows.
    """

    def __init__(
        self,
        storage: Storage,
        view: View,
        shape: WindowShape,
        runs: Runs | None = None,
        edges: Edges | None = None,
    ) -> None:
        """Without `edges`, windows that go beyond their run are refused. Raises UsageError."""
        self._storage = storage
        self._view = view
        self.shape = shape
        self.runs = runs
        self.edges = edges
        if runs is not None:
            runs.check_rows(len(view))
        for name in shape.delta_indices:
            storage.check_field_name(name)

    @property
    def fields(self) -> Mapping[str, Field]:
        """See `WindowReader`."""
        return {
            name: self.shape.describe_field(name, field)
            for name, field in self._storage.fields.items()
        }

    def is_regular(self, names: Sequence[str]) -> bool:
        """See `WindowReader`."""
        return not any(self._storage.fields[name].variable for name in names)

    def count_bytes(self, names: Sequence[str], windows: int) -> int:
        """See `WindowReader`."""
        total = 0
        for name in names:
            indices = self.shape.find_indices(name)
            rows = windows * (1 if indices is None else len(indices))
            field = self._storage.fields[name]
            total += count_stored_bytes(self._storage.manifest, [field], rows)
        return total

    @property
    def span(self) -> int:
        """See `WindowReader`."""
        return self.shape.last - self.shape.first + 1

    def list_rows(self, starts: np.ndarray) -> np.ndarray:
        """See `WindowReader`."""
        indices = np.arange(self.shape.first, self.shape.last + 1)
        rows = starts[:, np.newaxis] + indices
        inside = (rows >= 0) & (rows < len(self._view))
        return rows[inside]

    def read(
        self,
        starts: np.ndarray,
        names: Sequence[str],
        memory: Allocator,
        batches_in_turn: int = 1,
        visits: np.ndarray | None = None,
    ) -> Batch:
        """See `WindowReader`. Raises RowOutOfRange, and what `gather` raises."""
        from fieldslab.reader.pieces import clear_padded_rows, gather_pieces  # compiles kernels

        starts = wrap_rows(starts, len(self._view))
        lows, highs = self._find_bounds(starts)
        groups = self.shape.group_fields(names)
        self._check_names(groups)
        storage = self._storage
        parts = [(group, *self._find_pieces(starts, group, lows, highs)) for group in groups]

        def gather() -> Batch:
            columns: dict[str, Any] = dict.fromkeys(names)
            valid: dict[str, np.ndarray] = {}
            sizes: dict[str, np.ndarray] = {}
            for group, pieces, padded in parts:
                fields = [storage.load_field(name) for name in group.names]
                if group.indices is None:
                    rows = pieces.locations
                    gathered = storage.gather(fields, rows, memory, batches_in_turn)
                else:
                    gathered = gather_pieces(storage.pool, fields, pieces, memory, batches_in_turn)
                if padded is not None and self.edges == "zeros" and padded.any():
                    clear_padded_rows(gathered, padded)
                columns.update(gathered.values)
                valid |= gathered.valid
                sizes |= gathered.sizes
                if padded is not None:
                    columns |= dict.fromkeys(group.masks, padded)
            return Batch(starts, columns, valid, sizes, visits=visits)

        if storage.mirrors is None:
            return gather()
        from fieldslab.reader.absent import read_mirrored_rows
        from fieldslab.reader.copying import RowLocations

        located = [pieces.locate_rows() for _, pieces, _ in parts]
        rows = RowLocations(*map(np.concatenate, zip(*located, strict=True)))
        return read_mirrored_rows(storage, names, rows, (), gather)

    def _find_bounds(self, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find between which rows each window must lie; one number, or one for each start."""
        if self.runs is None:
            lows, highs = np.zeros(1, np.int64), np.full(1, len(self._view), np.int64)
        else:
            lows, highs = self.runs.find_bounds(starts)
        if self.edges is None:
            wrong = (starts + self.shape.first < lows) | (starts + self.shape.last >= highs)
            if wrong.any():
                window = int(np.argmax(wrong))
                start = int(starts[window])
                low, high = (int(each[window % len(each)]) for each in (lows, highs))
                raise RowOutOfRange(
                    "a window goes beyond the rows that it may have",
                    expected=f"rows {low}..{high - 1}",
                    found=f"{start + self.shape.first}..{start + self.shape.last}",
                    hint='Write edges="repeat" or edges="zeros" to fill them up.',
                )
        return lows, highs

    def _find_pieces(
        self, starts: np.ndarray, group: _FieldGroup, lows: np.ndarray, highs: np.ndarray
    ) -> tuple[Any, np.ndarray | None]:
        """Find the runs of rows of windows, and which rows are padding, if some may be."""
        from fieldslab.reader.pieces import Pieces, find_pieces

        storage, view, indices = self._storage, self._view, group.indices
        if indices is None:
            return Pieces(storage.locate_rows(view, starts), _ONE, (len(starts), 1)), None
        padded = None
        rows = starts[:, np.newaxis] + indices if self.edges is not None else None
        if rows is not None:
            padded = (rows < lows[:, np.newaxis]) | (rows >= highs[:, np.newaxis])
        is_contiguous = int(indices[-1] - indices[0]) == len(indices) - 1
        if is_contiguous and isinstance(view, range) and view.step == 1:
            begins = starts + indices[0]
            pieces = find_pieces(
                storage.directory, storage.pool, view.start, begins, len(indices), lows, highs
            )
            return pieces, padded
        rows = starts[:, np.newaxis] + indices if rows is None else rows
        inside = np.clip(rows, lows[:, np.newaxis], highs[:, np.newaxis] - 1)
        locations = storage.locate_rows(view, inside.reshape(-1))
        return Pieces(locations, _ONE, (len(starts), len(indices))), padded

    def _check_names(self, groups: Sequence[_FieldGroup]) -> None:
        """Raise UsageError where a mask has the name of a field."""
        if self.edges is None:
            return
        for name in (mask for group in groups for mask in group.masks):
            if name in self._storage.fields:
                raise UsageError("a field has the name of the mask of padded rows", field=name)


class ElementWindows:
    """Windows of the elements of one field, of all rows as one stream: a `WindowReader`.

    Attributes
    ----------
    total
        Number of elements.
    """

    def __init__(self, storage: Storage, view: View, name: str, length: int) -> None:
        """Raises UnknownField, and UsageError for a field or view that has no such stream."""
        self._storage = storage
        self._name = name
        self._length = check_integer("length", length, least=1)
        self._stored = stored = storage.load_field(name)
        field = stored.field
        if field.kind not in ("fixed", "ragged", "text", "binary") or field.compression is not None:
            raise UsageError(
                "the elements of this field are no stream",
                field=name,
                expected="an uncompressed field of numbers, lists, text or bytes",
                found=field.describe(),
            )
        if not isinstance(view, range) or view.step != 1:
            hint = "Write the rows with repack first, or take windows of rows."
            raise UsageError("rows of this view are not neighbours", field=name, hint=hint)
        parts = 1 if field.variable else [*field.shape, 1][0]
        self._part_bytes = stored.values.item_bytes // max(parts, 1)
        self._directory = ShardDirectory(stored.values.items.astype(np.int64) * parts)
        self._first = self._find_element(view.start, parts)
        self.total = self._find_element(view.stop, parts) - self._first

    @property
    def fields(self) -> Mapping[str, Field]:
        """See `WindowReader`."""
        field = self._stored.field
        shape = field.shape if field.variable else field.shape[1:]
        shape = self._length, *shape
        return {self._name: msgspec.structs.replace(field, kind="fixed", shape=shape)}

    def is_regular(self, names: Sequence[str]) -> bool:
        """See `WindowReader`."""
        return True

    def count_bytes(self, names: Sequence[str], windows: int) -> int:
        """See `WindowReader`."""
        return windows * self._length * self._part_bytes

    @property
    def span(self) -> int:
        """See `WindowReader`."""
        return 0

    def list_rows(self, starts: np.ndarray) -> np.ndarray:
        """See `WindowReader`."""
        return np.empty(0, np.int64)

    def read(
        self,
        starts: np.ndarray,
        names: Sequence[str],
        memory: Allocator,
        batches_in_turn: int = 1,
        visits: np.ndarray | None = None,
    ) -> Batch:
        """See `WindowReader`. Raises RowOutOfRange, and what `gather` raises."""
        from fieldslab.reader.pieces import find_pieces, gather_items  # compiles kernels

        starts = wrap_rows(starts, self.total)
        wrong = starts > self.total - self._length
        if wrong.any():
            raise RowOutOfRange(
                "a window goes beyond the last element",
                field=self._name,
                expected=f"starts of 0..{self.total - self._length}",
                found=int(starts[np.argmax(wrong)]),
            )
        storage, stored, length = self._storage, self._stored, self._length
        bounds = np.zeros(1, np.int64), np.full(1, self.total, np.int64)
        pieces = find_pieces(self._directory, storage.pool, self._first, starts, length, *bounds)

        def gather() -> Batch:
            values = gather_items(
                stored.values,
                pieces,
                memory,
                self._name,
                batches_in_turn,
                stored.conversion,
                self._part_bytes,
            )
            return Batch(starts, {self._name: values}, {}, {}, visits=visits)

        if storage.mirrors is None:
            return gather()
        from fieldslab.reader.absent import read_mirrored_elements

        runs = pieces.locations, pieces.counts
        return read_mirrored_elements(storage, stored, *runs, self._part_bytes, gather)

    def _find_element(self, row: int, parts: int) -> int:
        """Find the first element of a row of the slab, or the number of all behind the last."""
        storage, stored = self._storage, self._stored
        if row >= storage.manifest.rows:
            return int(self._directory.starts[-1])
        shard, place = storage.directory.find_shard(row)
        if not stored.field.variable:
            return int(self._directory.starts[shard]) + parts * place
        start, _ = storage.read(
            [self._name], [shard], lambda: stored.read_element_range(shard, place)
        )
        return int(self._directory.starts[shard]) + start


def _check_indices(name: str, indices: Any) -> np.ndarray:
    """Convert the indices of a field. Raises UsageError."""
    numbers = np.asarray([*indices] if isinstance(indices, range) else indices)
    if numbers.ndim != 1 or not len(numbers) or numbers.dtype.kind not in "iu":
        raise UsageError(
            "`delta_indices` are rows counted from the start of a window",
            field=name,
            expected="integers, such as [-1, 0] or range(16)",
            found=repr(indices),
        )
    if (np.diff(numbers) <= 0).any():
        raise UsageError("`delta_indices` must ascend", field=name, found=repr(indices))
    return numbers.astype(np.int64)
