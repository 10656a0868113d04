"""Run work in a forked child under strace, which logs its system calls.

The child is forked from a process that has imported all and done the same work before, so that its
system calls are those of the work.
"""

import ctypes
import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.operations import end_child

SECONDS = 180.0
"""What takes longer hangs."""
_LIBC = ctypes.CDLL(None)
_SIGNAL_AT_PARENTS_DEATH = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Ending:
    """How a child ended: its status as `waitpid` has it, what it wrote to stderr, and the log."""

    status: int
    error: str
    log: Path

    @property
    def code(self) -> int:
        """The exit code; a negative signal; -1000 for a child that hung."""
        return os.waitstatus_to_exitcode(self.status) if self.status >= 0 else -1000


def need_strace() -> None:
    """End the program with what to install, where strace is missing or may not trace."""
    if shutil.which("strace") is None:
        sys.exit("This campaign needs strace: apt install strace, as root")


def run_straced(work: Callable[[], Any], folder: Path, options: Sequence[str] = ()) -> Ending:
    """Do the work in a child under strace; kill it with all its children when it hangs."""
    errors, log = folder / "stderr", folder / "strace.log"
    log.unlink(missing_ok=True)
    child = _fork(work, errors)
    tracer = subprocess.Popen(
        ["strace", "-f", "-y", "-s", "200", "-o", log, *options, "-p", str(child)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tracer.stderr is not None
    said = tracer.stderr.readline()
    if "attached" not in said:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise RuntimeError(f"strace cannot trace: {said}{tracer.stderr.read()}")
    os.kill(child, signal.SIGUSR1)
    status = _wait(child)
    _end_group(child)
    try:
        tracer.wait(20)
    except subprocess.TimeoutExpired:
        tracer.kill()
        tracer.wait()
    tracer.stderr.close()
    return Ending(status, errors.read_text(errors="replace"), log)


def run_untraced(
    work: Callable[[], Any], folder: Path, meanwhile: Callable[[int], None] | None = None
) -> Ending:
    """Do the work in a child; `meanwhile` is called with its process id when it has begun."""
    errors = folder / "stderr"
    child = _fork(work, errors)
    os.kill(child, signal.SIGUSR1)
    try:
        if meanwhile is not None:
            meanwhile(child)
        status = _wait(child)
    finally:
        _end_group(child)
    return Ending(status, errors.read_text(errors="replace"), folder / "strace.log")


def _fork(work: Callable[[], Any], errors: Path) -> int:
    """Fork a child that waits for SIGUSR1, and then does the work in a session of its own."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    child = os.fork()
    if child == 0:
        os.setsid()
        _LIBC.prctl(_SIGNAL_AT_PARENTS_DEATH, signal.SIGKILL)
        descriptor = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(descriptor, 2)
        faulthandler.dump_traceback_later(SECONDS - 5, file=2)  # says where it hangs
        signal.sigwait([signal.SIGUSR1])
        end_child(work)
    return child


def _wait(child: int) -> int:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.004)
    return -1


def _end_group(child: int) -> None:
    """Kill what is left of the child's session, and reap the child."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        return
    try:
        os.waitpid(child, 0)
    except ChildProcessError:
        return
