"""Subinterpreters, in which slabs cannot be read.

When a process ends, CPython clears the subinterpreters that are left after it has stopped handing
out its lock: whatever lets go of that lock as it dies, such as an open file or a map, ends the main
thread there, and where a library has threads of its own, as numpy has, the process never ends.
"""

import importlib
from functools import cache

from fieldslab.schemas.errors import UsageError


@cache
def check_interpreter() -> None:
    """Raise UsageError in a subinterpreter."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # from Python 3.13 on, and before
        try:
            interpreters = importlib.import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise UsageError(
                "a slab cannot be read in a subinterpreter: numpy does not support them, and the "
                "process would not end",
                hint="Read it in the main interpreter: in threads, or in processes.",
            )
