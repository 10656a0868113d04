"""Numba, imported so that no file of the working directory decides anything.

Numba reads `.numba_config.yaml` wherever a program happens to run: as it is imported, and again as
it compiles. Such a file, in a folder that was downloaded, could name the cache from which numba
unpickles code. Everything that needs numba takes it from here or from `schemas.jit`. Settings in
the environment (NUMBA_*) are the user's own, and count.
"""

import importlib
import os
from types import CodeType
from typing import Any

from fieldslab.schemas.imports import import_edited

_CONFIG, _FILE = "numba.core.config", ".numba_config.yaml"


def _remove_file_name(loader: Any) -> CodeType:
    """Compile numba's configuration module without the name of its file, which is then not read."""
    code: CodeType = loader.get_code(_CONFIG)
    constants = tuple("" if constant == _FILE else constant for constant in code.co_consts)
    return code.replace(co_consts=constants)


def _import_numba() -> Any:
    numba = import_edited("numba", _CONFIG, _remove_file_name)
    # Where the program imported numba first, what the file said then is the program's own affair;
    # it is not read again, in whatever directory the program is by now.
    config = numba.core.config
    config._config_fname = ""
    settings = {name: text for name, text in os.environ.items() if name.startswith("NUMBA_")}
    config._env_reloader.old_environ = settings
    importlib.import_module("numba.extending")
    return numba


numba = _import_numba()
