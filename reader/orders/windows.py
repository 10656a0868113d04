"""An order whose samples are windows of neighbouring rows, or of the elements of a field."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fieldslab.reader.batch import Batch
from fieldslab.reader.elements import ElementWindows
from fieldslab.reader.images.steps import ImageSteps
from fieldslab.reader.orders.order import Order, shuffle_positions
from fieldslab.reader.orders.unattached import make_unattached_error
from fieldslab.reader.rows import (
    Rows,
    check_integer,
    check_rows,
    make_out_of_range_error,
    wrap_rows,
)
from fieldslab.reader.runs import Runs
from fieldslab.reader.slab import Slab
from fieldslab.reader.windowed import choose_element_field, resolve_runs
from fieldslab.reader.windows import RowWindows, WindowShape
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.manifest import SHUFFLE_ATTRIBUTE
from fieldslab.schemas.notices import warn

_EDGES = ("drop", "repeat", "zeros")


class Windows(Order):
    """Windows of neighbouring rows, each once an epoch: time series, ticks, episodes of robots.

    A loader's batch then has arrays (windows, length, *shape), as `Slab.gather_windows` returns
    them, and the starts in `Batch.rows`. Shuffled or not, the window at any position is computed
    by itself: 8 bytes are kept for each run of rows, and nothing for a window.

    Parameters
    ----------
    length
        Rows of a window, from its start on.
    stride
        Rows from the start of a window to that of the next one. With `length`, windows do not
        overlap; with 1, there is one at each row.
    within
        What no window goes beyond: the name of a field, whose value is the same in a run of rows
        (its values are read when a loader is made), or `Runs`, or an object with such `starts` and
        `lengths`. Default: all rows are one run. In any case, a run ends where a slab of a union
        ends.
    delta_indices
        Instead of `length`: which rows each field has, counted from the start, such as
        `{"state": [-1, 0], "action": range(16)}`. Other fields have the row at the start alone.
    edges
        "drop" leaves out windows that go beyond their run. "repeat" has a window at every
        `stride`-th row of a run, with the nearest row of the run in place of those beyond it;
        "zeros" has zeros, nulls (-1 as the code of a category) and rows without elements there. The
        batch then has `is_pad`, bool (windows, length), which is True there; with `delta_indices`,
        `NAME_is_pad` for each of these fields.
    of
        Windows of the elements of this field, whose rows make one stream, such as tokens: arrays
        (windows, length) of this field alone. `stride`, and the starts in `Batch.rows`, count
        elements.
    seed
        Seed of the shuffle, which is new in each epoch. With None, windows come as they are stored.
    """

    repeats = False

    def __init__(
        self,
        length: int | None = None,
        stride: int = 1,
        within: str | Runs | Any = None,
        *,
        delta_indices: Mapping[str, Sequence[int]] | None = None,
        edges: Literal["drop", "repeat", "zeros"] = "drop",
        of: str | None = None,
        seed: int | None = 0,
    ) -> None:
        self.shape = WindowShape(length, delta_indices)
        self.stride = self.shape.check_size("stride", check_integer("stride", stride, least=1))
        if edges not in _EDGES:
            raise UsageError("unknown `edges`", expected=", ".join(_EDGES), found=edges)
        if of is not None and (length is None or within is not None or edges != "drop"):
            raise UsageError("`of` takes `length` and `stride` alone", field=of)
        self.within = within
        self.edges = edges
        self.of = of
        self.seed = None if seed is None else check_integer("seed", seed)

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`; only an attached one knows where windows start."""
        raise make_unattached_error("where windows start")

    def attach(self, slab: Slab) -> "AttachedWindows":
        """See `Order`. Raises UnknownField, UsageError."""
        self.warn_of_shuffled(slab)
        attached = AttachedWindows(self, slab, resolve_runs(slab, self.within))
        if len(slab) and not attached.length(len(slab)):
            warn(
                f"{self!r} has no window in {slab.path}: each is longer than any run of rows. Make "
                'windows shorter, or write edges="repeat" or edges="zeros".'
            )
        return attached

    def warn_of_shuffled(self, slab: Slab) -> None:
        """Warn where neighbouring rows have nothing to do with each other."""
        for files in slab.storage.slabs.files if self.of is None else ():
            if SHUFFLE_ATTRIBUTE in files.manifest.attributes:
                warn(
                    f"{self!r} takes neighbouring rows, and {files.path} was shuffled when it was "
                    "packed. Pack it without shuffle."
                )
                return

    def in_sequence(self) -> "Windows":
        """See `Order`."""
        key = self.key()
        options = {name: key[name] for name in ("length", "stride", "delta_indices", "edges", "of")}
        return Windows(**options, within=self.within, seed=None)

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        indices = self.shape.delta_indices
        within = self.within
        if within is not None and not isinstance(within, str):
            within = Runs(within.starts, within.lengths).digest
        return {
            "name": type(self).__name__,
            "version": 1,
            "length": self.shape.length,
            "stride": self.stride,
            "within": within,
            "delta_indices": {name: [*indices[name]] for name in sorted(indices)} or None,
            "edges": self.edges,
            "of": self.of,
            "seed": self.seed,
        }

    def __repr__(self) -> str:
        names = ("length", "stride", "within", "delta_indices", "edges", "of", "seed")
        usual = {"stride": 1, "edges": "drop"}
        key = self.key() | {"within": self.within}
        options = [
            f"{name}={key[name]!r}"
            for name in names
            if name == "seed" or key[name] not in (None, usual.get(name))
        ]
        return f"Windows({', '.join(options)})"


class WindowSamples:
    """The windows of a slab as rows, for `Samples`: window 0, 1 and so on, as they are stored.

    Attributes
    ----------
    fields
        The fields of a batch, as they are in it.
    """

    def __init__(self, slab: Slab, order: Windows) -> None:
        """Raises UnknownField, UsageError."""
        self._slab = slab
        self._attached = order.in_sequence().attach(slab)
        self.fields = self._attached.windows.fields

    def choose_fields(self, fields: Sequence[str] | None) -> list[str]:
        """Choose fields, all for None. Raises UnknownField, UsageError."""
        return list(self._attached.choose_fields(self._slab, fields))

    def gather(
        self,
        rows: Rows,
        fields: Sequence[str] | None = None,
        *,
        decode: Mapping[str, ImageSteps] | None = None,
        epoch: int = 0,
        visits: Any = None,
    ) -> Batch:
        """Gather windows by their numbers; see `Slab.gather`."""
        numbers = wrap_rows(check_rows(rows, len(self)), len(self))
        starts, names = self._attached.find_starts(numbers), self.choose_fields(fields)
        memory = self._slab.storage.pool
        return self._attached.windows.read(starts, names, memory, 1, visits, decode, epoch)

    def __len__(self) -> int:
        return self._attached.length(len(self._slab))

    def __getitem__(self, name: str) -> Any:
        raise UsageError("windows have no columns", field=name)


class AttachedWindows(Order):
    """A `Windows` order together with the runs of one slab.

    Attributes
    ----------
    windows
        What reads its batches.
    """

    repeats = False
    windows: RowWindows | ElementWindows

    def __init__(
        self, order: Windows, slab: Slab, runs: Runs | None, borders: Sequence[int] = ()
    ) -> None:
        """Take the runs that no window goes beyond, and rows that each run ends at, ascending."""
        self._order = order
        self._slab = slab
        self._given = runs, borders
        shape, stride, total = order.shape, order.stride, len(slab)
        if order.of is not None:
            assert shape.length is not None
            self.windows = elements = ElementWindows(
                slab.storage, slab.view, order.of, shape.length
            )
            total, runs = elements.total, elements.runs
            borders = [elements.count_before(row) for row in borders]
        runs_to_cut = Runs([0], [total]) if runs is None else runs
        runs_to_cut.check_rows(total)
        self._runs = runs_to_cut.cut(np.unique(np.array(borders, np.int64)))
        if order.of is None:
            drops = order.edges == "drop"  # and starts are such that no window goes beyond its run
            cut_runs = None if runs is None and not borders else self._runs
            bounds = (None, None) if drops else (cut_runs, order.edges)
            self.windows = RowWindows(slab.storage, slab.view, shape, *bounds)
        runs = self._runs
        self._first = 0
        rows = runs.lengths
        if order.edges == "drop":
            self._first = -shape.first
            rows = rows - (shape.last - shape.first)
        counts = np.maximum(-(-rows // stride), 0)
        self._ends = np.cumsum(counts)
        self._begins = self._ends - counts

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`."""
        seed = self._order.seed
        if seed is None:
            return self.find_starts(np.arange(start, stop, dtype=np.int64))
        numbers = shuffle_positions("windows", (seed, epoch), start, stop, self.length(total))
        return self.find_starts(numbers)

    def find_starts(self, numbers: np.ndarray) -> np.ndarray:
        """Find where windows start, by their numbers as they are stored: int64[n] in and out."""
        runs = np.searchsorted(self._ends, numbers, side="right")
        starts: np.ndarray = self._runs.starts[runs] + self._first
        starts += (numbers - self._begins[runs]) * self._order.stride
        return starts

    def find_numbers(self, rows: range) -> range:
        """Find the numbers of the windows in neighbouring rows, between borders of runs."""
        ends = [rows.start, rows.stop]
        if isinstance(self.windows, ElementWindows):
            ends = [self.windows.count_before(row) for row in ends]
        first, last = np.searchsorted(self._runs.starts, ends).tolist()
        counts = np.concatenate([[0], self._ends])
        return range(int(counts[first]), int(counts[last]))

    def length(self, total: int) -> int:
        """See `Order`."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def choose_fields(self, slab: Slab, fields: Sequence[str] | None) -> Mapping[str, Field]:
        """See `Order`. Raises UsageError, too, where windows of elements are to have others."""
        described = self.windows.fields
        of = self._order.of
        names = slab.names(fields) if of is None else choose_element_field(of, fields)
        return {name: described[name] for name in names}

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        return self._order.key()

    def __reduce__(self) -> tuple[object, ...]:
        return AttachedWindows, (self._order, self._slab, *self._given)

    def __repr__(self) -> str:
        return repr(self._order)


def attach_groups(
    order: Windows, slab: Slab, groups: Mapping[str, Any]
) -> tuple[AttachedWindows, list[range]]:
    """Attach an order to a slab, and number the windows of each group of rows as they are stored.

    No window goes beyond its group. Raises UsageError where a group is no range of neighbouring
    rows, or has no window.
    """
    order.warn_of_shuffled(slab)
    borders: set[int] = set()
    for name, rows in groups.items():
        if not isinstance(rows, range) or rows.step != 1 or rows.start < 0:
            raise UsageError(
                f"the group {name!r} has no windows: its rows are not told to be neighbours",
                expected="a range of rows, such as range(0, 1000)",
                found=repr(rows)[:80],
            )
        if rows.stop > len(slab):
            raise make_out_of_range_error(rows.stop - 1, len(slab))
        borders |= {rows.start, rows.stop}
    runs = resolve_runs(slab, order.within)
    attached = AttachedWindows(order, slab, runs, sorted(borders - {0, len(slab)}))
    numbers = [attached.find_numbers(rows) for rows in groups.values()]
    for name, some in zip(groups, numbers, strict=True):
        if not some:
            raise UsageError(
                f"the source {name!r} has no window",
                expected="a run of rows as long as a window",
                hint='Make windows shorter, or write edges="repeat" or edges="zeros".',
            )
    return attached, numbers
