"""The program in processes of its own, and what it wrote."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

PROGRAM = [sys.executable, "-c", "from fieldslab.packer.cli import main; main()"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / ".ns")}


class Done(NamedTuple):
    """What a command line did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value on stdout."""
        return json.loads(self.out)


def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """The program in a process of its own."""
    return subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **({"env": ENVIRONMENT} | options),
    )


def on_terminal(*arguments: object, columns: int = 80, stream: str = "stderr") -> str:
    """What the program writes to one stream where that is a terminal."""
    ours, theirs = pty.openpty()
    environment = ENVIRONMENT | {"COLUMNS": str(columns), "TERM": "xterm"}
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | {
        stream: theirs
    }
    process = subprocess.Popen([*PROGRAM, *map(str, arguments)], env=environment, **streams)
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # Linux reports the end of a terminal so
            break
        if not part:
            break
        text += part
    os.close(ours)
    process.wait(60)
    return text.decode().replace("\r\n", "\n")
