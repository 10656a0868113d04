"""fieldslab beside its peers: `python -m fieldslab.bench.peers [--quick] [--readme]`.

Every peer that is installed is measured on the same data, in turns; one that is missing or fails
is reported. A whole run writes `bench/results/peers.json`, `peers.md` and a chart a workload; one
of some workloads or peers only prints. `make bench` installs what is needed.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from fieldslab.bench.machine import Watch, describe
from fieldslab.bench.peers import charts, guard, tables
from fieldslab.bench.peers.children import ROOT
from fieldslab.bench.peers.data import MAKERS, Make, make_own, make_photographs
from fieldslab.bench.peers.data import QUICK as QUICK_WORKLOADS
from fieldslab.bench.peers.peer import PEERS
from fieldslab.bench.peers.run import FULL, QUICK, TINY, Effort, run
from fieldslab.bench.peers.source import Workload
from fieldslab.bench.readme import publish
from fieldslab.schemas.errors import FieldslabError, UsageError

RESULTS = ROOT / "bench" / "results" / "peers.json"


def measure(
    makers: dict[str, Make], peers: Sequence[str], effort: Effort, folder: Path | None = None
) -> dict[str, Any]:
    """Measure the workloads; return results with machine and date."""
    watch = Watch()

    def watched(make: Make) -> Make:
        def call(path: Path, size: int) -> Workload:
            watch.look()  # no peer does anything between workloads
            return make(path, size)

        return call

    makers = {workload: watched(make) for workload, make in makers.items()}
    with tempfile.TemporaryDirectory(prefix="fieldslab-bench-", dir=folder) as name:
        results = run(peers, makers, effort, Path(name), say)
    about = {"date": str(date.today()), "quick": effort is not FULL}
    return {"machine": describe() | watch.found(), **about, **results}


def say(text: str) -> None:
    """Print progress, on a terminal in one line; keep failures."""
    if text.startswith(" "):
        print(text.strip(), file=sys.stderr)
    elif sys.stderr.isatty():
        print(f"\x1b[K{text}", end="\r", file=sys.stderr, flush=True)


def choose(asked: str | None, known: Sequence[str], what: str) -> list[str]:
    """Parse names separated by semicolons; all without any. Raises UsageError if unknown."""
    names = [name.strip() for name in asked.split(";")] if asked else list(known)
    for name in names:
        if name not in known:
            raise UsageError(f"no such {what}", found=name, hint=f"One of: {'; '.join(known)}.")
    return names


def workloads(options: argparse.Namespace) -> dict[str, Make]:
    """Return the workloads to measure, by name."""
    if options.parquet:
        return {"own": partial(make_own, file=options.parquet)}
    if options.images:
        return {"photographs": partial(make_photographs, images=options.images)}
    names = choose(options.workloads, list(MAKERS), "workload")
    if options.quick and not options.workloads:
        names = list(QUICK_WORKLOADS)
    return {name: MAKERS[name] for name in names}


def program() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    size.add_argument("--tiny", action="store_true", help="only to see that everything runs")
    parser.add_argument("--workloads", metavar="A;B", help="only these")
    parser.add_argument("--peers", metavar="A;B", help="only these")
    parser.add_argument("--images", type=Path, metavar="DIR", help="your JPEG files")
    parser.add_argument("--parquet", type=Path, metavar="FILE", help="your rows")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where data is made meanwhile")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--readme", action="store_true", help="write the tables in README.md")
    options = parser.parse_args()
    effort = QUICK if options.quick else TINY if options.tiny else FULL
    peers = choose(options.peers, list(PEERS), "peer")
    results = measure(workloads(options), peers, effort, options.folder)
    print(tables.everything(results))
    partial_run = options.workloads or options.peers or options.images or options.parquet
    checkout = (ROOT / "pyproject.toml").exists()
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    elif checkout and effort is not TINY and not partial_run:
        print(guard.report(guard.committed(RESULTS), results))
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        RESULTS.with_suffix(".md").write_text(tables.everything(results))
        charts.draw(results, RESULTS.parent)
    if options.readme:
        publish("peers", tables.readme(results))


def main() -> int:
    """The program; a user's mistake is a message."""
    try:
        program()
    except FieldslabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
