"""Settings shared by the whole suite."""

import os
from typing import Any

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


def look_at(fd: Any) -> None:
    """Stand in for `os.fsync`: fail where no such file is open, and wait for no disk."""
    os.fstat(fd if isinstance(fd, int) else fd.fileno())


# What tests write need not outlive a power cut, and tens of thousands of times a disk is slow.
# Programs that tests start sync as always.
os.fsync = look_at
