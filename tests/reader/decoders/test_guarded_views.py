"""Views of all shapes between guard pages, some hundred in every run."""

import subprocess
import sys
from pathlib import Path

from tests.campaign_views import SUBJECTS

ROOT = Path(__file__).parents[3]
PATH = ":".join(map(str, (ROOT / ".ns", ROOT)))


def test_nothing_beside_the_memory_is_touched() -> None:
    """100 views by each: nothing read or written outside, and nothing of what memory held."""
    program = [sys.executable, "-m", "tests.campaign_views", "--cases", "100", "--seed", "0"]
    done = subprocess.run(
        program, env={"PYTHONPATH": PATH}, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for subject in SUBJECTS:
        assert f"{subject}: 100 views" in done.stdout
