"""Decoding beside FFCV and SPDL: `python -m fieldslab.bench.peers.decode [--quick] [--readme]`.

RandomResizedCrop(224) of the same photographs through each one's own loader, from JPEG files and
from stored pixels. Each has a process of its own; all take turns in every round. What is missing
is reported; `make bench` says what FFCV needs.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from fieldslab.bench.machine import Watch, busy, describe, load_in_words
from fieldslab.bench.peers.__main__ import say
from fieldslab.bench.peers.children import Child, Refusal, start_all
from fieldslab.bench.peers.data import PHOTOGRAPH, make_photographs
from fieldslab.bench.peers.peer import DECODERS, US
from fieldslab.bench.peers.source import Workload
from fieldslab.bench.readme import RESULTS, markdown_table, publish
from fieldslab.bench.timing import ratio
from fieldslab.schemas.errors import FieldslabError

COUNT, QUICK_COUNT = 960, 240
ROUNDS, QUICK_ROUNDS = 4, 3
THREADS = (1, 2)
SECONDS = 1.0
"""For a figure in a round, at most; it ends with the epoch."""


def compare(
    source: Workload, rounds: int, folder: Path, look: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Measure each decoder: seconds an image by threads and rounds, or why it is missing.

    `look` is called before each round.
    """
    started = start_all(list(DECODERS))
    children = {name: child for name, child in started.items() if isinstance(child, Child)}
    results = {name: _about(child) for name, child in started.items()}
    try:
        for name in list(children):
            say(f"converting for {name}")
            where = {"source": str(source.folder), "folder": str(folder / name)}
            try:
                results[name]["bytes"] = children[name].ask("convert", **where)["bytes"]
                children[name].ask("open", **where)
                for threads in THREADS:  # compiles, where that is still to be done
                    _seconds(children[name], threads, 0)
            except Refusal as refusal:
                results[name] = {"status": refusal.kind, "reason": str(refusal)}
                children.pop(name).close()
        for turn in range(rounds):
            say(f"round {turn + 1} of {rounds}")
            look()
            for threads in THREADS:
                for name, child in children.items():
                    results[name]["seconds"][str(threads)].append(_seconds(child, threads, turn))
    finally:
        for child in children.values():
            child.close()
    return results


def _about(child: Child | Refusal) -> dict[str, Any]:
    if isinstance(child, Refusal):
        return {"status": child.kind, "reason": str(child)}
    seconds: dict[str, list[float]] = {str(threads): [] for threads in THREADS}
    return child.about | {"status": "measured", "seconds": seconds}


def _seconds(child: Child, threads: int, turn: int) -> float:
    """An image, in a shuffled epoch."""
    figure = child.ask("measure", what=f"loader {threads}", seconds=SECONDS, seed=turn)
    return float(figure["seconds"] / figure["rows"])


def table(decoders: dict[str, Any]) -> str:
    """Format rates of all decoders as Markdown, and how many times as fast ours is."""
    head = ["stored", "threads", "fieldslab, images/s", "beside it", "images/s", "fieldslab is"]
    rows = []
    for rival in (name for name in decoders if not name.startswith(f"{US}, ")):
        library, _, stored = rival.partition(", ")
        ours, theirs = decoders[f"{US}, {stored}"], decoders[rival]
        for threads in map(str, THREADS):
            rates = [
                f"{1 / median(way['seconds'][threads]):,.0f}" if "seconds" in way else "–"
                for way in (ours, theirs)
            ]
            times = "–"
            if "seconds" in ours and "seconds" in theirs:
                speedup = ratio(ours["seconds"][threads], theirs["seconds"][threads])
                times = f"{speedup} times as fast"
            rows.append([stored, threads, rates[0], library, rates[1], times])
    notes = [
        f"- {name} is {way['status']}: {way['reason']}"
        for name, way in decoders.items()
        if way["status"] != "measured"
    ]
    return "\n".join([markdown_table(head, rows), *([""] if notes else []), *notes])


def heading(results: dict[str, Any]) -> str:
    """When, on what, and how."""
    machine = results["machine"]
    quick = ", in a quick run" if results["quick"] else ""
    return (
        f"Measured on {results['date']} ({machine['processor']}, {machine['cores']} cores; "
        f"{load_in_words(machine)}){quick}. "
        f"{busy(machine, details=False) or ''} RandomResizedCrop(224) of "
        f"{results['count']:,} photographs, shuffled epochs through "
        "each one's own loader, page cache warm, in turns; "
        "uint8 (rows, height, width, 3). All read the same JPEG files, or all pixels of them, or "
        "those of smaller pictures, whose longer side is 256. FFCV decodes whole pictures with "
        "libjpeg-turbo's fast transform and resizes with OpenCV, SPDL decodes, crops and resizes "
        "them with FFmpeg; fieldslab decodes what the crop needs, accurately."
    )


def run(images: Path | None, quick: bool) -> dict[str, Any]:
    """Compare decoders; return results with machine and date. Raises as `own_photographs`."""
    watch = Watch()
    count = QUICK_COUNT if quick else COUNT
    with tempfile.TemporaryDirectory(prefix="fieldslab-bench-") as name:
        folder = Path(name)
        source = make_photographs(folder / "source", count * PHOTOGRAPH, images)
        decoders = compare(source, QUICK_ROUNDS if quick else ROUNDS, folder, watch.look)
    about = {"machine": describe() | watch.found(), "date": str(date.today()), "quick": quick}
    return about | {"count": len(source), "decoders": decoders}


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer images, fewer rounds")
    parser.add_argument("--images", type=Path, metavar="DIR", help="your JPEG files")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--readme", action="store_true", help="write the table in README.md")
    options = parser.parse_args()
    try:
        results = run(options.images, options.quick)
    except FieldslabError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(table(results["decoders"]))
    if options.readme:
        options.json = options.json or RESULTS / "decode.json"
        publish("decode", f"{heading(results)}\n\n{table(results['decoders'])}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
