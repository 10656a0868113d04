"""Ray, on a cluster of two nodes on this machine.

A cluster takes long to start, so all tests share one, in a process of their own: on_ray.py.
"""

import subprocess
import sys
from pathlib import Path

from tests.packer.packing import ROOT


def test_ray_on_a_cluster() -> None:
    """The tests of on_ray.py pass."""
    tests = Path(__file__).with_name("on_ray.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-W", "ignore", str(tests)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
