"""The command line: `fieldslab pack`, `verify`, `info`, `head`, and those of entry points.

What a command needs is imported inside it: `fieldslab --help` loads neither pyarrow nor numba.
"""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from fieldslab.packer.commands import completion, events
from fieldslab.packer.commands.program import Program
from fieldslab.packer.commands.terminal import guarded
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.version import installed_version

# Typer's own usage errors: where they live has changed between its releases, that they are the
# base of BadParameter has not.
_TyperUsageError: type[Exception] = typer.BadParameter.__bases__[0]

_EXIT_CODES = """\
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

app = typer.Typer(
    cls=Program,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=_EXIT_CODES,
    options_metavar="[OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code."""

    group = typer.main.get_command(app)

    def command() -> int:
        if completion.asked_for():
            return completion.complete(group)
        _check_given_once(group, arguments)
        try:
            with group.make_context("fieldslab", list(arguments)) as context:
                group.invoke(context)
        except typer.Exit as done:
            return done.exit_code
        except _TyperUsageError as error:
            raise _usage_error(error) from error
        return 0

    as_json = _wants_json(group, arguments)
    return guarded(command, as_json=as_json, as_events=events.wanted(arguments))


def _wants_json(group: Any, arguments: Sequence[str]) -> bool:
    """Whether `--json` is there and means that JSON is printed, not written to a file."""
    words = [*arguments, ""]
    if "--json=-" in words:
        return True
    if "--json" not in words:
        return False
    command = group.get_command(None, arguments[0])
    options = [option for option in getattr(command, "params", []) if "--json" in option.opts]
    return all(option.is_flag for option in options) or words[words.index("--json") + 1] == "-"


def _check_given_once(group: Any, arguments: Sequence[str]) -> None:
    """Raise UsageError where an option that takes one value has two: only the last would count."""
    command = group.get_command(None, arguments[0]) if arguments else None
    words = [argument.partition("=")[0] for argument in arguments]
    for one in getattr(command, "params", []):
        if one.param_type_name != "option" or one.multiple or one.is_flag:
            continue
        if sum(word in one.opts for word in words) > 1:
            raise UsageError(f"{one.opts[0]}: given twice", hint="It takes one value.")


def _usage_error(error: Exception) -> UsageError:
    """Typer's complaint about a command line in our words."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "fieldslab"
    text = str(getattr(error, "format_message", error.__str__)()).rstrip(".")
    return UsageError(text[:1].lower() + text[1:], hint=f"{path} --help lists what there is.")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fieldslab {installed_version()}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def fieldslab(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Pack a dataset once, then gather any batch of rows, in any order, at the speed of memcpy.

    A packed dataset is a slab: a directory in which every field of every row lies in plain .npy
    files, indexed and checksummed.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(UsageError.exit_code)
