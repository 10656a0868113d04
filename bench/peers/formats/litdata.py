"""LitData."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from litdata import StreamingDataLoader, StreamingDataset, optimize
from litdata.streaming.serializers import BytesSerializer

from fieldslab.bench.peers.peer import Peer
from fieldslab.bench.peers.source import Row, Workload, chunk_bytes


def item(source: Workload, row: int) -> Row:
    """One item as `optimize` takes it; scalars become Python numbers."""
    values = source.row(row)
    return {k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()}


class Owned(BytesSerializer):  # type: ignore[misc]
    """Bytes as bytes, where LitData hands over views of its map, which no worker can send."""

    def deserialize(self, data: Any) -> bytes:
        """A copy."""
        return bytes(data)


class LitData(Peer):
    """A stream in chunks, on the local disk."""

    configuration = "optimize() into chunks of 64 MB or an eighth; StreamingDataLoader"
    distributions = ("litdata", "torch")

    def convert(self) -> None:
        """Optimise, with one worker, in order."""
        optimize(
            fn=partial(item, self.source),
            inputs=list(range(len(self.source))),
            output_dir=str(self.folder / "data"),
            chunk_bytes=chunk_bytes(self.source),
            start_method="fork",  # the fastest by seconds
            num_workers=1,
            keep_data_ordered=True,
            verbose=False,
        )

    def open(self) -> None:
        """Open the stream for indexing."""
        self.data = self._stream(shuffle=False)

    def random_batch(self, rows: np.ndarray) -> Any:
        """Row by row: there is no other access by index."""
        data = self.data
        return [data[row] for row in rows.tolist()]

    def row(self, row: int) -> Any:
        """One item."""
        return self.data[row]

    def sequential(self) -> Iterator[Any]:
        """The stream in order, through its loader without workers."""
        return self._loader(0, self._stream(shuffle=False))

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """The stream shuffled."""
        return self._loader(workers, self._stream(shuffle=True, seed=seed))

    def _stream(self, **options: Any) -> Any:
        serializers = {"bytes": Owned()}
        return StreamingDataset(str(self.folder / "data"), serializers=serializers, **options)

    def _loader(self, workers: int, data: Any) -> Iterator[Any]:
        from fieldslab.bench.peers.torch_batches import collate

        options = {"num_workers": workers, "collate_fn": collate(self.source)}
        return iter(StreamingDataLoader(data, batch_size=self.batch, **options))
