"""Parts of the reference that are written by the program itself, so that they cannot diverge.

A page names one in a comment, `<!-- generated: commands -->`, and Sphinx puts it there.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from fieldslab.bench.peers import faults
from fieldslab.packer.cli import EXIT_CODES, program
from fieldslab.packer.commands.helptext import format_usage, group_params
from fieldslab.packer.commands.text_format import format_count
from fieldslab.schemas import errors

CAMPAIGNS = Path(__file__).parents[1] / "bench" / "results" / "campaigns.json"
MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def commands() -> str:
    """Every command with its arguments, options and examples."""
    context = click.Context(program, info_name="fieldslab")
    parts = [
        "\n".join(_command(name, program.get_command(context, name), context))
        for name in program.list_commands(context)
    ]
    return "\n\n".join(parts)


def _command(name: str, command: Any, context: click.Context) -> Iterator[str]:
    """A command as Markdown: options as definition lists, which fit on a phone."""
    yield f"## fieldslab {name}"
    yield f"\n```text\nfieldslab {name} {format_usage(command)}\n```\n"
    yield _escaped(command.help or "")
    for title, entries in group_params(command, context).items():
        yield f"\n### {name}: {title[:1].lower()}{title[1:]}\n"
        for spelling, text in entries:
            yield f"`{spelling}`\n: {_escaped(text)}\n"
    if command.epilog:
        lines = [line.strip() for line in command.epilog.splitlines()[1:]]
        yield "\nExamples:\n\n```sh\n" + "\n".join(lines) + "\n```"


def _escaped(text: str) -> str:
    """Plain help text as Markdown: `'x:pad=0'` as code, stars and brackets as they are."""
    text = re.sub(r"'([^' ][^']*)'", r"`\1`", text)
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([*_<>\[\]])", r"\\\1", piece)
        for piece in pieces
    )


def exit_codes() -> str:
    """The table of exit codes, as `fieldslab --help` ends with it."""
    rows = re.findall(r"^  (\d+) +(.+)$", EXIT_CODES, re.MULTILINE)
    return "\n".join(["| code | meaning |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])


def exceptions() -> str:
    """The tree of exceptions, each with its exit code."""
    return "\n".join(_exceptions(errors.FieldslabError, 0))


def _exceptions(error: type[errors.FieldslabError], depth: int) -> Iterator[str]:
    bases = [base.__name__ for base in error.__bases__ if base.__module__ == "builtins"]
    also = f" Also caught as `{bases[0]}`." if bases and bases[0] != "Exception" else ""
    summary = (error.__doc__ or "").partition("\n")[0]
    code = "" if depth == 0 else f" (exit code {error.exit_code})"
    yield f"{'  ' * depth}- `{error.__name__}`{code}: {_escaped(summary)}{also}"
    for child in error.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _exceptions(child, depth + 1)


def campaigns() -> str:
    """The table of campaigns, as they were published last."""
    lines = [
        "| campaign | what must hold in every case | tried | failed | mended | when, and where |",
        "|---|---|--:|--:|--:|---|",
    ]
    for name, figures in json.loads(CAMPAIGNS.read_text("utf-8")).items():
        lines.append(
            f"| `make campaign-{name}` | {_escaped(figures['goal'])} | {_say_tried(figures)} | "
            f"{figures['failed']:,} | {figures['mended']:,} | {figures['date']}, "
            f"{format_count(round(figures['minutes']), 'minute')}, {figures['machine']} |"
        )
    return "\n".join(lines)


def _say_tried(figures: dict[str, Any]) -> str:
    """How many cases were tried, of how many, where a campaign knows all that there are."""
    totals = figures.get("totals", {})
    shares = [
        f"{name}: {figures['counts'].get(name, 0):,} of {total:,}"
        for name, total in totals.items()
        if name != "cases"
    ]
    tried = f"{figures['tried']:,}"
    return f"{tried} of {totals['cases']:,} ({'; '.join(shares)})" if totals else tried


PARTS = {
    "campaigns": campaigns,
    "commands": commands,
    "exit_codes": exit_codes,
    "exceptions": exceptions,
    "faults": faults.table,
}


def fill(source: str) -> str:
    """A page with its generated parts in place of their marks."""
    return MARK.sub(lambda mark: PARTS[mark[1]](), source)


def _on_source_read(_app: Any, _name: str, source: list[str]) -> None:
    source[0] = fill(source[0])


def _on_docstring(_app: Any, _what: str, _name: str, _of: Any, _options: Any, lines: Any) -> None:
    """Take stars in shapes, such as `*shape`, as they are: docstrings emphasise nothing."""
    for number, line in enumerate(lines):
        pieces = line.split("`")  # every other one is code
        pieces[::2] = [piece.replace("*", r"\*") for piece in pieces[::2]]
        lines[number] = "`".join(pieces)


def setup(sphinx: Any) -> dict[str, bool]:
    """Connect with Sphinx."""
    sphinx.connect("source-read", _on_source_read)
    sphinx.connect("autodoc-process-docstring", _on_docstring, priority=100)
    return {"parallel_read_safe": True}
