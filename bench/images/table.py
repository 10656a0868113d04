"""What was measured of decoding as a table for README.md."""

from datetime import date

from fieldslab.bench.images.fidelity import Fidelity
from fieldslab.bench.images.speed import CASES, PILLOW, WHOLE, DecodingSpeed, case_of
from fieldslab.bench.machine import in_words
from fieldslab.bench.readme import markdown_table
from fieldslab.bench.timing import Ratio

WORDS = {
    PILLOW: "Pillow, whole picture",
    WHOLE: "libjpeg-turbo, whole picture",
    "turbojpeg": "decoder `turbojpeg`",
    "roi": "decoder `roi`, by the index",
    "jpeg,short-side=256": "packed as `jpeg,short-side=256,quality=90`; `roi`",
    "yuv420": "packed as `yuv420`",
    "rgb,long-side=256": "packed as `rgb,long-side=256`",
}


def table(
    measured: dict[str, dict[str, DecodingSpeed]],
    true: dict[str, Fidelity],
    sizes: dict[str, int],
    ratios: dict[str, Ratio],
    quick: bool,
    warning: str | None = None,
) -> str:
    """Format a table for each crop as Markdown, other ratios below, a warning above."""
    lines = [
        f"Measured on {date.today()} ({in_words('pillow')}){', in a quick run' if quick else ''}:",
        "photographs of about 500 x 375 pixels and 70 KB, all calls in turns, medians. `x` is how",
        "many times as fast as the plain way, in which libjpeg-turbo decodes the whole picture.",
        "Differences are grey levels from what Pillow makes of the whole picture.",
        *([warning] if warning else []),
    ]
    columns = ["images/s, 1 thread", "x", "images/s, 2 threads", "x"]
    columns += ["mean difference", "PSNR, dB", "bytes"]
    for crop, cases in measured.items():
        rows = [_row(case, cases, true.get(case), sizes) for case in WORDS]
        lines += ["", markdown_table([crop, *columns], rows)]
    ratio_rows = [(label, str(value)) for label, value in ratios.items()]
    return "\n".join([*lines, "", markdown_table(["of `roi`", "ratio"], ratio_rows)])


def large_table(large: dict[str, DecodingSpeed], psnr_by_scale: dict[float, float]) -> str:
    """Format crops of large photographs by decoder, and PSNR of `roi` by scale, as Markdown."""
    head = ["RandomResizedCrop(224) of 2 to 18 megapixels", "images/s, 2 threads", "x"]
    rows = [
        [WORDS.get(case, case), f"{speed.rate:,.0f}", f"{speed.whole.median:.2f}"]
        for case, speed in large.items()
    ]
    scales = [f"{scale:g}" for scale in psnr_by_scale]
    worst = [f"{psnr:.1f}" for psnr in psnr_by_scale.values()]
    by_scale = markdown_table(["`roi`, box / view", *scales], [["PSNR of the worst, dB", *worst]])
    return f"{markdown_table(head, rows)}\n\n{by_scale}"


def _row(
    case: str, cases: dict[str, DecodingSpeed], accuracy: Fidelity | None, sizes: dict[str, int]
) -> list[str]:
    """What was measured of one way to store and decode images."""
    cells = [WORDS[case]]
    for threads in (1, 2):
        speed = cases[case_of(case, threads)]
        cells += [f"{speed.rate:,.0f}", f"{speed.whole.median:.2f}"]
    cells += ["", ""]
    if accuracy:
        cells[-2:] = f"{accuracy.mean_difference:.2f}", f"{accuracy.psnr:.1f}"
    way = CASES[case][0] if case in CASES else "jpeg"
    return [*cells, f"{sizes[way] / sizes['jpeg']:.2f}"]
