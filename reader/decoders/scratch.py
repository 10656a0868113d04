"""Memory that kernels work in, one piece for each thread."""

import threading

import numpy as np

from fieldslab.schemas.mapping import get_address

KEPT = 2**26
"""Bytes that a thread keeps from batch to batch; what a giant picture needs is given back."""


class ThreadScratch(threading.local):
    """Grows to what was needed most, and is never shared: two threads see two of it."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def get_address(self, room: int) -> int:
        """Return the address of at least `room` bytes of uninitialised memory."""
        if len(self._memory) < room:
            self._memory = np.empty(room, np.uint8)
        return get_address(self._memory)

    def trim(self) -> None:
        """Give back what is too much to be kept; what was in it is lost."""
        if len(self._memory) > KEPT:
            self._memory = np.empty(0, np.uint8)
