"""Damaged images between guard pages, some hundred for each decoder in every run."""

import subprocess
import sys
from pathlib import Path

from tests.campaign_images import DECODERS

ROOT = Path(__file__).parents[3]
PATH = ":".join(map(str, (ROOT / ".ns", ROOT)))


def test_no_damage_is_read_beyond_or_passed_on() -> None:
    """500 damaged images: no crash, nothing half written, nothing of other images."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaign_images", "--cases", "500", "--seed", "0"],
        env={"PYTHONPATH": PATH},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for decoder, line in zip(DECODERS, done.stdout.splitlines(), strict=True):
        assert line.startswith(f"{decoder}: 500 damaged images")
        assert all(status in line for status in ("'OK'", "'TRUNCATED'", "'DAMAGED'"))
