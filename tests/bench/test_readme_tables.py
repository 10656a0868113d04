"""Tables in README.md and docs/ are put there by programs."""

from pathlib import Path

import pytest

from fieldslab.bench import readme
from fieldslab.bench.__main__ import SHOWN, figures, summary
from fieldslab.bench.figure_table import table as table_of_parts
from fieldslab.bench.images.fidelity import Fidelity
from fieldslab.bench.images.speed import CASES, CROPS, PILLOW, DecodingSpeed, case_of
from fieldslab.bench.images.subjects import WAYS
from fieldslab.bench.images.table import table
from fieldslab.bench.readme import PAGES, publish, put
from fieldslab.bench.timing import Ratio
from fieldslab.schemas.errors import UsageError


def test_only_what_stands_between_the_comments_is_replaced(tmp_path: Path) -> None:
    """What is around a table stays; a file without a place for it is left as it is, by name."""
    file = tmp_path / "README.md"
    file.write_text("before\n<!-- x: start -->\nold\n<!-- x: end -->\nafter\n")
    put("x", "new\nlines", file)
    assert file.read_text() == "before\n<!-- x: start -->\nnew\nlines\n<!-- x: end -->\nafter\n"
    with pytest.raises(UsageError, match="no place for y"):
        put("y", "text", file)
    assert "new" in file.read_text()


@pytest.mark.parametrize("name", ["measured", "images", "peers", "decode", "remote", "scale"])
def test_the_benchmarks_page_has_a_place_for_each_table(name: str) -> None:
    """All programs that write tables find their comments."""
    text = PAGES[-1].read_text()
    assert text.index(f"<!-- {name}: start -->") < text.index(f"<!-- {name}: end -->")


def test_a_table_is_put_wherever_it_has_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one page or on all, each with links from its own folder; nowhere is an error."""
    pages = (tmp_path / "README.md", tmp_path / "docs" / "page.md")
    pages[1].parent.mkdir()
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    monkeypatch.setattr(readme, "PAGES", pages)
    place = "<!-- x: start -->\n<!-- x: end -->\n"
    pages[0].write_text("nothing")
    pages[1].write_text(place)
    publish("x", "![chart](bench/results/x.png)")
    assert pages[0].read_text() == "nothing"
    assert "![chart](../bench/results/x.png)" in pages[1].read_text()
    pages[0].write_text(place)
    publish("x", "![chart](bench/results/x.png)")
    assert "![chart](bench/results/x.png)" in pages[0].read_text()
    with pytest.raises(UsageError, match=r"page\.md has no place for y"):
        publish("y", "text")


def test_readme_sums_up_gathers_and_shows_the_most_telling_figures() -> None:
    """Cases of as many threads are one row, from least to most; other figures are as measured."""
    cases = [
        {"case": f"fixed   {size} KiB, {threads} thread(s)", "ratio": Ratio(index, index, index)}
        for threads in (1, 2)
        for size, index in ((16, 0.5), (64, 0.75), (800, 1.0))
    ]
    parts = {"photographs, with their index": {"ratio": Ratio(1.5, 1, 2)}}
    jets = {"case": "lzf, chunks of 1000 rows", "ratio": Ratio(9, 8, 10)}
    actual = figures(
        {
            "gather": {"cases": cases, "one row of 6 fields, us": 8.5, "verify on / off": 0.9},
            "pack": parts,
            "verify": {"verify, GB/s, table": 13.0},
            "loader": {},
            "jitter": {},
            "jetclass": {"cases": [jets | {"ratio_ragged": Ratio(11, 10, 12)}]},
            "litdata": {"leaves": {"rows": 5, "gather / shuffled loader": Ratio(30, 20, 40)}},
        }
    )
    assert len(actual) == 13
    machine = {"load": 0.5, "cores": 2, "others": 0.01, "stolen": 0.0}
    text = table_of_parts(summary(actual), machine)
    assert "load 0.5 at the start, other programs on 1% of the processors" in text
    assert "The machine was busy" not in text
    for threads in (1, 2):
        assert f"{threads} thread(s): median, least, most | 0.75 (0.50-1.00) |" in text
    assert "| one row of 6 fields, us | 8.5 |" in text
    label = "pack / plain read and write, photographs, with their index"
    assert f"| {label} | 1.50 (1.00-2.00) |" in text
    files = "JetClass, lzf, chunks of 1000 rows"
    assert f"| {files}: slab / the usual HDF5 loader | 9.00 (8.00-10.00) |" in text
    assert "| LitData, leaves: gather / shuffled loader | 30.00 (20.00-40.00) |" in text
    assert "GB/s" not in text
    assert "| verify, GB/s, table | 13 |" in table_of_parts(actual, machine)
    loaded = table_of_parts(actual, machine | {"others": 0.4})
    assert "The machine was busy" in loaded
    assert "other programs on 40% of the processors" in loaded


def test_figures_that_are_shown_were_measured() -> None:
    """Every figure that is picked for the documentation stands in the committed results."""
    measured = (readme.ROOT / "bench" / "results" / "foundation.md").read_text()
    assert [label for label in SHOWN if f"| {label} |" not in measured] == []


def test_the_table_of_images_names_every_way() -> None:
    """Each crop has a row for each way, with the numbers that were measured."""
    speed = DecodingSpeed(1234.5, Ratio(2.5, 2, 3), Ratio(5, 4, 6))
    cases = {case_of(case, threads): speed for case in (PILLOW, *CASES) for threads in (1, 2)}
    true = dict.fromkeys(CASES, Fidelity(0.25, 52.5, 47.1))
    text = table(
        dict.fromkeys(CROPS, cases), true, dict.fromkeys(WAYS, 10), {"two / one": speed.whole}, True
    )
    rows = [line for line in text.splitlines() if "1,234" in line]
    assert len(rows) == len(CROPS) * (len(CASES) + 1)
    assert "| 2.50 |" in rows[1]
    assert "| 0.25 | 52.5 | 1.00 |" in rows[1]
    assert "in a quick run" in text
    assert "| two / one | 2.50 (2.00-3.00) |" in text
