"""One run: every workload, every peer, in turns."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fieldslab.bench.peers.children import Child, Refusal, start, start_all
from fieldslab.bench.peers.data import Make
from fieldslab.bench.peers.figures import LOADER, LOADERS, RANDOM, ROW, SEQUENTIAL
from fieldslab.bench.peers.measure import write_digests
from fieldslab.bench.peers.peer import CEILING, PEERS
from fieldslab.bench.peers.rest import may_rest

MIB = 2**20


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    size: int
    """Bytes of a workload."""
    rounds: int
    loader_rounds: int
    loaders: Sequence[str]
    """Without workers, with two, or both."""
    starts: int
    """Fresh processes for the time to the first batch."""
    seconds: float
    """For a figure in a round; epochs of a loader may take three times as long."""
    checking: float
    """Seconds to compare random batches, and an epoch, with the source."""


FULL = Effort(64 * MIB, 5, 2, LOADERS, starts=1, seconds=0.07, checking=0.1)
QUICK = Effort(16 * MIB, 2, 1, [LOADER], starts=0, seconds=0.05, checking=0.05)
TINY = Effort(8 * MIB, 2, 1, LOADERS, starts=0, seconds=0.01, checking=0.05)

MEASURES = (RANDOM, ROW, SEQUENTIAL)

Say = Callable[[str], None]


class Run:
    """The processes of all peers, and what they measured."""

    def __init__(self, names: Sequence[str], effort: Effort, say: Say) -> None:
        self.effort = effort
        self.say = say
        self.children: dict[str, Child] = {}
        self.peers: dict[str, dict[str, Any]] = {}
        self.workloads: dict[str, dict[str, Any]] = {}
        names = [*names, *([] if CEILING in names else [CEILING])]
        self.say("starting a process for each peer")
        for name, child in start_all(names).items():
            if isinstance(child, Refusal):
                self.peers[name] = {"status": child.kind, "reason": str(child)}
                self.say(f"  {name}: {child.kind}: {child}")
            else:
                self.children[name] = child
                self.peers[name] = child.about | {"status": "measured"}

    def workload(self, name: str, make: Make, folder: Path) -> None:
        """Make a workload, let all peers convert, check and measure it, and delete it."""
        self.say(f"{name}: making data")
        source = make(folder / "source", self.effort.size)
        results: dict[str, dict[str, Any]] = {peer: {} for peer in self.children}
        about = {"title": source.title, "rows": len(source), "batch": source.batch}
        self.workloads[name] = about | {"bytes": source.nbytes, "peers": results}
        write_digests(source)
        for peer in list(self.children):
            self.say(f"{name}: {peer}")
            ready = self._prepare(peer, results[peer], folder / "source", folder / "data" / peer)
            if ready and len(self.workloads) == 1:
                self._fresh_starts(peer, results[peer], folder)
        self.say(f"{name}: comparing with the source")
        with ThreadPoolExecutor(2) as threads:  # what is not timed may go side by side
            list(threads.map(lambda peer: self._check(peer, results[peer]), results))
        self._measure(name, results, MEASURES, self.effort.rounds, self.effort.seconds)
        seconds = 3 * self.effort.seconds
        self._measure(name, results, self.effort.loaders, self.effort.loader_rounds, seconds)
        shutil.rmtree(folder)

    def _prepare(self, peer: str, result: dict[str, Any], source: Path, folder: Path) -> bool:
        """Convert and open: whether all went well."""
        where = {"source": str(source), "folder": str(folder)}
        if self.children[peer].process.poll() is not None:
            self._restart(peer)
        try:
            result["convert"] = self._ask(peer, "convert", **where)
            result["open"] = self._ask(peer, "open", **where)
        except Refusal as refusal:
            self._failed(peer, result, refusal)
            return False
        return True

    def _check(self, peer: str, result: dict[str, Any]) -> None:
        """Compare what the peer returns with the source; a peer that differs is not timed."""
        if "failed" in result:
            return
        try:
            result["checked"] = self._ask(peer, "check", seconds=self.effort.checking)
        except Refusal as refusal:
            self._failed(peer, result, refusal)

    def _failed(self, peer: str, result: dict[str, Any], refusal: Refusal) -> None:
        result["failed"] = str(refusal)
        self.say(f"  {peer}: {refusal}")
        self._restart(peer)

    def _fresh_starts(self, peer: str, result: dict[str, Any], folder: Path) -> None:
        """Time to the first batch, each in a new process."""
        where = {"source": str(folder / "source"), "folder": str(folder / "data" / peer)}
        starts = []
        for _ in range(self.effort.starts):
            child = Child(peer)
            starts.append({"start": child.about["start"]} | child.ask("open", **where))
            child.close()
        # Where there are none, that of the process that measures, which had another beside it.
        self.peers[peer]["starts"] = starts or [
            {"start": self.peers[peer]["start"]} | result["open"]
        ]

    def _measure(
        self,
        name: str,
        results: Mapping[str, dict[str, Any]],
        measures: Sequence[str],
        rounds: int,
        seconds: float,
    ) -> None:
        """Rounds in which all peers take turns; each round begins with another peer."""
        peers = [peer for peer, result in results.items() if "failed" not in result]
        for turn in range(rounds):
            self.say(f"{name}: {measures[0]} and more, round {turn + 1} of {rounds}")
            first = turn * len(peers) // rounds
            for peer in [*peers[first:], *peers[:first]]:
                for what in measures:
                    if not may_rest(results, peer, what, turn):
                        self._one(peer, results[peer], what, seconds, turn)

    def _one(self, peer: str, result: dict[str, Any], what: str, seconds: float, turn: int) -> None:
        figures = result.setdefault(what, [])
        if isinstance(figures, dict) or "failed" in result:
            return
        try:
            figures.append(self._ask(peer, "measure", what=what, seconds=seconds, seed=turn))
        except Refusal as refusal:
            result[what] = {refusal.kind: str(refusal)}
            if refusal.kind == "failed":
                self.say(f"  {peer}, {what}: {refusal}")

    def _ask(self, peer: str, do: str, **request: Any) -> Any:
        return self.children[peer].ask(do, **request)

    def _restart(self, peer: str) -> None:
        """A new process for the next workload, whatever became of this one."""
        self.children[peer].close()
        started = start(peer)
        if isinstance(started, Refusal):
            self.say(f"  {peer}: {started}")  # whatever is asked of it fails, and is reported
        else:
            self.children[peer] = started

    def close(self) -> None:
        """End all processes."""
        for child in self.children.values():
            child.close()


def run(
    names: Sequence[str], makers: Mapping[str, Make], effort: Effort, folder: Path, say: Say
) -> dict[str, Any]:
    """Compare; the result is ready for JSON. Peers are named as in `PEERS`."""
    unknown = set(names) - PEERS.keys()
    assert not unknown, f"no such peer: {unknown}"
    this = Run(names, effort, say)
    try:
        for name, make in makers.items():
            this.workload(name, make, folder / name)
    finally:
        this.close()
    return {"peers": this.peers, "workloads": this.workloads}
