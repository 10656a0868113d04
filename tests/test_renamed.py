"""Names of earlier releases: refused for one release, with today's name."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from fieldslab.reader import ImageSteps, Normalize, Resize
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.renamed import METHODS, NAMES, PARAMETERS

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ImageSteps.__init__": lambda **old: ImageSteps([Resize(4)], **old),
    "Normalize.__init__": Normalize,
}


@pytest.mark.parametrize(
    ("module", "old"), [(module, old) for module, names in NAMES.items() for old in names]
)
def test_old_names_are_refused_with_the_new_one(module: str, old: str) -> None:
    """Importing an old name says what it is called now, and that name exists."""
    new = NAMES[module][old]
    with pytest.raises(UsageError, match=f"`{old}` is now `{new}`"):
        exec(f"from {module} import {old}")  # noqa: S102 - the statement that users have
    assert hasattr(import_module(module), new)
    assert new in getattr(import_module(module), "__all__", [new])


@pytest.mark.parametrize(
    ("function", "old"), [(name, old) for name, names in PARAMETERS.items() for old in names]
)
def test_old_parameters_are_refused_with_the_new_one(function: str, old: str) -> None:
    """Passing an old parameter says what to write now, whatever its value is."""
    for value in (None, True, "x"):
        with pytest.raises(UsageError) as caught:
            FUNCTIONS[function](**{old: value})
        assert f"`{old}=` is now {PARAMETERS[function][old]}" in str(caught.value)


def test_a_field_for_normalize_is_told_of_standardize() -> None:
    """`Normalize("x", 1, 2)` was a transform; the error names the class for it."""
    with pytest.raises(UsageError, match=r"Standardize\(field, mean, std\)"):
        Normalize("x", 1, 2)


def test_unknown_names_stay_attribute_errors() -> None:
    """A name that never was is missing as from any module."""
    for module in NAMES:
        assert not hasattr(import_module(module), "Pakced")


@pytest.mark.parametrize(
    ("base", "old"), [(base, old) for base, names in METHODS.items() for old in names]
)
def test_old_methods_are_refused_with_the_new_one(base: str, old: str) -> None:
    """A subclass that overrides a method by its old name is told the new one, which exists."""
    module, _, name = base.rpartition(".")
    cls, new = getattr(import_module(module), name), METHODS[base][old]
    with pytest.raises(UsageError, match=f"Plugin: `{old}` is now `{new}`"):
        type("Plugin", (cls,), {old: lambda self: None})
    assert callable(getattr(cls, new))
