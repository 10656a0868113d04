"""Decompression of rows that are stored as zstd frames (RFC 8878), one frame for each row.

`zstandard.multi_decompress_to_buffer` was measured beside libzstd called from a kernel: both
decode 0.6 GB/s per thread here, and it needs no shared library that may be missing.
"""

import threading
from typing import Any

import numpy as np
import zstandard

from fieldslab.schemas.errors import DamagedArray
from fieldslab.schemas.fields import MAX_COUNT, Field

_BLOCK_BYTES = 128 * 1024
_SMALLEST_BLOCK = 4
"""A block of a frame takes at least 4 bytes and gives at most 128 KiB (RFC 8878, 3.1.1.2)."""


class FrameReader:
    """Decompresses the rows of one field; any number of threads may use it at once."""

    def __init__(self, field: str, dictionary: bytes | None = None) -> None:
        """`dictionary` is the trained dictionary that the frames were compressed with."""
        self._field = field
        self._dictionary = None
        if dictionary:
            self._dictionary = zstandard.ZstdCompressionDict(
                dictionary, dict_type=zstandard.DICT_TYPE_FULLDICT
            )
        self._local = threading.local()

    def compute_sizes(
        self, offsets: np.ndarray, counts: np.ndarray | None, item: int
    ) -> np.ndarray:
        """Compute the decompressed size of each row in bytes: int64[rows].

        `offsets` (int64[rows + 1]) says where the frames begin and end. `counts` (uint64[rows]) is
        the number of elements of each row; None stands for one element each. An element takes
        `item` bytes. Raises DamagedArray if a frame is too short to hold that much.
        """
        most = (np.diff(offsets) // _SMALLEST_BLOCK + 1) * _BLOCK_BYTES // max(item, 1)
        if not item:  # a frame holds any number of elements without bytes
            most[:] = MAX_COUNT
        if counts is None:
            counts = np.ones(len(most), np.uint64)
        too_large = np.flatnonzero(counts > most.astype(np.uint64))
        if len(too_large):
            raise self._make_damaged_error(
                "a row is larger than its frame can hold",
                row=f"{too_large[0]} of the batch",
                expected=f"at most {most[too_large[0]]} elements",
                found=counts[too_large[0]],
            )
        return counts.astype(np.int64) * item

    def decompress(
        self,
        frames: np.ndarray,
        offsets: np.ndarray,
        sizes: np.ndarray,
        out: np.ndarray,
        chosen: np.ndarray | None = None,
    ) -> None:
        """Decompress many rows.

        Parameters
        ----------
        frames
            uint8[bytes], the frames one after the other.
        offsets
            int64[rows + 1], where each frame begins and ends.
        sizes
            int64[rows], the decompressed size of each row in bytes, from `compute_sizes`.
        out
            uint8[sum(sizes)], where the rows are written.
        chosen
            Positions of the rows to decompress, ascending: int64[n]. Default: all.

        Raises
        ------
        DamagedArray
            A frame is damaged, or holds another number of bytes than `sizes` says.
        """
        present = np.flatnonzero(sizes) if chosen is None else chosen[sizes[chosen] > 0]
        if not len(present):
            return
        spans = np.stack([offsets[:-1], np.diff(offsets)], axis=1).astype(np.uint64)[present]
        data = memoryview(np.ascontiguousarray(frames).data)
        self._check_frame_sizes(data, spans, sizes[present], present)
        lengths = sizes[present].astype("<u8").tobytes()
        try:
            rows = self._get_decompressor().multi_decompress_to_buffer(
                zstandard.BufferWithSegments(data, spans.tobytes()), decompressed_sizes=lengths
            )
        except (zstandard.ZstdError, ValueError) as error:
            raise self._make_damaged_error(str(error)) from error
        starts = (np.cumsum(sizes) - sizes)[present].tolist()
        for start, row in zip(starts, rows, strict=True):
            out[start : start + len(row)] = np.frombuffer(row, np.uint8)

    def read_values(
        self, frames: np.ndarray, offsets: np.ndarray, counts: np.ndarray | None, field: Field
    ) -> np.ndarray:
        """Decompress rows into values: (elements, *shape), or (rows, *shape) if `counts` is None.

        Parameters and errors are those of `compute_sizes` and `decompress`.
        """
        sizes = self.compute_sizes(offsets, counts, field.item_bytes)
        out = np.empty(int(sizes.sum()), np.uint8)
        self.decompress(frames, offsets, sizes, out)
        items = len(sizes) if counts is None else int(counts.sum())
        return out.view(field.storage).reshape(items, *field.shape)

    def _check_frame_sizes(
        self, data: memoryview, spans: np.ndarray, sizes: np.ndarray, rows: np.ndarray
    ) -> None:
        for row, (start, length), size in zip(
            rows.tolist(), spans.tolist(), sizes.tolist(), strict=True
        ):
            try:
                stated = zstandard.frame_content_size(data[start : start + min(length, 32)])
            except zstandard.ZstdError as error:
                raise self._make_damaged_error(str(error), row=f"{row} of the batch") from error
            if stated != size:
                raise self._make_damaged_error(
                    "a compressed frame has the wrong size",
                    row=f"{row} of the batch",
                    expected=f"{size} bytes",
                    found=stated,
                )

    def _get_decompressor(self) -> Any:
        """Return the decompressor of this thread; threads cannot share one."""
        if not hasattr(self._local, "decompressor"):
            options: dict[str, Any] = {}
            if self._dictionary is not None:
                options["dict_data"] = self._dictionary
            self._local.decompressor = zstandard.ZstdDecompressor(**options)
        return self._local.decompressor

    def _make_damaged_error(self, problem: str, **where: Any) -> DamagedArray:
        return DamagedArray(
            f"cannot be decompressed: {problem}",
            field=self._field,
            **where,
            hint="Verify the slab; restore it from a copy, or pack it again.",
        )
