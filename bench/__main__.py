"""Measure this checkout: `python -m fieldslab.bench [--quick] [--readme]`.

Runs the benchmarks one after the other, writes `bench/results/foundation.json`, and with
`--readme` the table in README.md between its two markers.
"""

import argparse
import json
import sys
from datetime import date
from typing import Any

from fieldslab.bench import gather, loader, pack, verify
from fieldslab.bench.machine import in_words
from fieldslab.bench.readme import RESULTS, put
from fieldslab.bench.timing import Ratio


def table(results: dict[str, Any]) -> str:
    """The measured ratios as Markdown."""
    lines = [
        f"Measured on {date.today()} ({in_words('pyarrow')}), page cache warm. Ratios are",
        "medians over rounds in which all calls take turns, with quartiles.",
        "",
        "| what | measured |",
        "|---|---|",
    ]
    for case in results["gather"]["cases"]:
        lines.append(f"| gather / memcpy, {' '.join(case['case'].split())} | {case['ratio']} |")
    for part in ("gather", "pack", "verify", "loader"):
        for label, value in results[part].items():
            if isinstance(value, dict):
                value = value.get("ratio")
                label = f"{part} / its parts alone, {label}"
            if isinstance(value, Ratio):
                lines.append(f"| {label} | {value} |")
            elif isinstance(value, float):
                lines.append(f"| {label} | {value:.3g} |")
    return "\n".join(lines)


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
    if options.readme:
        put("measured", table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
