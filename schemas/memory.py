"""How much memory this process may still take."""

import os
from pathlib import Path


def count_available_bytes() -> int:
    """Count the bytes of memory that are free, the page cache included."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = meminfo.read_text().splitlines()
        available = [
            int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
        ]
        return min([*available, *_read_cgroup_limit()])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
