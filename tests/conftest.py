"""Settings shared by the whole suite."""

import gc
import os
import shutil
from pathlib import Path

from hypothesis import HealthCheck, settings

# The same examples in every run, so that a red build can be repeated; no deadline, because
# the first call of a kernel compiles it and shared machines are slow at times.
settings.register_profile(
    "fieldslab",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fieldslab")

# Tests write tens of thousands of files and sync each; in memory both cost next to nothing.
MEMORY = Path("/dev/shm")
ENOUGH = 8 * 2**30
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ENOUGH:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_finish() -> None:
    """Leave out of garbage collections what the libraries of all tests have made so far.

    Of millions of objects none is garbage; each `gc.collect()` took 0.4 s to find that.
    """
    gc.collect()
    gc.freeze()
