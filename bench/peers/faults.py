"""What formats do with damaged files: `python -m fieldslab.bench.peers.faults [--cases 100]`.

Each peer packs the same rows. Then, again and again, a copy of its files is damaged as a seed says,
and a process of its own reads all rows: they are right, an error is raised, rows are wrong and
nobody says so, the process crashes, or it hangs. A whole run writes `bench/results/faults.json`,
from which the documentation makes its table.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.bench.machine import describe
from fieldslab.bench.peers.children import ROOT, Child, Refusal
from fieldslab.bench.peers.damage import DAMAGE
from fieldslab.bench.peers.measure import write_digests
from fieldslab.bench.peers.source import Workload, save
from fieldslab.bench.readme import markdown_table

PEERS = ("fieldslab", "FFCV", "LitData", "MosaicML Streaming", "Vortex", "Lance")
OUTCOMES = {
    "wrong": "wrong, silently",
    "crash": "crash",
    "hang": "hang",
    "error": "error",
    "right": "right",
}
"""From the worst to the best, with their words in the table."""
RESULTS = ROOT / "bench" / "results" / "faults.json"
ROWS = 256
PATIENCE = 20.0
"""Seconds for reading all rows; what takes longer hangs."""
HANGS = 10
"""After so many by one kind of damage, the rest of it is not tried."""
CASES_OF_A_PROCESS = 50
"""Libraries keep threads and maps of what they read; a new process now and then has none."""


def make_rows(folder: Path) -> Workload:
    """Make a few hundred rows: an image's bytes, tokens, a label."""
    rng = np.random.default_rng(5)
    columns = {
        "image": [rng.bytes(int(rng.integers(200, 3000))) for _ in range(ROWS)],
        "tokens": [
            rng.integers(0, 50_000, int(rng.integers(10, 200)), np.int32) for _ in range(ROWS)
        ],
        "label": rng.integers(0, 1000, ROWS),
    }
    workload = save(folder, "faults", "rows that are damaged", 16, columns)
    write_digests(workload)
    return workload


class Subject:
    """A peer with its packed files, and a process that reads damaged copies."""

    def __init__(self, name: str, source: Workload, folder: Path) -> None:
        """Pack and read whole files once. Raises Refusal where that fails."""
        self.name, self.source, self.folder = name, source, folder
        self.whole = folder / "whole"
        self.asked = 0
        self.child = Child(name)
        self.about = self.child.about
        self.child.ask("convert", source=str(source.folder), folder=str(self.whole))
        reply = self._ask(self.whole)
        if reply["outcome"] != "right":
            self.child.close()
            raise Refusal("failed", f"whole files: {reply['outcome']}: {reply['reason']}")
        self.child.patience = PATIENCE

    def try_damage(self, kind: str, seed: int) -> dict[str, Any]:
        """Damage a copy, and return what came of reading it: `outcome` and `reason`."""
        copy = self.folder / f"{kind} {seed}".replace(" ", "-")
        shutil.copytree(self.whole, copy)
        rng = random.Random(f"{self.name} {kind} {seed}")
        DAMAGE[kind](copy, self.name, rng)
        if self.asked >= CASES_OF_A_PROCESS:
            self._start_anew()
        try:
            return self._ask(copy)
        except Refusal as refusal:
            code = self.child.process.poll()
            self._start_anew()
            outcome = "hang" if "no answer" in str(refusal) else "crash"
            return {"outcome": outcome, "reason": f"{refusal} ({code})"}
        finally:
            shutil.rmtree(copy)

    def _ask(self, folder: Path) -> dict[str, Any]:
        self.asked += 1
        reply: dict[str, Any] = self.child.ask(
            "examine", source=str(self.source.folder), folder=str(folder)
        )
        return reply

    def _start_anew(self) -> None:
        self.child.close()
        self.child, self.asked = Child(self.name), 0
        self._ask(self.whole)  # imports and compiles, which takes longer than the patience
        self.child.patience = PATIENCE


def run(names: list[str], cases: int, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Try all kinds of damage on each peer; yield its name with versions and counts by kind."""
    source = make_rows(folder / "source")
    for name in names:
        try:
            subject = Subject(name, source, folder / name)
        except Refusal as refusal:
            say(f"{name}: {refusal}")
            yield name, {"missing": str(refusal)}
            continue
        counts: dict[str, Counter[str]] = {kind: Counter() for kind in DAMAGE}
        examples: dict[str, str] = {}
        for kind, count in counts.items():
            for seed in range(cases):
                reply = subject.try_damage(kind, seed)
                count[reply["outcome"]] += 1
                if count["hang"] == HANGS:
                    break
                reason = reply["reason"].replace(f"{folder}/", "")
                examples.setdefault(f"{kind}: {reply['outcome']}", reason)
            say(f"{name}: {kind}: {dict(count)}")
        subject.child.close()
        examples = {key: text for key, text in examples.items() if text}
        versions = subject.about["versions"]
        yield name, {"versions": versions, "counts": counts, "examples": examples}


def table() -> str:
    """Make the table of the last run, for the documentation."""
    results = json.loads(RESULTS.read_text())
    peers = results["peers"]
    rows = []
    for name, about in peers.items():
        if "missing" in about:
            rows.append((name, *["could not be installed"] * len(DAMAGE)))
            continue
        versions = about["versions"]
        cells = [_cell(about["counts"][kind]) for kind in DAMAGE]
        rows.append((f"{name} {versions[next(iter(versions))]}", *cells))
    machine = results["machine"]
    head = f"Run on {results['date']}, {machine['processor']}, {machine['cores']} cores."
    return head + "\n\n" + markdown_table(("", *DAMAGE), rows)


def _cell(counts: dict[str, int]) -> str:
    return ", ".join(
        f"**{counts[outcome]} {word}**"
        if outcome in ("wrong", "crash", "hang")
        else f"{counts[outcome]} {word}"
        for outcome, word in OUTCOMES.items()
        if counts.get(outcome)
    )


def say(text: str) -> None:
    """Print progress at once."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Run, print the counts, and write the results of a whole run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100, help="for each kind of damage")
    parser.add_argument("--peers", metavar="A;B", help="only these; added to the last results")
    options = parser.parse_args()
    names = options.peers.split(";") if options.peers else list(PEERS)
    peers = json.loads(RESULTS.read_text())["peers"] if options.peers and RESULTS.exists() else {}
    with tempfile.TemporaryDirectory(prefix="fieldslab-faults-") as folder:
        for name, about in run(names, options.cases, Path(folder)):
            peers[name] = about
            ordered = {name: peers[name] for name in PEERS if name in peers}
            results = {"date": str(date.today()), "machine": describe(), "peers": ordered}
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
