"""Settings shared by the whole suite."""

import gc
import os
import shutil
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.servers.fixtures import _no_credentials, bucket, s3_server, serve

__all__ = ["_no_credentials", "bucket", "s3_server", "serve"]

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

# Triton's kernels run on the processor; it looks when they are defined.
os.environ["TRITON_INTERPRET"] = "1"

# Programs that run in the background of a shell script ignore Ctrl-C, and so would their children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Libraries make millions of objects while they are imported, of which hardly any is garbage.
gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest test, which mostly waits: the run must not end with it."""
    items.sort(key=lambda item: item.path.name != "test_ray.py")


def pytest_collection_finish() -> None:
    """Collect garbage again, but not among those objects: to look at them takes over a second."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Let objects that were kept from the collector go: Triton reports those that are left."""
    gc.unfreeze()
