"""The ceiling: a memcpy of the bytes of rows, and nothing else."""

from collections.abc import Sequence

import numpy as np

from fieldslab.reader import Slab
from fieldslab.reader.buffers import Pool
from fieldslab.schemas.jit import kernel, memcpy
from fieldslab.schemas.mapping import get_address


@kernel("void(int64[::1], int64[::1], int64)")
def copy_spans(addresses: np.ndarray, lengths: np.ndarray, out: int) -> None:
    """Copy spans of memory one behind the other: the least that a gather has to do."""
    for i in range(len(addresses)):
        memcpy(out, addresses[i], lengths[i])
        out += lengths[i]


class Spans:
    """Where the values of some rows lie, field after field, and where to copy them.

    Compressed fields have no place where their values lie: as many bytes are copied from
    elsewhere in memory, in one piece.
    """

    def __init__(self, slab: Slab, rows: np.ndarray, fields: Sequence[str]) -> None:
        parts = [_spans(slab, rows, name) for name in fields]
        self._elsewhere = [address for address, _, _ in parts]
        self.addresses = np.concatenate([addresses for _, addresses, _ in parts])
        self.lengths = np.concatenate([lengths for _, _, lengths in parts])
        self.nbytes = int(self.lengths.sum())

    def copy(self, out: np.ndarray) -> None:
        """Copy everything into `out` (uint8), which has at least `nbytes` bytes."""
        copy_spans(self.addresses, self.lengths, get_address(out))


def _spans(
    slab: Slab, rows: np.ndarray, name: str
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    if slab.fields[name].compression is None:
        addresses, lengths = slab.addresses(rows, name)
        return None, addresses.view(np.int64), lengths
    size = int(slab.gather(rows, [name]).nbytes)
    source = written_pages(size)
    return source, np.array([get_address(source)], np.int64), np.array([size], np.int64)


def written_pages(size: int) -> np.ndarray:
    """Allocate memory as batches do, each page written once: uint8[size]."""
    pages = Pool().allocate_array(None, (max(size, 1),), np.dtype(np.uint8))
    pages[:] = 1
    return pages
