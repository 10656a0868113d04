"""Damaged images between guard pages, a few thousand in every run."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.campaign_images import DECODERS

ROOT = Path(__file__).parents[3]
PATH = ":".join(map(str, (ROOT / ".ns", ROOT)))


@pytest.mark.parametrize("decoder", DECODERS)
def test_no_damage_is_read_beyond_or_passed_on(decoder: str) -> None:
    """2,000 damaged images: no crash, nothing half written, nothing of other images."""
    program = [sys.executable, "-m", "tests.campaign_images", "--cases", "2000", "--seed", "0"]
    done = subprocess.run(
        [*program, "--decoder", decoder],
        env={"PYTHONPATH": PATH},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(status in done.stdout for status in ("'OK'", "'TRUNCATED'", "'DAMAGED'"))
