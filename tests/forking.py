"""Python programs that start at once: forked from a process that has imported large libraries.

To import torch with an optimizer takes a core five seconds, the first function of numba one and a
half; to fork takes ten milliseconds. What tests how programs start, what they import or how they
end starts Python anew instead.

As a program it is the process that forks. It reads requests from stdin, a line of JSON each: one
for a program to start, answered with its process id, or one for a process to wait for, answered
with its exit code.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import types
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

PATHS = os.pathsep.join(str(Path(__file__).parents[1] / name) for name in (".ns", "."))
SECONDS = 600
"""A program that takes longer is ended."""
LIBRARIES = [
    "torch._dynamo",
    "torch.utils.data",
    "fieldslab.packer.pack_source",
    "fieldslab.reader",
]


class Server:
    """The process that forks, and the folder for what its programs print."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="forked-")
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env=os.environ | {"PYTHONPATH": PATHS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self._close)

    def ask(self, **request: Any) -> int:
        """Send a request; its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def name_files(self) -> list[Path]:
        """Where a program may write its output and its errors to."""
        self._count += 1
        return [Path(self._folder.name) / f"{self._count}.{name}" for name in ("out", "err")]

    def _close(self) -> None:
        self._process.communicate()
        self._folder.cleanup()


start_server = functools.cache(Server)


class Program(NamedTuple):
    """A program that runs, and the files of what it prints."""

    process: int
    output: Path
    errors: Path

    def finish(self) -> None:
        """Wait for its end, which must be a good one."""
        code = start_server().ask(wait=self.process)
        assert code == 0, self.errors.read_text()

    def read(self) -> str:
        """Wait for its end: what it printed."""
        self.finish()
        return self.output.read_text()


def start_python(*arguments: object, **environment: str) -> Program:
    """Start what would follow `python` on a command line: a file or `-c` and code; its arguments.

    `environment` is added to that of this process. Libraries see of it what they read when they are
    called, not when they are imported.
    """
    server = start_server()
    files = server.name_files()
    process = server.ask(
        arguments=[str(argument) for argument in arguments],
        environment={**os.environ, "PYTHONPATH": PATHS, **environment},
        directory=os.getcwd(),
        files=[str(file) for file in files],
    )
    return Program(process, *files)


def run_python(*arguments: object, **environment: str) -> str:
    """Run a program, as `start_python` does, to its end: what it printed."""
    return start_python(*arguments, **environment).read()


def _serve() -> dict[str, Any] | None:
    """Answer requests; in a process that is to become a program, return which one."""
    for name in LIBRARIES:
        importlib.import_module(name)
    importlib.import_module("numba").njit("int64(int64)")(lambda number: number)
    gc.collect()
    gc.freeze()
    while line := sys.stdin.readline():
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                return dict(request)
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    return None


def _become(
    arguments: list[str], environment: dict[str, str], directory: str, files: list[str]
) -> None:
    """Run a program in this process, as if it had been started for it."""
    for number, file in enumerate([os.devnull, *files]):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    signal.alarm(SECONDS)
    program, *words = arguments
    if program == "-c":
        code, *words = words
        sys.argv[:] = ["-c", *words]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), vars(main))  # noqa: S102  # code of a test
    else:
        sys.argv[:] = [program, *words]
        sys.path[0] = str(Path(program).parent)
        runpy.run_path(program, run_name="__main__")
    _end()


def _end() -> NoReturn:
    """End the process as Python does, but without destructors.

    Those of torch's process groups may wait for the lock of the interpreter for ever then.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__" and (request := _serve()):
    _become(**request)
