"""MosaicML Streaming."""

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np

from fieldslab.bench.peers.peer import Peer
from fieldslab.bench.peers.source import Column, chunk_bytes

try:
    import torchvision  # noqa: F401 - only whether it can be imported
except (ImportError, RuntimeError):
    # PyPI's torchvision does not load beside a torch without CUDA. Streaming imports it for its
    # readers of CIFAR and the like, which nothing here uses.
    for name in ("", ".datasets", ".transforms", ".transforms.functional"):
        module = sys.modules[f"torchvision{name}"] = ModuleType(f"torchvision{name}")
        module.__spec__ = ModuleSpec(module.__name__, None)
    for name in ("CIFAR10", "VisionDataset"):
        setattr(sys.modules["torchvision.datasets"], name, object)
    vars(sys.modules["torchvision.transforms.functional"])["to_tensor"] = None

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory


class Mds(Peer):
    """Mosaic Data Shards on the local disk."""

    configuration = "shards of 64 MB or an eighth, no compression; StreamingDataLoader"
    distributions = ("mosaicml-streaming", "torch")

    def convert(self) -> None:
        """Write the shards."""
        columns = {name: encoding(column) for name, column in self.source.columns.items()}
        size = chunk_bytes(self.source)
        with MDSWriter(out=str(self.folder / "data"), columns=columns, size_limit=size) as writer:
            for row in range(len(self.source)):
                values = self.source.row(row)
                writer.write({name: _plain(value) for name, value in values.items()})

    def open(self) -> None:
        """Open the shards for indexing."""
        clean_stale_shared_memory()
        self.data = self._stream(shuffle=False)

    def random_batch(self, rows: np.ndarray) -> Any:
        """Indexing by an array of rows."""
        return self.data[rows]

    def row(self, row: int) -> Any:
        """One sample."""
        return self.data[row]

    def sequential(self) -> Iterator[Any]:
        """The stream in order, through its loader without workers."""
        return self._loader(0, self._stream(shuffle=False))

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """The stream shuffled."""
        return self._loader(workers, self._stream(shuffle=True, shuffle_seed=seed))

    def _stream(self, **options: Any) -> Any:
        clean_stale_shared_memory()
        return StreamingDataset(
            local=str(self.folder / "data"), batch_size=self.batch, num_canonical_nodes=1, **options
        )

    def _loader(self, workers: int, data: Any) -> Iterator[Any]:
        from fieldslab.bench.peers.torch_batches import collate

        options = {"num_workers": workers, "collate_fn": collate(self.source)}
        return iter(StreamingDataLoader(data, batch_size=self.batch, **options))


def encoding(column: Column) -> str:
    """The name of a column's encoding in an MDS file."""
    if column.kind == "bytes":
        return "bytes"
    dtype = column.values.dtype.name
    if column.kind == "ragged":
        return f"ndarray:{dtype}"
    if column.values.ndim == 1:
        return dtype
    return f"ndarray:{dtype}:{','.join(map(str, column.values.shape[1:]))}"


def _plain(value: Any) -> Any:
    return np.array(value) if isinstance(value, np.ndarray) else value
