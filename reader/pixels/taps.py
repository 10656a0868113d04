"""Which samples of a row or column an output pixel is made of, and by what weights."""

from typing import Any

import numpy as np

from fieldslab.reader.pixels.lanes import store_i32, store_u16
from fieldslab.schemas.jit import subkernel

ONE = 65536
"""A weight of one."""


@subkernel("int64(int64)")
def round_up_taps(taps: int) -> int:
    """Return for how many taps there is a loop: 2, 3, 4, 8, 12 ..., at least `taps`."""
    if taps <= 2:
        return 2
    return 3 if taps == 3 else (taps + 3) // 4 * 4


@subkernel("int64(float64, int64)")
def count_most_taps(length: float, size: int) -> int:
    """Return the most taps that `find_taps` gives where `length` samples become `size`."""
    window: Any = np.int64(2 * max(length / size, 1.0))
    return round_up_taps(window + 2)


@subkernel("int64(int64, int64)")
def count_table_bytes(size: int, taps: int) -> int:
    """Return the bytes of a table of `size` outputs, rounded up to 64."""
    return (4 * size + 2 * size * taps + 63) // 64 * 64


@subkernel("void(float64[::1], int64, int64)")
def _write_weights(sums: np.ndarray, taps: int, weights: int) -> None:
    """Write weights in proportion to `sums`, and zeros up to `taps`.

    The running sum is rounded, not each weight, so that they add up to one.
    """
    total = 0.0
    for k in range(len(sums)):
        total += sums[k]
    unit = ONE / total
    total = 0.5
    before: Any = np.int64(0)
    for k in range(len(sums)):
        total += sums[k] * unit
        after: Any = min(np.int64(total), ONE)
        store_u16(weights + 2 * k, min(after - before, ONE - 1))
        before = after
    for k in range(len(sums), taps):
        store_u16(weights + 2 * k, 0)


@subkernel("UniTuple(int64, 2)(int64, int64, int64, int64, int64, int64)")
def find_sample_range(
    begin: int, length: int, shrink: int, halved: int, origin: int, size: int
) -> tuple[int, int]:
    """Find which samples of an axis have a part in a box: the first, and how many there are.

    `begin` and `length` are the box, `origin` and `size` what the plane covers, in pixels of the
    picture; `size` is 0 if that is no more than the box. With `halved`, a sample stands for two
    pixels, and one more to each side may have a part. 2**shrink samples are one of the plane.
    """
    low = begin
    end = begin + length
    high = end
    if size:
        low = min(low, origin)
        high = max(high, origin + size)
    first = max(begin - halved >> halved, low >> halved) >> shrink
    end = min((end >> halved) + halved, high + halved >> halved)
    return first, (end + (1 << shrink) - 1 >> shrink) - first


@subkernel("int64(float64, float64, int64, int64, int64, int64, int64, int64, int64)")
def find_taps(
    low: float,
    high: float,
    size: int,
    mirror: int,
    halved: int,
    shrink: int,
    first: int,
    count: int,
    table: int,
) -> int:
    """Fill the table of an axis that maps samples `low` to `high` to `size` outputs.

    The filter is a triangle as wide as the scale, at least two samples, as in Pillow's
    `precompute_coeffs`; samples outside the box, fractions counted as whole ones, have no part.
    With `halved` the weights are those of samples that stand for two each, centred between them,
    and that would have been blown up first with weights 3/4 and 1/4, as libjpeg's
    `h2v1_fancy_upsample` does. With `shrink`, 2**shrink of these samples are one that is stored and
    has the sum of their weights. `low` and `high` still count the samples of full size; `first`
    and `count` are the samples there are, as `find_sample_range` found them.

    The table has int32[size] first samples, counted from `first`, then uint16[size, taps] weights
    with the sum 65536 (65535 where one sample has it all). With `mirror` the outputs stand in
    reverse.

    Returns
    -------
    The number of taps of every output, one that `round_up_taps` gives. A window may reach past the
    last sample with weights that are 0.
    """
    scale = (high - low) / size
    support = max(scale, 1.0)
    slope = 1.0 / support
    begin: Any = np.int64(np.floor(low))
    end: Any = np.int64(np.ceil(high))
    window: Any = 1
    for x in range(size):
        centre = low + (x + 0.5) * scale
        start: Any = max(np.int64(max(centre - support + 0.5, 0.0)), begin)
        window = max(window, min(np.int64(centre + support + 0.5), end) - start)
    needed = window // 2 + 2 if halved else window
    needed = min((needed + (1 << shrink) - 2 >> shrink) + 1, count)
    taps = round_up_taps(needed)
    sums = np.empty(needed, np.float64)
    for x in range(size):
        centre = low + (x + 0.5) * scale
        start = max(np.int64(max(centre - support + 0.5, 0.0)), begin)
        start = max(min(start, end - window), begin)
        nearest = start - 1 >> 1 if halved else start
        place = max(min((nearest >> shrink) - first, count - needed), 0)
        sums[:] = 0.0
        for k in range(start, start + window):
            weight = max(1.0 - abs(k + 0.5 - centre) * slope, 0.0)
            if halved:
                near = k >> 1
                far = near + 2 * (k & 1) - 1
                other = min(max((far >> shrink) - first, 0), count - 1)
                sums[(near >> shrink) - first - place] += 0.75 * weight
                sums[other - place] += 0.25 * weight
            else:
                sums[(k >> shrink) - first - place] += weight
        output = size - 1 - x if mirror else x
        store_i32(table + 4 * output, place)
        _write_weights(sums, taps, table + 4 * size + 2 * taps * output)
    return taps
