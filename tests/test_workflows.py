"""The workflows of GitHub call targets of the Makefile, and actions that cannot change."""

import re
from pathlib import Path

from tests.naming import case

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_workflows_call_targets_that_there_are() -> None:
    """Each `make TARGET`, and each campaign of the nightly run, is a target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text()
    campaigns = {"campaign"}
    for path in (ROOT / "tests").glob("campaign_*.py"):
        campaigns.add(path.stem.replace("_", "-"))
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)) | campaigns
    text = "\n".join(path.read_text() for path in WORKFLOWS)
    [nightly] = re.findall(r"campaign: \[(.+)\]", text)
    assert set(re.findall(r"make ([a-z-]+)", text)) <= targets
    assert set(nightly.split(", ")) == campaigns


def test_actions_are_pinned_and_may_little() -> None:
    """Actions are named by commit, and every workflow begins with the right to read alone."""
    assert WORKFLOWS
    for path in WORKFLOWS:
        with case(path.name):
            text = path.read_text()
            used = re.findall(r"uses: (.+)", text)
            assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", name) for name in used)
            assert "\npermissions:\n  contents: read\n" in text
            assert text.count("actions/checkout@") == text.count("persist-credentials: false")
