"""Libraries imported so that no file of the working directory decides anything.

Some read a file of settings wherever a program happens to run, and no option of theirs forbids
it. In a folder that was downloaded, such a file is data.
"""

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType
from typing import Any


def import_edited(library: str, module: str, edit: Callable[[Any], CodeType]) -> Any:
    """Import a library with one of its modules changed.

    Parameters
    ----------
    library
        What is imported; if it is already, nothing happens.
    module
        Which module of it is changed as it is imported.
    edit
        Makes the code of that module, given the loader that would have made it.
    """
    finder = _Finder(module, edit)
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module(library)
    finally:
        sys.meta_path.remove(finder)


class _Finder:
    """Finds one module, and lets the caller change how its code is made."""

    def __init__(self, module: str, edit: Callable[[Any], CodeType]) -> None:
        self._module = module
        self._edit = edit

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find a module; see `importlib.abc.MetaPathFinder.find_spec`."""
        spec = PathFinder.find_spec(name, path, target) if name == self._module else None
        if spec is not None:
            loader: Any = spec.loader
            code = self._edit(loader)
            loader.get_code = lambda _: code
        return spec
