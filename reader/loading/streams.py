"""Where batches are sent: a GPU, by a stream beside the one that computes, or the processor.

This is all that needs `torch.cuda`. On a GPU it was never run so far.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch


class Stream(Protocol):
    """A queue of work on a device."""

    device: torch.device

    def allocate_block(self, size: int) -> memoryview:
        """Allocate memory of the processor that the device can read by itself."""

    def activate(self) -> AbstractContextManager[Any]:
        """Have the work of this thread go to this queue."""

    def record_event(self) -> Any:
        """Mark the end of the work that is in the queue."""

    def is_done(self, event: Any) -> bool:
        """Return whether the work up to a mark is done."""

    def hand_over(self, event: Any, tensors: Iterable[torch.Tensor]) -> None:
        """Let the work that this thread asks for next wait for a mark, and use the tensors."""


class ProcessorStream:
    """Work is done at once: for tests, and for programs that run without a GPU as well."""

    device = torch.device("cpu")

    def allocate_block(self, size: int) -> memoryview:
        """See `Stream`."""
        return memoryview(bytearray(size))

    def activate(self) -> AbstractContextManager[Any]:
        """See `Stream`."""
        return nullcontext()

    def record_event(self) -> Any:
        """See `Stream`."""
        return None

    def is_done(self, event: Any) -> bool:
        """See `Stream`."""
        return True

    def hand_over(self, event: Any, tensors: Iterable[torch.Tensor]) -> None:
        """See `Stream`."""


class CudaStream:
    """A stream of its own on a GPU, so that copies go on while training computes."""

    def __init__(self, name: str) -> None:
        device = torch.device(name)
        with torch.cuda.device(device):  # without a number, the current one
            self.device = torch.device("cuda", torch.cuda.current_device())
        self._stream: Any = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def allocate_block(self, size: int) -> memoryview:
        """See `Stream`."""
        block: Any = torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
        return memoryview(block)

    def activate(self) -> AbstractContextManager[Any]:
        """See `Stream`."""
        return torch.cuda.stream(self._stream)

    def record_event(self) -> Any:
        """See `Stream`."""
        return self._stream.record_event()

    def is_done(self, event: Any) -> bool:
        """See `Stream`."""
        return bool(event.query())

    def hand_over(self, event: Any, tensors: Iterable[torch.Tensor]) -> None:
        """See `Stream`."""
        current = torch.cuda.current_stream(self.device)
        current.wait_event(event)
        for tensor in tensors:  # or their memory would be used again while it is read
            tensor.record_stream(current)


def open_stream(name: str) -> Stream:
    """Open a stream on a device that torch knows by this name."""
    return CudaStream(name) if torch.device(name).type == "cuda" else ProcessorStream()
