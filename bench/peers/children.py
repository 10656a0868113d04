"""Processes of peers, seen from the program that compares them."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import fieldslab.bench
from fieldslab.bench.peers.peer import entry

PATIENCE = 120.0
"""Seconds for an answer; then the process is ended, and that is reported."""

ROOT = Path(fieldslab.bench.__file__).resolve().parent.parent


class Refusal(Exception):
    """A peer is missing, failed or does not offer something: `kind` says which."""

    def __init__(self, kind: str, reason: str) -> None:
        self.kind = kind
        super().__init__(" ".join(reason.split())[:300])


class Child:
    """One peer's process, which lives until `close`."""

    def __init__(self, name: str) -> None:
        """Start the process; raises Refusal where the library is missing."""
        self.name = name
        self.patience = PATIENCE
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        command = [interpreter(name), "-P", "-m", "fieldslab.bench.peers.child", name]
        self.process = subprocess.Popen(
            [*command, str(time.time())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=os.environ | {"PYTHONPATH": python_path(), "TOKENIZERS_PARALLELISM": "false"},
        )
        self.rest = b""
        try:
            self.about = self._answer("missing")
        except Refusal:
            self.close()
            raise

    def ask(self, do: str, **request: Any) -> Any:
        """Send a request and return its answer. Raises Refusal."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **request}).encode() + b"\n")
            self.process.stdin.flush()
        except (OSError, ValueError):  # ended, or closed
            raise Refusal("failed", self._ended()) from None
        return self._answer("failed")

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(OSError):  # it has ended already
            self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()

    def _answer(self, kind: str) -> Any:
        line = self._line()
        reply = json.loads(line)
        if "value" in reply:
            return reply["value"]
        if "not_offered" in reply:
            raise Refusal("not offered", reply["not_offered"])
        raise Refusal(kind, reply["failed"])

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        end = time.monotonic() + self.patience
        while b"\n" not in self.rest:
            left = end - time.monotonic()
            if left < 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.process.kill()
                raise Refusal("failed", f"no answer within {self.patience:.0f} s")
            part = os.read(self.process.stdout.fileno(), 65536)
            if not part:
                raise Refusal("failed", self._ended())
            self.rest += part
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def _ended(self) -> str:
        if self.log.closed:
            return "its process had ended before"
        code = self.process.wait()
        self.log.seek(0)
        last = self.log.read().strip().splitlines()[-1:]
        return f"its process ended with {code}: {' '.join(last)}"


def interpreter(name: str) -> str:
    """Return the Python of a peer's own environment, or the running one."""
    environment = entry(name).environment
    own = ROOT / environment / "bin" / "python"
    return str(own) if environment and own.exists() else sys.executable


def python_path() -> str:
    """Return the PYTHONPATH by which another environment finds this `fieldslab`."""
    links = ROOT / ".ns"
    return str(links if links.is_dir() else ROOT.parent)


def start_all(names: Sequence[str]) -> dict[str, Child | Refusal]:
    """Start a process for each peer or decoder; return them, or why there is none."""
    with ThreadPoolExecutor(2) as threads:
        return dict(zip(names, threads.map(start, names), strict=True))


def start(name: str) -> Child | Refusal:
    """Start a process for a peer or decoder; return it, or why there is none."""
    try:
        return Child(name)
    except Refusal as refusal:
        return refusal
