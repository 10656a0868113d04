"""What a peer must be able to do, and where each is found."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.bench.peers.source import Row, Workload


class NotOffered(Exception):
    """The peer has no such access, by its design."""


class Peer(ABC):
    """A format with its loader, in its best documented configuration.

    A batch holds every field of every row, as bytes or arrays in memory of the process; nothing
    is decoded, and nothing is left as a view of a file. It may have any form: `rows_of` says
    what is in it, and is not timed.
    """

    configuration: str
    """What was chosen where there was a choice."""
    distributions: tuple[str, ...]
    """Whose versions are reported."""

    def __init__(self, folder: Path, source: Workload) -> None:
        """A peer that has its files in `folder`; the source says names and batch size."""
        self.folder = folder
        self.source = source
        self.batch = source.batch

    @classmethod  # noqa: B027 - most peers have nothing of the kind
    def prepare(cls) -> None:
        """Import what only converting needs, before the clock starts."""

    @abstractmethod
    def convert(self) -> None:
        """Write the source into the folder."""

    @abstractmethod
    def open(self) -> None:
        """Make the converted data ready for reading; called anew in worker processes."""

    @abstractmethod
    def random_batch(self, rows: np.ndarray) -> Any:
        """Return these rows (int64[n]), in this order."""

    @abstractmethod
    def row(self, row: int) -> Any:
        """Return one row, as a batch or alone."""

    @abstractmethod
    def sequential(self) -> Iterator[Any]:
        """Return all rows in order, in batches."""

    @abstractmethod
    def loader(self, workers: int, seed: int) -> Iterator[Any]:
        """Return a shuffled epoch through the peer's own loader, in batches."""

    def rows_of(self, batch: Any) -> list[Row]:
        """Return the rows in a batch: of a list of rows, or of a dict of columns."""
        if not isinstance(batch, dict):
            return list(batch)
        if len(batch) == 0 or not hasattr(next(iter(batch.values())), "__len__"):
            return [batch]
        count = len(next(iter(batch.values())))
        return [{name: column[i] for name, column in batch.items()} for i in range(count)]

    def row_of(self, row: Any) -> Row:
        """Return what `row` returned, as a row."""
        if isinstance(row, dict):
            return row
        return self.rows_of(row)[0]


@dataclass(frozen=True)
class Entry:
    """Where a peer is found: `module:class` in `formats`, and in which environment."""

    where: str
    environment: str = ""
    """A folder beside the checkout with a virtual environment; the running one if empty."""


PEERS = {
    "fieldslab": Entry("slab:Fieldslab"),
    "LitData": Entry("litdata:LitData"),
    "MosaicML Streaming": Entry("mds:Mds", ".venv-mds"),
    "HuggingFace, numpy": Entry("huggingface:Numpy"),
    "HuggingFace, Arrow": Entry("huggingface:Arrow"),
    "WebDataset": Entry("webdataset:WebDataset"),
    "Grain ArrayRecord": Entry("arrayrecord:ArrayRecord"),
    "Lance": Entry("lance:Lance"),
    "Vortex": Entry("vortex:Vortex"),
    "bagz": Entry("bagz:Bagz"),
    "Parquet, pyarrow": Entry("parquet:PyArrow"),
    "Parquet, polars": Entry("parquet_polars:Polars"),
    "h5py, contiguous": Entry("hdf5:Contiguous"),
    "h5py, gzip": Entry("hdf5:Gzip"),
    "zarr": Entry("zarr:Zarr"),
    "numpy memmap": Entry("memmap:Memmap"),
    "SPDL, numpy memmap": Entry("spdl:Spdl"),
    "FFCV": Entry("ffcv:Ffcv", ".venv-ffcv"),
    "memcpy": Entry("memcpy:Memcpy"),
}
"""In the order of the tables. `memcpy` is the ceiling, and always measured."""

US, CEILING = "fieldslab", "memcpy"

DECODERS = {
    "fieldslab, JPEG": Entry("views_slab:Jpeg"),
    "FFCV, JPEG": Entry("views_ffcv:Jpeg", ".venv-ffcv"),
    "fieldslab, pixels": Entry("views_slab:Pixels"),
    "FFCV, pixels": Entry("views_ffcv:Pixels", ".venv-ffcv"),
    "fieldslab, pixels of 256": Entry("views_slab:SmallPixels"),
    "FFCV, pixels of 256": Entry("views_ffcv:SmallPixels", ".venv-ffcv"),
    "SPDL, JPEG": Entry("views_spdl:Jpeg"),
}
"""Who decodes and crops, and from what: see `decode`."""


def entry(name: str) -> Entry:
    """Find the entry of a peer or a decoder."""
    return (PEERS | DECODERS)[name]


def find(name: str) -> type[Peer]:
    """Return the class of a peer or decoder. Raises ImportError where its library is missing."""
    module, _, member = entry(name).where.partition(":")
    peer: type[Peer] = getattr(import_module(f"fieldslab.bench.peers.formats.{module}"), member)
    return peer
