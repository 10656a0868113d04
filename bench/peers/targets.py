"""What fieldslab is meant to reach beside its peers, and whether a run shows it."""

from typing import NamedTuple

from fieldslab.bench.peers import figures
from fieldslab.bench.peers.figures import LOADER, RANDOM, WORKERS, Results
from fieldslab.bench.peers.peer import CEILING, US


class PeerTarget(NamedTuple):
    """Random batches of fieldslab are to be so many times as fast as something of a peer."""

    workload: str
    peer: str
    measure: str
    least: float


TARGETS = (
    PeerTarget("photographs", "LitData", RANDOM, 20),
    PeerTarget("photographs", "LitData", WORKERS, 10),
    PeerTarget("photographs", "LitData", LOADER, 10),
    PeerTarget("photographs", "HuggingFace, numpy", RANDOM, 5),
    PeerTarget("photographs", "Grain ArrayRecord", RANDOM, 3),
    PeerTarget("photographs", "bagz", RANDOM, 3),
    PeerTarget("rows", "HuggingFace, numpy", RANDOM, 10),
)
WHAT = {
    RANDOM: "random batches",
    WORKERS: "shuffled loader, 2 workers",
    LOADER: "shuffled loader without workers",
}


class Reached(NamedTuple):
    """How many times as fast fieldslab is, and how many times memcpy would be."""

    target: PeerTarget
    times: float
    ceiling: float

    @property
    def held(self) -> bool:
        """Whether the target is reached."""
        return self.times >= self.target.least


def reached(results: Results) -> list[Reached]:
    """Of every target whose workload and peer were measured."""
    outcomes = []
    for target in TARGETS:
        if target.workload not in results["workloads"]:
            continue
        ours, ceiling = (
            figures.rate(results, target.workload, name, RANDOM) for name in (US, CEILING)
        )
        theirs = figures.rate(results, target.workload, target.peer, target.measure)
        if ours and theirs and ceiling:
            outcomes.append(Reached(target, ours / theirs, ceiling / theirs))
    return outcomes
