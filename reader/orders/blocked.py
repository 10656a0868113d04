"""An order for data that does not fit into memory: random, but near."""

from typing import NamedTuple

import numpy as np

from fieldslab.reader.orders.order import Order, shuffled, whole


class Blocked(Order):
    """Every row once an epoch; blocks of neighbouring rows are shuffled, and rows within a window.

    Blocks come in random order. `window` of them that follow each other form a window, whose rows
    are shuffled among each other. A window is all that is touched at a time, so that each part of
    the files is read once an epoch, in pieces of a block.

    Parameters
    ----------
    block_rows
        Neighbouring rows in a block.
    window
        Blocks in a window: the rows of one should fit into memory several times.
    """

    repeats = False

    def __init__(self, seed: int = 0, block_rows: int = 256, window: int = 64) -> None:
        self.seed = whole("seed", seed)
        self.block_rows = whole("block_rows", block_rows, least=1)
        self.window = whole("window", window, least=1)

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`."""
        layout = self._layout(epoch, total)
        parts = [np.empty(0, np.int64)]
        while start < stop:
            window, first, end = self._window(layout, start)
            upto = min(stop, end)
            inside = shuffled(
                "window", (self.seed, epoch, window), start - first, upto - first, end - first
            )
            parts.append(self._rows(layout, window, inside, epoch))
            start = upto
        return np.concatenate(parts)

    def _layout(self, epoch: int, total: int) -> "_Layout":
        """Where the block at the end of the slab, which may be short, comes in this epoch."""
        blocks, rest = divmod(total, self.block_rows)
        if rest == 0:
            return _Layout(total, blocks, blocks, 0)
        place = int(shuffled("short block", (self.seed, epoch), 0, 1, blocks + 1)[0])
        return _Layout(total, blocks, place, self.block_rows - rest)

    def _window(self, layout: "_Layout", position: int) -> tuple[int, int, int]:
        """Window of a position, and its first position and end."""
        size = self.block_rows * self.window
        short = layout.place // self.window
        window = position // size
        if window >= short:
            window = max(short, (position + layout.missing) // size)
        first = window * size - (layout.missing if window > short else 0)
        end = (window + 1) * size - (layout.missing if window >= short else 0)
        return window, first, min(end, layout.total)

    def _rows(self, layout: "_Layout", window: int, inside: np.ndarray, epoch: int) -> np.ndarray:
        """Rows at some places of a window before its rows are shuffled."""
        short_end = (layout.place - window * self.window + 1) * self.block_rows - layout.missing
        if layout.place // self.window == window:
            inside = np.where(inside >= short_end, inside + layout.missing, inside)
        turn, place = np.divmod(inside, self.block_rows)
        turn += window * self.window
        whole_turn = np.where(turn > layout.place, turn - 1, turn)
        # The short block has no part in the shuffle of blocks: any valid turn does for it.
        is_short = turn == layout.place
        whole_turn[is_short] = 0
        from fieldslab.reader.orders.permutation import keys, permute

        block = whole_turn
        if layout.blocks:
            block = permute(whole_turn, layout.blocks, keys("blocks", self.seed, epoch))
        block[is_short] = layout.blocks
        rows: np.ndarray = block * self.block_rows + place
        return rows

    def __repr__(self) -> str:
        return f"Blocked(seed={self.seed}, block_rows={self.block_rows}, window={self.window})"


class _Layout(NamedTuple):
    """An epoch: its rows, its full blocks, and the turn of the short block with what it lacks."""

    total: int
    blocks: int
    place: int
    missing: int
