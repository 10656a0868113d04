"""How much memory this process may still take."""

import os
from pathlib import Path


def count_available_bytes() -> int:
    """Bytes of memory that are free, or would be without the page cache."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = meminfo.read_text().splitlines()
        available = [
            int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
        ]
        return min([*available, *_read_cgroup_limit()])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read_cgroup_limit() -> list[int]:
    """What the control group that this process is in, such as a container, has left."""
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        statistics = Path("/sys/fs/cgroup/memory.stat").read_text().split()
        cached = int(statistics[statistics.index("file") + 1])
    except (OSError, ValueError):
        return []
    return [] if most == "max" else [int(most) - used + cached]
