"""Measure decoding: `python -m fieldslab.bench.images [--quick] [--images DIR] [--readme]`.

Photographs are cut from pictures that PyPI packages ship, or taken from a folder of yours; those of
2 to 18 megapixels, which are measured without one, are made of shipped ones. All
calls take turns in every round; ratios are medians over rounds, with quartiles.
"""

import argparse
import json
import sys
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fieldslab.bench.images.fidelity import Fidelity, fidelity
from fieldslab.bench.images.large import build_large, find_psnr_by_scale, time_large
from fieldslab.bench.images.sheet import draw_sheet
from fieldslab.bench.images.speed import CASES, CROPS, WHOLE, DecodingSpeed, other_ratios, speeds
from fieldslab.bench.images.subjects import build, stored_bytes
from fieldslab.bench.images.table import large_table, table
from fieldslab.bench.machine import Watch, busy, describe
from fieldslab.bench.photographs import own_photographs, photographs
from fieldslab.bench.readme import RESULTS, publish
from fieldslab.schemas.errors import FieldslabError

COUNT, QUICK_COUNT = 320, 64
LARGE, QUICK_LARGE = 12, 4
ROUNDS, QUICK_ROUNDS = 5, 3


def run(
    quick: bool = False,
    images: Path | None = None,
    sheet: Path | None = None,
    readme: bool = False,
) -> dict[str, Any]:
    """Measure, print, and return the results."""
    count, rounds = (QUICK_COUNT, QUICK_ROUNDS) if quick else (COUNT, ROUNDS)
    files = photographs(count) if images is None else own_photographs(images, count)
    label, crop = next(iter(CROPS.items()))
    watch = Watch()
    with TemporaryDirectory() as folder:
        slabs = build(files, Path(folder))
        true = {
            case: fidelity(slabs[way], slabs["jpeg"], crop, decoder)
            for case, (way, decoder) in CASES.items()
            if case != WHOLE
        }
        sizes = {name: stored_bytes(slab) for name, slab in slabs.items()}
        watch.look()
        measured = speeds(slabs, rounds)
        watch.look()
        ratios = other_ratios(slabs["jpeg"], rounds)
        large, psnr_by_scale = {}, {}
        if images is None:
            large_slab = build_large(QUICK_LARGE if quick else LARGE, Path(folder))
            large, psnr_by_scale = time_large(large_slab, rounds), find_psnr_by_scale(large_slab)
        if sheet is not None:
            draw_sheet(slabs["jpeg"], crop, {"roi": "roi", "turbojpeg": "turbojpeg"}, sheet, label)
    machine = describe() | watch.found()
    _show(measured, true, sizes)
    for what, value in ratios.items():
        print(f"{what:50} {value}")
    if large:
        _show_large(large, psnr_by_scale)
    if readme:
        lines = table(measured, true, sizes, ratios, quick, busy(machine))
        if large:
            lines += f"\n\n{large_table(large, psnr_by_scale)}"
        publish("images", lines)
    return {
        "machine": machine,
        "date": str(date.today()),
        "count": len(next(iter(slabs.values()))),
        "quick": quick,
        "speeds": _plain(measured),
        "fidelity": _plain(true),
        "bytes": sizes,
        "ratios": ratios,
        "large": _plain(large),
        "psnr_by_scale": psnr_by_scale,
    }


def _show(
    measured: dict[str, dict[str, DecodingSpeed]], true: dict[str, Fidelity], sizes: dict[str, int]
) -> None:
    for crop, cases in measured.items():
        print(f"\n{crop:42} images/s   / libjpeg-turbo     / Pillow")
        for case, speed in cases.items():
            print(f"{case:42} {speed.rate:8,.0f}   {speed.whole}   {speed.pillow}")
    print(f"\n{'against Pillow':42} mean difference   PSNR, dB   of the worst image")
    for case, how in true.items():
        print(f"{case:42} {how.mean_difference:15.2f}   {how.psnr:8.1f}   {how.least_psnr:8.1f}")
    print()
    for name, size in sizes.items():
        print(f"{name:42} {size / sizes['jpeg']:.2f} x the bytes")


def _show_large(large: dict[str, DecodingSpeed], psnr_by_scale: dict[float, float]) -> None:
    print(f"\n{'2 to 18 megapixels, 2 threads':42} images/s   / libjpeg-turbo     / Pillow")
    for case, speed in large.items():
        print(f"{case:42} {speed.rate:8,.0f}   {speed.whole}   {speed.pillow}")
    print("\nroi, box / view" + "".join(f"{scale:8g}" for scale in psnr_by_scale))
    print("worst PSNR, dB " + "".join(f"{psnr:8.1f}" for psnr in psnr_by_scale.values()))


def _plain(value: Any) -> Any:
    """Named tuples as objects, for JSON."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return _plain(value._asdict()) if isinstance(value, DecodingSpeed | Fidelity) else value


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer images, fewer rounds")
    parser.add_argument("--images", type=Path, metavar="DIR", help="JPEG files of your own")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="draw a contact sheet there")
    parser.add_argument("--readme", action="store_true", help="write the table in README.md")
    options = parser.parse_args()
    if options.readme:
        options.json = options.json or RESULTS / "images.json"
        options.sheet = options.sheet or RESULTS / "images.png"
    try:
        results = run(options.quick, options.images, options.sheet, options.readme)
    except FieldslabError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
