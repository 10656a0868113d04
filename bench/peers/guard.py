"""What moved since the last committed results, as ratios: seconds depend on the day."""

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from fieldslab.bench.peers import figures
from fieldslab.bench.peers.figures import Results
from fieldslab.bench.peers.peer import CEILING
from fieldslab.bench.timing import Ratio

MEASURES = (
    figures.RANDOM,
    figures.SEQUENTIAL,
    figures.ROW,
    figures.LOADER,
    figures.WORKERS,
)


class Move(NamedTuple):
    """A ratio of fieldslab to a peer (or to memcpy) whose spreads do not overlap."""

    workload: str
    measure: str
    peer: str
    before: Ratio
    now: Ratio

    def __str__(self) -> str:
        way = "faster" if self.now.median > self.before.median else "slower"
        return (
            f"{way}: {self.workload}, {self.measure}, against {self.peer}: "
            f"{self.before} before, {self.now} now"
        )


def moves(before: Results, now: Results) -> list[Move]:
    """Return every ratio that moved by more than the spread of both runs."""
    moved = []
    for workload in before["workloads"]:
        if workload not in now["workloads"]:
            continue
        for measure in MEASURES:
            for peer in [CEILING, *figures.competitors(before)]:
                if peer not in now["peers"]:
                    continue
                old = figures.times_as_fast(before, workload, peer, measure)
                new = figures.times_as_fast(now, workload, peer, measure)
                if not old or not new or old.low == old.high or new.low == new.high:
                    continue  # a figure is missing, or of one round, so that its spread is unknown
                if new.low > old.high or new.high < old.low:
                    moved.append(Move(workload, measure, peer, old, new))
    return moved


def committed(file: Path) -> Results | None:
    """Return the last committed results; outside of git those on disk; None without any."""
    shown = subprocess.run(
        ["git", "show", f"HEAD:./{file.name}"], cwd=file.parent, capture_output=True, check=False
    )
    if shown.returncode == 0:
        results: Results = json.loads(shown.stdout)
        return results
    return json.loads(file.read_text()) if file.exists() else None


def report(before: Results | None, now: Results) -> str:
    """Describe in words what moved."""
    if before is None:
        return "No committed results to compare with."
    lines = [str(move) for move in moves(before, now)]
    if before["quick"] != now["quick"]:
        lines.append("(one of both runs was quick: they have other sizes of data)")
    since = f"Since the results of {before['date']}"
    if not lines:
        return f"{since}, no ratio moved by more than the spread."
    return "\n".join([f"{since}:", *lines])
