"""FFCV, in an environment of its own: PyPI has no wheel, its build needs OpenCV and turbojpeg."""

import gc
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from queue import Empty
from typing import Any

import numpy as np
from ffcv.fields import BytesField, IntField, NDArrayField
from ffcv.loader import Loader, OrderOption
from ffcv.traversal_order.base import TraversalOrder
from ffcv.writer import DatasetWriter

from fieldslab.bench.peers.peer import Peer
from fieldslab.bench.peers.source import Column, Row

_SIZE = "_size"
"""After the name of a byte field: FFCV pads batches of bytes, and keeps no sizes for its user."""


class Ffcv(Peer):
    """A .beton file. Loaders are kept: FFCV compiles its code anew for each, which takes seconds.

    Batches lie in memory that FFCV uses again some batches later.
    """

    configuration = (
        "BytesField, NDArrayField, IntField; Loader, os_cache=True, OrderOption.RANDOM, "
        "drop_last=False, decoders alone; any rows: as an epoch of one batch, by a TraversalOrder"
    )
    distributions = ("ffcv", "numba", "numpy", "torch")

    def convert(self) -> None:
        """Write all rows."""
        writer = DatasetWriter(self._file, self._fields(), num_workers=1)
        writer.from_indexed_dataset(Tuples(self))

    def open(self) -> None:
        """Loaders open the file themselves."""
        self.order = Rows(self.batch)
        self._loader = cache(self._make_loader)

    def random_batch(self, rows: np.ndarray) -> Any:
        """These rows as an epoch: FFCV has no other access by row."""
        loader = self._loader(self.order, 1)
        self.order.rows = rows
        return next(iter(loader))

    def row(self, row: int) -> Any:
        """An epoch of one row."""
        return self.random_batch(np.array([row]))

    def sequential(self) -> Iterator[Any]:
        """An epoch in order."""
        return epoch(self._loader(OrderOption.SEQUENTIAL, 1))

    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """The next shuffled epoch; there is one thread at least."""
        return epoch(self._loader(OrderOption.RANDOM, max(workers, 1)))

    @property
    def _file(self) -> str:
        return str(self.folder / "data.beton")

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for name, column in self.source.columns.items():
            if column.offsets is not None:
                fields |= {name: BytesField(), name + _SIZE: IntField()}
            elif _is_int(column):
                fields[name] = IntField()
            else:
                fields[name] = NDArrayField(column.values.dtype, column.values.shape[1:] or (1,))
        return fields

    def _make_loader(self, order: Any, threads: int) -> Any:
        # Each epoch leaves garbage behind; looking through all of numba and torch for it would
        # stop the next one for 0.2 s.
        gc.freeze()
        # Decoders are named, or FFCV would turn batches into tensors on top.
        decoders = {name: [f.get_decoder_class()()] for name, f in self._fields().items()}
        return Loader(
            self._file,
            self.batch,
            threads,
            os_cache=True,
            order=order,
            seed=0,
            drop_last=False,
            pipelines=decoders,
        )

    def rows_of(self, batch: Any) -> list[Row]:
        """Rows without their padding."""
        rows: list[Row] = [{} for _ in range(len(batch[0]))]
        parts = iter(batch)
        for name, column in self.source.columns.items():
            values = next(parts)
            sizes = None if column.offsets is None else next(parts)[:, 0]
            for i, row in enumerate(rows):
                row[name] = values[i] if sizes is None else values[i, : sizes[i]].tobytes()
        return rows


class Rows(TraversalOrder):  # type: ignore[misc]
    """The rows that it was told."""

    def __init__(self, batch: int) -> None:
        self.rows = np.arange(batch)

    def __call__(self, loader: Any) -> "Rows":
        """What FFCV binds to a loader."""
        return self

    def sample_order(self, epoch: int) -> np.ndarray:
        """These rows (int64[n]), whatever the epoch."""
        return self.rows


def _is_int(column: Column) -> bool:
    return column.values.ndim == 1 and column.values.dtype.kind in "iu"


def epoch(loader: Any) -> Iterator[Any]:
    """The next epoch of a loader, whose thread has ended when the epoch is left."""
    batches = iter(loader)
    try:
        yield from batches
    finally:
        batches.close()
        batches.join(1)
        while batches.is_alive():  # where it cannot put the epoch's end into its full queue
            with suppress(Empty):
                batches.output_queue.get_nowait()
            batches.join(1)


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
            column = self.source.columns[name]
            if column.offsets is not None:
                raw = np.frombuffer(value, np.uint8)
                values += [raw, raw.size]
            elif _is_int(column):
                values.append(int(value))
            else:
                values.append(np.asarray(value))
        return tuple(values)
