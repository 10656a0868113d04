"""The process of one peer: a request a line on stdin, an answer a line on stdout, both JSON.

Started by `children.py`. Whatever the libraries print goes to stderr.
"""

import ctypes
import gc
import importlib.metadata
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from fieldslab.bench.peers import measure
from fieldslab.bench.peers.examine import examine, limit_memory
from fieldslab.bench.peers.peer import NotOffered, Peer, find
from fieldslab.bench.peers.source import Workload


class Session:
    """What a peer's process keeps between requests."""

    def __init__(self, kind: type[Peer], ready: float) -> None:
        self.kind = kind
        self.ready = ready
        self.peer: Peer

    def hello(self) -> dict[str, Any]:
        """Return versions, configuration, and the seconds since the process started."""
        versions = {}
        for name in self.kind.distributions:
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                versions[name] = "unknown"  # run from a checkout
        about = self.kind.configuration
        return {"versions": versions, "configuration": about, "start": self.ready}

    def convert(self, source: str, folder: str) -> dict[str, Any]:
        """Convert the source; return the seconds it took and the bytes of the result."""
        into = Path(folder)
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        self.kind.prepare()
        peer = self.kind(into, Workload(Path(source)))
        started = time.perf_counter()
        peer.convert()
        seconds = time.perf_counter() - started
        del peer
        release_memory()
        files = [path for path in into.rglob("*") if path.is_file()]
        return {"seconds": seconds, "bytes": sum(path.stat().st_size for path in files)}

    def open(self, source: str, folder: str) -> dict[str, Any]:
        """Take on a workload: open it, read a first batch."""
        self.peer = self.kind(Path(folder), Workload(Path(source)))
        return measure.first_batch(self.peer)

    def examine(self, source: str, folder: str) -> dict[str, Any]:
        """Read all rows of files that may be damaged: see `faults.py`."""
        limit_memory()
        return examine(self.kind, Workload(Path(source)), Path(folder))

    def check(self, seconds: float) -> dict[str, Any]:
        """Compare with the source."""
        return measure.check(self.peer, seconds)

    def measure(self, what: str, seconds: float, seed: int) -> dict[str, Any]:
        """Measure one figure of the open workload."""
        if what.startswith("loader"):
            workers = int(what.removeprefix("loader "))
            return measure.loader_rate(self.peer, seconds, seed, workers)
        calls = {
            "random": measure.random_rate,
            "sequential": measure.sequential_rate,
            "row": measure.row_latency,
        }
        result = calls[what](self.peer, seconds, seed)
        return result | {"memory": measure.anonymous()}


def release_memory() -> None:
    """Give freed memory back, so that what reading needs is not hidden by what converting left."""
    gc.collect()
    if "pyarrow" in sys.modules:
        sys.modules["pyarrow"].default_memory_pool().release_unused()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def answer(session: Session, request: dict[str, Any]) -> dict[str, Any]:
    """Carry out a request; whatever goes wrong is the answer."""
    try:
        call = getattr(session, request.pop("do"))
        return {"value": call(**request)}
    except NotOffered as reason:
        return {"not_offered": str(reason)}
    except Exception as error:  # noqa: BLE001 - a library may fail with anything; it is reported
        return {"failed": f"{type(error).__name__}: {error}"}


def main() -> int:
    """Serve until stdin ends. Arguments: the peer's name, and when its process was started."""
    name, started = sys.argv[1], float(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        kind = find(name)
    except Exception as error:  # noqa: BLE001 - as above; a missing library is one of many
        print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), file=answers, flush=True)
        return 1
    session = Session(kind, time.time() - started)
    print(json.dumps({"value": session.hello()}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(session, json.loads(line))), file=answers, flush=True)
    answers.close()
    os._exit(0)  # some libraries' threads and finalizers would hold the process


if __name__ == "__main__":
    sys.exit(main())
