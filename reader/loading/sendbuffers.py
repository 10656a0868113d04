"""Memory that batches are gathered into and sent from, each in one piece."""

import math
import threading
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from fieldslab.reader import forks
from fieldslab.reader.buffers import SMALL, Block, Pool, round_up_capacity
from fieldslab.reader.loading.streams import Stream
from fieldslab.schemas.mapping import get_address

_ALIGN = 256
"""Bytes: arrays begin at multiples, as memory of GPUs does."""


class SendBuffer:
    """Memory of one batch: uint8[capacity], from the start up to `used`."""

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = memory
        self.used = 0

    def reserve(self, size: int) -> int | None:
        """Reserve bytes at the end: their offset, or None if they do not fit."""
        offset = self.used
        if offset + size > len(self.memory):
            return None
        self.used = round_up(offset + size)
        return offset

    def find_offset(self, tensor: torch.Tensor) -> int | None:
        """Return where a tensor lies in this memory; None if it does not, or with gaps."""
        offset = tensor.data_ptr() - get_address(self.memory)
        inside = offset >= 0 and offset + tensor.nbytes <= self.used
        return offset if inside and offset % _ALIGN == 0 and tensor.is_contiguous() else None


class Placed(NamedTuple):
    """Tensors that lie in a buffer, at offsets."""

    buffer: SendBuffer
    offsets: list[int]


class _BlockPool(Pool):
    """A pool whose blocks the device can read."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream

    def _make_block(self, size: int) -> Block:
        return self._stream.allocate_block(round_up_capacity(size))


class SendBuffers:
    """A ring of buffers, and an `Allocator`: each thread fills a buffer of its own.

    A buffer is used again when it was sent, and nobody holds an array of it. It is as large as the
    last batches were; what does not fit is allocated elsewhere and copied when the batch is sent.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._blocks = _BlockPool(stream)
        self._others = Pool()
        self._capacity = SMALL
        self._local = threading.local()
        self._lock = threading.Lock()
        self._sending: deque[tuple[Any, SendBuffer]] = deque()
        forks.register_for_forks(self)

    def allocate_array(
        self, key: Hashable, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> np.ndarray:
        """Allocate an uninitialised array in this thread's buffer, if it fits."""
        buffer = getattr(self._local, "buffer", None)
        if buffer is None:
            buffer = self._local.buffer = self._make_buffer(self._capacity)
        offset = buffer.reserve(math.prod(shape) * dtype.itemsize)
        if offset is None:
            return self._others.allocate_array(key, shape, dtype)
        return np.ndarray(shape, dtype, buffer.memory, offset)

    def place_tensors(self, tensors: Sequence[torch.Tensor]) -> Placed:
        """Have all tensors in one buffer; the next batch of this thread gets another one."""
        buffer = self._local.__dict__.pop("buffer", None) or self._make_buffer(self._capacity)
        offsets = [buffer.find_offset(tensor) for tensor in tensors]
        missing = [
            tensor for tensor, offset in zip(tensors, offsets, strict=True) if offset is None
        ]
        size = buffer.used + sum(round_up(tensor.nbytes) for tensor in missing)
        self._capacity = max(size, self._capacity - self._capacity // 16)
        if size > len(buffer.memory):
            larger = self._make_buffer(size)
            larger.memory[: buffer.used] = buffer.memory[: buffer.used]
            larger.used = buffer.used
            buffer = larger
        placed = []
        for tensor, offset in zip(tensors, offsets, strict=True):
            if offset is None:
                offset = buffer.reserve(tensor.nbytes)
                assert offset is not None
                view_like(tensor, torch.from_numpy(buffer.memory), offset).copy_(tensor)
            placed.append(offset)
        return Placed(buffer, placed)

    def keep_until(self, event: Any, buffer: SendBuffer) -> None:
        """Do not use a buffer again before an event of the stream."""
        with self._lock:
            self._sending.append((event, buffer))
            while self._sending and self._stream.is_done(self._sending[0][0]):
                self._sending.popleft()

    def after_fork(self) -> None:
        """Start empty in the child, which has no GPU."""
        self._local, self._lock = threading.local(), threading.Lock()
        self._sending = deque()

    def _make_buffer(self, size: int) -> SendBuffer:
        shape = (round_up_capacity(max(size, SMALL)),)
        return SendBuffer(self._blocks.allocate_array(None, shape, np.dtype(np.uint8)))


def view_like(tensor: torch.Tensor, memory: torch.Tensor, offset: int) -> torch.Tensor:
    """View uint8[bytes] from an offset on as what a tensor is: of its shape and dtype."""
    return memory[offset : offset + tensor.nbytes].view(tensor.dtype).view(tensor.shape)


def round_up(size: int) -> int:
    """Round bytes up to where the next array may begin."""
    return -(-size // _ALIGN) * _ALIGN
