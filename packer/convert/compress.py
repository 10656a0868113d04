"""Compressed storage: each row of a field a zstd frame of its own."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import zstandard

from fieldslab.packer.convert.fieldplan import ConvertedRows
from fieldslab.schemas.arrays import view_bytes
from fieldslab.schemas.fields import Field

SAMPLE_BYTES = 16 * 1024 * 1024
SAMPLE_ROWS = 50_000
SMALL_ROW = 4096
"""Rows smaller than this on average share a dictionary, where it helps."""

_MAX_DICTIONARY = 112_640  # what zstd's own command takes
_LEAST_ROWS = 100
_LEAST_GAIN = 0.95


class Frames(NamedTuple):
    """Rows of a field, compressed: uint8[bytes], and int64[rows] bytes of each."""

    values: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True)
class Compressor:
    """How the rows of one field are compressed."""

    level: int
    dictionary: bytes = b""

    def compress_rows(self, field: Field, rows: ConvertedRows) -> Frames:
        """Compress each row into a frame; a row without bytes has none."""
        sizes = count_row_bytes(field, rows)
        ends = np.cumsum(sizes)
        data = view_bytes(rows.values)
        present = np.flatnonzero(sizes)
        lengths = np.zeros(len(sizes), np.int64)
        if not len(present):
            return Frames(np.empty(0, np.uint8), lengths)
        spans = np.stack([ends - sizes, sizes], axis=1).astype(np.uint64)[present]
        frames = self._make_zstd_compressor().multi_compress_to_buffer(
            zstandard.BufferWithSegments(data, spans.tobytes())
        )
        lengths[present] = [len(frame) for frame in frames]
        values = b"".join(frame.tobytes() for frame in frames)
        return Frames(np.frombuffer(values, np.uint8), lengths)

    def _make_zstd_compressor(self) -> Any:
        if not self.dictionary:
            return zstandard.ZstdCompressor(level=self.level)
        dictionary = zstandard.ZstdCompressionDict(self.dictionary)
        return zstandard.ZstdCompressor(level=self.level, dict_data=dictionary)


Compressors = dict[str, Compressor]
"""The compressor of each compressed field, by field name."""


def convert_to_frames(compressor: Compressor, field: Field, rows: ConvertedRows) -> ConvertedRows:
    """Convert rows to what is stored of a compressed field, without a tally."""
    frames = compressor.compress_rows(field, rows)
    other_arrays = dict(rows.other_arrays)
    if rows.lengths is not None:
        other_arrays["lengths"] = rows.lengths.astype("<u8")
    return ConvertedRows(frames.values, frames.lengths, rows.valid, other_arrays)


def count_row_bytes(field: Field, rows: ConvertedRows) -> np.ndarray:
    """Count the bytes of each row before compression: int64[rows]."""
    if rows.lengths is None:
        return np.full(len(rows.values), field.item_bytes, np.int64)
    return rows.lengths * field.item_bytes


def train_compressor(field: Field, level: int, sample: list[ConvertedRows]) -> Compressor:
    """Train a dictionary on sampled rows, if they are small and it helps, for a compressor."""
    plain = Compressor(level)
    texts = [text for rows in sample for text in _split_rows(field, rows)]
    total = sum(map(len, texts))
    if len(texts) < _LEAST_ROWS or total > SMALL_ROW * len(texts):
        return plain
    size = min(_MAX_DICTIONARY, total // 10)
    try:
        trained = Compressor(level, zstandard.train_dictionary(size, texts).as_bytes())
    except zstandard.ZstdError:  # too little to learn from
        return plain
    before, after = (_measure_sample(compressor, field, sample) for compressor in (plain, trained))
    return trained if after < before * _LEAST_GAIN else plain


def _measure_sample(compressor: Compressor, field: Field, sample: list[ConvertedRows]) -> int:
    return sum(int(compressor.compress_rows(field, rows).lengths.sum()) for rows in sample)


def _split_rows(field: Field, rows: ConvertedRows) -> list[Any]:
    data = view_bytes(rows.values)
    ends = np.cumsum(count_row_bytes(field, rows)).tolist()
    spans = zip([0, *ends[:-1]], ends, strict=True)
    return [bytes(data[start:end]) for start, end in spans if end > start]
