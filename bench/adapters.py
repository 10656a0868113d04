"""Slabs in PyTorch's DataLoader and in Grain, beside what people use there.

Run as a program: `python -m fieldslab.bench.adapters [--quick] [--json FILE]`. It needs the extras
`torch` and `grain`, makes its own data, and compares calls that ran in turns within one run.
"""

import multiprocessing
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import grain
import numpy as np
import pyarrow as pa
from torch.utils.data import DataLoader, Dataset

from fieldslab.bench.machine import resident
from fieldslab.bench.timing import interleave, program, ratio
from fieldslab.packer import pack
from fieldslab.reader import Loader, Shuffled, Slab, open_slab
from fieldslab.reader.grain import grain_batches
from fieldslab.reader.torch import SlabDataset, collate

TOKENS = 256
BATCH = 128
WORKERS = 4
MEGA = 1e6


class Lists(Dataset[list[int]]):
    """The usual source: every row a Python list of token numbers."""

    def __init__(self, rows: list[list[int]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> np.ndarray:  # type: ignore[override]
        """One row as an array, as a training loop needs it."""
        return np.array(self.rows[row], np.int32)


def make_slab(path: Path, rows: int) -> Slab:
    """Pack random tokens, int32[256] a row, with a label beside them."""
    tokens = np.random.default_rng(0).integers(0, 50_000, rows * TOKENS, np.int32)
    batch = pa.record_batch(
        {
            "tokens": pa.FixedSizeListArray.from_arrays(pa.array(tokens), TOKENS),
            "label": pa.array(np.arange(rows)),
        }
    )
    pack([batch], path)
    return open_slab(path)


def read(batches: Iterable[Any]) -> None:
    """Take every batch, and do nothing with it."""
    for _ in batches:
        pass


def torch_batches(slab: Slab, fast: bool) -> Iterable[Any]:
    """Return shuffled batches of labels from a DataLoader without workers."""
    dataset = SlabDataset(slab, ["label"])
    return DataLoader(dataset, BATCH, shuffle=True, collate_fn=collate if fast else None)


def grain_rows(source: Any) -> Iterable[Any]:
    """Return rows that Grain shuffles and batches."""
    return grain.MapDataset.source(source).shuffle(seed=0).batch(BATCH)


def measure_speed(slab: Slab, lists: Lists, rounds: int) -> dict[str, Any]:
    """Measure the rows a second of each way through one epoch, and compare them."""
    batches = partial(grain_batches, slab, BATCH, fields=["tokens"])
    tokens = SlabDataset(slab, ["tokens"])
    ways: dict[str, Callable[[], Iterable[Any]]] = {
        "DataLoader, default collate": partial(torch_batches, slab, False),
        "DataLoader, our collate": partial(torch_batches, slab, True),
        "Loader, torch": lambda: Loader(slab, BATCH, Shuffled(0), fields=["label"], output="torch"),
        "Grain, Python lists": lambda: grain_rows(lists),
        "Grain, slab row by row": lambda: grain_rows(tokens),
        "Grain, batches of a slab": lambda: grain.MapDataset.source(batches()),
    }
    calls = {name: lambda way=way: read(way()) for name, way in ways.items()}
    seconds = interleave(calls, rounds)
    results: dict[str, Any] = {
        f"{name}, rows/s": len(slab) / median(times) for name, times in seconds.items()
    }
    for fast, slow in (
        ("DataLoader, our collate", "DataLoader, default collate"),
        ("Grain, slab row by row", "Grain, Python lists"),
        ("Grain, batches of a slab", "Grain, Python lists"),
    ):
        results[f"{fast} / {slow}"] = ratio(seconds[fast], seconds[slow])
    return results


def anonymous() -> float:
    """Return MB of memory that belong to this process alone; 0 where the system does not tell."""
    return resident()[0] / MEGA


def weigh_source(kind: str, path: str, answers: Any) -> None:
    """Measure MB that a source and an epoch through Grain add, in a process of its own."""
    slab = open_slab(path)
    slab.gather([0])
    before = anonymous()
    if kind == "lists":
        read(grain_rows(Lists(_lists(slab))))
    else:
        read(grain.MapDataset.source(grain_batches(slab, BATCH, fields=["tokens"])))
    answers.put(anonymous() - before)


class Idle(Dataset[int]):
    """What a worker is given that shall only weigh its imports."""

    def __len__(self) -> int:
        return WORKERS * BATCH

    def __getitem__(self, row: int) -> int:
        """The row's number."""
        return row


def weigh(samples: Any) -> float:
    """Measure MB of this worker after it has made a batch."""
    if not isinstance(samples, list):
        collate(samples)
    return anonymous()


def weigh_workers(slab: Slab) -> float:
    """Measure MB that the heaviest of four workers needs for an epoch, beside its imports."""

    def heaviest(dataset: Any) -> float:
        loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=WORKERS, collate_fn=weigh)
        return max(loader)

    return heaviest(slab) - heaviest(Idle())


def measure_memory(slab: Slab) -> dict[str, Any]:
    """Measure memory of sources and of workers, in MB."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    results = {}
    for kind in ("lists", "slab"):
        process = context.Process(target=weigh_source, args=(kind, str(slab.path), answers))
        process.start()
        results[f"Grain, {kind}, RssAnon, MB"] = answers.get()
        process.join()
    results["DataLoader, each of 4 workers, RssAnon, MB"] = weigh_workers(slab)
    return results


def _lists(slab: Slab) -> list[list[int]]:
    tokens: Any = slab["tokens"][:]
    return [row.tolist() for row in tokens]


def measure(quick: bool = False) -> dict[str, Any]:
    """Measure everything; the result is ready for JSON."""
    with tempfile.TemporaryDirectory(prefix="fieldslab-bench-") as folder:
        slab = make_slab(Path(folder) / "tokens.slab", 20_000 if quick else 40_000)
        results = measure_memory(slab)
        return results | measure_speed(slab, Lists(_lists(slab)), 3 if quick else 5)


def run(quick: bool = False) -> dict[str, Any]:
    """Measure everything and print it."""
    results = measure(quick)
    for label, value in results.items():
        print(f"{label:<56} {f'{value:,.0f}' if isinstance(value, float) else value}")
    return results


if __name__ == "__main__":
    program(run, __doc__)
