"""Orders: which rows an epoch visits, and in which sequence."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader.draws.visits import count_visits
from fieldslab.reader.rowfiles import (
    check_bounds,
    digest_array,
    is_ascending,
    open_row_file,
)
from fieldslab.reader.rows import Rows, check_integer, check_rows
from fieldslab.reader.slab import Slab
from fieldslab.reader.windows import WindowReader
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field

# The permutation is a kernel; whoever only opens a slab does not wait for numba.


class ShardSpans(NamedTuple):
    """Between which positions of an epoch shards are read: int64[shards] each.

    A shard that is not read has no position between its start and its stop.
    """

    starts: np.ndarray
    stops: np.ndarray


class Order(ABC):
    """Says which row stands at each position of an epoch.

    An epoch has positions 0..length-1. Every order here computes the row at any position directly,
    without the positions before it. The same order gives the same rows in every process and on
    every machine; `key` tells two orders apart that do not. To make one of your own, write `rows`,
    `key` if loaders are to be resumed, and `length` if it is not the number of rows; set `repeats`
    to False if no epoch has a row twice.

    Attributes
    ----------
    repeats
        Whether an epoch may have a row more than once. Default: True. Random draws for a row then
        also depend on its visit: see `visits`.
    groups
        Position `p` belongs to group `p % groups`: ranks get positions of as few groups as
        possible. Default: 1, where each rank gets neighbouring positions.
    windows
        Reads the batches of an attached order whose rows are starts of windows. Default: None,
        where rows are gathered.
    """

    repeats: bool = True
    groups: int = 1
    windows: WindowReader | None = None

    @abstractmethod
    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """Return the rows at positions `start` up to `stop` of an epoch: int64[stop - start].

        `total` is the number of rows of the slab; 0 <= start <= stop <= length(total).
        """

    def rows_at(self, epoch: int, positions: np.ndarray, total: int) -> np.ndarray:
        """Return the rows at ascending positions of an epoch: int64[n] for int64[n].

        By default taken from all rows between the first and the last of them.
        """
        if not len(positions):
            return np.empty(0, np.int64)
        first, last = int(positions[0]), int(positions[-1])
        return self.rows(epoch, first, last + 1, total)[positions - first]

    def length(self, total: int) -> int:
        """Return the number of positions in an epoch over `total` rows."""
        return total

    def visits(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """Return the numbers that tell the visits of a row in an epoch apart: int64[stop - start].

        Two positions with the same row have different numbers, each in 0..length-1. Crops, flips
        and `rng` are drawn by (seed, epoch, row, visit). Default: zeros if no row repeats, else
        the positions themselves.
        """
        if self.repeats:
            return np.arange(start, stop, dtype=np.int64)
        return np.zeros(stop - start, np.int64)

    def find_shard_spans(
        self, epoch: int, ends: np.ndarray, groups: Sequence[int]
    ) -> ShardSpans | None:
        """Return when an epoch reads each shard, so that a cache keeps what is needed next.

        `ends` is where each shard ends, in rows: int64[shards]; of `groups`, all or some are
        looked at. Default: None, where rows of any shard may come at any time.
        """
        return None

    def find_batches(self, epoch: int) -> np.ndarray | None:
        """Return where each batch of an epoch begins, and the last one ends: int64[batches + 1].

        Default: None, where loaders cut batches of their `batch_size`. The number of batches must
        be the same in each epoch. Only asked of an attached order.
        """
        return None

    def count_tokens(self, rows: np.ndarray) -> tuple[int, int]:
        """Count the tokens of a batch, and how many there are with padding, for `Loader.stats`.

        Default: none.
        """
        return 0, 0

    def key(self) -> dict[str, Any]:
        """Return a JSON-ready dict that tells this order from others in a loader's state.

        It has a "name", a "version", and every parameter that decides on the rows. Raise the
        version when the same parameters come to give other rows. An order that does not define
        `key` is told by its class and its `repr`.

        Raises UsageError where the class defines neither `key` nor `__repr__`.
        """
        if type(self).__repr__ is object.__repr__:
            hint = 'Define key(), such as {"name": "mine", "version": 1, "seed": self.seed}.'
            name = type(self).__name__
            raise UsageError(
                "an order without key() cannot be saved in a state", found=name, hint=hint
            )
        return {"name": type(self).__name__, "version": 1, "repr": repr(self)}

    def recall(self, key: Mapping[str, Any]) -> "Order | None":
        """Return the order for the `key` of a loader's state, if this order can continue it.

        An order whose defaults changed goes on with those of the run that was saved.
        """
        return None

    def choose_fields(self, slab: Slab, fields: Sequence[str] | None) -> Mapping[str, Field]:
        """Choose the fields of batches, all for None: each by name, as it is in a batch.

        Only asked of an attached order. Raises UnknownField, UsageError.
        """
        return {name: slab.fields[name] for name in slab.names(fields)}

    def in_sequence(self) -> "Order":
        """Return the order of the same samples as they are stored, to validate on."""
        return Sequential()

    def attach(self, slab: Slab) -> "Order":
        """Check this order against a slab, and return an order that has what it needs of the slab.

        A loader's state holds the `key` of what is returned, or of this order if that has none.
        """
        self.length(len(slab))
        return self


class Sequential(Order):
    """Rows as they are stored."""

    repeats = False

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`."""
        return np.arange(start, stop, dtype=np.int64)

    def find_shard_spans(self, epoch: int, ends: np.ndarray, groups: Sequence[int]) -> ShardSpans:
        """See `Order`."""
        return ShardSpans(np.concatenate([[0], ends[:-1]]), ends)

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        return {"name": type(self).__name__, "version": 1}

    def __repr__(self) -> str:
        return "Sequential()"


class Strided(Order):
    """Every n-th row, as they are stored: rows 0, n, 2n and so on."""

    repeats = False

    def __init__(self, n: int) -> None:
        self.n = check_integer("n", n, least=1)

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`."""
        return np.arange(start, stop, dtype=np.int64) * self.n

    def length(self, total: int) -> int:
        """See `Order`."""
        return -(-total // self.n)

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        return {"name": type(self).__name__, "version": 1, "n": self.n}

    def __repr__(self) -> str:
        return f"Strided({self.n})"


class Shuffled(Order):
    """Every row once an epoch, in a new random order in each epoch."""

    repeats = False

    def __init__(self, seed: int = 0) -> None:
        self.seed = check_integer("seed", seed)

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`."""
        return shuffle_positions("shuffle", (self.seed, epoch), start, stop, total)

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        return {"name": type(self).__name__, "version": 1, "seed": self.seed}

    def __repr__(self) -> str:
        return f"Shuffled(seed={self.seed})"


class Subset(Order):
    """Some of the rows, each once an epoch: a list of rows, or a random fraction of all.

    A row that is listed several times comes as often. Each time it is drawn anew.

    Parameters
    ----------
    rows
        The rows: any array of integers, list or range, or the path of a `.npy` file, which is
        mapped. Negative ones count from the end.
    fraction
        Instead of `rows`: the fraction of all rows, above 0 and up to 1. The seed chooses the
        rows, which are the same in all epochs.
    seed
        Seed of the shuffle, which is new in each epoch. With None, `rows` keep their sequence.
    """

    def __init__(
        self,
        rows: Rows | str | os.PathLike[str] | None = None,
        *,
        fraction: float | None = None,
        seed: int | None = 0,
    ) -> None:
        if (rows is None) == (fraction is None):
            raise UsageError("give either `rows` or `fraction`")
        if fraction is not None and not 0 < fraction <= 1:
            raise UsageError("`fraction` must be above 0 and up to 1", found=fraction)
        if fraction is not None and seed is None:
            raise UsageError("`fraction` needs a seed")
        self.seed = None if seed is None else check_integer("seed", seed)
        self.fraction = fraction
        self._path = rows if isinstance(rows, str | os.PathLike) else None
        self._numbers: np.ndarray | None = None
        if rows is not None:
            self._numbers = (
                check_rows(rows, 2**62)
                if not isinstance(rows, str | os.PathLike)
                else open_row_file(rows)
            )
        self._counted: tuple[int, np.ndarray] | None = None  # a total, and visits by number
        self.repeats = self._numbers is not None and not is_ascending(self._numbers)

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`."""
        chosen = self._choose_members(epoch, start, stop, total)
        if self._numbers is None:
            from fieldslab.reader.draws.permutation import make_keys, permute_positions

            return permute_positions(chosen, total, make_keys("members", self.seed or 0))
        numbers = self._numbers[chosen].astype(np.int64)
        return np.where(numbers < 0, numbers + total, numbers)

    def visits(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`: how often the row stands earlier in the list given."""
        if self._numbers is None or not self.repeats:
            return np.zeros(stop - start, np.int64)
        counted = self._counted
        if counted is None or counted[0] != total:
            numbers = self._numbers.astype(np.int64)
            numbers[numbers < 0] += total
            counted = self._counted = total, count_visits(numbers)  # at once: threads read it
        return counted[1][self._choose_members(epoch, start, stop, total)]

    def _choose_members(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """Return the members at some positions: int64[stop - start]."""
        if self.seed is None:
            return np.arange(start, stop, dtype=np.int64)
        return shuffle_positions("subset", (self.seed, epoch), start, stop, self.length(total))

    def length(self, total: int) -> int:
        """See `Order`. Raises RowOutOfRange."""
        if self._numbers is None:
            assert self.fraction is not None
            return min(round(self.fraction * total), total)
        return len(self._numbers)

    def attach(self, slab: Slab) -> Order:
        """See `Order`. Raises RowOutOfRange."""
        if self._numbers is not None:
            check_bounds(self._numbers, len(slab))
        return self

    @cached_property
    def _digest(self) -> dict[str, Any] | None:
        return None if self._numbers is None else digest_array(self._numbers)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: a file is mapped again."""
        return self.__dict__ | ({} if self._path is None else {"_numbers": None})

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._path is not None:
            self._numbers = open_row_file(self._path)

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        return {
            "name": type(self).__name__,
            "version": 1,
            "rows": self._digest,
            "fraction": self.fraction,
            "seed": self.seed,
        }

    def __repr__(self) -> str:
        if self._numbers is None:
            return f"Subset(fraction={self.fraction}, seed={self.seed})"
        return f"Subset(<{len(self._numbers)} rows>, seed={self.seed})"


def attach_order(order: Any, slab: Slab) -> Order:
    """Attach an order to a slab. Raises UsageError for what is no order; else see `attach`."""
    if not isinstance(order, Order):
        hint = "Give Shuffled(0), Sequential() or another of fieldslab.reader."
        is_class = isinstance(order, type)
        found = f"the class {order.__name__}" if is_class else type(order).__name__
        raise UsageError("not an order", found=found, hint=hint)
    return order.attach(slab)


def shuffle_positions(
    purpose: str, numbers: tuple[int, ...], start: int, stop: int, total: int
) -> np.ndarray:
    """Return positions `start` up to `stop` of the shuffle of 0..total-1 by `numbers`: int64."""
    from fieldslab.reader.draws.permutation import make_keys, permute_positions

    return permute_positions(
        np.arange(start, stop, dtype=np.int64), total, make_keys(purpose, *numbers)
    )
