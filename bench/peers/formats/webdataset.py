"""WebDataset: tar files, read in order and shuffled in a buffer."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import webdataset as wds

from fieldslab.bench.peers.peer import NotOffered, Peer
from fieldslab.bench.peers.source import Row

SHARDS = 8


class WebDataset(Peer):
    """Encoded images as they are, arrays as `.npy`, integers as `.cls`."""

    configuration = "8 shards, shardshuffle, a buffer of 1,000 rows or an eighth; WebLoader"
    distributions = ("webdataset", "torch")

    def __init__(self, *arguments: Any) -> None:
        """Names of columns become extensions, which say how to decode."""
        super().__init__(*arguments)
        self.names = {}
        for name, column in self.source.columns.items():
            scalar = column.kind == "fixed" and column.values.ndim == 1
            kind = "bytes" if column.kind == "bytes" else "cls" if scalar else "npy"
            if scalar and column.values.dtype.kind == "f":
                kind = "npy"
            self.names[name] = f"{name}.{kind}"

    def convert(self) -> None:
        """Write the shards."""
        pattern = str(self.folder / "data-%06d.tar")
        rows = -(-len(self.source) // SHARDS)
        with wds.ShardWriter(pattern, maxcount=rows, verbose=0) as writer:
            for row in range(len(self.source)):
                values = self.source.row(row)
                sample: dict[str, Any] = {"__key__": f"{row:09}"}
                for name, value in values.items():
                    key = self.names[name]
                    sample[key] = int(value) if key.endswith(".cls") else np.asarray(value)
                    if key.endswith(".bytes"):
                        sample[key] = value
                writer.write(sample)

    def open(self) -> None:
        """Find the shards."""
        self.shards = sorted(str(path) for path in self.folder.glob("*.tar"))

    def random_batch(self, rows: np.ndarray) -> Any:
        """A tar file has no index."""
        raise NotOffered("no random access")

    def row(self, row: int) -> Any:
        """A tar file has no index."""
        raise NotOffered("no random access")

    def sequential(self) -> Iterator[Any]:
        """The shards in order."""
        data = wds.WebDataset(self.shards, shardshuffle=False, empty_check=False)
        return iter(self._batched(data))

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """Shuffled shards through a buffer; batches are made in the workers."""
        data = wds.WebDataset(self.shards, shardshuffle=SHARDS, empty_check=False, seed=seed)
        buffer = min(1000, len(self.source) // 8)
        batches = self._batched(data.shuffle(buffer, seed=seed))
        return iter(wds.WebLoader(batches, batch_size=None, num_workers=workers))

    def _batched(self, data: Any) -> Any:
        return data.decode().batched(self.batch, collation_fn=list)

    def rows_of(self, batch: Any) -> list[Row]:
        """Rows without the extensions, and without what WebDataset adds."""
        return [{name: row[key] for name, key in self.names.items()} for row in batch]
