"""SPDL: pipelines of threads, over the files of numpy memmap since it has no format."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from spdl.pipeline import PipelineBuilder

from fieldslab.bench.peers.formats.memmap import Memmap
from fieldslab.bench.peers.peer import NotOffered


class Spdl(Memmap):
    """A pipeline whose tasks are batches: a task a row would cost more than the row."""

    configuration = (
        "PipelineBuilder over values[rows] of mapped .npy files, a batch a task, as many tasks at "
        "once as threads; sink of 3"
    )
    distributions = ("spdl_core", "numpy")

    def random_batch(self, rows: np.ndarray) -> Any:
        """What is read by row is numpy's."""
        raise NotOffered("a loader alone")

    def row(self, row: int) -> Any:
        """What is read by row is numpy's."""
        raise NotOffered("a loader alone")

    def sequential(self) -> Iterator[Any]:
        """A pipeline of one thread, in order."""
        return self._pipeline(np.arange(len(self.source)), 1)

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """A shuffled epoch by as many threads, and one at least."""
        rows = np.random.default_rng(seed).permutation(len(self.source))
        return self._pipeline(rows, max(workers, 1))

    def _pipeline(self, rows: np.ndarray, threads: int) -> Iterator[Any]:
        batches = [rows[start : start + self.batch] for start in range(0, len(rows), self.batch)]
        return run(batches, super().random_batch, threads)


def run(source: Iterable[Any], task: Any, threads: int) -> Iterator[Any]:
    """What a task makes of each item, in the order of the items, by some threads."""
    builder: Any = PipelineBuilder().add_source(source)
    builder = builder.pipe(task, concurrency=threads, output_order="input").add_sink(3)
    pipeline = builder.build(num_threads=threads)
    with pipeline.auto_stop():
        yield from pipeline
