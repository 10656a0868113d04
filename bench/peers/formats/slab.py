"""fieldslab."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fieldslab.bench.peers.peer import Peer
from fieldslab.bench.peers.source import Row
from fieldslab.reader import Loader, Shuffled, open_slab


class Fieldslab(Peer):
    """Gathers from a slab, with its checksums verified when a block is first touched."""

    configuration = "pack() and Loader as they come; workers are threads"
    distributions = ("fieldslab", "numba")

    @classmethod
    def prepare(cls) -> None:
        """Import the packer."""
        import fieldslab.packer  # noqa: F401

    def convert(self) -> None:
        """Pack Arrow batches."""
        from fieldslab.packer import pack

        pack(self.source.batches(), self.folder / "data.slab")

    def open(self) -> None:
        """Open the slab."""
        self.slab = open_slab(self.folder / "data.slab")

    def random_batch(self, rows: np.ndarray) -> Any:
        """One gather."""
        return self.slab.gather(rows)

    def row(self, row: int) -> Any:
        """One row as a dict."""
        return self.slab[row]

    def sequential(self) -> Iterator[Any]:
        """Gathers of neighbouring rows."""
        for start in range(0, len(self.slab), self.batch):
            yield self.slab.gather(np.arange(start, min(start + self.batch, len(self.slab))))

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """A shuffled loader with as many threads."""
        if workers == 0:
            return iter(Loader(self.slab, self.batch, Shuffled(seed), prefetch=0))
        return iter(Loader(self.slab, self.batch, Shuffled(seed), threads=workers))

    def rows_of(self, batch: Any) -> list[Row]:
        """Rows of a gathered batch."""
        count = len(next(iter(batch.values())))
        return [{name: batch[name][i] for name in batch} for i in range(count)]
