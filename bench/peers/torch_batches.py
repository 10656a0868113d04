"""PyTorch's DataLoader for peers that have no loader of their own, or use this one."""

import multiprocessing
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    default_collate,
    get_worker_info,
)

from fieldslab.bench.peers.peer import Peer
from fieldslab.bench.peers.source import Workload


class Batches(Dataset[Any]):
    """Whole batches by row numbers, as `random_batch` makes them; files are opened per process."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.process = os.getpid()

    def __len__(self) -> int:
        return len(self.peer.source)

    def __getitem__(self, rows: list[int]) -> Any:
        """A batch, its arrays as tensors, which go between processes without a copy."""
        if self.process != os.getpid():
            self.peer.open()
            self.process = os.getpid()
        batch = self.peer.random_batch(np.array(rows))
        if isinstance(batch, dict):
            return {name: _tensor(value) for name, value in batch.items()}
        if isinstance(batch, list) and get_worker_info() is not None:
            return [{name: _sendable(value) for name, value in row.items()} for row in batch]
        return batch


def batches(peer: Peer, workers: int, seed: int, **options: Any) -> Iterator[Any]:
    """Iterate over a shuffled epoch of a DataLoader that asks for a batch at a time."""
    data = Batches(peer)
    shuffled = RandomSampler(data, generator=torch.Generator().manual_seed(seed))
    sampler = BatchSampler(shuffled, peer.batch, drop_last=False)
    if options.get("multiprocessing_context") == "forkserver":
        multiprocessing.set_forkserver_preload(["torch"])  # or each worker would import it
    options |= {"num_workers": workers, "collate_fn": _as_it_is}
    return iter(DataLoader(data, None, sampler=sampler, **options))


def collate(source: Workload) -> Any:
    """Collate by default if all rows have one size; else keep a list of rows."""
    return default_collate if source.fixed else list


def _as_it_is(batch: Any) -> Any:
    return batch


def _sendable(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def _tensor(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype != object:
        return torch.from_numpy(value)
    return value
