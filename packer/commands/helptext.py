"""What `--help` prints: usage, a paragraph or two, options in groups, examples."""

import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import click

from fieldslab.packer.commands.terminal import get_terminal_width

_LONGEST = 100
_OPTION_WIDTH = 24
"""An option that is longer has its help on the lines below."""


class Command(click.Command):
    """A command with our help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of this command."""
        formatter.write("\n".join(_format_help_lines(self, ctx)) + "\n")


class Group(click.Group):
    """The program: the group of its commands, with our help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the program."""
        formatter.write("\n".join(_format_help_lines(self, ctx)) + "\n")


def group_params(command: click.Command, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
    """Return the arguments and options of a command by group: pairs of spelling and help."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        title, spelling, described = "Arguments", param.metavar or param.human_readable_name, ""
        if isinstance(param, click.Option):
            names = ", ".join(sorted(param.opts, key=len))
            title = getattr(param, "group", "Options")
            spelling = names if param.is_flag else f"{names} {param.metavar or 'VALUE'}"
        described = getattr(param, "help", None) or ""
        groups.setdefault(title, []).append((spelling, described))
    return groups


def format_usage(command: click.Command) -> str:
    """Format the options and arguments that follow the name of a command."""
    arguments = [param.metavar for param in command.params if isinstance(param, click.Argument)]
    return " ".join(filter(None, [command.options_metavar, *arguments]))


def _format_help_lines(command: click.Command, ctx: click.Context) -> Iterator[str]:
    width = min(get_terminal_width(sys.stdout) or 80, _LONGEST)
    subcommands = "COMMAND ... " if isinstance(command, click.Group) else ""
    yield f"{_style_title('Usage')} {ctx.command_path} {subcommands}{format_usage(command)}"
    for paragraph in (command.help or "").split("\n\n"):
        yield ""
        yield from textwrap.wrap(paragraph, width)
    if isinstance(command, click.Group):
        entries = []
        for name in command.list_commands(ctx):
            subcommand: Any = command.get_command(ctx, name)
            entries.append((name, (subcommand.help or "").split("\n\n")[0]))
        yield from _format_section("Commands", entries, width)
    for title, entries in group_params(command, ctx).items():
        yield from _format_section(title, entries, width)
    for number, line in enumerate((command.epilog or "").splitlines()):
        if number == 0:
            yield ""
        yield _style_title(line[:-1]) if line.endswith(":") else line


def _format_section(title: str, entries: list[tuple[str, str]], width: int) -> Iterator[str]:
    yield ""
    yield _style_title(title)
    column = min(max(len(name) for name, _ in entries), _OPTION_WIDTH)
    indent = " " * (column + 4)
    for name, text in entries:
        lines = textwrap.wrap(text, width - len(indent), break_on_hyphens=False)
        beside = lines.pop(0) if lines and len(name) <= column else ""
        spaces = " " * (column - len(name))
        yield f"  {click.style(name, fg='cyan')}{spaces}  {beside}".rstrip()
        yield from (indent + line for line in lines)


def _style_title(text: str) -> str:
    return click.style(f"{text}:", bold=True)
