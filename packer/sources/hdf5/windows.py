"""In which pieces a file is read: windows of rows along the chunks, and the memory they take."""

import os
from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from fieldslab.packer.commands.text_format import format_size
from fieldslab.packer.sources.hdf5.dataset_storage import count_band_bytes, count_chunk_bytes
from fieldslab.packer.sources.hdf5.scan import Dataset
from fieldslab.schemas.errors import SourceUnsupported
from fieldslab.schemas.optiontext import mark_option

WINDOW_BYTES = 64 * 1024 * 1024
CONVERTED_BYTES = 512 * 1024 * 1024
"""As many rows of a matrix in CSC are converted together: for each such window, all is read."""
IN_FLIGHT = 6
"""Batches in memory at a time: read ahead, in conversion, and being read."""
_LEAST_BATCH = 1024 * 1024
_USUAL_BATCH = 32 * 1024 * 1024
WORTH_SAYING = 1024**3


class Piece(NamedTuple):
    """The rows `start` to `stop` of a part, by its number; `last` where the part ends with them."""

    part: int
    start: int
    stop: int
    last: bool


class ReadMemory(NamedTuple):
    """Memory that reading takes.

    `chunks` are the bytes of the chunks of all datasets, `largest_dataset_bytes` those of the
    dataset with the most of them, and `name` is its name.
    """

    chunks: int
    largest_dataset_bytes: int
    name: str

    def compute_least_bytes(self, row_bytes: int) -> int:
        """Compute the bytes that are needed at least."""
        return self.chunks + IN_FLIGHT * max(row_bytes, _LEAST_BATCH)

    def compute_usual_bytes(self, limit: int, row_bytes: int) -> int:
        """Compute the bytes that batches of the usual size take, or what the limit allows."""
        batch = self.limit_batch_bytes(limit, _USUAL_BATCH)
        return max(self.compute_least_bytes(row_bytes), self.chunks + IN_FLIGHT * batch)

    def limit_batch_bytes(self, limit: int, batch_bytes: int) -> int:
        """Compute how large batches may be so that everything stays within the limit."""
        return max(min(batch_bytes, (limit - self.chunks) // IN_FLIGHT), 1)

    def check_limit(self, limit: int, row_bytes: int, file: str) -> None:
        """Raise SourceUnsupported if the limit is too low."""
        needed = self.compute_least_bytes(row_bytes)
        if needed > limit:
            raise SourceUnsupported(
                f"reading takes {format_size(needed)} of memory: the chunks that hold a row of "
                f"{self.name or 'it'} take {format_size(self.largest_dataset_bytes)}",
                file=file,
                field=self.name or None,
                expected=f"at most {format_size(limit)}",
                hint=f"{mark_option('memory', f'{ceil(needed / 2**20)}M')} allows it; smaller "
                "chunks need less: "
                "h5repack -l CHUNK=... writes them.",
            )


def compute_memory(datasets: Sequence[Dataset]) -> ReadMemory:
    """Compute the memory that chunks take of datasets that are read together.

    The chunks of a row of each are kept; while one is decompressed there are two copies more.
    """
    bands = [_count_kept_bytes(dataset) for dataset in datasets]
    most = max(bands, default=0)
    chunks = sum(bands) + 2 * max((count_chunk_bytes(dataset) for dataset in datasets), default=0)
    name = next((d.name for d, band in zip(datasets, bands, strict=True) if band == most), "")
    return ReadMemory(chunks, most, name if most else "")


def _count_kept_bytes(dataset: Dataset) -> int:
    """Count the bytes that are kept from batch to batch."""
    if dataset.encoding != "csc_matrix":
        return count_band_bytes(dataset)
    return 4 * min((dataset.rows or 0) * dataset.row_bytes, CONVERTED_BYTES)


def get_physical_memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def compute_window_starts(datasets: Sequence[Dataset], rows: int, row_bytes: float) -> range:
    """Compute where windows begin: about every 64 MB, at the start of a chunk."""
    converted = any(dataset.encoding == "csc_matrix" for dataset in datasets)
    window_bytes = CONVERTED_BYTES if converted else WINDOW_BYTES
    step = max(int(window_bytes / max(row_bytes, 1)), 1)
    chunk = find_leading_chunk_rows(datasets)
    return range(0, rows, max(step // chunk, 1) * chunk)


def compute_batch_rows(datasets: Sequence[Dataset], row_bytes: float, batch_bytes: int) -> int:
    """Compute the rows of a batch: whole chunks or even parts of one, by the largest rows."""
    rows = max(int(batch_bytes / max(row_bytes, 1)), 1)
    chunk = find_leading_chunk_rows(datasets)
    if rows >= chunk:
        return rows - rows % chunk
    return ceil(chunk / ceil(chunk / rows))


def find_leading_chunk_rows(datasets: Sequence[Dataset]) -> int:
    """Find the chunk length of the dataset with the largest rows; 1 without chunks."""
    first = max(datasets, key=lambda dataset: dataset.row_bytes)
    return first.chunks[0] if first.chunks else 1
