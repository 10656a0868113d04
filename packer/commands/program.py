"""Commands by name: those of this folder, and those of other packages.

A command is a `click.Command`; `fieldslab.packer.commands.params.command` makes one of a function.
Its module is imported for `fieldslab --help`, too: what takes long to load belongs into the
function. A package offers commands under the entry point `fieldslab.commands`.
"""

from typing import Any

import click

from fieldslab.packer.commands.helptext import Command, Group
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.registry import Registry

COMMANDS = Registry(
    "command",
    "fieldslab.commands",
    {
        "pack": "fieldslab.packer.commands.pack:pack",
        "finish": "fieldslab.packer.commands.finish:finish",
        "repack": "fieldslab.packer.commands.repack:repack",
        "verify": "fieldslab.packer.commands.verify:verify",
        "repair": "fieldslab.packer.commands.repair:repair",
        "sign": "fieldslab.packer.commands.sign:sign",
        "info": "fieldslab.packer.commands.info:info",
        "head": "fieldslab.packer.commands.head:head",
        "export": "fieldslab.packer.commands.export:export",
        "copy": "fieldslab.packer.commands.copy:copy",
        "union": "fieldslab.packer.commands.union:union",
        "concat": "fieldslab.packer.commands.concat:concat",
        "cache": "fieldslab.packer.commands.cache:cache",
        "warm": "fieldslab.packer.commands.warm:warm",
        "completion": "fieldslab.packer.commands.completion:completion",
    },
)


class Program(Group):
    """The program: its commands are those of the registry, imported as they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the names of all commands: our own in their order, then others by name."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> click.Command | None:
        """Return the command of a name, or None."""
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            self.commands[cmd_name] = _load_command(cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find a command as click does; refuse an unknown name in the words of the registry."""
        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            raise COMMANDS.make_unknown_error(args[0])
        return args[0], self.get_command(ctx, args[0]), args[1:]


def _load_command(name: str) -> click.Command:
    try:
        command = COMMANDS.load(name)
        if not isinstance(command, click.Command):
            raise TypeError("it is not a click.Command")
        return command
    except Exception as error:
        if name in COMMANDS.built_in:
            raise
        return _make_failing_command(name, COMMANDS.make_broken_error(name, error))


def _make_failing_command(name: str, error: UsageError) -> click.Command:
    """Make a command in place of one that cannot be loaded; calling it raises the reason."""

    def fail() -> None:
        raise error

    why = error.problem.partition("cannot be loaded: ")[2]
    return Command(
        name,
        callback=fail,
        help=f"Cannot be loaded: {why}",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
