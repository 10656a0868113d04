"""What a measurement was made on: processor, memory, system, versions."""

import os
import platform
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

LIBRARIES = ("fieldslab", "numpy", "numba")


def usable_cores() -> int:
    """Count the processors that this process may use."""
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
    """Return the machine's bytes of memory; 0 if the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return 0


def available_bytes() -> int:
    """Return the available bytes of memory; all of it if the system does not tell."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    return memory_bytes()


def resident() -> tuple[int, int]:
    """Return this process's bytes in memory: anonymous (RssAnon) and of files (RssFile).

    (0, 0) where the system does not tell them apart.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return 0, 0
    values = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    anonymous, mapped = (int(values[name].split()[0]) for name in ("RssAnon", "RssFile"))
    return anonymous * 1024, mapped * 1024


def bytes_read() -> int:
    """Return the bytes that this process read from disks; 0 if the system does not tell."""
    counters = Path("/proc/self/io")
    if not counters.exists():
        return 0
    values = dict(line.split(": ") for line in counters.read_text().splitlines())
    return int(values["read_bytes"])


BUSY = 0.1
"""From this share of all processors in other hands on, what was measured says little."""
STOLEN = 0.02
"""The same for time in which the host ran something else."""


class Watch:
    """Looks before and while something is measured at what else uses the machine.

    Of other programs it knows what they use in the moments in which it is asked to look, and this
    one does nothing; of the host, what it withheld all the time. Where the system does not tell,
    the load average is all there is.
    """

    def __init__(self) -> None:
        """Take the load average, and look a first time."""
        self.load = round(os.getloadavg()[0], 2)
        self._first = _processor_ticks()
        self._busy = self._all = 0
        self.look()

    def look(self, seconds: float = 0.1) -> None:
        """Wait so long, and note what others do meanwhile."""
        before = _processor_ticks()
        time.sleep(seconds)
        after = _processor_ticks()
        self._all += after.total - before.total
        self._busy += after.busy - before.busy

    def found(self) -> dict[str, float | None]:
        """Load average at the start, and shares of processor time of others and of the host."""
        now = _processor_ticks()
        total = now.total - self._first.total
        return {
            "load": self.load,
            "others": round(self._busy / self._all, 3) if self._all else None,
            "stolen": round((now.stolen - self._first.stolen) / total, 3) if total else None,
        }


class Ticks(NamedTuple):
    """Processor time since the machine was started, in units of the system."""

    total: int
    busy: int
    stolen: int


def _processor_ticks() -> Ticks:
    stat = Path("/proc/stat")
    if not stat.exists():
        return Ticks(0, 0, 0)
    ticks = [int(word) for word in stat.read_text().split("\n")[0].split()[1:9]]
    _user, _nice, _system, idle, waiting, _irq, _softirq, stolen = ticks
    return Ticks(sum(ticks), sum(ticks) - idle - waiting, stolen)


def load_in_words(machine: Mapping[str, Any]) -> str:
    """Describe what else used the machine, by `Watch`; the load average of older results."""
    words = f"load {machine['load']:g} at the start"
    if machine.get("others") is not None:
        words += f", other programs on {machine['others']:.0%} of the processors"
    if machine.get("stolen"):
        words += f", {machine['stolen']:.1%} of their time withheld by the host"
    return words


def busy(machine: Mapping[str, Any], *, details: bool = True) -> str | None:
    """Return a warning if other programs used the machine, with `details` of how much."""
    others, stolen = machine.get("others"), machine.get("stolen") or 0.0
    if others is None:  # the system told the load alone
        loaded = machine["load"] > machine["cores"] / 2
    else:
        loaded = others > BUSY or stolen > STOLEN
    if not loaded:
        return None
    how_much = f" ({load_in_words(machine)})" if details else ""
    return f"The machine was busy{how_much}: measure again when it is idle."


def describe(libraries: tuple[str, ...] = LIBRARIES) -> dict[str, Any]:
    """Describe the machine and its software, ready for JSON; missing libraries are None."""
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
    """Format processor, cores, and versions of Python and of libraries, in a line."""
    versions = [f"Python {platform.python_version()}"]
    versions += [f"{name} {version(name)}" for name in ("numpy", "numba", *libraries)]
    return f"{processor()}, {usable_cores()} cores; {', '.join(versions)}"
