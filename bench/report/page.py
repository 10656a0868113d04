"""A report: charts as PNG files, and one page that holds everything and opens offline."""

from base64 import b64encode
from pathlib import Path
from typing import Any

from fieldslab.bench.machine import load_in_words
from fieldslab.bench.report import words
from fieldslab.bench.report.charts import CHARTS
from fieldslab.bench.report.style import DARK, LIGHT, png
from fieldslab.bench.report.table import found_text, lines
from fieldslab.bench.slab.results import Results
from fieldslab.bench.slab.targets import POINTS
from fieldslab.packer.commands.text_format import format_count, format_size
from fieldslab.schemas.errors import MissingLibrary

try:
    from jinja2 import Environment, StrictUndefined
except ModuleNotFoundError as error:
    raise MissingLibrary(
        f"a report needs {error.name}, which is not installed",
        hint="pip install 'jinja2>=3.1' 'matplotlib>=3.8'",
    ) from error

TEMPLATE = Path(__file__).with_name("page.html")
_KINDS = {"do": "To do", "know": "To know", "good": "Good"}


def write(results: Results, folder: Path) -> Path:
    """Write a PNG for each chart and `index.html` into a folder; the path of the page.

    Files of these names are replaced. The page has the charts in itself, for light and for dark
    screens, and loads nothing.
    """
    charts = []
    for name, draw in CHARTS.items():
        light = draw(results, LIGHT)
        if light is None:
            continue
        image = png(light)
        (folder / f"{name}.png").write_bytes(image)
        title = " ".join(light.texts[0].get_text().split())
        charts.append(
            {"alt": title, "light": _text(image), "dark": _text(png(draw(results, DARK)))}
        )
    page = folder / "index.html"
    page.write_text(render(results, charts), encoding="utf-8")
    return page


def render(results: Results, charts: list[dict[str, str]]) -> str:
    """Render the page. `charts` have `alt`, and `light` and `dark` as base64 of PNG files."""
    slab, machine = results.slab, results.machine
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    fields = ", ".join(field["name"] for field in slab["fields"][:8])
    more = len(slab["fields"]) - 8
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        name=Path(slab["path"]).name,
        summary=(
            f"{format_count(slab['rows'], 'row')} of {format_size(slab['row_bytes'])} in "
            f"{format_count(len(slab['fields']), 'field')} ({fields}"
            f"{f' and {more} more' if more > 0 else ''}), {format_size(slab['stored_bytes'])} "
            f"stored in {format_count(slab['shards'], 'shard')}"
        ),
        machine=(
            f"{machine['processor']}, {format_count(machine['cores'], 'core')}, "
            f"{format_size(machine['memory_bytes'])} of memory"
        ),
        results=results,
        targets=[
            {
                "name": target.name,
                "met": target.met,
                "found": found_text(target),
                "asked": f"{'below' if target.at_most else 'above'} "
                f"{target.limit:,.0f} {target.unit}",
                "share": f"{100 * target.points / POINTS:.0f}",
            }
            for target in results.targets
        ],
        kinds=_KINDS,
        charts=charts,
        facts=_facts(results),
        numbers="\n".join(lines(results, None)),
        light=LIGHT,
        dark=DARK,
    )


def _facts(results: Results) -> list[tuple[str, Any]]:
    """Terms and what they stand for."""
    machine, method = results.machine, results.method
    versions = [f"{name} {version}" for name, version in machine["libraries"].items()]
    facts = [
        ("slab", results.slab["id"]),
        ("machine", f"{machine['processor']}, {machine['system']}"),
        ("other work", load_in_words(machine)),
        ("libraries", ", ".join([*versions, f"Python {machine['python']}"])),
        ("timed", method["timed"]),
        ("warm-up", method["warm_up"]),
        ("spread", method["spread"]),
        ("memcpy", method["memcpy"]),
        ("seed", f"{method['seed']}, about {method['seconds']:g} s in all"),
    ]
    facts += list(method["orders"].items())
    if results.cold is not None:
        kept = words.percent(results.cold.left_in_memory)
        facts.append(("cold", f"{kept} of the pages stayed in memory when they were dropped"))
    return facts


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")
