"""Measure this checkout: `python -m fieldslab.bench [--quick] [--readme]`.

Runs the benchmarks one after the other, writes `bench/results/foundation.json` and `.md`, and with
`--readme` the most telling figures into README.md, between two markers.
"""

import argparse
import json
import sys
from datetime import date
from statistics import median
from typing import Any

from fieldslab.bench import gather, loader, pack, verify
from fieldslab.bench.machine import in_words
from fieldslab.bench.readme import RESULTS, put
from fieldslab.bench.timing import Ratio

SHOWN = (
    "verify on / off",
    "verify on / off, first touch",
    "fixed 1 KiB, gather / numpy.take",
    "open 1,000,000 rows, ms",
    "one row of 6 fields, us",
    "first gather, numba cache empty, s",
    "first gather, numba cache warm, s",
    "pack / its parts alone, photographs, uncompressed",
    "pack / its parts alone, mixed, zstd",
    "verify / plain reads, 2 threads each, photographs",
    "verify / plain reads, 2 threads each, table",
    "110 KiB rows, loader without prefetch / bare gather",
    "6 ms step, 4 ms preparation: with prefetch / without",
    "cold: loader, 2 threads / default map",
    "cold: loader, 2 threads, verify / default map",
    "DataLoader, our collate / DataLoader, default collate",
    "Grain, batches of a slab / Grain, Python lists",
)
"""What README.md has of it."""


def figures(results: dict[str, Any]) -> dict[str, Ratio | float]:
    """What was measured, by what it is."""
    found: dict[str, Ratio | float] = {}
    for case in results["gather"]["cases"]:
        found[f"gather / memcpy, {' '.join(case['case'].split())}"] = case["ratio"]
    for part in ("gather", "pack", "verify", "loader"):
        for label, value in results[part].items():
            if isinstance(value, dict):
                found[f"{part} / its parts alone, {label}"] = value["ratio"]
            elif isinstance(value, Ratio | float):
                found[label] = value
    return found


def table(found: dict[str, Ratio | float]) -> str:
    """Figures as Markdown, with machine and date."""
    lines = [
        f"Measured on {date.today()} ({in_words('pyarrow')}), page cache warm. Ratios are",
        "medians over rounds in which all calls take turns, with quartiles.",
        "",
        "| what | measured |",
        "|---|---|",
    ]
    for label, value in found.items():
        lines.append(
            f"| {label.strip()} | {value if isinstance(value, Ratio) else f'{value:.3g}'} |"
        )
    return "\n".join(lines)


def summary(found: dict[str, Ratio | float]) -> dict[str, Ratio | float]:
    """What README.md shows: gathers by the number of threads, and the figures `SHOWN`."""
    shown: dict[str, Ratio | float] = {}
    for threads in (1, 2):
        cases = [
            value.median
            for label, value in found.items()
            if isinstance(value, Ratio) and label.endswith(f"KiB, {threads} thread(s)")
        ]
        label = f"gather / memcpy, rows of 16 to 800 KiB, {threads} thread(s): median, least, most"
        shown[label] = Ratio(median(cases), min(cases), max(cases))
    return shown | {label: found[label] for label in SHOWN if label in found}


def main() -> int:
    """Run all, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    parser.add_argument("--readme", action="store_true", help="write the table in README.md")
    options = parser.parse_args()
    results = {}
    for module in (gather, pack, verify):
        print(f"\n{module.__name__.rpartition('.')[2]}\n", flush=True)
        results[module.__name__.rpartition(".")[2]] = module.run(options.quick)
    print("\nloader and adapters, quick: the marks are as clear with less data\n", flush=True)
    results["loader"] = loader.run(True)
    RESULTS.mkdir(exist_ok=True)
    document = {
        "machine": in_words("pyarrow"), "date": str(date.today()), "quick": options.quick,
        **results,
    }  # fmt: skip
    (RESULTS / "foundation.json").write_text(json.dumps(document, indent=2) + "\n")
    found = figures(results)
    (RESULTS / "foundation.md").write_text(f"# Part by part\n\n{table(found)}\n")
    if options.readme:
        put("measured", table(summary(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
