"""Memory that kernels work in, one piece for each thread."""

import threading

import numpy as np

from fieldslab.reader.array import address_of


class Scratch(threading.local):
    """Grows to what was needed most, and is never shared: two threads see two of it."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def address(self, room: int) -> int:
        """The address of at least `room` bytes, which hold anything."""
        if len(self._memory) < room:
            self._memory = np.empty(room, np.uint8)
        return address_of(self._memory)
