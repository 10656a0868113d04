"""Windows of blocks that are spread evenly over the slab, and shuffled.

The blocks of the slab are cut into `strata` of neighbours, as equal as can be. Each window takes
one block of each, by a shuffle of the stratum's own, so that sorted data is in each window as it
is in the whole. Where strata differ by a block, the last window has those of the longer ones. The
last block of the slab may be short; its turn is drawn by itself, so that places can be counted.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fieldslab.reader.orders.order import shuffle_positions

_KEPT = 8
"""Windows whose blocks are remembered."""


class _StrataLayout(NamedTuple):
    """An epoch: `strata` of `turns` blocks, and of one more in `longer` of them.

    `short` is the turn of the block that lacks `missing` rows; a whole window has `size` rows.
    """

    strata: int
    turns: int
    longer: int
    short: int
    missing: int
    size: int


def compute_spread_rows(
    seed: int, block_rows: int, window_blocks: int, epoch: int, start: int, stop: int, total: int
) -> np.ndarray:
    """Compute the rows at positions `start` up to `stop` of an epoch: int64[stop - start].

    `seed`, `block_rows` and `window_blocks` are those of `Blocked`.
    """
    parts = [np.empty(0, np.int64)]
    if start < stop:
        layout = _compute_layout(seed, epoch, block_rows, window_blocks, total)
    while start < stop:
        window = start // layout.size
        if window >= layout.short:
            window = max(layout.short, (start + layout.missing) // layout.size)
        first = window * layout.size - (layout.missing if window > layout.short else 0)
        end = (window + 1) * layout.size - (layout.missing if window >= layout.short else 0)
        end = min(end, total)
        upto = min(stop, end)
        key = seed, epoch, window
        inside = shuffle_positions("spread window", key, start - first, upto - first, end - first)
        slots, places = np.divmod(inside, block_rows)
        blocks = _choose_blocks(seed, epoch, window, layout)
        parts.append(blocks[slots] * block_rows + places)
        start = upto
    return np.concatenate(parts)


def _compute_layout(
    seed: int, epoch: int, block_rows: int, window: int, total: int
) -> _StrataLayout:
    blocks = -(-total // block_rows)
    windows = -(-blocks // window)
    strata = -(-blocks // windows)
    turns, longer = divmod(blocks, strata)
    last = turns + (longer > 0)  # blocks in the last stratum, which is a longer one if any is
    short = int(shuffle_positions("spread short block", (seed, epoch), 0, 1, last)[0])
    missing = blocks * block_rows - total
    return _StrataLayout(strata, turns, longer, short, missing, strata * block_rows)


@lru_cache(_KEPT)
def _choose_blocks(seed: int, epoch: int, window: int, layout: _StrataLayout) -> np.ndarray:
    """Choose the blocks of a window, by stratum; a short block comes last: int64[blocks]."""
    from fieldslab.reader.draws.permutation import compute_sides, make_keys, permute_each_position

    strata, turns, longer = layout.strata, layout.turns, layout.longer
    if window < turns:
        chosen = np.arange(strata)
    else:
        chosen = -(-np.arange(1, longer + 1) * strata // longer) - 1
    begins = chosen * turns + chosen * longer // strata
    sizes = (chosen + 1) * turns + (chosen + 1) * longer // strata - begins
    places = np.full(len(chosen), window)
    # The last block of the slab has its turn already; the others of its stratum share the rest.
    places[-1] -= window > layout.short
    shares = sizes.copy()
    shares[-1] -= 1
    is_short = window == layout.short
    some = slice(0, len(chosen) - 1) if is_short else slice(None)
    blocks = begins + sizes - 1
    key = make_keys("spread blocks", seed, epoch)
    blocks[some] = begins[some] + permute_each_position(
        places[some], compute_sides(shares[some]), chosen[some], key
    )
    return blocks
