"""FFCV, where it is installed: PyPI has no wheel, and its build needs OpenCV and libturbojpeg."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from ffcv.fields import BytesField, IntField, NDArrayField
from ffcv.fields.decoders import BytesDecoder, IntDecoder, NDArrayDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.writer import DatasetWriter

from fieldslab.bench.peers.peer import NotOffered, Peer
from fieldslab.bench.peers.source import Row


class Ffcv(Peer):
    """Rows of other sizes are byte fields, which FFCV pads, with their sizes beside them."""

    configuration = "DatasetWriter; Loader in random order with os_cache, no transforms"
    distributions = ("ffcv", "numba", "torch")

    def convert(self) -> None:
        """Write all rows."""
        fields: dict[str, Any] = {}
        for name, column in self.source.columns.items():
            if column.offsets is not None:
                fields |= {name: BytesField(), f"{name}_size": IntField()}
            elif column.values.ndim == 1 and column.values.dtype.kind in "iu":
                fields[name] = IntField()
            else:
                shape = column.values.shape[1:] or (1,)
                fields[name] = NDArrayField(column.values.dtype, shape)
        writer = DatasetWriter(str(self.folder / "data.beton"), fields, num_workers=1)
        writer.from_indexed_dataset(Tuples(self))

    def open(self) -> None:
        """Loaders open the file themselves."""

    def random_batch(self, rows: np.ndarray) -> Any:
        """There are loaders alone."""
        raise NotOffered("no access by row")

    def row(self, row: int) -> Any:
        """There are loaders alone."""
        raise NotOffered("no access by row")

    def sequential(self) -> Iterator[Any]:
        """A loader in order with one thread."""
        return self._loader(OrderOption.SEQUENTIAL, 1, 0)

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """A shuffled loader; it has one thread at least."""
        return self._loader(OrderOption.RANDOM, max(workers, 1), seed)

    def _loader(self, order: Any, threads: int, seed: int) -> Iterator[Any]:
        pipelines: dict[str, Any] = {}
        for name, column in self.source.columns.items():
            if column.offsets is not None:
                pipelines |= {name: [BytesDecoder()], f"{name}_size": [IntDecoder()]}
            elif column.values.ndim == 1 and column.values.dtype.kind in "iu":
                pipelines[name] = [IntDecoder()]
            else:
                pipelines[name] = [NDArrayDecoder()]
        options = {"order": order, "seed": seed, "os_cache": True, "pipelines": pipelines}
        path = str(self.folder / "data.beton")
        return iter(Loader(path, batch_size=self.batch, num_workers=threads, **options))

    def rows_of(self, batch: Any) -> list[Row]:
        """Rows without their padding."""
        found: list[Row] = [{} for _ in range(len(batch[0]))]
        parts = iter(batch)
        for name, column in self.source.columns.items():
            values = np.asarray(next(parts))
            sizes = None if column.offsets is None else np.asarray(next(parts)).reshape(-1)
            for i, row in enumerate(found):
                row[name] = values[i] if sizes is None else values[i, : sizes[i]]
        return found


class Tuples:
    """Rows as FFCV's writer wants them."""

    def __init__(self, peer: Peer) -> None:
        self.source = peer.source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, row: int) -> tuple[Any, ...]:
        """The fields of a row: bytes with their size, integers, arrays."""
        values: list[Any] = []
        for name, value in self.source.row(row).items():
            if self.source.columns[name].offsets is not None:
                raw = value if isinstance(value, bytes) else value.tobytes()
                values += [np.frombuffer(raw, np.uint8), len(raw)]
            else:
                values.append(int(value) if np.ndim(value) == 0 else np.asarray(value))
        return tuple(values)
