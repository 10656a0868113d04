"""Commands by name: those of this folder, and those of other packages.

A command is a function with typer's annotations, whose docstring is its help. `EXAMPLES` of its
module end the help, `USAGE` stands behind its name if it needs more than options. The module is
imported for `fieldslab --help`, too: what takes long to load belongs into the function. A package
offers commands under the entry point `fieldslab.commands`.
"""

import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

from fieldslab.packer.commands.helptext import Command, Group
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.registry import Registry

COMMANDS = Registry(
    "command",
    "fieldslab.commands",
    {
        "pack": "fieldslab.packer.commands.pack:pack",
        "verify": "fieldslab.packer.commands.verify:verify",
        "info": "fieldslab.packer.commands.info:info",
        "head": "fieldslab.packer.commands.head:head",
        "completion": "fieldslab.packer.commands.completion:completion",
    },
)


class Program(Group):
    """The program: its commands are those of the registry, imported as they are asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands: our own in their order, then others by name."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name, or None."""
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As click's, with the words of the registry for a name that is not there."""
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            raise COMMANDS.unknown(args[0])
        return super().resolve_command(ctx, args)


def _load(name: str) -> TyperCommand:
    try:
        function = COMMANDS.load(name)
        module = vars(sys.modules[function.__module__])
        return _command(
            name,
            function,
            cls=Command,
            epilog=module.get("EXAMPLES"),
            options_metavar=module.get("USAGE", "[OPTIONS]"),
        )
    except Exception as error:
        if name in COMMANDS.built_in:
            raise
        return _broken(name, COMMANDS.broken(name, error))


def _command(name: str, function: Callable[..., Any], **settings: Any) -> TyperCommand:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name, **settings)(function)
    found: Any = typer.main.get_command(app)
    return found


def _broken(name: str, error: UsageError) -> TyperCommand:
    """A stand-in for a command that cannot be loaded: it raises the reason when it is called."""

    def fail() -> None:
        raise error

    why = error.problem.partition("cannot be loaded: ")[2]
    return _command(
        name,
        fail,
        cls=Command,
        help=f"Cannot be loaded: {why}",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
