"""`fieldslab completion`, and what the script that it prints asks for at every Tab."""

import os
from typing import Annotated, Any

import typer
from typer import completion as typer_completion

from fieldslab.schemas.errors import UsageError

ASKED = "_FIELDSLAB_COMPLETE"
"""Environment variable by which a shell asks for completions instead of running a command."""
SHELLS = ("bash", "zsh", "fish")

EXAMPLES = """\
Examples:
  eval "$(fieldslab completion bash)"                          in ~/.bashrc
  eval "$(fieldslab completion zsh)"                           in ~/.zshrc, behind compinit
  fieldslab completion fish > ~/.config/fish/completions/fieldslab.fish"""


def completion(
    context: typer.Context,
    shell: Annotated[
        str,
        typer.Argument(
            metavar="SHELL",
            help="bash, zsh or fish.",
            autocompletion=lambda: list(SHELLS),
        ),
    ],
) -> None:
    """Print a script with which a shell completes commands and options."""
    if shell not in SHELLS:
        raise UsageError("no completion for this shell", found=shell, expected=", ".join(SHELLS))
    _complete(context.find_root().command, f"source_{shell}")


def asked_for() -> bool:
    """Whether a shell asks for completions."""
    return ASKED in os.environ


def complete(group: Any) -> int:
    """Print what the command line that a shell is at may go on with; returns the exit code."""
    return _complete(group, os.environ[ASKED])


def _complete(group: Any, instruction: str) -> int:
    typer_completion.completion_init()  # type: ignore[attr-defined]
    return typer_completion.shell_complete(group, {}, "fieldslab", ASKED, instruction)
