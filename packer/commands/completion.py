"""`fieldslab completion`, and what the script that it prints asks for at every Tab."""

import os

import click
from click.shell_completion import shell_complete

from fieldslab.packer.commands.params import Argument, command

ASKED = "_FIELDSLAB_COMPLETE"
"""Environment variable by which a shell asks for completions instead of running a command."""

EXAMPLES = """\
Examples:
  eval "$(fieldslab completion bash)"                          in ~/.bashrc
  eval "$(fieldslab completion zsh)"                           in ~/.zshrc, behind compinit
  fieldslab completion fish > ~/.config/fish/completions/fieldslab.fish"""


@command(
    Argument("shell", "SHELL", "bash, zsh or fish.", type=click.Choice(["bash", "zsh", "fish"])),
    examples=EXAMPLES,
)
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print a script with which a shell completes commands and options."""
    return print_completion(context.find_root().command, f"{shell}_source")


def print_completion(program: click.Command, instruction: str) -> int:
    """Print what a shell asks for: its script, or how a command line may go on."""
    return shell_complete(program, {}, "fieldslab", ASKED, instruction)


def read_completion_request() -> str | None:
    """Read what a shell asks to complete; None if it runs a command."""
    return os.environ.get(ASKED)
