"""Memory between pages that nobody may touch: a read outside of it ends the process."""

import ctypes
import mmap

import numpy as np

_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Guarded:
    """Room for some bytes, which `put` places right behind or right in front of a guard."""

    def __init__(self, room: int) -> None:
        self._size = -(-room // _PAGE) * _PAGE
        self._map = mmap.mmap(-1, self._size + 2 * _PAGE)
        self._bytes = np.frombuffer(self._map, np.uint8)[_PAGE : _PAGE + self._size]
        self._base = self._bytes.ctypes.data
        for page in (self._base - _PAGE, self._base + self._size):
            if _libc.mprotect(page, _PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect failed")

    def take(self, size: int, at_end: bool, fill: int) -> np.ndarray:
        """uint8[size] full of `fill`, against the guard behind or the one in front."""
        if size > self._size:
            raise ValueError(f"no room for {size} bytes")
        first = self._size - size if at_end else 0
        taken = self._bytes[first : first + size]
        taken[:] = fill
        return taken

    def view(self, data: bytes, at_end: bool) -> np.ndarray:
        """uint8[bytes], `data` placed against the guard behind, or the one in front."""
        first = self._size - len(data) if at_end else 0
        self._bytes[:] = 0xFF
        view = self._bytes[first : first + len(data)]
        view[:] = np.frombuffer(data, np.uint8)
        return view

    def put(self, data: bytes, at_end: bool) -> int:
        """The address of `data`, placed likewise."""
        return int(self.view(data, at_end).ctypes.data)
