"""Machine code of kernels, loaded by LLVM: neither numba nor its compiler is imported for it.

An object file has one function that Python calls as it calls those written in C, see
`schemas.compiling`. It may call what stands in CALLS, and the mathematics of the C library.
"""

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from fieldslab.schemas.system import call_after_fork

CALLS = (
    "PyBool_FromLong",
    "PyBuffer_Release",
    "PyErr_BadArgument",
    "PyErr_NoMemory",
    "PyErr_Occurred",
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyFloat_AsDouble",
    "PyFloat_FromDouble",
    "PyLong_AsLongLong",
    "PyLong_AsUnsignedLongLongMask",
    "PyLong_FromLongLong",
    "PyLong_FromUnsignedLongLong",
    "PyMem_RawFree",
    "PyMem_RawMalloc",
    "PyObject_GetBuffer",
    "PyObject_IsTrue",
    "PyTuple_GetItem",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyTuple_Size",
    "Py_BuildValue",
)
"""Functions of Python that machine code calls, all of its stable interface."""

_METH_FASTCALL = 0x80


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _LinkLock:
    """The lock under which LLVM links; a new one in forked children."""

    def __init__(self) -> None:
        self.lock = threading.RLock()


loading = _LinkLock()
"""Holds the lock under which code is compiled and loaded."""
call_after_fork(loading.__init__)  # type: ignore[misc]
_loaded: list[_MethodDef] = []
"""Python's functions refer to these for as long as they live."""


def load_function(code: bytes, symbol: str) -> Callable[..., Any]:
    """Make a function of an object file callable.

    Parameters
    ----------
    code
        The object file. It runs: it comes from the user or from an installed package.
    symbol
        Name of the function.
    """
    with loading.lock:
        engine = _start_engine()
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        address = engine.get_function_address(symbol)
    method = _MethodDef(symbol.encode(), address, _METH_FASTCALL, None)
    _loaded.append(method)
    return _make_function(ctypes.byref(method), None, None)


@cache
def _start_engine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name in CALLS:
        address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        llvm.add_symbol(name, address)
    machine = llvm.Target.from_default_triple().create_target_machine()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


_make_function: Any = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)(("PyCFunction_NewEx", ctypes.pythonapi))
