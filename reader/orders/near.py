"""An order for slabs that are larger than what a machine can keep: a few shards at a time."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader.orders.order import Order, ShardSpans, shuffle_positions
from fieldslab.reader.orders.unattached import make_unattached_error
from fieldslab.reader.rows import check_integer
from fieldslab.reader.slab import Slab
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.manifest import SHUFFLE_ATTRIBUTE
from fieldslab.schemas.notices import warn

MOST_GROUPS = 2**20
_KEPT = 4
"""Epochs whose sequence of shards is remembered."""


class Near(Order):
    """Every row once an epoch; each group of ranks reads a few shards at a time.

    In each epoch, shards are shuffled and dealt to `groups` of equal numbers of rows. A
    group reads `window` shards at a time and shuffles their rows. Position `p` of an epoch belongs
    to group `p % groups`, and `Loader` gives each rank the positions of as few groups as possible.
    So a machine touches only its share of the shards, and only `window` of them at a time for each
    of its groups. Which rows make up a step does not depend on the number of ranks: a run can be
    resumed on another number of machines.

    How random the batches are depends on the data. If it was shuffled when it was packed (`pack`
    and `repack` with `shuffle`), batches are as random as with `Shuffled`. If it is sorted, for
    example by class, a batch has only rows of `groups * window` random shards.

    Parameters
    ----------
    groups
        The number of machines, or a multiple of it. It decides on the rows of each batch, so keep
        it when a run goes on with another number of machines.
    window
        Most shards that a group reads at a time, apart from one that it shares with another group.
    seed
        Seed of the shuffle, which is new in each epoch.

    Warns
    -----
    FieldslabWarning
        When it is attached to a slab that was not shuffled when it was packed, and `groups *
        window` is less than the number of shards.
    """

    repeats = False

    def __init__(
        self, groups: int = 1, window: int = 16, seed: int = 0, *, chosen: bool = False
    ) -> None:
        """With `chosen`, it goes on as the state of a loader says: it was not asked for."""
        self.groups = check_integer("groups", groups, least=1)
        if self.groups > MOST_GROUPS:
            raise UsageError("too many groups", expected=f"up to {MOST_GROUPS:,}", found=groups)
        self.window = check_integer("window", window, least=1)
        self.seed = check_integer("seed", seed)
        self._chosen = chosen

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`; only an attached one knows the shards."""
        raise make_unattached_error("its shards")

    def attach(self, slab: Slab) -> Order:
        """See `Order`."""
        ends = find_shard_ends(slab)
        shuffled = SHUFFLE_ATTRIBUTE in slab.manifest.attributes
        if not shuffled and self.groups * self.window < len(ends):
            warn(
                f"{self!r} mixes rows of {self.groups * self.window:,} of {len(ends):,} shards at "
                f"a time, and {slab.path} was not shuffled when it was packed: if it is sorted, "
                "batches are not random. packer.repack(..., shuffle=0) makes a shuffled slab."
            )
        return AttachedNear(self, ends)

    def recall(self, key: Mapping[str, Any]) -> Order | None:
        """See `Order`: where it was chosen by the size of a cache, it may differ on resume."""
        names = ("name", "version")
        if not self._chosen or any(key.get(name) != self.key()[name] for name in names):
            return None
        return Near(key["groups"], key["window"], key["seed"])

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        return {
            "name": type(self).__name__,
            "version": 1,
            "groups": self.groups,
            "window": self.window,
            "seed": self.seed,
        }

    def __repr__(self) -> str:
        return f"Near(groups={self.groups}, window={self.window}, seed={self.seed})"


class _Epoch(NamedTuple):
    """The sequence of shards in an epoch, by turn: int64[turns] and int64[turns + 1].

    The shard of turn `t` has the places `starts[t]` up to `starts[t + 1]` of the epoch.
    """

    shards: np.ndarray
    starts: np.ndarray


class AttachedNear(Order):
    """A `Near` order together with the shards of one slab.

    Attributes
    ----------
    groups
        See `Near`.
    ends
        Where each shard ends, in rows of the slab: int64[shards].
    """

    repeats = False

    def __init__(self, order: Near, ends: np.ndarray) -> None:
        self.groups = order.groups
        self.ends = ends
        self._begins = np.concatenate([[0], ends[:-1]])
        self._order = order
        self._shuffle = lru_cache(_KEPT)(self._shuffle_shards)

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`."""
        return self.rows_at(epoch, np.arange(start, stop, dtype=np.int64), total)

    def rows_at(self, epoch: int, positions: np.ndarray, total: int) -> np.ndarray:
        """See `Order`."""
        from fieldslab.reader.draws.permutation import (
            compute_sides,
            make_keys,
            permute_each_position,
        )

        if not len(positions):
            return np.empty(0, np.int64)
        sequence = self._shuffle(epoch)
        group = positions % self.groups
        first, last, window = self._find_windows(sequence, positions, total)
        place = _find_group_start(group, self.groups, total) + positions // self.groups
        # A window of one group is a shuffle of its own.
        stream = window * self.groups + group
        key = make_keys("near rows", self._order.seed, epoch)
        place = first + permute_each_position(
            place - first, compute_sides(last - first), stream, key
        )
        turn = np.searchsorted(sequence.starts, place, side="right") - 1
        shard = sequence.shards[turn]
        rows: np.ndarray = self._begins[shard] + place - sequence.starts[turn]
        return rows

    def find_shard_spans(self, epoch: int, ends: np.ndarray, groups: Sequence[int]) -> ShardSpans:
        """See `Order`: a group reads all shards of a window from its first row to its last."""
        sequence, total = self._shuffle(epoch), int(ends[-1]) if len(ends) else 0
        spans = ShardSpans(np.full(len(ends), total, np.int64), np.zeros(len(ends), np.int64))
        for group in groups:
            begin, end = _find_group_start(
                np.array([group, group + 1]), self.groups, total
            ).tolist()
            turns = np.flatnonzero((sequence.starts[1:] > begin) & (sequence.starts[:-1] < end))
            places = np.maximum(sequence.starts[turns], begin) - begin
            first, last, _ = self._find_windows(sequence, places * self.groups + group, total)
            shards = sequence.shards[turns]
            starts, stops = (first - begin) * self.groups, (last - begin) * self.groups
            spans.starts[shards] = np.minimum(spans.starts[shards], starts)
            spans.stops[shards] = np.maximum(spans.stops[shards], stops)
        return spans

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        return self._order.key()

    def __reduce__(self) -> tuple[object, ...]:
        return AttachedNear, (self._order, self.ends)

    def __repr__(self) -> str:
        return repr(self._order)

    def _shuffle_shards(self, epoch: int) -> _Epoch:
        count = len(self.ends)
        shards = shuffle_positions("near shards", (self._order.seed, epoch), 0, count, count)
        sizes = np.diff(self.ends, prepend=0)[shards]
        return _Epoch(shards, np.concatenate([[0], np.cumsum(sizes)]))

    def _find_windows(
        self, sequence: _Epoch, positions: np.ndarray, total: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places between which the window of each position lies, and its first turn: int64[n].

        Windows of a group are of equal size. They hold `window` shards at most, and one more where
        a shard is cut between two groups.
        """
        group = positions % self.groups
        begin = _find_group_start(group, self.groups, total)
        end = _find_group_start(group + 1, self.groups, total)
        places = np.stack([begin, begin + positions // self.groups, end - 1])
        first_turn, turn, last_turn = np.searchsorted(sequence.starts, places, side="right") - 1
        turns = last_turn + 1 - first_turn
        windows = np.maximum(-(-(turns - 1) // self._order.window), 1)
        window = ((turn - first_turn + 1) * windows - 1) // turns
        window_turn = first_turn + window * turns // windows
        next_turn = first_turn + (window + 1) * turns // windows
        first = np.maximum(sequence.starts[window_turn], begin)
        return first, np.minimum(sequence.starts[next_turn], end), window_turn


def _find_group_start(group: np.ndarray, groups: int, total: int) -> np.ndarray:
    """Find where the rows of a group begin in an epoch; the first groups have a row more."""
    size, longer = divmod(total, groups)
    return group * size + np.minimum(group, longer)


def find_shard_ends(slab: Slab) -> np.ndarray:
    """Find where each shard ends, in rows of the view: int64[shards that the view reads].

    A view whose rows do not ascend counts as one shard.
    """
    view, starts = slab.view, slab.storage.directory.starts
    borders = starts[1:]
    if not isinstance(view, range):
        counts = view.find_borders(borders)
        if counts is None:
            counts = np.array([len(view)])
    else:
        if view.step < 0:  # the same, seen from the other end
            view, borders = range(-view.start, -view.stop, -view.step), 1 - starts[:-1][::-1]
        counts = -((view.start - borders) // view.step)
    ends = np.unique(np.clip(counts, 0, len(view)))
    return ends[ends > 0]
