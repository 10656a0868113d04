"""Parquet files that are damaged in known places."""

from pathlib import Path

import pyarrow.parquet as pq


def flip(path: Path, offset: int, mask: int = 1) -> None:
    """Flip bits of one byte in place."""
    data = bytearray(path.read_bytes())
    data[offset] ^= mask
    path.write_bytes(data)


def page_range(path: Path, group: int, column: int) -> range:
    """The bytes of a column chunk: page headers and pages."""
    chunk = pq.read_metadata(path).row_group(group).column(column)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    return range(start, start + chunk.total_compressed_size)
