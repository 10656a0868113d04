"""How a dataset is stored: its filters, its chunks, and whether they were ever written."""

import importlib
from functools import cache
from math import ceil, prod

import h5py
import numpy as np
from h5py import h5d, h5p, h5z

from fieldslab.packer.sources.hdf5.scan import Dataset
from fieldslab.schemas.errors import SourceUnsupported

_PLUGINS = {
    307: "bzip2",
    32001: "blosc",
    32004: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32017: "sz",
    32018: "fcidecomp",
    32024: "sz3",
    32026: "blosc2",
    32028: "sperr",
}
"""Filters that hdf5plugin contains."""

_MOST_SLOTS = 1_000_003
_MOST_LISTED = 1_000_000


def count_chunk_bytes(dataset: Dataset) -> int:
    """Count the bytes of one chunk, decompressed; 0 where there are none."""
    return prod(dataset.chunks) * dataset.item_bytes if dataset.chunks else 0


def count_band_bytes(dataset: Dataset) -> int:
    """Count the bytes of all chunks that hold one row, decompressed; 0 where there are none."""
    return count_chunk_bytes(dataset) * _count_chunks_per_row(dataset)


def open_dataset(file: h5py.File, dataset: Dataset) -> h5d.DatasetID:
    """Open a dataset with a cache that holds the chunks of a row, so that none is read twice."""
    access = h5p.create(h5p.DATASET_ACCESS)
    if dataset.chunks:
        slots = min(_find_next_prime(100 * _count_chunks_per_row(dataset)), _MOST_SLOTS)
        access.set_chunk_cache(slots, max(count_band_bytes(dataset), 1 << 20), 1.0)
    if dataset.outside:  # a relative path starts at the file, not where the program runs
        access.set_efile_prefix(b"${ORIGIN}")
        access.set_virtual_prefix(b"${ORIGIN}")
    return h5d.open(file.id, dataset.place, access)


def check_filters(opened: h5d.DatasetID, dataset: Dataset) -> None:
    """Raise SourceUnsupported where a filter that the dataset needs is not there."""
    properties = opened.get_create_plist()
    for number in range(properties.get_nfilters()):
        code, _, _, text = properties.get_filter(number)
        if h5z.filter_avail(code) or (_register_filters() and h5z.filter_avail(code)):
            continue
        name = _PLUGINS.get(code) or text.decode(errors="replace").strip("\0") or "unknown"
        hint = "Install it: pip install 'hdf5plugin>=5.0'"
        if code not in _PLUGINS:
            hint = "It is not part of hdf5plugin: install its HDF5 plugin, or repack with h5repack."
        raise SourceUnsupported(
            f"compressed with the filter {name} ({code}), which is not installed",
            file=dataset.file,
            field=dataset.name,
            hint=hint,
        )


def describe_unwritten(opened: h5d.DatasetID, dataset: Dataset, rows: int) -> str | None:
    """Describe rows among the first `rows` that were never written; None if all were."""
    if not rows or not prod(dataset.row_shape) or _is_stored_elsewhere(opened):
        return None
    if not dataset.chunks:
        if opened.get_storage_size():
            return None
        fill = _describe_fill_value(opened)
        return f"{dataset.name} in {dataset.file}: no data was ever written; it reads as {fill}"
    expected = ceil(rows / dataset.chunks[0]) * _count_chunks_per_row(dataset)
    written = opened.get_num_chunks()
    if written >= expected:
        return None
    fill = _describe_fill_value(opened)
    text = (
        f"{dataset.name} in {dataset.file}: {expected - written:,} of {expected:,} chunks were "
        f"never written and read as {fill}"
    )
    if (end := _find_written_end(opened, dataset, written)) is not None and end < rows:
        text += f"; nothing was written from row {end:,} on"
    return f"{text}. The options `rows_attr` and `rows` leave such rows out"


def _is_stored_elsewhere(opened: h5d.DatasetID) -> bool:
    properties = opened.get_create_plist()
    return bool(properties.get_layout() == h5d.VIRTUAL or properties.get_external_count())


def _count_chunks_per_row(dataset: Dataset) -> int:
    """Count the chunks that hold one row."""
    pairs = zip(dataset.row_shape, (dataset.chunks or ())[1:], strict=False)
    return prod(ceil(length / chunk) for length, chunk in pairs)


def _find_written_end(opened: h5d.DatasetID, dataset: Dataset, written: int) -> int | None:
    """Find the end of the last chunk that was written; None where it would take long to tell."""
    if written > _MOST_LISTED or not hasattr(opened, "chunk_iter"):
        return None
    end = 0

    def update_end(chunk: h5d.StoreInfo) -> None:
        nonlocal end
        end = max(end, chunk.chunk_offset[dataset.axis])

    if not written:
        return 0
    opened.chunk_iter(update_end)
    assert dataset.chunks is not None
    return end + dataset.chunks[0]


def _describe_fill_value(opened: h5d.DatasetID) -> str:
    try:
        value = h5py.Dataset(opened).fillvalue
    except (OSError, RuntimeError, TypeError, ValueError, KeyError):
        return "the fill value"
    return str(value) if np.isscalar(value) else "the fill value"


@cache
def _register_filters() -> bool:
    """Register the filters of hdf5plugin; False where it is not installed."""
    try:
        importlib.import_module("hdf5plugin")
    except ImportError:
        return False
    return True


def _find_next_prime(number: int) -> int:
    while number < _MOST_SLOTS and any(number % d == 0 for d in range(2, int(number**0.5) + 1)):
        number += 1
    return number
