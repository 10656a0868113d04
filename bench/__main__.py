"""Measure this checkout: `python -m fieldslab.bench [--quick] [--readme]`.

Runs the benchmarks one after the other and prints a table. In a checkout, `--readme` writes
`bench/results/foundation.json` and `.md`, and the most telling figures into
docs/explanation/benchmarks.md, between two markers.
"""

import argparse
import json
import sys
from collections.abc import Callable
from datetime import date
from statistics import median
from typing import Any

from fieldslab.bench import gather, jetclass, jitter, limits, loader, pack, scale, starts, verify
from fieldslab.bench.figure_table import table
from fieldslab.bench.machine import Watch, describe
from fieldslab.bench.readme import RESULTS, publish
from fieldslab.bench.timing import Ratio

SHOWN = (
    "verify on / off",
    "verify on / off, first touch",
    "fixed 1 KiB, gather / numpy.take",
    "open 1,000,000 rows, ms",
    "one row of 6 fields, us",
    "fresh process, import numpy, s",
    "fresh process, import to first gather, numba cache empty, s",
    "fresh process, import to first gather, numba cache warm, s",
    "pack / plain read and write, photographs, with their index",
    "pack / plain read and write, photographs, without an index",
    "pack / plain read and write, table, zstd",
    "verify / plain reads, 2 threads each, photographs",
    "verify / plain reads, 2 threads each, table",
    "1 KiB rows, 512 MiB, loader without prefetch / bare gather",
    "110 KiB rows, 512 MiB, loader without prefetch / bare gather",
    "110 KiB rows, 512 MiB, loader of 2 threads / bare gather",
    "6 ms step, 4 ms preparation: with prefetch / without",
    "cold: pread, 2 threads / default map",
    "cold: loader, 2 threads / default map",
    "cold: loader, 2 threads, verify / default map",
    "DataLoader, our collate / DataLoader, default collate",
    "Grain, batches of a slab / Grain, Python lists",
    *(f"JetClass, {case}: slab / the usual HDF5 loader" for case in jetclass.CASES),
    *(f"JetClass, {case}: ragged slab / the usual HDF5 loader" for case in jetclass.CASES),
    *(
        f"LitData, {layout}: {what}"
        for layout in ("Arrow layout", "leaves")
        for what in ("gather / StreamingDataset[i]", "gather / shuffled loader")
    ),
)
"""What README.md has of it."""

PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "gather": gather.run,
    "starts": starts.run,
    "pack": pack.run,
    "verify": verify.run,
    "loader": loader.run,
    "limits": limits.run,
    "scale": scale.run,
    "jitter": jitter.run,
    "jetclass": lambda quick: jetclass.run(True),  # its usual loader takes seconds a row
    "litdata": lambda quick: _litdata(),
}
"""What is measured, in this order; the last two by as much as a quick run."""


def _litdata() -> dict[str, Any]:
    """Beside LitData's own readers; nothing where it is not installed."""
    try:
        from fieldslab.bench import litdata
    except ModuleNotFoundError as error:
        print(f"not measured: {error.name} is not installed")
        return {}
    return litdata.run(True)


def figures(results: dict[str, Any]) -> dict[str, Ratio | float]:
    """Return all figures by name."""
    labelled: dict[str, Ratio | float] = {}
    for case in results["gather"]["cases"]:
        labelled[f"gather / memcpy, {' '.join(case['case'].split())}"] = case["ratio"]
    for part in ("gather", "starts", "pack", "verify", "loader", "limits", "scale", "jitter"):
        for label, value in results.get(part, {}).items():
            if isinstance(value, dict):
                labelled[f"{part} / plain read and write, {label}"] = value["ratio"]
            elif isinstance(value, Ratio | float):
                labelled[label] = value
    for case in results["jetclass"]["cases"]:
        files = f"JetClass, {case['case']}"
        labelled[f"{files}: slab / the usual HDF5 loader"] = case["ratio"]
        labelled[f"{files}: ragged slab / the usual HDF5 loader"] = case["ratio_ragged"]
    for layout, measured in results["litdata"].items():
        for label, value in measured.items():
            if isinstance(value, Ratio):
                labelled[f"LitData, {layout}: {label}"] = value
    return labelled


def summary(measured: dict[str, Ratio | float]) -> dict[str, Ratio | float]:
    """Format what README.md shows: gathers by number of threads, and the figures `SHOWN`."""
    shown: dict[str, Ratio | float] = {}
    for threads in (1, 2):
        cases = [
            value.median
            for label, value in measured.items()
            if isinstance(value, Ratio) and label.endswith(f"KiB, {threads} thread(s)")
        ]
        label = f"gather / memcpy, rows of 16 to 800 KiB, {threads} thread(s): median, least, most"
        shown[label] = Ratio(median(cases), min(cases), max(cases))
    return shown | {label: measured[label] for label in SHOWN if label in measured}


def main() -> int:
    """Run all, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    parser.add_argument("--readme", action="store_true", help="write README.md, too")
    options = parser.parse_args()
    watch, results = Watch(), {}
    for name, part in PARTS.items():
        print(f"\n{name}\n", flush=True)
        watch.look()
        results[name] = part(options.quick)
    machine = describe(("fieldslab", "numpy", "numba", "pyarrow")) | watch.found()
    document = {
        "machine": machine,
        "date": str(date.today()),
        "quick": options.quick,
        **results,
    }
    measured = figures(results)
    text = table(measured, machine)
    print(f"\n{text}")
    if options.readme:
        publish("measured", table(summary(measured), machine))
        publish("scale", table(results["scale"], machine))
        (RESULTS / "foundation.json").write_text(json.dumps(document, indent=2) + "\n")
        (RESULTS / "foundation.md").write_text(f"# Part by part\n\n{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
