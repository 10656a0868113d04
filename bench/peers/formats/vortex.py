"""Vortex."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import vortex

from fieldslab.bench.peers.formats.arrow_rows import arrow_rows
from fieldslab.bench.peers.peer import Peer
from fieldslab.bench.peers.source import Row


class Vortex(Peer):
    """Scans of a mapped file, by row numbers."""

    configuration = (
        "io.write as it comes; open(memory_map=True), to_arrow(indices=...) of sorted rows, put in "
        "order by take; a batch at a time in a torch DataLoader"
    )
    distributions = ("vortex-data", "pyarrow", "torch")

    def convert(self) -> None:
        """Write the Arrow table."""
        table = pa.Table.from_batches(self.source.batches())
        vortex.io.write(table, str(self.folder / "data.vortex"))

    def open(self) -> None:
        """Map the file. Bytes are asked for as they were written, not as views of the map."""
        self.file = vortex.open(str(self.folder / "data.vortex"), memory_map=True)
        self.schema = next(self.source.batches(rows=1)).schema

    def random_batch(self, rows: np.ndarray) -> Any:
        """A scan of these rows, which must be sorted; then they are brought in their order."""
        order = np.argsort(rows)
        indices = vortex.array(pa.array(rows[order].astype(np.uint64)))
        table = self.file.to_arrow(indices=indices, schema=self.schema).read_all()
        return table.take(np.argsort(order))

    def row(self, row: int) -> Any:
        """A scan of one."""
        return self.random_batch(np.array([row]))

    def sequential(self) -> Iterator[Any]:
        """A scan of all, copied as random batches are."""
        for batch in self.file.to_arrow(batch_size=self.batch, schema=self.schema):
            yield batch.take(np.arange(batch.num_rows))

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """PyTorch's, a batch at a time; its threads do not outlive a fork."""
        from fieldslab.bench.peers.torch_batches import batches

        options = {"multiprocessing_context": "forkserver"} if workers else {}
        return batches(self, workers, seed, **options)

    def rows_of(self, batch: Any) -> list[Row]:
        """Rows of a table or a record batch."""
        return arrow_rows(batch)
