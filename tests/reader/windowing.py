"""What tests of windows share: orders of windows, and batches as lists."""

from typing import Any

import numpy as np

from fieldslab.reader import (
    Batch,
    Windows,
)

EPISODES = np.repeat([4, 9, 4, 0, 7], [11, 1, 150, 138 - 30, 30])


def as_lists(batch: Batch) -> dict[str, Any]:
    """Values, validity and sizes, for comparison."""
    values = {name: each.tolist() for name, each in batch.items()}
    return values | {
        f"{what}:{name}": each.tolist()
        for what, parts in (("valid", batch.valid), ("sizes", batch.sizes))
        for name, each in parts.items()
    }


ORDERS = {
    "rows": Windows(16, 4, "episode"),
    "all": Windows(7, 3, seed=5),
    "repeat": Windows(16, 5, "episode", edges="repeat"),
    "zeros": Windows(delta_indices={"x": range(-3, 2)}, within="name", edges="zeros", seed=2),
    "deltas": Windows(delta_indices={"x": [-1, 0], "state": range(8)}, within="episode"),
    "stored": Windows(3, 3, seed=None),
    "elements": Windows(17, 16, of="tokens"),
}
