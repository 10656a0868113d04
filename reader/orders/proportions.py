"""Sources that take turns by weight, each within one row of its share in windows of one length.

The window is 100 rows of the rarest source: `W` rows, a hundred divided by the smallest share,
rounded up. Where the share `p` of a source gives `W * p = n + f` rows in it, with `n` whole and
`f < 1`, every window of `W` rows, wherever it begins, has `n` or `n + 1` rows of this source.

Construction. In each `W` positions, every source has `n` that are its own, and `R` are loose: the
sum of all `f`, which is a whole number. These positions are the same in each period of `W`, and are
laid out by `Interleaving`, to which the loose ones are one more source. The loose ones of a period
are the slots 0 to `R - 1`. Each source has a piece of the line from 0 to `R`, of length `f`; the
pieces fill it, and some of them reach over a whole number, from the end of one slot to the start of
the next. In period `k`, slot `j` is for the source on whose piece `j + u` lies, where
`u = k * c mod 1`, and `c > 0` is a constant that is at most `1 - f` for all pieces which reach over
a whole number.

Proof. The layout has the period `W`, so that any `W` neighbouring positions hold all `n` positions
of each source, and exactly `R` loose ones: each slot once, the first ones perhaps in the next
period. A source whose piece lies in one slot has that one or not. A piece that has `g` at the end
of slot `j` and `h` at the start of slot `j + 1`, with `g + h = f < 1`, has the first where
`u >= 1 - g` and the second where `u < h`: not both in one period. In a window that has slot `j + 1`
of a period and slot `j` of the next one, both would need `u < h` and then `u + c >= 1 - g`, but
`u + c < h + 1 - f = 1 - g`. So no window has more than one loose row of a source.

On a computer, pieces and `c` are whole numbers of `1 / D`: `D` is the common denominator of all `f`
if that is not above 2**24, and else 2**24, to which they are rounded. `c * D` and `D` have no
common divisor, so that in `D` periods `u` takes each of its values once. Every window of `W * D`
rows thus has each source exactly as often as its weight says, or, where pieces were rounded, within
two rows: that is less than one row in eight million windows.

What this does not promise. It holds from one change of weights to the next, which schedules and
sources that leave (`exhausted="drop"`) make, and within an epoch, if that begins anew. In windows
that are shorter than `W` a source is off by less than 4.4 rows: by less than 3.4 as
`reader/orders/interleaving.py` proves, and by less than one loose row. In `k` windows one behind
the other it is off by less than `k` rows, and mostly by very few: `c` is near 0.382, or as near as
it can be with ones in its continued fraction from the second term on, whose multiples are spread
most evenly (H. Niederreiter, "Random Number Generation and Quasi-Monte Carlo Methods", 1992,
chapter 3). Pieces are laid out such that short ones reach over whole numbers. Of 295 random weights
of 3 to 40 sources, the worst of up to 2,000 windows one behind the other were off by 2.8 rows in
the median, by 4.4 in 95 % and by 11 at most; windows shorter than `W` by 2.9 at most. If the
smallest share is below 10**-7, the window has 2**30 rows instead.

Weights that have a cycle keep it as long as this agrees with the above: where `W` is a number of
cycles, or a cycle is short and all windows of `W` rows were looked at. Two sources need none of
this: they are within one row in every window of any length.
"""

import math
from bisect import bisect_right
from typing import Any

import numpy as np

from fieldslab.reader.orders.interleaving import (
    LONGEST_CYCLE,
    Interleaving,
    Trees,
    Turns,
    shorten_cycle,
)
from fieldslab.schemas.jit import kernel, subkernel

_RAREST = 100
"""Rows of the rarest source in a window."""
_SHORT_CYCLE = 4096
"""Cycles of so many rows are looked at from each of their positions."""
_FINEST = 2**24
_NEAR = 48
_GOLDEN = (math.sqrt(5) - 1) / 2

_Array = np.ndarray


def make_turns(weights: np.ndarray, trees: Trees | None = None) -> Turns:
    """Make the turns of sources by weight: whole numbers from 0, not all of them 0.

    `weights` are of `scale_weights`: object[sources]; for `trees` see `Interleaving`.
    """
    divisor = math.gcd(*weights)
    counts = [weight // divisor for weight in weights.tolist()]
    total = sum(counts)
    if sum(map(bool, counts)) < 3:
        return Interleaving(shorten_cycle(counts), trees)
    window = count_window(counts)
    if total <= window:
        cycle = Interleaving(np.array(counts, np.int64), trees)
        if window % total == 0 or (total <= _SHORT_CYCLE and _is_exact(cycle, window % total)):
            return cycle
    return LooseTurns(counts, window, trees)


def count_window(counts: Any) -> int:
    """Count the rows of a window in which the rarest source has a hundred."""
    return min(-(-_RAREST * int(sum(counts)) // min(filter(None, counts))), LONGEST_CYCLE)


class LooseTurns:
    """Turns where each source has fixed positions of a period, and some of those that are loose.

    Parameters
    ----------
    weights
        Whole numbers by source, from 0.
    window
        Rows of a period, in which no source has a whole number of rows.
    trees
        See `Interleaving`.
    """

    def __init__(self, weights: list[int], window: int, trees: Trees | None = None) -> None:
        total = sum(weights)
        fixed = [window * weight // total for weight in weights]
        self.loose = window - sum(fixed)
        self._layout = Interleaving(np.array([*fixed, self.loose], np.int64), trees)
        remainders = [window * weight % total for weight in weights]
        lengths, self.parts = _measure_pieces(remainders, total, self.loose)
        pieces, most = _lay_out(lengths, self.parts)
        self._order = np.array(pieces, np.int64)
        self._ends = np.cumsum(np.array(lengths, np.int64)[self._order])
        self._begins = np.zeros(len(weights), np.int64)
        self._begins[self._order[1:]] = self._ends[:-1]
        self._lengths = np.array(lengths, np.int64)
        self._numbers = self.loose, self.parts, _choose_step(most, self.parts)

    def locate(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Interleaving`."""
        sources, numbers = self._layout.locate(start, stop)
        before = self._layout.count(start)
        new = np.ones(len(before), np.int64)
        pieces = self._begins, self._lengths, self._order, self._ends
        _assign_loose(sources, numbers, before, new, *pieces, *self._numbers)
        return sources, numbers

    def count(self, position: int) -> np.ndarray:
        """See `Interleaving`."""
        rows = self._layout.count(position)
        _add_loose(rows, self._begins, self._lengths, *self._numbers)
        return rows[:-1]


def _is_exact(cycle: Interleaving, length: int) -> bool:
    """Whether all windows of a length have each source within one row of its share."""
    counts, total = cycle.counts, int(cycle.counts.sum())
    sources, numbers = cycle.locate(0, total)
    positions = np.argsort(sources, kind="stable")
    # All rows of all sources one behind the other: each source has two cycles of its own.
    starts = 2 * total * np.arange(len(counts))[sources[positions]]
    rows = np.concatenate([positions + starts, positions + starts + total])
    rows.sort()
    begins = positions + starts
    order = 2 * np.cumsum(counts)[sources[positions]] - 2 * counts[sources[positions]]
    numbers = order + numbers[positions]
    most = np.searchsorted(rows, begins + length) - numbers
    least = np.searchsorted(rows, begins + 1 + length) - numbers - 1
    shares = length * counts[sources[positions]]
    return bool(((most * total < shares + total) & (least * total > shares - total)).all())


def _measure_pieces(remainders: list[int], total: int, loose: int) -> tuple[list[int], int]:
    """Measure the piece of each source, `remainder / total`, and 1, in parts.

    Pieces have `loose * total` together. Where they are rounded, none becomes 0 or 1.
    """
    divisor = math.gcd(total, *remainders)
    if total // divisor <= _FINEST:
        return [remainder // divisor for remainder in remainders], total // divisor
    spare, whole = loose * _FINEST - sum(map(bool, remainders)), loose * total
    lengths = [int(rest > 0) + rest * spare // whole for rest in remainders]
    by_remainder = sorted(
        range(len(lengths)), key=lambda source: -(remainders[source] * spare % whole)
    )
    left = loose * _FINEST - sum(lengths)
    while left:
        for source in by_remainder:
            if left and 0 < lengths[source] < _FINEST - 1:
                lengths[source] += 1
                left -= 1
    return lengths, _FINEST


def _lay_out(lengths: list[int], parts: int) -> tuple[list[int], int]:
    """Choose the sequence of the pieces; and measure the longest that reaches over a whole number.

    The longest that fits into the rest of a slot comes next; else the longest that leaves `c` free,
    or the shortest of all.
    """
    absent = [source for source, length in enumerate(lengths) if not length]
    left = sorted(np.flatnonzero(lengths).tolist(), key=lambda source: (lengths[source], source))
    sorted_lengths = [lengths[source] for source in left]
    pieces, longest, room, short = [], 0, parts, int(_GOLDEN * parts)
    while left:
        place = bisect_right(sorted_lengths, room) - 1
        if place < 0:
            over = min(short, parts + room - sorted_lengths[-1])  # so that the longest fits next
            place = max(bisect_right(sorted_lengths, over) - 1, 0)
        length = sorted_lengths.pop(place)
        pieces.append(left.pop(place))
        if length > room:
            longest = max(longest, length)
        room = (room - length) % parts or parts
    return pieces + absent, longest


def _choose_step(longest: int, parts: int) -> int:
    """Choose by how many parts `u` grows in a period: see above."""
    most = parts - max(longest, 1)
    term = max(2, math.ceil(parts / most - _GOLDEN))
    middle = round(parts / (term + _GOLDEN))
    near = range(max(middle - _NEAR, 1), min(middle + _NEAR, most) + 1)
    steps = [step for step in near if math.gcd(step, parts) == 1] or [1]
    return min(steps, key=lambda step: _rate_step(step, parts))


def _rate_step(step: int, parts: int) -> int:
    """Return the largest term of the continued fraction of `step / parts`: even spread is low."""
    terms = []
    while step:
        term, rest = divmod(parts, step)
        terms.append(term)
        parts, step = step, rest
    return max(terms)


@subkernel("int64(int64, int64, int64, int64)")
def _sum_quotients(numbers: int, divisor: int, factor: int, offset: int) -> int:
    """Sum `(factor * i + offset) // divisor` for i from 0 up to `numbers`, as Euclid divides."""
    total = 0
    while True:
        if factor >= divisor:
            total += numbers * (numbers - 1) // 2 * (factor // divisor)
            factor %= divisor
        if offset >= divisor:
            total += numbers * (offset // divisor)
            offset %= divisor
        top = factor * numbers + offset
        if top < divisor:
            return total
        numbers = top // divisor
        offset = top - numbers * divisor
        factor, divisor = divisor, factor


@subkernel("int64(int64, int64, int64, int64, int64)")
def _count_between(periods: int, begin: int, end: int, parts: int, step: int) -> int:
    """Count the periods in which `u` is at least `begin` and below `end`."""
    laps = periods // parts
    rest = periods - laps * parts
    return (
        laps * (end - begin)
        + _sum_quotients(rest, parts, step, parts - begin)
        - _sum_quotients(rest, parts, step, parts - end)
    )


@subkernel("int64(int64, int64, int64, int64, int64, int64)")
def _count_loose(rows: int, begin: int, length: int, loose: int, parts: int, step: int) -> int:
    """Count those of the first loose rows whose source has this piece."""
    if length == 0:
        return 0
    periods, slots = rows // loose, rows % loose
    slot = begin // parts
    start = begin - slot * parts
    end = min(start + length, parts)
    total = _count_between(periods + (slot < slots), start, end, parts, step)
    if start + length > parts:
        rest = start + length - parts
        total += _count_between(periods + (slot + 1 < slots), 0, rest, parts, step)
    return total


@kernel("void(int64[::1], int64[::1], int64[::1], int64, int64, int64)")
def _add_loose(
    rows: _Array, begins: _Array, lengths: _Array, loose: int, parts: int, step: int
) -> None:
    """Add to the rows of each source its loose ones, of those that come last in `rows`."""
    first = rows[len(begins)]
    for source in range(len(begins)):
        rows[source] += _count_loose(first, begins[source], lengths[source], loose, parts, step)


@kernel(
    "void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], "
    "int64[::1], int64, int64, int64)"
)
def _assign_loose(
    sources: _Array,
    numbers: _Array,
    before: _Array,
    new: _Array,
    begins: _Array,
    lengths: _Array,
    order: _Array,
    ends: _Array,
    loose: int,
    parts: int,
    step: int,
) -> None:
    """Find the sources of loose positions, and how many rows the source of any position had before.

    before
        Fixed rows of each source before the first position, and the loose rows last.
    new
        1 for each source.
    """
    first = before[len(ends)]
    for i in range(len(sources)):
        source = sources[i]
        if source == len(ends):
            period, slot = numbers[i] // loose, numbers[i] % loose
            place = slot * parts + period % parts * step % parts
            low, high = 0, len(ends) - 1
            while low < high:
                middle = (low + high) // 2
                if place < ends[middle]:
                    high = middle
                else:
                    low = middle + 1
            source = order[low]
        if new[source]:
            new[source] = 0
            before[source] += _count_loose(
                first, begins[source], lengths[source], loose, parts, step
            )
        sources[i] = source
        numbers[i] = before[source]
        before[source] += 1
