"""An order that draws rows by weight."""

from typing import Any

import numpy as np

from fieldslab.reader.orders.order import Order
from fieldslab.reader.rowfiles import digest_array
from fieldslab.reader.rows import check_integer
from fieldslab.schemas.errors import UsageError


class Weighted(Order):
    """Random rows by weight, with replacement: as many draws as there are rows.

    Some rows come several times in an epoch, some never. Each time, a row has a crop, flip and
    `rng` of its own, which depend on the row and on its position in the epoch.

    Parameters
    ----------
    weights
        Relative probability of each row: finite numbers, not negative, one for each row.
    """

    def __init__(self, weights: Any, seed: int = 0) -> None:
        self.seed = check_integer("seed", seed)
        weights_array = np.asarray(weights, np.float64)
        if weights_array.ndim != 1 or not (
            np.isfinite(weights_array).all() and (weights_array >= 0).all()
        ):
            raise UsageError("weights must be finite, not negative, and one for each row")
        self._ends = np.cumsum(weights_array)
        if len(weights_array) and not 0 < self._ends[-1] < np.inf:
            raise UsageError("weights must have a positive, finite sum", found=self._ends[-1])

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`."""
        from fieldslab.reader.draws.permutation import draw_uniform, make_keys

        positions = np.arange(start, stop, dtype=np.int64)
        if not len(positions):
            return positions
        drawn = draw_uniform(positions, make_keys("weighted", self.seed, epoch)) * self._ends[-1]
        drawn_rows = np.searchsorted(self._ends, drawn, side="right").astype(np.int64)
        # The product may round up to the sum; the last row that has a weight stands there.
        return np.minimum(drawn_rows, np.searchsorted(self._ends, self._ends[-1]))

    def length(self, total: int) -> int:
        """See `Order`. Raises UsageError."""
        if len(self._ends) != total:
            raise UsageError(
                "the number of weights must be the number of rows",
                expected=total,
                found=len(self._ends),
            )
        return total

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        return {
            "name": type(self).__name__,
            "version": 1,
            "weights": digest_array(self._ends),
            "seed": self.seed,
        }

    def __repr__(self) -> str:
        return f"Weighted(<{len(self._ends)} weights>, seed={self.seed})"
