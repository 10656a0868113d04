"""Short trainings of random shape, most of whose epochs are abandoned: see `campaign_soak.py`."""

import gc
import io
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from PIL import Image
from tests.servers.web import run_web_server

from fieldslab.packer import pack
from fieldslab.reader import (
    Blocked,
    ByLength,
    CenterCrop,
    Loader,
    Mixed,
    Near,
    Order,
    Sequential,
    Shuffled,
    Slab,
    VarLenValues,
    Weighted,
    Windows,
    open_slab,
)

Rows = Mapping[str, Any]
"""Columns by name, of as many values each: ndarray (rows, ...), or a list."""
WINDOW = 3
"""Rows of a window."""
PIXELS = (8, 6, 3)


class Planted(Exception):
    """What training steps and transforms raise on purpose."""


def make_rows(rng: random.Random) -> dict[str, Any]:
    """Make columns of random kinds."""
    count = rng.choice((5, 7, 64, 300, 1000))
    numbers = np.random.default_rng(rng.randrange(2**32))
    makers: dict[str, Callable[[], Any]] = {
        "int": lambda: numbers.integers(-(2**40), 2**40, count),
        "float": lambda: numbers.random(count),
        "text": lambda: ["é" * rng.randrange(40) + str(row) for row in range(count)],
        "bytes": lambda: [rng.randbytes(rng.randrange(2000)) for _ in range(count)],
        "tokens": lambda: [[rng.randrange(999)] * rng.randrange(90) for _ in range(count)],
        "image": lambda: numbers.integers(0, 256, (count, *PIXELS), np.uint8),
    }
    kinds = rng.sample(sorted(makers), rng.randint(1, len(makers)))
    return {kind: makers[kind]() for kind in kinds} | {"row": np.arange(count)}


def compare(batch: Any, source: Rows) -> list[int]:
    """Compare a batch with the source by the rows that it says it has; return these."""
    rows = np.asarray(batch["row"]).reshape(-1).tolist()
    for name, column in source.items():
        values = _list_values(batch[name], column, len(rows))
        for row, value in zip(rows, values, strict=True):
            same = np.array_equal(value, column[row])
            assert same, f"{name}, row {row}: {value!r}, expected {column[row]!r}"
    return rows


def _list_values(values: Any, column: Any, count: int) -> Any:
    """Make a sequence of the values of a field, one for each row."""
    if isinstance(column, np.ndarray):
        return np.asarray(values).reshape(count, *column.shape[1:])
    if isinstance(values, VarLenValues):
        return [value if isinstance(value, str | bytes) else value.tolist() for value in values]
    offsets = values.offsets.tolist()  # of `Jagged`
    return [values.values[a:b].tolist() for a, b in pairwise(offsets)]


def _pack(rows: Rows, path: Path, compress: Sequence[str], rng: random.Random) -> Path:
    columns = {name: column for name, column in rows.items() if name != "image"}
    if "image" in rows:
        columns["image"] = [_encode(pixels) for pixels in rows["image"]]
    shard_size = rng.choice(("4K", "64K", "1M"))
    return pack(pa.table(columns), path, shard_size=shard_size, compress=compress).path


def _encode(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def _choose_compressed(rows: Rows, rng: random.Random) -> list[str]:
    return ["text"] if "text" in rows and rng.randrange(2) else []


@contextmanager
def _open_one(rows: Rows, folder: Path, rng: random.Random) -> Iterator[Slab]:
    path = _pack(rows, folder / "x.slab", _choose_compressed(rows, rng), rng)
    yield open_slab(path, verify=rng.random() < 0.8)


@contextmanager
def _open_union(rows: Rows, folder: Path, rng: random.Random) -> Iterator[Slab]:
    count = len(rows["row"])
    cuts = [0, *sorted(rng.sample(range(1, count), rng.randint(1, min(3, count - 1)))), count]
    parts, compress = {}, _choose_compressed(rows, rng)
    for start, stop in pairwise(cuts):
        part = {name: column[start:stop] for name, column in rows.items()}
        parts[f"from {start}"] = _pack(part, folder / f"{start}.slab", compress, rng)
    yield open_slab(parts)


@contextmanager
def _open_mirror(rows: Rows, folder: Path, rng: random.Random) -> Iterator[Slab]:
    path = _pack(rows, folder / "x.slab", _choose_compressed(rows, rng), rng)
    remote = rng.random() < 0.7
    cache: Any = rng.choice((folder / "cache", folder / "cache", ":memory:"))
    with run_web_server(path) if remote else nullcontext() as server:
        yield open_slab(path if server is None else server.url, cache_dir=cache)


Opener = Callable[[Rows, Path, random.Random], AbstractContextManager[Slab]]
PLACES: dict[str, Opener] = {"slab": _open_one, "union": _open_union, "mirror": _open_mirror}


def make_order(slab: Slab, source: Rows, rng: random.Random) -> Order:
    """Make an order of random kind."""
    seed = rng.randrange(99)
    orders: list[Callable[[], Order]] = [
        Sequential,
        lambda: Shuffled(seed),
        lambda: Blocked(seed, rng.randint(1, 40), rng.randint(1, 9)),
        lambda: Near(rng.randint(1, 9), rng.randint(1, 9), seed),
        lambda: Weighted([rng.random() for _ in range(len(slab))], seed),
    ]
    if "image" not in source:
        orders.append(lambda: Windows(WINDOW, rng.randint(1, 3), seed=rng.choice((None, seed))))
    if "text" in source:
        orders.append(lambda: ByLength("text", seed, rng.randint(1, 40)))
    if len(slab.members) > 1:
        weights = {name: rng.random() + 0.1 for name in slab.members}
        orders += [lambda: Mixed(weights, seed), lambda: Mixed(weights, seed, exhausted="drop")]
    return rng.choice(orders)()


class Training:
    """A loader, and what its batches must hold.

    Attributes
    ----------
    loader
        A `Loader`, or a DataLoader of PyTorch.
    make
        Makes another one like it.
    fails
        Whether a transform raises `Planted` from now on; None where the loader has none.
    """

    def __init__(self, source: Rows, make: Callable[["Training"], Any]) -> None:
        self.source = source
        self.make = make
        self.fails: bool | None = None
        self.loader = make(self)

    def trip(self, batch: Any) -> Mapping[str, Any]:
        """Be a transform that changes nothing."""
        if self.fails:
            raise Planted
        return {}

    def check(self, step: int, batch: Any) -> list[int]:
        """Compare a batch with the source, and its rows with those of this step; return these."""
        rows = compare(batch, self.source)
        if isinstance(self.loader, Loader):
            length = WINDOW if isinstance(self.loader.order, Windows) else 1
            starts = np.asarray(batch.rows)
            assert (starts[:, None] + np.arange(length)).reshape(-1).tolist() == rows
            planned = self.loader.rows_at(self.loader.epoch, step)
            assert np.array_equal(planned, starts), f"step {step}: other rows"
        return rows

    def take(self, batches: Iterator[Any], count: int) -> list[Any]:
        """Take some batches, and check them."""
        taken = list(islice(batches, count))
        for step, batch in enumerate(taken):
            self.check(step, batch)
        return taken


def _break(training: Training, count: int) -> None:
    for step, batch in enumerate(training.loader):
        training.check(step, batch)
        if step == count:
            break


def _raise(training: Training, count: int) -> None:
    try:
        for step, batch in enumerate(training.loader):
            training.check(step, batch)
            if step == count:
                raise Planted
    except Planted:
        pass


def _drop_iterator(training: Training, count: int) -> None:
    training.take(iter(training.loader), count)


def _drop_loader(training: Training, count: int) -> None:
    batches = iter(training.loader)
    training.take(batches, count)
    training.loader = training.make(training)
    training.take(iter(training.loader), count)


def _drop_generator(training: Training, count: int) -> None:
    training.take((batch for batch in training.loader), count)


def _close_generator(training: Training, count: int) -> None:
    batches = (batch for batch in training.loader)
    training.take(batches, count)
    batches.close()


def _leave_cycle(training: Training, count: int) -> None:
    cycle: list[Any] = [iter(training.loader)]
    training.take(cycle[0], count)
    cycle.append(cycle)  # until the garbage is collected


def _hold_batches(training: Training, count: int) -> None:
    batches = training.take(iter(training.loader), count)
    training.take(iter(training.loader), count + 1)  # into other memory
    for step, batch in enumerate(batches):
        training.check(step, batch)


def _run_two(training: Training, count: int) -> None:
    first, second = iter(training.loader), iter(training.loader)
    training.take(second, count)
    training.take(first, count)


def _leave_in_thread(training: Training, count: int) -> None:
    problems: list[BaseException] = []

    def run() -> None:
        try:
            _break(training, count)
        except BaseException as error:  # noqa: BLE001 - raised again below
            problems.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if problems:
        raise problems[0]


def _close_loader(training: Training, count: int) -> None:
    batches = iter(training.loader)
    training.take(batches, count)
    training.loader.close()
    assert next(batches, None) is None, "a batch after `close`"


def _close_iterator(training: Training, count: int) -> None:
    batches: Any = iter(training.loader)
    training.take(batches, count)
    batches.close()
    assert next(batches, None) is None, "a batch after `close`"


def _fail(training: Training, count: int) -> None:
    """Have a transform fail, in the threads that make batches."""
    if training.fails is None:
        _close_loader(training, count)
        return
    batches = iter(training.loader)
    training.take(batches, count)
    training.fails = True
    try:
        for _ in batches:  # those that are finished come first, perhaps all
            pass
    except Planted:
        pass
    else:
        training.loader.set_epoch(training.loader.epoch - 1)
    training.fails = False


Way = Callable[[Training, int], None]
ANY: dict[str, Way] = {
    "break": _break,
    "exception": _raise,
    "iterator dropped": _drop_iterator,
    "loader dropped": _drop_loader,
    "generator dropped": _drop_generator,
    "generator closed": _close_generator,
    "cycle": _leave_cycle,
    "batches held": _hold_batches,
    "two at once": _run_two,
    "other thread": _leave_in_thread,
}
"""How an epoch is abandoned after some batches, in any loader."""
CALM = ("break", "exception", "iterator dropped", "generator dropped", "generator closed")
"""Those that leave no iterator of PyTorch to its next workers, whose collection fails there."""
OURS: dict[str, Way] = {
    "loader closed": _close_loader,
    "iterator closed": _close_iterator,
    "transform fails": _fail,
}


class Shape(NamedTuple):
    """What a loader is, how many epochs it is used for, and how many of them go to their end."""

    name: str
    epochs: range
    whole: float


SHAPES = {
    Shape("threads", range(20, 60), 0.05): 12,
    Shape("torch", range(20, 60), 0.05): 5,
    Shape("data loader", range(10, 20), 0.1): 2,
    Shape("isolated", range(2, 4), 0.3): 1,
    Shape("workers", range(2, 4), 0.3): 1,
}
"""With how often they come: processes take long to start."""


def make_training(slab: Slab, source: Rows, shape: Shape, rng: random.Random) -> Training:
    """Make a loader of random options."""
    decode = {"image": [CenterCrop(PIXELS[:2])]} if "image" in source else None
    batch_size = rng.choice((1, 3, 16, 128))
    if shape.name in ("data loader", "workers"):
        from torch.utils.data import DataLoader

        from fieldslab.reader.torch import SlabDataset, collate

        workers = rng.randint(1, 2) if shape.name == "workers" else 0
        data = SlabDataset(slab, decode=decode)
        return Training(
            source,
            lambda _: DataLoader(
                data, batch_size, shuffle=True, collate_fn=collate, num_workers=workers
            ),
        )
    order = make_order(slab, source, rng)
    options: dict[str, Any] = {"threads": rng.randint(1, 3), "prefetch": rng.randrange(8)}
    options |= {"decode": decode, "output": "torch" if shape.name == "torch" else "numpy"}
    if shape.name == "isolated":
        options |= {"isolate": True, "prefetch": rng.randint(1, 7)}
    elif rng.random() < 0.1:
        options["prefetch"] = "auto"
    fails = shape.name != "isolated" and rng.random() < 0.3  # what is pickled cannot be told to

    def make(training: Training) -> Loader:
        training.fails = False if fails else None
        transforms = [training.trip] if fails else []
        return Loader(slab, batch_size, order, transforms=transforms, **options)

    return Training(source, make)


def run_round(folder: Path, rng: random.Random) -> Counter[str]:
    """Pack, open, and go through some epochs; count them."""
    source = make_rows(rng)
    [place] = rng.choices([*PLACES], (12, 4, 2))
    [shape] = rng.choices([*SHAPES], [*SHAPES.values()])
    counts = Counter({f"rounds: {place}, {shape.name}": 1})
    with PLACES[place](source, folder, rng) as slab:
        training = make_training(slab, source, shape, rng)
        for _ in range(rng.choice(shape.epochs)):
            run_epoch(training, rng.random() < shape.whole, rng, counts)
    gc.collect()
    return counts


def run_epoch(training: Training, whole: bool, rng: random.Random, counts: Counter[str]) -> None:
    """Go through an epoch, or abandon it."""
    batches = len(training.loader)
    if whole or not batches:
        steps = 0
        for step, batch in enumerate(training.loader):
            training.check(step, batch)
            steps += 1
        assert steps == batches, f"an epoch of {steps} batches, expected {batches}"
        counts["epochs whole"] += 1
        return
    ours = isinstance(training.loader, Loader)
    ways = ANY | OURS
    name = rng.choice([*ways] if ours else [*ANY] if not training.loader.num_workers else CALM)
    epoch = training.loader.epoch if ours else 0
    ways[name](training, rng.randrange(min(4, batches)))
    if ours and name != "loader dropped":
        assert training.loader.epoch == epoch, f"{name}: an abandoned epoch counts"
    counts[f"epochs abandoned: {name}"] += 1
