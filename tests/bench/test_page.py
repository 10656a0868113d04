"""The report: charts and the page."""

import json
import re
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.bench.made import results
from tests.bench.test_style import size_of

from fieldslab.bench.report import page
from fieldslab.bench.report.advice import advise
from fieldslab.bench.report.charts import CHARTS
from fieldslab.bench.report.style import LIGHT

FULL = {
    "throughput",
    "heat-map",
    "latency-timeline",
    "latency-histogram",
    "read-ahead",
    "cold-warm",
    "threads",
    "memory",
    "strategies",
    "decoding",
}


class Loads(HTMLParser):
    """Collects whatever a page would load, and checks that its tags are balanced."""

    EMPTY = frozenset({"meta", "img", "source", "link", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "srcset", "data", "action"):
                self.addresses.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that was opened last."""
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the report of results in which everything was measured."""
    folder = tmp_path_factory.mktemp("report")
    outcome = results(images=True)
    outcome.advice = advise(outcome)
    assert page.write(outcome, folder) == folder / "index.html"
    return folder


def test_every_chart_is_a_picture(written: Path) -> None:
    """There is a PNG of 1280 pixels' width for every chart, and it is not empty."""
    assert set(CHARTS) == FULL
    assert {file.stem for file in written.glob("*.png")} == FULL
    for file in written.glob("*.png"):
        width, height = size_of(file.read_bytes())
        assert width == 1280
        assert 300 < height < 1200
        assert file.stat().st_size > 10_000


def test_the_page_loads_nothing(written: Path) -> None:
    """The page has everything in itself: all addresses are data, and there are no scripts."""
    text = (written / "index.html").read_text()
    loads = Loads()
    loads.feed(text)
    assert loads.open == []
    assert len(loads.addresses) == 2 * len(FULL)
    assert all(address.startswith("data:image/png;base64,") for address in loads.addresses)
    assert not {"script", "link", "iframe", "object"} & set(loads.tags)
    assert "url(" not in text
    assert "@import" not in text
    light = b64decode(loads.addresses[1].partition(",")[2])
    assert light == (written / "throughput.png").read_bytes()


def test_the_page_says_it_all(written: Path) -> None:
    """Score, targets, advice, machine, versions, slab id and every number stand in the page."""
    text = re.sub(r"base64,[^\"]+", "", (written / "index.html").read_text())
    for part in ("<b>100</b>", "a random row", "All targets are met", "0" * 64, "numpy 2.0"):
        assert part in text
    assert "Testium &lt;2000&gt;" in text
    assert "<b>train" not in text  # names are text, never markup
    assert "256 sequential" in text


def test_what_was_not_measured_is_left_out() -> None:
    """Without images, disk, memory and a second core there are neither charts nor gaps."""
    outcome = results(cold=None, threads=(1e9,))
    outcome.memory = None
    left_out = ("cold-warm", "threads", "memory", "decoding")
    assert [CHARTS[name](outcome, LIGHT) for name in left_out] == [None] * 4
    assert "None" not in page.render(outcome, [])


def test_results_are_json() -> None:
    """Everything can be written as JSON, rates and verdicts included."""
    document = json.loads(json.dumps(results(images=True).as_dict(), allow_nan=False))
    assert document["format"] == 1
    assert document["targets"][0]["met"] is True
    assert document["batches"][0]["orders"][0]["rows_per_second"] == pytest.approx(100_000)
    assert document["latency"]["direct"]["gb_per_second"] == pytest.approx(5.0)
