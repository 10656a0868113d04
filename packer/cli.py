"""The command line: `fieldslab pack`, `verify`, `info`, `head`, and those of entry points.

What a command needs is imported inside it: `fieldslab --help` loads neither pyarrow nor numba.
"""

import difflib
import os
import sys
from collections.abc import Sequence

import click

from fieldslab.packer.commands import completion, events
from fieldslab.packer.commands.params import Option
from fieldslab.packer.commands.program import Program
from fieldslab.packer.commands.terminal import run_guarded
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.version import get_installed_version

EXIT_CODES = """\
Exit codes:
  0    all is well
  1    damage was found, or slab and source differ
  2    the command line is wrong
  3    missing, not readable, or not a slab
  4    the source cannot be packed as it is
  5    the slab cannot be written: it exists, or there is no space
  70   a bug in fieldslab: please report it
  130  interrupted; packing goes on where it was when it is run again
  141  whoever read the output closed it"""


def _show_help(version: bool) -> int:
    """Without a command, print the version or the help."""
    context = click.get_current_context()
    if version:
        print(f"fieldslab {get_installed_version()}")
    elif context.invoked_subcommand is None:
        click.echo(context.get_help())
        return UsageError.exit_code
    return 0


program = Program(
    "fieldslab",
    callback=_show_help,
    params=[Option("--version", "Options", "Show the version.")],
    help="""\
Pack a dataset once, then gather any batch of rows, in any order, at the speed of memcpy.

A packed dataset is a slab: a directory in which every field of every row lies in plain .npy
files, indexed and checksummed.""",
    epilog=EXIT_CODES,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code."""

    def run_program() -> int:
        if (instruction := completion.read_completion_request()) is not None:
            return completion.print_completion(program, instruction)
        _refuse_repeated_options(arguments)
        color = False if os.environ.get("NO_COLOR") else None
        try:
            with program.make_context("fieldslab", list(arguments), color=color) as context:
                code = program.invoke(context)
        except click.exceptions.Exit as error:
            return error.exit_code
        except click.ClickException as error:
            raise _convert_click_error(error) from error
        return code if isinstance(code, int) else 0

    return run_guarded(
        run_program,
        as_json=_has_json_option(arguments),
        as_events=events.has_events_option(arguments),
    )


def _find_params(arguments: Sequence[str]) -> Sequence[click.Parameter]:
    """Arguments and options of the command that a command line names."""
    command = program.get_command(None, arguments[0]) if arguments else None
    return () if command is None else command.params


def _has_json_option(arguments: Sequence[str]) -> bool:
    """Return True if `--json` means that JSON is printed, not written to a file."""
    words = [*arguments, ""]
    if "--json=-" in words:
        return True
    if "--json" not in words:
        return False
    options = [param for param in _find_params(arguments) if "--json" in param.opts]
    flags = all(isinstance(option, click.Option) and option.is_flag for option in options)
    return flags or words[words.index("--json") + 1] == "-"


def _refuse_repeated_options(arguments: Sequence[str]) -> None:
    """Raise UsageError where an option that takes one value has two: only the last would count."""
    words = [argument.partition("=")[0] for argument in arguments]
    for param in _find_params(arguments):
        if not isinstance(param, click.Option) or param.multiple or param.is_flag:
            continue
        if sum(word in param.opts for word in words) > 1:
            raise UsageError(f"{param.opts[0]}: given twice", hint="It takes one value.")


def _convert_click_error(error: click.ClickException) -> UsageError:
    """Click's complaint about a command line in our words."""
    context = getattr(error, "ctx", None)
    path, params = "fieldslab", []
    if context is not None:
        path, params = context.command_path, context.command.params
    hint = f"{path} --help lists the options."
    text = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.NoSuchOption):
        text = f"no such option: {error.option_name}"
        # Click counts the dashes, too, which all options share.
        names = {option.lstrip("-"): option for option in error.possibilities or ()}
        close = difflib.get_close_matches(error.option_name.lstrip("-"), names, 1)
        if close:
            hint = f"Did you mean {names[close[0]]}? {hint}"
        for param in params:
            former_name = getattr(param, "former_name", None)
            if former_name and error.option_name == f"--{former_name.replace('_', '-')}":
                hint = f"It is now {param.opts[0]} {param.metavar}."
    return UsageError(text[:1].lower() + text[1:], hint=hint)
