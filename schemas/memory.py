"""How much memory this process may still take."""

import ctypes
import os
import sys
from pathlib import Path
from typing import Any


def count_available_bytes() -> int:
    """Count the bytes of memory that are free, the page cache included."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = meminfo.read_text().splitlines()
        available = [
            int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
        ]
        return min([*available, *_read_cgroup_limit()])
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return _ask_windows()


def _ask_windows() -> int:
    """Ask Windows how much memory is free: not tested there. No limit where it does not say."""
    kernel: Any = getattr(ctypes, "windll", None)
    # MEMORYSTATUSEX: its size and a percentage, uint32 each, then seven numbers of bytes.
    status = (ctypes.c_uint64 * 8)(64)
    if kernel is None or not kernel.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return sys.maxsize
    return int(status[2])


def _read_cgroup_limit() -> list[int]:
    """Read how much memory is left to the control group of this process, as in a container."""
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        statistics = Path("/sys/fs/cgroup/memory.stat").read_text().split()
        cached = int(statistics[statistics.index("file") + 1])
    except (OSError, ValueError):
        return []
    return [] if most == "max" else [int(most) - used + cached]
