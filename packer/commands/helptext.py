"""What `--help` prints: usage, a paragraph or two, options in groups, examples."""

import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from typer.core import TyperCommand, TyperGroup

from fieldslab.packer.commands.terminal import width_of

_LONGEST = 100
_OPTION_WIDTH = 24
"""An option that is longer has its help on the lines below."""


class Command(TyperCommand):
    """A command with our help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of this command."""
        formatter.write("\n".join(_help_lines(self, ctx)) + "\n")


class Group(TyperGroup):
    """The program: the group of its commands, with our help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the program."""
        formatter.write("\n".join(_help_lines(self, ctx)) + "\n")


def _help_lines(command: Any, ctx: Any) -> Iterator[str]:
    width = min(width_of(sys.stdout) or 80, _LONGEST)
    arguments = [one for one in command.get_params(ctx) if one.param_type_name == "argument"]
    options = [one for one in command.get_params(ctx) if one.param_type_name == "option"]
    usage = [command.options_metavar, *(one.metavar for one in arguments)]
    if isinstance(command, Group):
        usage = ["COMMAND ...", *usage]
    yield f"Usage: {ctx.command_path} {' '.join(usage)}"
    for paragraph in (command.help or "").split("\n\n"):
        yield ""
        yield from textwrap.wrap(paragraph, width)
    if isinstance(command, Group):
        entries = []
        for name in command.list_commands(ctx):
            one: Any = command.get_command(ctx, name)
            entries.append((name, (one.help or "").split("\n\n")[0]))
        yield from _section("Commands", entries, width)
    groups: dict[str, list[tuple[str, str]]] = {}
    for one in arguments:
        groups.setdefault("Arguments", []).append((one.metavar, one.help))
    for one in options:
        name = getattr(one, "rich_help_panel", None) or "Options"
        groups.setdefault(name, []).append((_spelling(one), one.help))
    for title, entries in groups.items():
        yield from _section(title, entries, width)
    if command.epilog:
        yield ""
        yield from command.epilog.splitlines()


def _spelling(option: Any) -> str:
    """`-o, --output OUT`."""
    names = ", ".join(sorted(option.opts, key=len))
    return names if option.is_flag or option.metavar is None else f"{names} {option.metavar}"


def _section(title: str, entries: list[tuple[str, str]], width: int) -> Iterator[str]:
    yield ""
    yield f"{title}:"
    column = min(max(len(name) for name, _ in entries), _OPTION_WIDTH)
    indent = " " * (column + 4)
    for name, text in entries:
        lines = textwrap.wrap(text, width - len(indent), break_on_hyphens=False)
        if len(name) > column:
            yield f"  {name}"
        else:
            yield f"  {name:<{column}}  {lines.pop(0)}"
        yield from (indent + line for line in lines)
