"""Windows of neighbouring rows as samples."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from fieldslab.reader.batch import Batch, Failure
from fieldslab.reader.buffers import Allocator
from fieldslab.reader.draws.visits import check_visits
from fieldslab.reader.images.steps import ImageSteps
from fieldslab.reader.rows import check_integer, wrap_rows
from fieldslab.reader.runs import Runs
from fieldslab.reader.slab_storage import Storage
from fieldslab.reader.stored.sizes import count_stored_bytes
from fieldslab.reader.views import View
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field

if TYPE_CHECKING:
    from fieldslab.reader.pieces import Bounds, Pieces
    from fieldslab.reader.plain import PlainWindows

Edges = Literal["repeat", "zeros"]
"""What stands in place of rows that a window has beyond its run: the nearest row, or zeros."""
Indices = range | tuple[int, ...]
"""Rows of a window, counted from its start: a range of neighbours, or others that ascend."""
_MOST_ROWS = 2**40
_ZERO, _ONE = np.zeros(1, np.int64), np.ones(1, np.int64)


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
        images: Mapping[str, ImageSteps] | None = None,
        epoch: int = 0,
    ) -> Batch:
        """Read windows that start at rows, int64[n]; the rest is as in `read_batch`."""


class WindowShape:
    """Which rows belong to a window, counted from its start.

    Attributes
    ----------
    length, delta_indices
        As they were given to `Windows`, the latter as `Indices`.
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
        self.check_size("length", self.length or 1)
        # Those of other fields are 0 alone.
        self.first = min([0, *(indices[0] for indices in self.delta_indices.values())])
        self.last = max([(length or 1) - 1, *(ind[-1] for ind in self.delta_indices.values())])

    @staticmethod
    def check_size(name: str, rows: int) -> int:
        """Return a number of rows. Raises UsageError for so many that sums would leave int64."""
        if abs(rows) > _MOST_ROWS:
            raise UsageError(f"`{name}` is too large", expected=f"up to {_MOST_ROWS}", found=rows)
        return rows

    def find_indices(self, name: str) -> Indices | None:
        """Find the indices of a field; None where it has the row at 0 alone."""
        return self.delta_indices.get(name) if self.length is None else range(self.length)

    def group_fields(self, names: Sequence[str]) -> list["_FieldGroup"]:
        """Group fields by their indices."""
        if self.length is not None:
            return [_FieldGroup(range(self.length), [*names], ["is_pad"])]
        groups: dict[Indices | None, _FieldGroup] = {}
        for name in names:
            indices = self.delta_indices.get(name)
            group = groups.setdefault(indices, _FieldGroup(indices, [], []))
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

    indices: Indices | None
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
        self._plain: dict[tuple[str, ...], Sequence[PlainWindows] | None] = {}
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
        images: Mapping[str, ImageSteps] | None = None,
        epoch: int = 0,
    ) -> Batch:
        """See `WindowReader`. Raises RowOutOfRange, and what `gather` raises."""
        images = images or {}
        visits = check_visits(visits, starts) if images else visits
        total, storage = len(self._view), self._storage
        bounds = self._bounds
        if self.runs is not None or self.edges is not None:
            self._check_names(names)
            starts = wrap_rows(starts, total)
            if self.runs is not None:
                lows, highs = self.runs.find_bounds(starts)
                bounds = bounds._replace(lows=lows, highs=highs)
        if self.edges is None and (plain := self._find_plain(names)) is not None:
            columns = storage.changes.read(
                lambda: self._copy_plain(plain, starts, bounds, memory, batches_in_turn)
            )
            if columns is not None:
                return Batch(starts, columns, {}, {}, visits=visits)
        groups = self.shape.group_fields(names)
        parts = [(group, *self._find_pieces(starts, group, bounds)) for group in groups]

        def gather() -> Batch:
            columns: dict[str, Any] = dict.fromkeys(names)
            valid: dict[str, np.ndarray] = {}
            sizes: dict[str, np.ndarray] = {}
            failures: tuple[Failure, ...] = ()
            for group, pieces, padded in parts:
                steps = {name: images[name] for name in group.names if name in images}
                fields = [storage.load_field(name) for name in group.names if name not in steps]
                gathered = self._pieces.gather_pieces(
                    storage.pool, fields, pieces, memory, batches_in_turn
                )
                if steps:
                    from fieldslab.reader.images.decoded_windows import decode_windows

                    drawn_by = steps, epoch, memory, visits
                    decoded, damage = decode_windows(storage, self._view, starts, pieces, *drawn_by)
                    for parts_of, images_of in zip(gathered, decoded, strict=True):
                        parts_of.update(images_of)
                    failures += damage
                if padded is not None and self.edges == "zeros" and padded.any():
                    self._columns.clear_padded_rows(gathered, padded, storage.fields)
                if group.indices is None:
                    self._columns.drop_row_axis(gathered)
                columns.update(gathered.values)
                valid |= gathered.valid
                sizes |= gathered.sizes
                if padded is not None:
                    columns |= dict.fromkeys(group.masks, padded)
            return Batch(starts, columns, valid, sizes, failures, visits)

        if storage.mirrors is None or not parts:
            return storage.changes.read(gather)
        from fieldslab.reader.absent import read_mirrored_rows
        from fieldslab.reader.copying import RowLocations

        located = [pieces.locate_rows() for _, pieces, _ in parts]
        rows = RowLocations(*map(np.concatenate, zip(*located, strict=True)))
        decoded = tuple(images)
        return storage.changes.read(
            lambda: read_mirrored_rows(storage, names, rows, decoded, gather)
        )

    def _find_plain(self, names: Sequence[str]) -> "Sequence[PlainWindows] | None":
        """Find how these fields are copied where all are plain, and so is the view."""
        key = (*names,)
        if key not in self._plain:
            self._plain = {key: self._make_plain(names)}  # that of the last call
        return self._plain.get(key)

    def _make_plain(self, names: Sequence[str]) -> "list[PlainWindows] | None":
        storage, view = self._storage, self._view
        if storage.mirrors is not None or not isinstance(view, range) or view.step != 1:
            return None
        from fieldslab.reader.plain import find_plain_windows  # compiles a kernel

        plain = []
        for name in names:
            indices = self.shape.find_indices(name)
            if isinstance(indices, tuple):
                return None
            rows, shape = (range(1), ()) if indices is None else (indices, (len(indices),))
            part = find_plain_windows(storage.load_field(name), rows.start, len(rows), shape)
            if part is None:
                return None
            plain.append(part)
        return plain

    def _copy_plain(
        self,
        plain: "Sequence[PlainWindows]",
        starts: np.ndarray,
        bounds: "Bounds",
        memory: Allocator,
        batches_in_turn: int,
    ) -> dict[str, Any] | None:
        assert isinstance(self._view, range)
        first, directory = self._view.start, self._storage.directory
        columns = {}
        for each in plain:
            values = each.copy(directory, first, starts, bounds, memory, batches_in_turn)
            if values is None:
                return None
            columns[each.name] = values
        return columns or None

    @cached_property
    def _bounds(self) -> "Bounds":
        """Those of all rows."""
        total = len(self._view)
        bounds: Bounds = self._pieces.Bounds(
            total, _ZERO, np.full(1, total, np.int64), self.edges is None
        )
        return bounds

    @cached_property
    def _pieces(self) -> Any:
        from fieldslab.reader import pieces  # compiles kernels

        return pieces

    @cached_property
    def _columns(self) -> Any:
        from fieldslab.reader import window_columns

        return window_columns

    def _find_pieces(
        self, starts: np.ndarray, group: _FieldGroup, bounds: "Bounds"
    ) -> tuple["Pieces", np.ndarray | None]:
        """Find the runs of rows of windows, and which rows are padding, if some may be."""
        storage, view, indices = self._storage, self._view, group.indices
        if indices is None:
            single = storage.locate_rows(view, starts)
            return self._pieces.Pieces(single, _ONE, (len(starts), 1)), None
        if isinstance(indices, range) and isinstance(view, range) and view.step == 1:
            pieces = self._pieces.find_pieces(
                storage.directory, storage.pool, view.start, starts, indices, bounds
            )
            return pieces, None if bounds.strict else _find_padded(starts, indices, bounds)[1]
        rows, padded = _find_padded(wrap_rows(starts, bounds.total), indices, bounds)
        if bounds.strict and padded.any():
            wrong = int(padded.any(axis=1).argmax())
            raise self._pieces.make_bounds_error(starts, indices, bounds, wrong)
        locations = storage.locate_rows(view, rows.reshape(-1))
        shape = len(starts), len(indices)
        pieces = self._pieces.Pieces(locations, _ONE, shape)
        return pieces, None if bounds.strict else padded

    def _check_names(self, names: Sequence[str]) -> None:
        """Raise UsageError where a mask has the name of a field."""
        if self.edges is None:
            return
        for name in (mask for group in self.shape.group_fields(names) for mask in group.masks):
            if name in self._storage.fields:
                raise UsageError("a field has the name of the mask of padded rows", field=name)


def _find_padded(
    starts: np.ndarray, indices: Indices, bounds: "Bounds"
) -> tuple[np.ndarray, np.ndarray]:
    """Find the rows of windows, the nearest inside for those beyond, and which are beyond."""
    rows = starts[:, np.newaxis] + np.array(indices)
    lows, highs = bounds.lows[:, np.newaxis], bounds.highs[:, np.newaxis]
    padded: np.ndarray = (rows < lows) | (rows >= highs)
    return np.clip(rows, lows, highs - 1), padded


def _check_indices(name: str, indices: Any) -> Indices:
    """Convert the indices of a field. Raises UsageError."""
    numbers = np.asarray([*indices] if isinstance(indices, range) else indices)
    if numbers.ndim != 1 or not len(numbers) or numbers.dtype.kind not in "iu":
        raise UsageError(
            "`delta_indices` are rows counted from the start of a window",
            field=name,
            expected="integers, such as [-1, 0] or range(16)",
            found=repr(indices),
        )
    gaps, ascending = np.diff(numbers), tuple(numbers.tolist())
    WindowShape.check_size("delta_indices", max(ascending, key=abs))
    if (gaps <= 0).any():
        raise UsageError("`delta_indices` must ascend", field=name, found=repr(indices))
    return ascending if (gaps > 1).any() else range(ascending[0], ascending[-1] + 1)
