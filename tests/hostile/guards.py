"""Puts mapped files and new arrays of numpy between pages that nobody may touch."""

import ctypes
import os
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.schemas import arrays

_LARGEST = 2**22
"""Larger files stay mapped."""
_SET_HANDLER = 304
"""Place of PyDataMem_SetHandler in numpy's table of functions."""


def compile_guards(folder: Path) -> ctypes.CDLL:
    """Compile and load `guards.c`."""
    library = folder / "guards.so"
    source = Path(__file__).with_name("guards.c")
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True)
    guards = ctypes.CDLL(str(library))
    guards.guard_new.restype = ctypes.c_void_p
    guards.guard_new.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
    guards.guard_seal.argtypes = guards.guard_free.argtypes = (ctypes.c_void_p,)
    return guards


class _Copy:
    """A copy of a file that ends right in front of a guard, as if it were mapped there."""

    def __init__(self, guards: ctypes.CDLL, fd: int, size: int) -> None:
        self._guards, self._size = guards, size
        self._address = guards.guard_new(size, 1)
        os.preadv(fd, [(ctypes.c_char * size).from_address(self._address)], 0)
        guards.guard_seal(self._address)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        shape, data = (self._size,), (self._address, True)
        return {"version": 3, "shape": shape, "typestr": "|u1", "data": data}

    def __del__(self) -> None:
        self._guards.guard_free(self._address)


def guard_maps(guards: ctypes.CDLL) -> None:
    """Let arrays of slabs lie between guards, in this process."""
    module: Any = arrays
    map_file = module.map_file

    def map_guarded(fd: int, size: int, *others: Any) -> np.ndarray:
        if not 0 < size <= _LARGEST:
            return map_file(fd, size, *others)
        return np.asarray(_Copy(guards, fd, size))

    module.map_file = map_guarded


def guard_arrays(guards: ctypes.CDLL) -> None:
    """Let numpy take memory for new arrays of this thread from between guards."""
    python = ctypes.pythonapi
    python.PyCapsule_New.restype = ctypes.py_object
    python.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    umath: Any = import_module("numpy._core._multiarray_umath")
    table = python.PyCapsule_GetPointer(umath._ARRAY_API, None)
    functions = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(functions[_SET_HANDLER])
    handler = ctypes.addressof(ctypes.c_char.in_dll(guards, "guard_handler"))
    set_handler(python.PyCapsule_New(handler, b"mem_handler", None))
