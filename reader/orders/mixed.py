"""Orders that take rows from several sources by weight."""

import math
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fieldslab.reader.orders.order import Order
from fieldslab.reader.orders.sources import (
    Sources,
    group_by_field,
    make_group_key,
    make_sources,
)
from fieldslab.reader.orders.unattached import make_unattached_error
from fieldslab.reader.orders.windows import AttachedWindows, Windows, attach_groups
from fieldslab.reader.rows import check_integer
from fieldslab.reader.slab import Slab
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.registry import make_unknown_name_error

if TYPE_CHECKING:
    from fieldslab.reader.orders.interleaving import Timeline

Exhausted = Literal["repeat", "stop", "drop"]
_EXHAUSTED = ("repeat", "stop", "drop")


class Mixed(Order):
    """Rows of several sources in given proportions, in every part of an epoch.

    Sources take turns by weight. Each is shuffled by itself, and anew whenever all its rows had
    their turn; these passes go on from one epoch to the next. In every window of 100 / smallest
    share rows, rounded up, each source has its share within one row, wherever the window begins:
    0.6, 0.25 and 0.15 in 667 rows. That is proved, and holds between two changes of weights. 0.5,
    0.3 and 0.2 are even exact in every window of 10 rows. Shorter windows are within 4.4 rows.
    Two sources are within one row in windows of any length; no sequence does that for more,
    whatever the weights: see `reader/orders/proportions.py`.

    A thousand sources need no more threads, buffers or open files than one.

    Parameters
    ----------
    weights
        Weight of each source by name: numbers from 0, of any sum. Other sources of the slab are
        left out.
    seed
        Seed of the shuffles.
    groups
        The rows of each source by name: a range, an array of integers, or the path of a `.npy`
        file, which is mapped. Default: the members of slabs that were opened as one, by their
        names.
    by
        Instead of `groups`: an integer, boolean or categorical field, whose values are the
        sources. Its values are read when a loader is made, and 4 bytes are kept for each row.
    exhausted
        When a source has had its last row: "repeat" shuffles it again, and an epoch ends when
        each source was visited whole, at the `rows / weight` that is largest (weights that add up
        to 1). "stop" ends the epoch with the first source that is visited whole. "drop" goes on
        with the other sources, whose weights keep their proportions: each row comes once. To find
        out when a thousand sources end takes about 3 s as a loader is made.
    schedule
        Other weights from a position on: `{2_560_000: {"web": 0.5, "code": 0.5}}`. A source that
        is not named has weight 0. Positions count the rows of the whole run, on all ranks: step
        times batch size times world size. They still hold where a run goes on with other sizes.
        The length of an epoch is that of the first one. Not with "drop".
    windows
        Windows of the sources instead of single rows: a `Windows` order, whose seed plays no part.
        No window goes beyond its source. Sources are members, or `groups` that are ranges of
        neighbouring rows; lengths and shares count windows.
    """

    def __init__(
        self,
        weights: Mapping[str, float],
        seed: int = 0,
        *,
        groups: Mapping[str, Any] | None = None,
        by: str | None = None,
        exhausted: Exhausted = "repeat",
        schedule: Mapping[int, Mapping[str, float]] | None = None,
        windows: Windows | Any = None,
    ) -> None:
        self.seed = check_integer("seed", seed)
        self._version = 2
        if exhausted not in _EXHAUSTED:
            raise UsageError("`exhausted`", expected=", ".join(_EXHAUSTED), found=exhausted)
        if groups is not None and by is not None:
            raise UsageError("give either `groups` or `by`")
        if windows is not None and not isinstance(windows, Windows):
            hint = "Write windows=Windows(16)."
            raise UsageError("`windows` is a Windows order", found=repr(windows)[:80], hint=hint)
        if windows is not None and by is not None:
            hint = "Open several slabs as one, or give `groups` of neighbouring rows."
            raise UsageError("windows are not grouped by a field", field=by, hint=hint)
        if schedule and exhausted == "drop":
            raise UsageError('`schedule` cannot be used with exhausted="drop"')
        self.exhausted = exhausted
        self.groups_by_name = groups
        self.by = by
        self.windows_order = windows
        self.phases = [(0, _check_weights(weights))]
        for position, phase in sorted(dict(schedule or {}).items()):
            start = check_integer("position in schedule", position, least=1)
            self.phases.append((start, _check_weights(phase)))
        names = {name for _, phase in self.phases for name, weight in phase.items() if weight}
        self.names = sorted(names)
        if groups is not None:
            _check_names(self.names, groups)

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`; only an attached one knows its sources."""
        raise make_unattached_error("its sources")

    def attach(self, slab: Slab) -> "AttachedMixed":
        """See `Order`. Raises UsageError, UnknownField, RowOutOfRange."""
        from fieldslab.reader.orders.interleaving import (
            Interleaving,
            Timeline,
            count_cycle,
            scale_weights,
        )
        from fieldslab.reader.orders.proportions import make_turns

        windows, sources = self._find_sources(slab)
        make: Any = make_turns if self._version > 1 else Interleaving
        scale: Any = scale_weights if self._version > 1 else count_cycle
        weights = [scale([phase.get(name, 0) for name in self.names]) for _, phase in self.phases]
        timeline = Timeline(make, weights[0], {} if self.exhausted == "drop" else None)
        for (start, _), later in zip(self.phases[1:], weights[1:], strict=True):
            timeline.append(start, later)
        length: int | None
        if self.exhausted == "drop":
            length = _drop_exhausted(timeline, sources.sizes, weights[0])
        elif self.exhausted == "stop":
            length = timeline.find_position(partial(_any_reached, sources.sizes))
        else:
            lasting = np.greater(weights[-1], 0)
            length = timeline.find_position(lambda rows: (rows >= sources.sizes)[lasting].all())
        if length is None:
            raise UsageError("an epoch would have more than 2**60 rows", found=repr(self))
        return AttachedMixed(self, self.seed, self.names, sources, timeline, length, windows)

    def _find_sources(self, slab: Slab) -> tuple[AttachedWindows | None, Sources]:
        if self.by is not None:
            return None, _make_field_sources(slab, self.by, self.names)
        groups = slab.members if self.groups_by_name is None else self.groups_by_name
        if self.groups_by_name is None and len(groups) == 1 and self.names != [*groups]:
            raise UsageError(
                "a slab that was opened alone has no members to be mixed",
                file=slab.path,
                hint='Open several, as in open_slab({"web": ..., "code": ...}), or give `groups` '
                "or `by`.",
            )
        _check_names(self.names, groups)
        chosen = {name: groups[name] for name in self.names}
        if self.windows_order is None:
            return None, make_sources(chosen, slab)
        windows, ranges = attach_groups(self.windows_order, slab, chosen)
        sizes, starts = np.array([[len(each), each.start] for each in ranges], np.int64).T.copy()
        return windows, Sources(sizes, starts, np.ones_like(sizes), {})

    @cached_property
    def _group_keys(self) -> dict[str, Any] | None:
        groups = self.groups_by_name
        if groups is None:
            return None
        return {name: make_group_key(groups[name]) for name in self.names}

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        (_, weights), *phases = self.phases
        return {
            "name": type(self).__name__,
            "version": self._version,
            "weights": dict(sorted(weights.items())),
            "schedule": [[start, dict(sorted(phase.items()))] for start, phase in phases],
            "seed": self.seed,
            "groups": self._group_keys,
            "by": self.by,
            "exhausted": self.exhausted,
            **({} if self.windows_order is None else {"windows": self.windows_order.key()}),
        }

    def in_sequence(self) -> Order:
        """See `Order`."""
        return (
            super().in_sequence()
            if self.windows_order is None
            else (self.windows_order.in_sequence())
        )

    def recall(self, key: Mapping[str, Any]) -> "Mixed | None":
        """See `Order`: states of version 1 go on with the sequence of that time."""
        saved = {name: value for name, value in key.items() if name != "members"}
        if saved != self.key() | {"version": 1}:
            return None
        earlier = copy(self)
        earlier._version = 1
        return earlier

    def __repr__(self) -> str:
        (_, weights), *phases = self.phases
        parameters = [repr(weights), f"seed={self.seed}"]
        if self.groups_by_name is not None:
            parameters.append(f"groups=<{len(self.groups_by_name)} groups>")
        if self.by is not None:
            parameters.append(f"by={self.by!r}")
        if self.exhausted != "repeat":
            parameters.append(f"exhausted={self.exhausted!r}")
        if phases:
            parameters.append(f"schedule={dict(phases)!r}")
        if self.windows_order is not None:
            parameters.append(f"windows={self.windows_order!r}")
        return f"Mixed({', '.join(parameters)})"


class AttachedMixed(Order):
    """A `Mixed` or `Balanced` order together with the rows of its sources in one slab.

    Attributes
    ----------
    names
        Names of the sources.
    sources
        Their rows.
    """

    def __init__(
        self,
        order: Order,
        seed: int,
        names: Sequence[str],
        sources: Sources,
        timeline: "Timeline",
        length: int,
        windows: AttachedWindows | None = None,
    ) -> None:
        from fieldslab.reader.draws.permutation import compute_sides

        self._order = order
        self._seed = seed
        self._attached = windows
        self.windows = None if windows is None else windows.windows
        self.names = names
        self.sources = sources
        self._timeline = timeline
        self._length = length
        self._sides = compute_sides(sources.sizes)
        self._epoch_rows = timeline.count(length)
        # With a schedule, positions of the run decide; else each epoch begins like the first.
        self._continues = isinstance(order, Mixed) and len(order.phases) > 1

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`."""
        from fieldslab.reader.draws.permutation import make_keys, permute_each_position

        shift = epoch * self._length if self._continues else 0
        groups, numbers = self._timeline.locate(start + shift, stop + shift)
        if not self._continues:
            numbers += epoch * self._epoch_rows[groups]
        sizes = self.sources.sizes[groups]
        passes, places = np.divmod(numbers, sizes)
        streams = passes * len(self.names) + groups  # each pass of a source is a shuffle of its own
        key = make_keys("mixed", self._seed)
        places = permute_each_position(places, self._sides[groups], streams, key)
        rows = self.sources.find_rows(groups, places, total)
        return rows if self._attached is None else self._attached.find_starts(rows)

    def choose_fields(self, slab: Slab, fields: Sequence[str] | None) -> Mapping[str, Field]:
        """See `Order`."""
        if self._attached is None:
            return super().choose_fields(slab, fields)
        return self._attached.choose_fields(slab, fields)

    def in_sequence(self) -> Order:
        """See `Order`."""
        return self._order.in_sequence()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"windows": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.windows = None if self._attached is None else self._attached.windows

    def length(self, total: int) -> int:
        """See `Order`."""
        return self._length

    def count_rows(self, epoch: int, position: int) -> dict[str, int]:
        """Count the rows that each source had in the run, up to a position of an epoch, by name.

        Divided by the rows of the source, that is how many passes it had.
        """
        if self._continues:
            counts = self._timeline.count(epoch * self._length + position)
        else:
            counts = epoch * self._epoch_rows + self._timeline.count(position)
        return dict(zip(self.names, counts.tolist(), strict=True))

    def key(self) -> dict[str, Any]:
        """See `Order`. It also tells the rows of members, whose names may be given anew."""
        key = self._order.key()
        if key.get("groups", "") is None and key["by"] is None:
            ranges = zip(self.sources.starts.tolist(), self.sources.sizes.tolist(), strict=True)
            key["members"] = dict(zip(self.names, map(list, ranges), strict=True))
        return key

    def __repr__(self) -> str:
        return repr(self._order)


def _drop_exhausted(timeline: "Timeline", sizes: np.ndarray, weights: np.ndarray) -> int:
    """Let sources leave as they are visited whole; return the position at which none is left."""
    position, left = 0, weights
    while True:
        ends = np.where(left > 0, sizes, np.iinfo(np.int64).max)
        end = timeline.find_position(partial(_any_reached, ends), position)
        assert end is not None
        position, left = end, np.where(timeline.count(end) < sizes, weights, 0)
        if not left.any():
            return position
        timeline.append(position, left)


def _any_reached(ends: np.ndarray, rows: np.ndarray) -> bool:
    return bool((rows >= ends).any())


def _make_field_sources(slab: Slab, field: str, names: Sequence[str]) -> Sources:
    sources, field_names = group_by_field(slab, field)
    _check_names(names, field_names)
    places = {name: place for place, name in enumerate(field_names)}
    chosen = np.array([places[name] for name in names])
    sizes, starts = sources.sizes[chosen], sources.starts[chosen]
    return sources._replace(sizes=sizes, starts=starts, steps=np.ones_like(sizes))


def _check_weights(weights: Any) -> dict[str, float]:
    if not isinstance(weights, Mapping) or not weights:
        raise UsageError(
            "weights are given by name", expected="such as {'web': 0.7, 'code': 0.3}", found=weights
        )
    for name, weight in weights.items():
        number = isinstance(weight, int | float | np.integer | np.floating)
        if not isinstance(name, str) or not number or not 0 <= weight < math.inf:
            raise UsageError("a weight is a number from 0, by name", found=f"{name!r}: {weight!r}")
    if not any(weights.values()):
        raise UsageError("all weights are 0", found=dict(weights))
    return {name: float(weight) for name, weight in weights.items()}


def _check_names(names: Sequence[str], source_names: Any) -> None:
    for name in names:
        if name not in source_names:
            raise make_unknown_name_error(f"no source is called {name!r}", name, source_names)
