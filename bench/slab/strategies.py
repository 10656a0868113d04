"""In which order rows are asked for."""

from collections.abc import Iterator

import numpy as np

from fieldslab.reader import Blocked, Order, Sequential, Shuffled

ORDERS = ("random", "stratified", "blocked", "sequential")
"""Those that batches are measured in."""
STRATEGIES = (*ORDERS, "repeated")
"""Those that subsets are drawn by."""

WORDS = {
    "random": "any rows, each once an epoch (Shuffled)",
    "stratified": "one random row out of each of as many equal parts of the slab, as stored",
    "blocked": "blocks of 8 neighbours from all over the slab, 2,048 of them shuffled (Blocked)",
    "sequential": "rows as they are stored (Sequential)",
    "repeated": "the same random batch again and again",
}


def subset(strategy: str, total: int, count: int, batch: int, seed: int) -> np.ndarray:
    """`count` of `total` rows: int64[count]. They begin anew where there are not as many."""
    if strategy == "repeated":
        same = subset("random", total, min(batch, count), batch, seed)
        return np.resize(same, count)
    if strategy == "stratified":
        edges = np.arange(count + 1) * total / count
        widths = np.diff(edges)
        drawn = edges[:-1] + widths * np.random.default_rng(seed).random(count)
        return np.minimum(drawn.astype(np.int64), total - 1)
    order = _order(strategy, seed)
    parts: list[np.ndarray] = []
    epoch = 0
    while count > 0:
        parts.append(order.rows(epoch, 0, min(count, total), total))
        count -= len(parts[-1])
        epoch += 1
    return np.concatenate(parts)


def batches(strategy: str, total: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Yield batches of `size` rows without end, subset after subset: int64[size]."""
    rows = max(min(total, 50_000) // size, 1) * size
    while True:
        chosen = subset(strategy, total, rows, size, seed)
        yield from chosen.reshape(-1, size)
        seed += 1


def _order(strategy: str, seed: int) -> Order:
    orders = {"random": Shuffled(seed), "blocked": Blocked(seed), "sequential": Sequential()}
    return orders[strategy]
