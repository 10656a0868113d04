"""Further commands, from outside this folder and from other packages.

A package offers one under the entry point `fieldslab.commands`: its name, and a function with
typer's annotations, whose docstring is its help. `EXAMPLES` of its module end the help. The module
is imported for `fieldslab --help`, too: what takes long to load belongs into the function.
"""

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperCommand

from fieldslab.packer.commands.helptext import Command, Group
from fieldslab.schemas.errors import UsageError

ENTRY_POINT = "fieldslab.commands"


class PluginGroup(Group):
    """The program: its own commands, and behind them those of entry points."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands: our own in their order, then others by name."""
        own = super().list_commands(ctx)
        return [*own, *sorted({point.name for point in entry_points(group=ENTRY_POINT)} - {*own})]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name, or None. No entry point takes the place of our own."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        return next(_loaded(cmd_name), None)


def _loaded(name: str) -> Iterator[TyperCommand]:
    for point in entry_points(group=ENTRY_POINT, name=name):
        try:
            function = point.load()
            examples = getattr(sys.modules[function.__module__], "EXAMPLES", None)
            yield _command(name, function, cls=Command, epilog=examples)
        except Exception as error:  # noqa: BLE001  # whatever foreign code raises as it is imported
            yield _broken(point, error)


def _command(name: str, function: Callable[..., Any], **settings: Any) -> TyperCommand:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, **settings)(function)
    found: Any = typer.main.get_command(app)
    return found


def _broken(point: EntryPoint, error: Exception) -> TyperCommand:
    """A command that says why it is none, to whoever calls it."""
    why = f"{type(error).__name__}: {error}"
    package = point.dist.name if point.dist is not None else "?"

    def fail() -> None:
        raise UsageError(
            f"the command {point.name!r} cannot be loaded: {why}",
            found=f"entry point {point.value} of {package}",
            hint=f"Install {package} again, with what it needs, or remove it.",
        ) from error

    return _command(
        point.name, fail, cls=Command, help=f"Cannot be loaded: {why}", add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )  # fmt: skip
