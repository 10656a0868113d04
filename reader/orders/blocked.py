"""An order for data that does not fit into memory: random, but near."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fieldslab.reader.orders.order import Order, shuffle_positions
from fieldslab.reader.orders.spread import compute_spread_rows
from fieldslab.reader.rows import check_integer
from fieldslab.reader.slab import Slab
from fieldslab.reader.stored.sizes import count_stored_bytes

SPREAD_ROWS = 8
"""Least rows in a block, where blocks are spread."""
SPREAD_BYTES = 256 * 1024
"""Least bytes of a block in the field with the largest rows: a disk is read in pieces of this."""
SPREAD_WINDOW = 2048
EARLIER = 256, 64
"""Rows and window of blocks that are not spread, as in the first releases."""


class Blocked(Order):
    """Every row once an epoch; blocks of neighbouring rows are shuffled, and rows within a window.

    `window` blocks make a window, whose rows are shuffled among each other. A window is all that
    is touched at a time, so that each part of the files is read once an epoch, in pieces of a
    block. Blocks of a window are spread over the slab: it is cut into as many equal parts, and
    each gives one of its blocks, at random.

    How good a shuffle it is on data that is sorted, say by class, depends on the number of blocks
    in a window alone: chi-squared per degree of freedom of the classes in a batch of 4,096 rows
    (ImageNet's 1,281,167 rows sorted by 1,000 classes; 1.0 is `Shuffled`) is 1.1 by default, 59
    with `Blocked(0, 256, 64)`, which holds as many rows in memory and reads pieces 32 times as
    large: 1.43 bytes are read from a cold disk for each byte of rows of 4 KiB, instead of 1.05.
    Data that was shuffled before it was packed is shuffled well by any of them.

    Parameters
    ----------
    block_rows
        Neighbouring rows in a block: if not given, 8, or as many as have 256 KiB in the field with
        the largest rows.
    window
        Blocks in a window, 2,048 if not given: the rows of one should fit into memory several
        times.
    spread
        False takes the blocks of a window from anywhere, without an equal share of each part, in
        256 rows and windows of 64 if not given: as the first releases did, and as is done where
        `block_rows` or `window` are given.
    """

    repeats = False

    def __init__(
        self,
        seed: int = 0,
        block_rows: int | None = None,
        window: int | None = None,
        *,
        spread: bool | None = None,
    ) -> None:
        self.seed = check_integer("seed", seed)
        self._open = spread is not False and block_rows is None and window is None
        self.spread = self._open if spread is None else bool(spread)
        usual = (SPREAD_ROWS, SPREAD_WINDOW) if self.spread else EARLIER
        self._sized = block_rows is not None or not self.spread
        self.block_rows = check_integer(
            "block_rows", usual[0] if block_rows is None else block_rows, 1
        )
        self.window = check_integer("window", usual[1] if window is None else window, 1)

    def attach(self, slab: Slab) -> Order:
        """See `Order`: chooses `block_rows` by the slab's bytes, if it was not given."""
        if self._sized:
            return self
        sizes = [
            count_stored_bytes(slab.manifest, [field], len(slab)) for field in slab.fields.values()
        ]
        widest = max(sizes, default=0)
        rows = SPREAD_BYTES * len(slab) // max(widest, 1)
        return Blocked(self.seed, max(rows, SPREAD_ROWS), self.window, spread=True)

    def recall(self, key: Mapping[str, Any]) -> Order | None:
        """See `Order`: without parameters, it stands for those that a state names."""
        names = ("name", "version", "seed")
        if not self._open or any(key.get(name) != self.key()[name] for name in names):
            return None
        return Blocked(self.seed, key["block_rows"], key["window"], spread=key["spread"])

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`."""
        if self.spread:
            size = self.block_rows, self.window
            return compute_spread_rows(self.seed, *size, epoch, start, stop, total)
        return self._compute_window_rows(epoch, start, stop, total)

    def _compute_window_rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        layout = self._compute_layout(epoch, total)
        parts = [np.empty(0, np.int64)]
        while start < stop:
            window, first, end = self._find_window(layout, start)
            upto = min(stop, end)
            inside = shuffle_positions(
                "window", (self.seed, epoch, window), start - first, upto - first, end - first
            )
            parts.append(self._map_places_to_rows(layout, window, inside, epoch))
            start = upto
        return np.concatenate(parts)

    def _compute_layout(self, epoch: int, total: int) -> "_BlockLayout":
        """Compute where the last block of the slab, which may be short, comes in this epoch."""
        blocks, rest = divmod(total, self.block_rows)
        if rest == 0:
            return _BlockLayout(total, blocks, blocks, 0)
        place = int(shuffle_positions("short block", (self.seed, epoch), 0, 1, blocks + 1)[0])
        return _BlockLayout(total, blocks, place, self.block_rows - rest)

    def _find_window(self, layout: "_BlockLayout", position: int) -> tuple[int, int, int]:
        """Window of a position, and its first position and end."""
        size = self.block_rows * self.window
        short = layout.place // self.window
        window = position // size
        if window >= short:
            window = max(short, (position + layout.missing) // size)
        first = window * size - (layout.missing if window > short else 0)
        end = (window + 1) * size - (layout.missing if window >= short else 0)
        return window, first, min(end, layout.total)

    def _map_places_to_rows(
        self, layout: "_BlockLayout", window: int, inside: np.ndarray, epoch: int
    ) -> np.ndarray:
        """Map places of a window to rows, before its rows are shuffled."""
        short_end = (layout.place - window * self.window + 1) * self.block_rows - layout.missing
        if layout.place // self.window == window:
            inside = np.where(inside >= short_end, inside + layout.missing, inside)
        turn, place = np.divmod(inside, self.block_rows)
        turn += window * self.window
        whole_turn = np.where(turn > layout.place, turn - 1, turn)
        # The short block has no part in the shuffle of blocks: any valid turn does for it.
        is_short = turn == layout.place
        whole_turn[is_short] = 0
        from fieldslab.reader.draws.permutation import make_keys, permute_positions

        block = whole_turn
        if layout.blocks:
            block = permute_positions(
                whole_turn, layout.blocks, make_keys("blocks", self.seed, epoch)
            )
        block[is_short] = layout.blocks
        rows: np.ndarray = block * self.block_rows + place
        return rows

    def key(self) -> dict[str, Any]:
        """See `Order`. `block_rows` is None until `attach` has chosen it."""
        return {
            "name": type(self).__name__,
            "version": 1,
            "seed": self.seed,
            "block_rows": self.block_rows if self._sized else None,
            "window": self.window,
            "spread": self.spread,
        }

    def __repr__(self) -> str:
        parameters = f"seed={self.seed}"
        if self._sized:
            parameters += f", block_rows={self.block_rows}"
        if self._sized or self.window != SPREAD_WINDOW:
            parameters += f", window={self.window}"
        return f"Blocked({parameters}{', spread=True' if self.spread and not self._open else ''})"


class _BlockLayout(NamedTuple):
    """An epoch: its rows, its full blocks, and the turn of the short block with what it lacks."""

    total: int
    blocks: int
    place: int
    missing: int
