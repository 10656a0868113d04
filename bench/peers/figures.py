"""What the results of a run say: rates, ratios with their spread, and missing peers."""

from collections.abc import Mapping
from statistics import median
from typing import Any

from fieldslab.bench.peers.peer import CEILING, PEERS, US
from fieldslab.bench.timing import Ratio, ratio

Results = dict[str, Any]
RANDOM, ROW, SEQUENTIAL, LOADER, WORKERS = "random", "row", "sequential", "loader 0", "loader 2"
LOADERS = (LOADER, WORKERS)


def seconds_a_row(results: Results, workload: str, peer: str, measure: str) -> list[float] | None:
    """Of each round; None where there is no such figure."""
    return seconds_so_far(results["workloads"][workload]["peers"], peer, measure)


def seconds_so_far(peers: Mapping[str, Results], peer: str, measure: str) -> list[float] | None:
    """The same of one workload, while it runs, too: `peers` has the figures of each by measure."""
    figures = peers.get(peer, {}).get(measure)
    if not isinstance(figures, list) or not figures:
        return None
    return [figure["seconds"] / figure["rows"] for figure in figures]


def rate(results: Results, workload: str, peer: str, measure: str) -> float | None:
    """Return the median of all rounds, in rows a second."""
    seconds = seconds_a_row(results, workload, peer, measure)
    return 1 / median(seconds) if seconds else None


def times_as_fast(
    results: Results, workload: str, peer: str, measure: str, against: str = US
) -> Ratio | None:
    """Compare speeds round by round: how many times as fast as a peer `against` is."""
    theirs = seconds_a_row(results, workload, peer, measure)
    return _compared(seconds_a_row(results, workload, against, measure), theirs)


def better_loader(results: Results, workload: str, peer: str) -> str:
    """Return the measure in which the peer's loader is faster: without workers, or with two."""
    rates = {name: rate(results, workload, peer, name) or 0.0 for name in LOADERS}
    return max(rates, key=lambda name: rates[name])


def loaders_compared(results: Results, workload: str, peer: str) -> Ratio | None:
    """Compare our loader with a peer's, each with the number of workers that suits it."""
    ours = seconds_a_row(results, workload, US, better_loader(results, workload, US))
    theirs = seconds_a_row(results, workload, peer, better_loader(results, workload, peer))
    return _compared(ours, theirs)


def _compared(ours: list[float] | None, theirs: list[float] | None) -> Ratio | None:
    """Of the rounds in which both took part, which are the first ones: some rest later."""
    if ours is None or theirs is None:
        return None
    rounds = min(len(ours), len(theirs))
    return ratio(ours[:rounds], theirs[:rounds])


def memory(results: Results, workload: str, peer: str) -> int | None:
    """Return the peak anonymous bytes of a peer's process and workers, libraries included."""
    peaks = [
        figure["memory"]
        for figures in results["workloads"][workload]["peers"].get(peer, {}).values()
        if isinstance(figures, list)
        for figure in figures
        if "memory" in figure
    ]
    return max(peaks, default=None)


def first_batch(results: Results, peer: str) -> float | None:
    """Return the median seconds from the start of a process to its first batch."""
    starts = results["peers"][peer].get("starts")
    return starts and median(start["start"] + start["open"] + start["batch"] for start in starts)


def competitors(results: Results) -> list[str]:
    """Return every peer of the run but us and the ceiling, in the order of the tables."""
    return [name for name in PEERS if name in results["peers"] and name not in (US, CEILING)]


def faster_than_us(results: Results, measure: str = RANDOM) -> list[tuple[str, str, Ratio]]:
    """Workload, peer and ratio of whoever is faster in random batches."""
    faster = []
    for workload in results["workloads"]:
        for peer in competitors(results):
            ours = times_as_fast(results, workload, peer, measure)
            if ours is not None and ours.median < 1:
                faster.append((workload, peer, ours))
    return faster


def troubles(results: Results) -> list[str]:
    """Return a sentence for each peer that is missing, failed, or loses or repeats rows."""
    sentences = []
    for name, about in results["peers"].items():
        if about["status"] != "measured":
            sentences.append(f"{name} is missing: {about['reason']}")
    for workload, about in results["workloads"].items():
        for name, result in about["peers"].items():
            where = f"{name}, {workload}"
            if "failed" in result:
                sentences.append(f"{where}: {result['failed']}")
            for measure, figures in result.items():
                if isinstance(figures, dict) and "failed" in figures:
                    sentences.append(f"{where}, {measure}: {figures['failed']}")
            checked = result.get("checked", {})
            for what in ("lost", "repeated"):
                if checked.get(what):
                    sentences.append(f"{where}: {checked[what]} rows {what} in a shuffled epoch")
    return sentences
