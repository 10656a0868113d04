"""Public names of earlier releases: refused for one release, with a hint at today's name.

Remove an entry one release after the release that renamed it.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from fieldslab.schemas.errors import UsageError

_P = ParamSpec("_P")
_R = TypeVar("_R")

NAMES = {
    "fieldslab.packer": {"Packed": "PackResult"},
    "fieldslab.packer.source": {"Hint": "ColumnHint"},
    "fieldslab.reader.decoders.decoder": {"Encoded": "EncodedImages"},
    "fieldslab.reader": {"Images": "ImageSteps", "Packed": "VarLenValues"},
}
"""Classes and functions of a module: old name and new name."""

PARAMETERS = {
    "ImageSteps.__init__": {
        "failures": "`on_error=`",
        "boxes": "`crop_boxes=`",
        "exif": "`apply_exif=`",
    },
    "Normalize.__init__": {"field": "`Standardize(field, mean, std)`"},
}
"""Parameters of a function: old name, and what to write now."""

METHODS = {
    "fieldslab.packer.source.Source": {"check_unchosen": "check_default_columns"},
    "fieldslab.reader.transforms.transform.Transform": {
        "impossible": "explain_misfit",
        "makes": "list_outputs",
    },
}
"""Methods that a subclass may override: old name and new name."""


def refuse_renamed_name(module: str, name: str) -> None:
    """Raise UsageError if a module had a class or function of this name; for its `__getattr__`."""
    if name in NAMES.get(module, {}):
        raise UsageError(f"`{name}` is now `{NAMES[module][name]}`")


def refuse_renamed_parameters(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function of `PARAMETERS`: an old parameter raises UsageError."""
    renamed = PARAMETERS[function.__qualname__]

    @wraps(function)
    def check_and_call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name in renamed.keys() & kwargs.keys():
            raise UsageError(f"`{name}=` is now {renamed[name]}")
        return function(*args, **kwargs)

    return check_and_call


def refuse_renamed_methods(base: type, cls: type) -> None:
    """Raise UsageError if `cls` overrides a method of `base` by an old name."""
    for old, new in METHODS[f"{base.__module__}.{base.__qualname__}"].items():
        if old in vars(cls):
            raise UsageError(f"{cls.__name__}: `{old}` is now `{new}`")
