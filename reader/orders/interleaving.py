"""Sources that take turns by weight: whose turn a position is, without the positions before it.

The sources are the leaves of a binary tree. Of the first `m` rows of a node with weight `W`, its
left side, of weight `w`, has `floor(m * w / W + 1/2)`, and its right side the rest: integers
decide, so a position is found by one division a level, and counts are exact.

What that guarantees. One split is a mechanical word: of any `n` neighbouring rows of the node, the
left side has `n * w / W` rounded up or down, so it is off by less than one row (M. Morse and G.
Hedlund, "Symbolic Dynamics II", 1940; Bresenham's lines are the same words). If a node is off by
less than `e` rows in some window of positions, a side is off by less than `1 + e * w / W`. From
the root, which is never off, down to a source of weight `w` below nodes of weights `W1, W2, ...`
(without the root), this gives

    | rows in any window - share |  <  1 + w / W1 + w / W2 + ...

Of two sources, each is therefore within one row in every window of any length. Of three, within
two; no sequence stays within one for all weights (A. S. Fraenkel, 1973). The tree is Huffman's,
where `W1, W2, ...` are at least 1, 2, 3, 5, 8 ... times `w`: less than 3.4 rows for any number of
sources. In windows from the start of an epoch each rounding is off by half a row at most, so it is
half of that: less than 1.7. R. Tijdeman, "The chairman assignment problem", 1980, has less than 1
there, but his sequence needs all positions before.

Weights are whole numbers of rows in a cycle, so that in every window of a cycle, wherever it
begins, each source has exactly these rows. Short decimals are exact: 0.5, 0.3 and 0.2 have a cycle
of 10. Two sources have a cycle of up to 2**30 rows. Where several sources have none that fits,
`reader/orders/proportions.py` takes turns.

Until version 2 of `Mixed`, weights of several sources whose exact cycle was longer than 100 rows of
the rarest one were rounded to a cycle of about so many (`count_cycle`). States of that time go on
with it.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, Protocol

import numpy as np

from fieldslab.schemas.jit import kernel

LONGEST_CYCLE = 2**30
_RAREST = 100
"""Rows of the rarest of several sources in a cycle to which weights are rounded."""
MOST_POSITIONS = 2**60
_KEPT = 8

_Array = np.ndarray


def scale_weights(weights: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the smallest whole numbers that are to each other as weights are: object[sources].

    They are ints of Python, of any size. `weights` are numbers or an array of them: finite, not
    negative, and not all 0.
    """
    shares = [Fraction(str(float(weight))) for weight in weights]  # 0.1 is a tenth
    scale = math.lcm(*(share.denominator for share in shares))
    counts = [int(share * scale) for share in shares]
    divisor = math.gcd(*counts)
    return np.array([count // divisor for count in counts], object)


def count_cycle(weights: Sequence[float] | np.ndarray) -> np.ndarray:
    """Count the rows of each source in a cycle of version 1: int64[sources].

    `weights` are those of `scale_weights`.
    """
    return shorten_cycle(scale_weights(weights).tolist())


def shorten_cycle(counts: Sequence[int]) -> np.ndarray:
    """Round the rows of each source in a cycle to one that is not too long: int64[sources]."""
    total, rarest = sum(counts), min(filter(None, counts))
    several = sum(map(bool, counts)) > 2
    longest = min(-(-_RAREST * total // rarest), LONGEST_CYCLE) if several else LONGEST_CYCLE
    if total <= longest:
        return np.array(counts, np.int64)
    rounded = [count * longest // total for count in counts]
    by_remainder = sorted(
        range(len(counts)), key=lambda number: -(counts[number] * longest % total)
    )
    for number in by_remainder[: longest - sum(rounded)]:
        rounded[number] += 1
    return np.array(
        [max(rows, int(count > 0)) for rows, count in zip(rounded, counts, strict=True)]
    )


class _Tree(NamedTuple):
    """Leaves are 0..sources-1, then come inner nodes, the root last.

    Inner node `sources + i` has the sides `left[i]` and `right[i]`, and the leaves
    `leaves[begins[i]]` up to `leaves[ends[i]]`.
    """

    left: np.ndarray
    right: np.ndarray
    leaves: np.ndarray
    begins: np.ndarray
    ends: np.ndarray


Trees = dict[int, _Tree]


class Interleaving:
    """Sources that take turns by weight, from position 0 on.

    Parameters
    ----------
    counts
        Rows of each source in a cycle: int64[sources].
    trees
        Trees of other interleavings by their number of leaves. One of them is taken, so that
        sources which some counts of 0 leave out change nothing for the others.
    """

    def __init__(self, counts: np.ndarray, trees: Trees | None = None) -> None:
        self.counts = counts
        tree = None if trees is None else trees.get(len(counts))
        self.tree = _make_tree(counts) if tree is None else tree
        if trees is not None:
            trees[len(counts)] = self.tree

    @cached_property
    def _nodes(self) -> np.ndarray:
        """Rows of each node in a cycle: int64[nodes]."""
        before = np.concatenate([[0], np.cumsum(self.counts[self.tree.leaves])])
        inner = before[self.tree.ends] - before[self.tree.begins]
        return np.concatenate([self.counts, inner])

    def locate(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Find the source of each position, and how many rows it had before: int64[n] each."""
        numbers = np.arange(start, stop, dtype=np.int64)
        sources = np.empty(stop - start, np.int64)
        _locate_in_place(numbers, sources, self._nodes, self.tree.left, self.tree.right)
        return sources, numbers

    def count(self, position: int) -> np.ndarray:
        """Count the rows of each source before a position: int64[sources]."""
        rows = np.empty(len(self._nodes), np.int64)
        _count_rows(position, rows, self._nodes, self.tree.left, self.tree.right)
        return rows[: len(self.counts)]


class Turns(Protocol):
    """Whose turn each position is: an `Interleaving`, or what does the same."""

    def locate(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Interleaving`."""

    def count(self, position: int) -> np.ndarray:
        """See `Interleaving`."""


class Timeline:
    """Turns that follow each other: each begins at a position, with other weights.

    Parameters
    ----------
    make
        Makes the turns of weights, with trees to use again: see `Interleaving`.
    weights
        The weights at first, as `make` takes them.
    trees
        What all parts take their trees from. Default: each has a tree of its own.

    Attributes
    ----------
    starts
        Where each begins.
    """

    def __init__(
        self,
        make: Callable[[Any, Trees | None], Turns],
        weights: Any,
        trees: Trees | None = None,
    ) -> None:
        self.starts = [0]
        self._make_turns = make
        self._trees = trees
        self._befores = [np.zeros(len(weights), np.int64)]  # rows of each source at the starts
        self._weights = [weights]
        self._make = lru_cache(_KEPT)(self._make_part)

    def append(self, start: int, weights: Any) -> None:
        """Have other weights from a position on."""
        self._befores.append(self.count(start))
        self.starts.append(start)
        self._weights.append(weights)

    def locate(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Interleaving`."""
        sources, numbers = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        while start < stop:
            part = bisect_right(self.starts, start) - 1
            begin, upto = self.starts[part], min([stop, *self.starts[part + 1 : part + 2]])
            chosen, before = self._make(part).locate(start - begin, upto - begin)
            sources.append(chosen)
            numbers.append(before + self._befores[part][chosen])
            start = upto
        return np.concatenate(sources), np.concatenate(numbers)

    def count(self, position: int) -> np.ndarray:
        """See `Interleaving`."""
        part = bisect_right(self.starts, position) - 1
        rows: np.ndarray = self._befores[part] + self._make(part).count(
            position - self.starts[part]
        )
        return rows

    def find_position(self, reached: Callable[[np.ndarray], Any], low: int = 0) -> int | None:
        """Find the first position from `low` on at which the sources' counts have `reached`.

        What was reached stays so. None if it never is.
        """
        high, step = low, 1
        while not reached(self.count(high)):
            low, high, step = high + 1, high + step, 2 * step
            if high > MOST_POSITIONS:
                return None
        while low < high:
            middle = (low + high) // 2
            if reached(self.count(middle)):
                high = middle
            else:
                low = middle + 1
        return high

    def _make_part(self, part: int) -> Turns:
        return self._make_turns(self._weights[part], self._trees)

    def __reduce__(self) -> tuple[Any, ...]:
        state = self.starts, self._befores, self._weights
        return Timeline, (self._make_turns, self._weights[0], self._trees), state

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.starts, self._befores, self._weights = state


def _make_tree(counts: np.ndarray) -> _Tree:
    """Huffman's tree: the two lightest nodes are joined, until one is left."""
    size = len(counts)
    heap = [(count, leaf) for leaf, count in enumerate(counts.tolist())]
    heapify(heap)
    sides = []
    for node in range(size, 2 * size - 1):
        (lighter, left), (heavier, right) = heappop(heap), heappop(heap)
        sides.append((left, right))
        heappush(heap, (lighter + heavier, node))
    leaves: list[int] = []
    begins, ends, stack = [0] * (size - 1), [0] * (size - 1), [2 * size - 2]
    while stack:
        node = stack.pop()
        if node < 0:  # all leaves of ~node were seen
            ends[~node - size] = len(leaves)
        elif node < size:
            leaves.append(node)
        else:
            left, right = sides[node - size]
            begins[node - size] = len(leaves)
            stack += [~node, right, left]
    columns = np.array(sides, np.int64).reshape(-1, 2).T.copy()
    arrays = (np.array(numbers, np.int64) for numbers in (leaves, begins, ends))
    return _Tree(columns[0], columns[1], *arrays)


@kernel("void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])")
def _locate_in_place(
    numbers: _Array, sources: _Array, nodes: _Array, left: _Array, right: _Array
) -> None:
    """Put in place of each position the rows that its source had before, and tell the source."""
    leaves, root = len(left) + 1, len(nodes) - 1
    for i in range(len(numbers)):
        cycles = numbers[i] // nodes[root]
        number = numbers[i] - cycles * nodes[root]
        node = root
        while node >= leaves:
            total, share = nodes[node], nodes[left[node - leaves]]
            product = number * share + total // 2
            before = product // total
            if product - before * total + share >= total:
                number, node = before, left[node - leaves]
            else:
                number, node = number - before, right[node - leaves]
        sources[i] = node
        numbers[i] = number + cycles * nodes[node]


@kernel("void(int64, int64[::1], int64[::1], int64[::1], int64[::1])")
def _count_rows(position: int, rows: _Array, nodes: _Array, left: _Array, right: _Array) -> None:
    """Count the rows that each node has before a position."""
    leaves, root = len(left) + 1, len(nodes) - 1
    cycles = position // nodes[root]
    rows[root] = position - cycles * nodes[root]
    for node in range(root, leaves - 1, -1):
        total = max(nodes[node], 1)
        before = (rows[node] * nodes[left[node - leaves]] + total // 2) // total
        rows[left[node - leaves]] = before
        rows[right[node - leaves]] = rows[node] - before
    for node in range(leaves):
        rows[node] += cycles * nodes[node]
