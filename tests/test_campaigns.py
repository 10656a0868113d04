"""Campaigns: each case has a number, figures are kept between runs, and a fault is reported."""

import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from docs import generate
from docs.generate import campaigns as make_table
from tests import campaigns
from tests.campaigns import Campaign, make_parser

ROOT = Path(__file__).parents[1]


def start(state: Path, words: Sequence[str] = ()) -> Campaign:
    """Make a campaign with these options."""
    arguments = make_parser("").parse_args(["--state", str(state), *words])
    return Campaign("x", "Numbers are small", arguments)


def test_a_campaign_goes_on_behind_its_last_case(tmp_path: Path) -> None:
    """Runs of one seed try each number once, with the same random numbers as alone."""
    drawn = {}

    def draw(number: int, rng: random.Random) -> dict[str, int]:
        drawn[number] = rng.random()
        return {"drawn": 1}

    for cases in ("3", "2"):
        assert start(tmp_path / "x.json", ["--cases", cases]).run(draw) == 0
    assert sorted(drawn) == [0, 1, 2, 3, 4]
    before, drawn = drawn, {}
    assert start(tmp_path / "x.json", ["--case", "3"]).run(draw) == 0
    assert drawn == {3: before[3]}
    state = json.loads((tmp_path / "x.json").read_text())
    assert (state["next"], state["counts"]) == (5, {"drawn": 5})
    with pytest.raises(SystemExit, match="of seed 0"):
        start(tmp_path / "x.json", ["--seed", "1"])


def test_what_fails_is_kept_until_it_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A case that raises is printed with its number, and counts as mended once it passes."""
    monkeypatch.setattr(campaigns, "RESULTS", tmp_path / "campaigns.json")

    def fail(number: int, rng: random.Random) -> dict[str, int]:
        assert number != 1, "a planted fault"
        return {"passed": 1}

    assert start(tmp_path / "x.json", ["--cases", "3", "--publish"]).run(fail) == 1
    assert "case 1: " in capsys.readouterr().out
    assert start(tmp_path / "x.json", ["--retry"]).run(fail) == 1
    figures = json.loads((tmp_path / "campaigns.json").read_text())["x"]
    assert (figures["tried"], figures["failed"], figures["mended"]) == (3, 1, 0)
    assert start(tmp_path / "x.json", ["--retry", "--publish"]).run(lambda *_: {}) == 0
    figures = json.loads((tmp_path / "campaigns.json").read_text())["x"]
    assert (figures["failed"], figures["mended"], figures["counts"]) == (0, 1, {"passed": 2})


def test_shares_of_all_cases_are_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign that knows all its cases says how many of them it tried, and of which kind."""
    monkeypatch.setattr(campaigns, "RESULTS", tmp_path / "campaigns.json")
    monkeypatch.setattr(generate, "CAMPAIGNS", tmp_path / "campaigns.json")
    campaign = start(tmp_path / "x.json", ["--cases", "1200", "--publish"])
    campaign.totals = {"cases": 30_000, "small": 4000, "big": 2}
    assert campaign.run(lambda *_: {"small": 1}) == 0
    assert "| 1,200 of 30,000 (small: 1,200 of 4,000; big: 0 of 2) | 0 | 0 |" in make_table()


def test_every_campaign_is_shown() -> None:
    """`make help` lists the programs, and the documentation those that were published."""
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    programs = {path.stem.replace("_", "-") for path in ROOT.glob("tests/campaign_*.py")}
    assert programs <= set(done.stdout.split())
    for name, figures in json.loads(campaigns.RESULTS.read_text()).items():
        assert f"| `make campaign-{name}` | " in make_table()
        assert f"campaign-{name}" in programs
        assert figures["tried"] > 0


def test_one_minute_is_not_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has the singular where a campaign took about a minute."""
    for target in ("tests.campaigns.RESULTS", "docs.generate.CAMPAIGNS"):
        monkeypatch.setattr(target, tmp_path / "campaigns.json")
    start(tmp_path / "x.json", ["--cases", "1", "--publish"]).run(lambda *_: {})
    for minutes, text in ((0.7, "1 minute,"), (1.6, "2 minutes,"), (1234, "1,234 minutes,")):
        figures = json.loads((tmp_path / "campaigns.json").read_text())
        figures["x"]["minutes"] = minutes
        (tmp_path / "campaigns.json").write_text(json.dumps(figures))
        assert text in make_table()
