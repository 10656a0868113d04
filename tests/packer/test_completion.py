"""Completion of command lines, by the shell itself."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.packer.commandline import ENVIRONMENT

ASK = """
eval "$(fieldslab completion bash)"
compopt() {{ echo "$@"; }}
COMP_WORDS=({words})
COMP_CWORD={at}
$(complete -p fieldslab | sed 's/.*-F \\([^ ]*\\) .*/\\1/') fieldslab
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program `fieldslab`, for PATH."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "fieldslab"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m fieldslab "$@"\n')
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fieldslab", "ve"], {"verify"}),
        (["fieldslab", "b"], {"bench"}),
        (["fieldslab", "head", "--fi"], {"--fields"}),
        (["fieldslab", "completion", ""], {"bash", "zsh", "fish"}),
        (["fieldslab", "pack", "x", "--on-error", "s"], {"skip"}),
        (["fieldslab", "verify", "x", "--progress", "j"], {"json"}),
        (["fieldslab", "info", "./some"], {"-o default", ""}),
        (["fieldslab", "pack", "x", "-o", "./some"], {"-o default", ""}),
    ],
)
def test_bash_completes(folder: Path, words: list[str], expected: set[str]) -> None:
    """Bash completes commands, those of entry points too, options and values; paths by itself."""
    quoted = " ".join(f"'{word}'" for word in words)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK.format(words=quoted, at=len(words) - 1)],
        env=ENVIRONMENT | {"PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.splitlines()) == expected
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(cli: Any, shell: str) -> None:
    """The script names the program and how it is asked; other shells are refused by name."""
    script = cli("completion", shell)
    assert (script.code, script.err) == (0, "")
    assert f"_FIELDSLAB_COMPLETE={shell}_complete" in script.out
    done = cli("completion", "tcsh")
    assert done.code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in done.err.replace("\n", " ")
