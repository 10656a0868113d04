"""Commands that other packages add by entry points."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.installed import install

PROGRAM = [sys.executable, "-c", "from fieldslab.packer.cli import main; main()"]
NAMESPACE = str(Path(__file__).parents[2] / ".ns")
GREET = '''
import click
from fieldslab.packer.commands.params import Argument, Option, command
@command(
    Argument("name", "NAME", "Whom."),
    Option("--loud", "Manners", "In capitals."),
    examples="Example:\\n  fieldslab greet you",
)
def greet(name: str, loud: bool) -> None:
    """Greet somebody.

    More than once."""
    print(name.upper() if loud else name)
@click.command()
@click.argument("name")
def plain(name: str) -> None:
    """Greet with click alone."""
    print(name)
    click.get_current_context().exit(3)
@click.command()
def verify() -> None:
    """Pretend that all is well."""
def function() -> None:
    """No command of click."""
'''
ENTRIES = """
[fieldslab.commands]
greet = greetings:greet
plain = greetings:plain
function = greetings:function
verify = greetings:verify
absent = greetings_of_nobody:greet
torn = greetings_torn:greet
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where a package with entry points is installed, some of them broken."""
    folder = tmp_path_factory.mktemp("site")
    modules = {"greetings": GREET, "greetings_torn": "1 / 0"}
    return install(folder, "greetings", modules, ENTRIES)


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program, where that package is installed."""
    path = os.pathsep.join([NAMESPACE, str(site)])
    return subprocess.run(
        [*PROGRAM, *arguments],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_lists_them(site: Path) -> None:
    """`--help` has a line for each, also where it cannot be loaded; our own stay as they are."""
    done = run(site, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "greet Greet somebody." in lines
    for name, error in (("absent", "ModuleNotFoundError"), ("torn", "ZeroDivisionError")):
        assert any(line.startswith(f"{name} Cannot be loaded: {error}") for line in lines)
    assert "verify Check that slabs are what pack wrote, byte for byte." in lines
    assert "Pretend" not in done.stdout


def test_they_are_commands_like_ours(site: Path) -> None:
    """One has its arguments, its help with examples, and our words for wrong usage."""
    assert run(site, "greet", "you", "--loud").stdout == "YOU\n"
    told = run(site, "greet", "--help").stdout
    assert told.startswith("Usage: fieldslab greet [OPTIONS] NAME\n\nGreet somebody.\n")
    assert told.endswith("Example:\n  fieldslab greet you\n")
    assert "\nManners:\n  --loud  In capitals.\n" in told
    plain = run(site, "plain", "you")
    assert (plain.returncode, plain.stdout) == (3, "you\n")
    unknown = run(site, "gret")
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("error: no such command 'gret' (expected 'pack, finish, ")
    assert "Did you mean 'greet'?" in unknown.stderr
    wrong = run(site, "greet")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("error: missing argument 'NAME'")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("absent", "No module named 'greetings_of_nobody'"),
        ("torn", "division by zero"),
        ("function", "it is not a click.Command"),
    ],
)
@pytest.mark.parametrize("argument", ["--help", "x.slab"])
def test_a_broken_one_fails_when_it_is_called(
    site: Path, name: str, why: str, argument: str
) -> None:
    """What cannot be imported is an error that names entry point and package; the rest works."""
    done = run(site, name, argument)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: the command '{name}' cannot be loaded: ")
    assert why in done.stderr
    assert "greetings" in done.stderr
    assert "Traceback" not in done.stderr
