"""Runs of random orders over random slabs, that stop and go on with other sizes.

`make campaign-resume` runs many of these rounds, the suite a few. A round raises AssertionError
where a row of the epoch is lost, comes twice, or comes at another time.
"""

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.slabs import categorical, ragged, write_slab

from fieldslab.reader import (
    Balanced,
    Blocked,
    ByLength,
    Grouped,
    Loader,
    Mixed,
    Near,
    Order,
    Sequential,
    Shuffled,
    Slab,
    Strided,
    Subset,
    TokenBudget,
    Weighted,
    Windows,
    open_slab,
)

LONGEST = 9
"""Elements of the longest row."""


def run_round(folder: Path, rng: random.Random) -> Counter[str]:
    """Run one epoch of a random order in random pieces, and look at each step."""
    slab = _make_slab(folder, rng)
    kind = rng.choice(sorted(ORDERS))
    order = ORDERS[kind](slab, rng)
    epoch = rng.choice([0, 0, 1, 2, 7])
    run = _Run(slab, order, epoch)
    drop_last = rng.random() < 0.3
    state: dict[str, Any] | None = None
    pieces = rng.choice([1, 2, 2, 2, 3, 4])
    for piece in range(pieces):
        loaders = run.make_loaders(rng, drop_last, state)
        planned = run.plan_steps(loaders)
        steps = len(planned) if piece == pieces - 1 else rng.randint(0, min(len(planned), 7))
        run.take_steps(loaders, planned, steps, finish=piece == pieces - 1)
        states = [json.loads(json.dumps(loader.state_dict())) for loader in loaders]
        assert all(other == states[0] for other in states)
        state = states[0]
        if piece < pieces - 1:
            assert state["position"] == run.position
    if not drop_last:
        assert run.position == run.length
    return Counter({f"order: {kind}": 1, f"pieces: {pieces}": 1, "steps": run.steps})


class _Run:
    """One epoch, and the position up to which all ranks visited it."""

    def __init__(self, slab: Slab, order: Order, epoch: int) -> None:
        self.slab, self.order, self.epoch = slab, order, epoch
        attached = order.attach(slab)
        total = len(slab)
        self.length = attached.length(total)
        self.rows = attached.rows(epoch, 0, self.length, total).tolist()
        self.ends = attached.find_batches(epoch)
        if self.ends is not None:
            following = attached.find_batches(epoch + 1)
            assert following is not None
            assert len(following) == len(self.ends)
        self.in_sequence = attached.groups == 1
        self.position = self.steps = 0

    def make_loaders(
        self, rng: random.Random, drop_last: bool, state: dict[str, Any] | None
    ) -> list[Loader]:
        """Make the loaders of all ranks, of random sizes, and let them go on with a state."""
        world_size = rng.choice([1, 1, 2, 3, 4, 8])
        windows = isinstance(self.order, Windows)
        options: dict[str, Any] = {
            "fields": None if windows else ["row"],
            "prefetch": rng.choice([0, 0, 0, 2]),
            "threads": rng.choice([1, 2]),
            "drop_last": drop_last,
            "world_size": world_size,
        }
        batch_size = None if self.ends is not None else rng.choice([1, 2, 3, 5, 8, 16, 64])
        loaders = [
            Loader(self.slab, batch_size, self.order, rank=rank, **options)
            for rank in range(world_size)
        ]
        for loader in loaders:
            loader.set_epoch(self.epoch)
            if state is not None:
                loader.load_state_dict(state)
                assert loader.epoch == self.epoch
        return loaders

    def plan_steps(self, loaders: list[Loader]) -> list[tuple[int, list[int]]]:
        """Plan the position after each step that is left, and its rows, from nothing but sizes."""
        left, per_step, ends = self.length - self.position, 1, self.ends
        if ends is None:
            per_step = loaders[0].batch_size * len(loaders)
            cuts = [*range(self.position, self.length, per_step), self.length]
        else:
            cuts = [*ends[ends >= self.position][:: len(loaders)].tolist()]
            cuts += [] if cuts[-1] == self.length else [self.length]
        if not left:
            cuts = [self.length]
        steps = []
        for start, stop in itertools.pairwise(cuts):
            rows = self.rows[start:stop]
            if ends is None:
                whole = stop - start == per_step
                missing = -len(rows) % len(loaders)
                rows += [self.rows[number % self.length] for number in range(missing)]
            else:
                batches = int(np.count_nonzero((ends >= start) & (ends < stop)))
                whole = batches == len(loaders)
                for number in range(len(loaders) - batches):
                    begin = number % (len(ends) - 1)
                    rows += self.rows[ends[begin] : ends[begin + 1]]
            if whole or not loaders[0].drop_last:
                steps.append((stop, rows))
        return steps

    def take_steps(
        self,
        loaders: list[Loader],
        planned: list[tuple[int, list[int]]],
        steps: int,
        *,
        finish: bool,
    ) -> None:
        """Take some steps of all ranks together, and compare them with what was planned."""
        epochs = [iter(loader) for loader in loaders]
        for number, (stop, rows) in enumerate(planned[:steps]):
            batches = [next(epoch) for epoch in epochs]
            visited = [row for batch in batches for row in batch.rows.tolist()]
            assert visited == rows if self.in_sequence else sorted(visited) == sorted(rows)
            assert self.ends is not None or len({len(batch.rows) for batch in batches}) == 1
            for rank, (loader, batch) in enumerate(zip(loaders, batches, strict=True)):
                assert loaders[-1].rows_at(self.epoch, number, rank).tolist() == batch.rows.tolist()
                if "row" in batch and not isinstance(self.order, Windows):
                    assert np.array_equal(batch["row"], self.slab["row"][batch.rows])
                assert loader.epoch == self.epoch
            self.position = stop
            self.steps += 1
        if finish:
            assert all(next(epoch, None) is None for epoch in epochs)
            assert {loader.epoch for loader in loaders} == {self.epoch + 1}
        for loader in loaders:
            loader.close()


def _make_slab(folder: Path, rng: random.Random) -> Slab:
    """Make a slab of a few rows, a view of one, or one of several."""
    first = _write_slab(folder / "a.slab", rng)
    if rng.random() < 0.3:
        slab = open_slab({"first": first, "second": _write_slab(folder / "b.slab", rng)})
    else:
        slab = open_slab(first)
    kind = rng.randrange(6)
    if kind == 0:
        begin = rng.randrange(len(slab))
        return slab[begin : begin + rng.randint(1, len(slab))]
    if kind == 1:
        return slab[:: rng.choice([2, 3, -1])]
    if kind == 2:
        return slab.select(sorted(rng.sample(range(len(slab)), rng.randint(1, len(slab)))))
    return slab


def _write_slab(path: Path, rng: random.Random) -> Path:
    rows = rng.choice([1, 2, 7, rng.randint(3, 60), rng.randint(3, 250)])
    shards: list[int] = []
    while sum(shards) < rows:
        shards.append(rng.randint(1, min(rows - sum(shards), rng.choice([3, 40, 250]))))
    labels = [rng.randrange(4) for _ in range(rows)]
    texts = ["x" * rng.randint(0, LONGEST) for _ in range(rows)]
    columns = {
        "row": np.arange(rows),
        "label": np.array(labels),
        "episode": np.sort(np.array(labels)),
        "source": categorical(np.array(labels), ["a", "b", "c", "d"]),
        "text": texts,
        "tokens": ragged([range(len(text)) for text in texts], "int32"),
    }
    return write_slab(path, columns, shards)


def _is_whole(slab: Slab) -> bool:
    return bool(slab.view == range(slab.manifest.rows))


def _make_mixed(slab: Slab, rng: random.Random) -> Order:
    def weigh(names: list[str]) -> dict[str, float]:
        weights = {name: rng.choice([rng.random(), rng.randint(1, 9)]) + 0.01 for name in names}
        return {
            name: round(weight, rng.choice([1, 2, 9])) + 0.1 for name, weight in weights.items()
        }

    options: dict[str, Any] = {"exhausted": rng.choice(["repeat", "stop", "drop"])}
    if _is_whole(slab) and len(slab.members) > 1 and rng.random() < 0.5:
        names = [*slab.members]
    elif rng.random() < 0.5:
        names = sorted(set(map(str, slab["label"][:].tolist())))
        options["by"] = "label"
    else:
        names = [f"group {number}" for number in range(rng.randint(1, 30))]
        sizes = [rng.choice([1, 2, rng.randint(1, len(slab))]) for _ in names]
        options["groups"] = {
            name: rng.choices(range(len(slab)), k=size)
            for name, size in zip(names, sizes, strict=True)
        }
    if options["exhausted"] != "drop" and rng.random() < 0.4:
        starts = sorted(rng.sample(range(1, 500), 2))
        options["schedule"] = {start: weigh(names) for start in starts}
    return Mixed(weigh(names), rng.randrange(9), **options)


def _make_subset(slab: Slab, rng: random.Random) -> Order:
    seed = rng.choice([None, 0, 5])
    if rng.random() < 0.5:
        return Subset(fraction=rng.random() or 1.0, seed=seed or 0)
    return Subset(rng.choices(range(-len(slab), len(slab)), k=rng.randint(0, 90)), seed=seed)


def _make_windows(slab: Slab, rng: random.Random) -> Order:
    seed, length, stride = rng.choice([None, 0, 5]), rng.randint(1, 9), rng.randint(1, 5)
    if _is_whole(slab) and rng.random() < 0.3:
        return Windows(length, stride, of="tokens", seed=seed)
    within: str | None = rng.choice([None, "episode"])
    edges: Any = rng.choice(["drop", "repeat", "zeros"])
    return Windows(length, stride, within, edges=edges, seed=seed)


ORDERS: dict[str, Callable[[Slab, random.Random], Order]] = {
    "Sequential": lambda slab, rng: Sequential(),
    "Strided": lambda slab, rng: Strided(rng.randint(1, 9)),
    "Shuffled": lambda slab, rng: Shuffled(rng.randrange(9)),
    "Subset": _make_subset,
    "Blocked": lambda slab, rng: Blocked(
        rng.randrange(9), rng.randint(1, 40), rng.randint(1, 9), spread=rng.random() < 0.5
    ),
    "Near": lambda slab, rng: Near(rng.randint(1, 9), rng.randint(1, 9), rng.randrange(9)),
    "ByLength": lambda slab, rng: ByLength("text", rng.randrange(9), rng.randint(1, 40)),
    "Weighted": lambda slab, rng: Weighted([rng.random() for _ in range(len(slab))]),
    "Mixed": _make_mixed,
    "Balanced": lambda slab, rng: Balanced(
        rng.choice(["label", "source"]), length=rng.choice([None, rng.randint(0, 300)])
    ),
    "Grouped": lambda slab, rng: Grouped(rng.choice(["label", "source"]), rng.randrange(9)),
    "TokenBudget": lambda slab, rng: TokenBudget(
        rng.randint(LONGEST, 90), rng.choice(["text", "tokens"]), rng.randrange(9)
    ),
    "Windows": _make_windows,
}
"""Every order of the package, with random parameters for a slab."""
