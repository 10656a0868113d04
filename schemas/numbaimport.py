"""Numba, imported so that no file of the working directory decides anything.

Numba reads `.numba_config.yaml` wherever a program happens to run: as it is imported, and again as
it compiles. Such a file, in a folder that was downloaded, could name the cache from which numba
unpickles code. Everything that needs numba takes it from here or from `schemas.jit`. Settings in
the environment (NUMBA_*) are the user's own, and count.
"""

import importlib
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType
from typing import Any

_CONFIG, _FILE = "numba.core.config", ".numba_config.yaml"


class _Finder:
    """Finds the module in which numba names its file, and has it name none."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """As `importlib.abc.MetaPathFinder.find_spec`."""
        spec = PathFinder.find_spec(name, path, target) if name == _CONFIG else None
        if spec is not None:
            loader: Any = spec.loader
            read = loader.get_code
            loader.get_code = lambda module: _without_file(read(module))
        return spec


def _without_file(code: CodeType) -> CodeType:
    constants = tuple("" if constant == _FILE else constant for constant in code.co_consts)
    return code.replace(co_consts=constants)


def _import_numba() -> Any:
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        numba = importlib.import_module("numba")
    finally:
        sys.meta_path.remove(finder)
    # Where the program imported numba first, what the file said then is the program's own affair;
    # it is not read again, in whatever directory the program is by now.
    config = numba.core.config
    config._config_fname = ""
    settings = {name: text for name, text in os.environ.items() if name.startswith("NUMBA_")}
    config._env_reloader.old_environ = settings
    importlib.import_module("numba.extending")
    return numba


numba = _import_numba()
