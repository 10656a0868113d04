"""What a measurement was made on: processor, memory, system, versions."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

LIBRARIES = ("fieldslab", "numpy", "numba")


def usable_cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor() -> str:
    """Name of the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def memory_bytes() -> int:
    """Bytes of memory in the machine; 0 where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0


def available_bytes() -> int:
    """Bytes of memory that are free or could be; all of it where the system does not tell."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    return memory_bytes()


def resident() -> tuple[int, int]:
    """Bytes of this process in memory: its own (RssAnon), and mapped from files (RssFile).

    (0, 0) where the system does not tell them apart.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return 0, 0
    found = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    anonymous, mapped = (int(found[name].split()[0]) for name in ("RssAnon", "RssFile"))
    return anonymous * 1024, mapped * 1024


def describe(libraries: tuple[str, ...] = LIBRARIES) -> dict[str, Any]:
    """The machine and what runs on it, ready for JSON; libraries that are missing are None."""
    versions: dict[str, str | None] = {}
    for name in libraries:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return {
        "processor": processor(),
        "cores": usable_cores(),
        "memory_bytes": memory_bytes(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "libraries": versions,
        "load": round(os.getloadavg()[0], 2),
    }


def in_words(*libraries: str) -> str:
    """Processor, cores, and versions of Python and of libraries, in a line."""
    versions = [f"Python {platform.python_version()}"]
    versions += [f"{name} {version(name)}" for name in ("numpy", "numba", *libraries)]
    return f"{processor()}, {usable_cores()} cores; {', '.join(versions)}"
