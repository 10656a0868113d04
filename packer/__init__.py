"""Offline: sources in, slab out, and the checks on it.

`pack` and `verify` are loaded when they are first used: `fieldslab --help` need not wait for
pyarrow, nor `fieldslab verify`.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fieldslab.packer.findings import Problem, Report
    from fieldslab.packer.pack import Packed, pack
    from fieldslab.packer.verify import verify

__all__ = ["Packed", "Problem", "Report", "pack", "verify"]

_HOMES = {
    "Packed": "fieldslab.packer.pack",
    "Problem": "fieldslab.packer.findings",
    "Report": "fieldslab.packer.findings",
    "pack": "fieldslab.packer.pack",
    "verify": "fieldslab.packer.verify",
}


class _Package(ModuleType):
    """This package: `pack` and `verify` name the functions, never the modules they live in."""

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = getattr(import_module(_HOMES[name]), name)
        super().__setattr__(name, found)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
