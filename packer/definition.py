"""Options that are said once: the command line, Python's signature and the reference follow.

A TypedDict names the options. Each member is `Annotated[type, Option(...)]`.
"""

import functools
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option, render_for_docs
from fieldslab.schemas.registry import make_unknown_name_error

_Function = TypeVar("_Function", bound=Callable[..., Any])
_PLACEHOLDER = "**options\n"
"""Ends the parameters in the docstring of a function that takes the options of a definition."""


@dataclass(frozen=True)
class Option:
    """What there is to know of an option beside its name and type.

    `help` names other options by `fieldslab.schemas.optiontext.mark_option`.
    """

    group: str
    metavar: str | None
    """Stands for the value in `--help`; None for a switch."""
    help: str
    default: Any = None
    parse: type = str
    """What the command line makes of the text."""
    repeat: bool = False
    """Whether the command line takes it several times."""
    off: str | None = None
    """Help of `--no-NAME`, if there is that switch. A value of None or False is meant."""
    python: str = ""
    """What else Python users need to know."""
    in_shell: bool = True
    former_name: str | None = None


class DefinedOption(NamedTuple):
    """An option of a definition: its type without the annotation, and what it says."""

    type: Any
    option: Option

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a Literal."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()


@functools.cache
def read_definition(definition: type) -> dict[str, DefinedOption]:
    """Read the options of a TypedDict by name, in their order."""
    hints = get_type_hints(definition, include_extras=True)
    pairs = {name: get_args(hint) for name, hint in hints.items()}
    return {name: DefinedOption(kind, described) for name, (kind, described) in pairs.items()}


def fill_defaults(definition: type, options: dict[str, Any], function: str) -> Any:
    """Return all options of a definition, with the default of each that is not given.

    Raises UsageError for an unknown one, with the nearest name or the new one.
    """
    defined = read_definition(definition)
    for name in options.keys() - defined.keys():
        error = make_unknown_name_error(f"{function} has no option {name!r}", name, defined)
        for new_name, (_, described) in defined.items():
            if described.former_name == name:
                error.hint = f"{name} is now {new_name}: {described.metavar}."
        raise error
    for name, value in options.items():
        if defined[name].option.metavar is None and not isinstance(value, bool):
            raise UsageError(f"{mark_option(name)}: must be True or False", found=repr(value))
    return {name: described.default for name, (_, described) in defined.items()} | options


def add_options(definition: type) -> Callable[[_Function], _Function]:
    """Put the options of a definition into the signature and docstring of a function.

    They take the place of `**options` in both.
    """

    def decorate(function: _Function) -> _Function:
        defined = read_definition(definition)
        signature = inspect.signature(function)
        positional = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.kind is not parameter.VAR_KEYWORD
        ]
        keywords = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=described.default, annotation=kind
            )
            for name, (kind, described) in defined.items()
        ]
        attributes: Any = function
        attributes.__signature__ = signature.replace(parameters=[*positional, *keywords])
        text = "".join(
            _document_option(name, described) for name, (_, described) in defined.items()
        )
        attributes.__doc__ = inspect.cleandoc(function.__doc__ or "").replace(_PLACEHOLDER, text)
        return function

    return decorate


def _document_option(name: str, described: Option) -> str:
    """Write the entry of an option for a docstring in numpy's style."""
    text = render_for_docs(" ".join(filter(None, [described.help, described.python])))
    lines = textwrap.wrap(text, 92, break_on_hyphens=False, break_long_words=False)
    return "\n".join([name, *(f"    {line}" for line in lines)]) + "\n"
