"""What commands are made of: arguments, options in groups, and those of a definition."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import click

from fieldslab.packer.commands.helptext import Command
from fieldslab.packer.definition import read_definition
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import render_for_shell

MESSAGES = "Messages"

PATH = click.Path(readable=False)
"""Has shells complete paths; whether there is something, commands find out themselves."""


class Argument(click.Argument):
    """An argument with help; a `metavar` that ends with dots takes several values."""

    def __init__(self, name: str, metavar: str, help: str, **attributes: Any) -> None:
        attributes.setdefault("nargs", -1 if metavar.endswith("...") else 1)
        attributes.setdefault("required", True)
        super().__init__([name], metavar=metavar, **attributes)
        self.help = help


class Option(click.Option):
    """An option in a group of the help; one without a `metavar` is a switch.

    `names` are spellings, and the name of the parameter if it is another: `"--from from_"`.
    """

    def __init__(
        self,
        names: str,
        group: str,
        help: str,
        metavar: str | None = None,
        *,
        former_name: str | None = None,
        choices: Sequence[str] = (),
        shown_default: Any = None,
        **attributes: Any,
    ) -> None:
        shown_default = attributes.get("default", shown_default)
        if shown_default is not None and shown_default is not False:
            help = f"{help} Default: {shown_default}."
        if choices:
            attributes["shell_complete"] = lambda context, param, start: [
                choice for choice in choices if choice.startswith(start)
            ]
        if metavar is None:  # is_flag=False would make click take -1 for an option, not a value
            attributes["is_flag"] = True
        super().__init__(names.split(), help=help, metavar=metavar, **attributes)
        self.group = group
        self.former_name = former_name


def command(
    *params: click.Parameter, examples: str, usage: str = "[OPTIONS]"
) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function that returns the exit code, or None; its docstring is help."""

    def decorate(function: Callable[..., Any]) -> Command:
        return Command(
            function.__name__,
            callback=function,
            params=list(params),
            help=inspect.cleandoc(function.__doc__ or ""),
            epilog=examples,
            options_metavar=usage,
        )

    return decorate


def make_options(definition: type) -> list[click.Parameter]:
    """Make the command line's options from a definition."""
    params: list[click.Parameter] = []
    for name, defined in read_definition(definition).items():
        described, spelling = defined.option, name.strip("_").replace("_", "-")
        if not described.in_shell:
            continue
        if described.metavar is not None or described.off is None:
            option = Option(
                f"--{spelling} {name}",
                described.group,
                render_for_shell(described.help),
                described.metavar,
                multiple=described.repeat,
                type=None if described.metavar is None else described.parse,
                choices=defined.choices,
                shown_default=described.default or None,
                former_name=described.former_name,
            )
            params.append(option)
        if described.off is not None:
            params.append(Option(f"--no-{spelling} no_{name}", described.group, described.off))
    return params


def pop_options(definition: type, values: dict[str, Any]) -> dict[str, Any]:
    """Remove the options of a definition from the values of a command line, and return them.

    Raises UsageError where an option is both given and switched off.
    """
    options = {}
    for name, defined in read_definition(definition).items():
        value, off = values.pop(name, None), values.pop(f"no_{name}", False)
        if off and value is not None:
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag} and --no-{flag} contradict each other")
        if off:
            options[name] = False if defined.type is bool else None
        elif value is not None and value is not False and value != ():
            options[name] = value
    return options
