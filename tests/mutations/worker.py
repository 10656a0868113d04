"""A process that examines mutations, so that a crash of the reader is not the end of who counts.

As a program it takes mutations from stdin, a line of JSON each, and answers with a line each.
"""

import contextlib
import faulthandler
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.choices import Mutation, is_accident
from tests.mutations.examining import examine
from tests.mutations.on_files import copy_whole, mutate
from tests.mutations.subject import Subject, make_subject

from fieldslab.schemas.manifest import MANIFEST

ROOT = Path(__file__).parents[2]
MEMORY = 8 * 2**30
"""A worker may map and allocate no more: whoever believes a giant number fails."""
SECONDS = 120
"""A mutation that takes longer counts as a crash."""


def environment() -> dict[str, str]:
    """Environment of a process that imports fieldslab and these tests from the checkout."""
    return {"PYTHONPATH": f"{ROOT / '.ns'}:{ROOT}", "PATH": os.environ["PATH"]}


@dataclass
class Worker:
    """A process that examines mutations; another one takes its place when it crashes."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        with (self.folder / "stderr").open("w") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.mutations.worker", self.folder],
                cwd=ROOT,
                env=environment(),
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )

    def examine(self, mutation: Mutation) -> str:
        """What is wrong with how a mutation is read, '' if nothing is."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(mutation) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if answer:
            return str(json.loads(answer))
        ended = self._process.wait()
        self.close()
        told = (self.folder / "stderr").read_text()[-3000:]
        self._process = self._start()
        return f"the process ended with {ended}: {told}"

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def _work(folder: Path) -> None:
    faulthandler.enable()
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for name in ("whole.slab", "mutated"):
        shutil.rmtree(folder / name, ignore_errors=True)
    subject = make_subject(folder)
    for line in sys.stdin:
        signal.alarm(SECONDS)
        sys.stdout.write(json.dumps(_examine(folder, subject, json.loads(line))) + "\n")
        sys.stdout.flush()
        signal.alarm(0)


def _examine(folder: Path, subject: Subject, mutation: Mutation) -> str:
    slab = folder / "mutated" / "x.slab"
    if not slab.exists():
        slab.parent.mkdir(exist_ok=True)
        copy_whole(subject.slab, slab)
    mutate(slab, mutation)
    try:
        examine(slab, subject, is_accident(mutation))
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is told
        return "".join(traceback.format_exception(error))
    finally:
        _repair(subject.slab, slab, mutation)
    return ""


def _repair(whole: Path, slab: Path, mutation: Mutation) -> None:
    """Undo a mutation: by linking the files anew that it changed, or else by starting over."""
    if not all(op["do"] in ("flip", "write", "truncate", "edit", "seal") for op in mutation):
        shutil.rmtree(slab.parent)
        return
    for name in {op.get("file", MANIFEST) for op in mutation}:
        (slab / name).unlink()
        os.link(whole / name, slab / name)


if __name__ == "__main__":
    _work(Path(sys.argv[1]))
