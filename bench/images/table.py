"""What was measured of decoding as a table for README.md."""

from datetime import date

from fieldslab.bench.images.fidelity import Fidelity
from fieldslab.bench.images.speed import CASES, PILLOW, WHOLE, Speed, case_of
from fieldslab.bench.machine import in_words
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
    measured: dict[str, dict[str, Speed]],
    true: dict[str, Fidelity],
    sizes: dict[str, int],
    ratios: dict[str, Ratio],
    quick: bool,
    warning: str | None = None,
) -> str:
    """Markdown: a table for each crop, and the other ratios below; a warning above."""
    lines = [
        f"Measured on {date.today()} ({in_words('pillow')}){', in a quick run' if quick else ''}:",
        "photographs of about 500 x 375 pixels and 70 KB, all calls in turns, medians. `x` is how",
        "many times as fast as the plain way, in which libjpeg-turbo decodes the whole picture.",
        "Differences are grey levels from what Pillow makes of the whole picture.",
        *([warning] if warning else []),
    ]
    for crop, cases in measured.items():
        lines += [
            "",
            f"| {crop} | images/s, 1 thread | x | images/s, 2 threads | x | "
            "mean difference | PSNR, dB | bytes |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for case, words in WORDS.items():
            one, two = cases[case_of(case, 1)], cases[case_of(case, 2)]
            way = CASES[case][0] if case in CASES else "jpeg"
            how = true.get(case)
            lines.append(
                f"| {words} | {one.rate:,.0f} | {one.whole.median:.2f} | {two.rate:,.0f} | "
                f"{two.whole.median:.2f} | {f'{how.mean_difference:.2f}' if how else ''} | "
                f"{f'{how.psnr:.1f}' if how else ''} | {sizes[way] / sizes['jpeg']:.2f} |"
            )
    lines += ["", "| of `roi` | ratio |", "|---|---|"]
    lines += [f"| {label} | {value} |" for label, value in ratios.items()]
    return "\n".join(lines)
