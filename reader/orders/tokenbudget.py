"""Batches of about as many tokens, whose rows have about the same length."""

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader.orders.order import Order, shuffle_positions
from fieldslab.reader.orders.sources import CHUNK, RowGroups, group_by_number
from fieldslab.reader.orders.unattached import make_unattached_error
from fieldslab.reader.rows import check_integer
from fieldslab.reader.slab import Slab
from fieldslab.schemas.errors import UsageError

_LEAST_BATCHES = 8
"""Rows of as many batches are shuffled among each other, however their lengths differ."""
_NEAR = 16
"""Else their lengths differ by a sixteenth at most."""
_KEPT = 4


class TokenBudget(Order):
    """Every row once an epoch, in batches that have up to `max_tokens` with padding.

    Write `Loader(slab, order=TokenBudget(...))`: it says how many rows a batch has, as a
    `batch_sampler` does in torch. Rows of nearly the same length make up a class, in which they are
    shuffled and cut into batches of equal size; the batches of all classes come in random order.
    `Loader.stats()` tells how much of a batch is padding.

    Each rank gets one batch of a step, and all ranks have as many steps. Steps are the same on any
    number of ranks, one after the other, so a run can go on with another number.

    Parameters
    ----------
    max_tokens
        Most tokens in a batch: its rows times the longest of them.
    field
        A ragged or text field: tokens are its elements, or bytes of text. All lengths are read
        when a loader is made, and 4 bytes are kept for each row.
    seed
        Seed of the shuffles.
    """

    repeats = False

    def __init__(self, max_tokens: int, field: str, seed: int = 0) -> None:
        self.max_tokens = check_integer("max_tokens", max_tokens, least=1)
        self.field = field
        self.seed = check_integer("seed", seed)

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`; only an attached one knows lengths."""
        raise make_unattached_error("lengths")

    def in_sequence(self) -> "TokenBudget":
        """See `Order`: batches stay as they are, since a sequence has none of so many tokens."""
        return self

    def attach(self, slab: Slab) -> Order:
        """See `Order`. Raises UnknownField, and UsageError where a row alone has more tokens."""
        slab.lengths([], self.field)
        read = partial(_read_lengths, slab, self.field, self.max_tokens)
        groups = group_by_number(read, len(slab), partial(_merge_lengths, self.max_tokens))
        return AttachedTokenBudget(self, slab, groups)

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        return {
            "name": type(self).__name__,
            "version": 1,
            "max_tokens": self.max_tokens,
            "field": self.field,
            "seed": self.seed,
        }

    def __repr__(self) -> str:
        return f"TokenBudget({self.max_tokens}, {self.field!r}, seed={self.seed})"


class _Epoch(NamedTuple):
    """The sequence of batches in an epoch, and where each begins: int64[n] and int64[n + 1]."""

    batches: np.ndarray
    starts: np.ndarray


class AttachedTokenBudget(Order):
    """A `TokenBudget` together with the rows of a slab, by class of length."""

    repeats = False

    def __init__(self, order: TokenBudget, slab: Slab, groups: RowGroups) -> None:
        from fieldslab.reader.draws.permutation import compute_sides

        self._order = order
        self._slab = slab
        self._groups = groups
        self._sizes = np.diff(groups.ends, prepend=0)
        self._sides = compute_sides(self._sizes)
        rows_in_batch = np.maximum(order.max_tokens // np.maximum(groups.values, 1), 1)
        self._batches = -(-self._sizes // rows_in_batch)  # of each class
        self._ends = np.cumsum(self._batches)
        self._shuffle = lru_cache(_KEPT)(self._shuffle_batches)

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`."""
        from fieldslab.reader.draws.permutation import make_keys, permute_each_position

        sequence = self._shuffle(epoch)
        positions = np.arange(start, stop, dtype=np.int64)
        turns = np.searchsorted(sequence.starts, positions, side="right") - 1
        groups, firsts, _ = self._find_places(sequence.batches[turns])
        places = firsts + positions - sequence.starts[turns]
        sizes = self._sizes[groups]
        key = make_keys("token rows", self._order.seed, epoch)
        places = permute_each_position(places, self._sides[groups], groups, key)
        return self._groups.row_index[self._groups.ends[groups] - sizes + places].astype(np.int64)

    def find_batches(self, epoch: int) -> np.ndarray:
        """See `Order`."""
        return self._shuffle(epoch).starts

    def count_tokens(self, rows: np.ndarray) -> tuple[int, int]:
        """See `Order`."""
        lengths = self._slab.lengths(rows, self._order.field)
        return int(lengths.sum()), len(rows) * int(lengths.max(initial=0))

    def _find_places(self, batches: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Find the class of batches, and which places of it each has: int64[n] each."""
        groups = np.searchsorted(self._ends, batches, side="right")
        turns = batches - self._ends[groups] + self._batches[groups]
        sizes, counts = self._sizes[groups], self._batches[groups]
        return groups, turns * sizes // counts, (turns + 1) * sizes // counts

    def _shuffle_batches(self, epoch: int) -> _Epoch:
        count = int(self._batches.sum())
        batches = shuffle_positions("token batches", (self._order.seed, epoch), 0, count, count)
        _, firsts, ends = self._find_places(batches)
        return _Epoch(batches, np.concatenate([[0], np.cumsum(ends - firsts)]))

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        return self._order.key()

    def __reduce__(self) -> tuple[object, ...]:
        return AttachedTokenBudget, (self._order, self._slab, self._groups)

    def __repr__(self) -> str:
        return repr(self._order)


def _read_lengths(slab: Slab, field: str, most: int) -> Iterator[tuple[int, np.ndarray]]:
    for first in range(0, len(slab), CHUNK):
        lengths = slab.lengths(range(first, min(first + CHUNK, len(slab))), field)
        if (lengths > most).any():
            row = int(np.argmax(lengths > most))
            raise UsageError(
                "a row has more tokens than a batch may have",
                field=field,
                row=first + row,
                expected=f"up to {most:,}",
                found=f"{lengths[row]:,}",
                hint="Raise `max_tokens`, or leave out such rows.",
            )
        yield first, lengths


def _merge_lengths(most: int, lengths: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Merge lengths that are near, and more where these rows are few; the largest of each class."""
    ends: list[int] = []
    first = tokens = 0
    for length, count in zip(lengths.tolist(), counts.tolist(), strict=True):
        far = length * _NEAR > first * (_NEAR + 1)
        if not ends or (far and tokens >= _LEAST_BATCHES * most):
            ends.append(length)
            first, tokens = length, 0
        ends[-1] = length
        tokens += max(length, 1) * count
    return np.array(ends, np.int64)
