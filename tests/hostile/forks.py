"""Tries cases in forked processes, so that a crash, or a case without end, is one case's own."""

import faulthandler
import json
import os
import resource
import shutil
import sys
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaigns import Campaign

FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where slabs are forged: in memory, if the system has such a folder."""
TryNumber = Callable[[int, Path], Counter[str]]
_SECONDS = 60
"""A case that takes longer has no end."""
_MEMORY = 3 * 2**30
"""What cases may map beyond what the process has: whoever believes a giant number fails."""
_FILE = 2**28
"""Bytes of the largest file that may be written."""
_CHILDREN_OF_A_JOB = 4
"""Some children take longer than others: jobs wait for each other after so many."""


@dataclass
class Outcome:
    """What became of some cases."""

    counts: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)


def run_in_children(
    campaign: Campaign, size: int, folder: Path, try_case: TryNumber, total: int = sys.maxsize
) -> int:
    """Run a campaign, `size` cases in each child, some children at a time: its exit status."""

    def try_part(numbers: range) -> Outcome:
        place = folder / f"job-{threading.get_ident()}"
        place.mkdir(exist_ok=True)
        return try_cases(numbers, place, try_case)

    jobs = campaign.jobs
    with ThreadPoolExecutor(jobs) as pool:
        for numbers in campaign.take_numbers(size * jobs * _CHILDREN_OF_A_JOB, total):
            parts = [numbers[start : start + size] for start in range(0, len(numbers), size)]
            for part, outcome in zip(parts, pool.map(try_part, parts), strict=True):
                for number, problem in outcome.failed.items():
                    campaign.fail(number, problem)
                campaign.complete(part, outcome.counts)
    return campaign.finish()


def try_cases(numbers: range, folder: Path, try_case: TryNumber) -> Outcome:
    """Try cases in a child; where it dies, that case has failed, and another child goes on."""
    outcome = Outcome()
    log, errors = folder / "log", folder / "errors"
    next_case = numbers.start
    while next_case < numbers.stop:
        log.write_bytes(b"")
        child = os.fork()
        if child == 0:
            _run(range(next_case, numbers.stop), folder, try_case)
        _, status = os.waitpid(child, 0)
        current: int | None = None
        for line in log.read_text().splitlines():
            number, problem, counts = json.loads(line)
            current = number if counts is None else None
            next_case = number + 1
            outcome.counts.update(counts or {})
            if problem:
                outcome.failed[number] = problem
        if current is not None:
            said = errors.read_text(errors="replace")[-3000:]
            ended = os.waitstatus_to_exitcode(status)
            outcome.failed[current] = f"the process ended with {ended}: {said}"
        elif status:
            raise RuntimeError(f"a child ended with {status} before its first case: {errors}")
        shutil.rmtree(folder / "cases", ignore_errors=True)
    return outcome


def _run(numbers: range, folder: Path, try_case: TryNumber) -> None:
    """Be the child."""
    status = 1
    try:
        errors = os.open(folder / "errors", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(errors, 2)
        faulthandler.enable(all_threads=False)
        warnings.simplefilter("ignore")
        log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND)
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
        resource.setrlimit(resource.RLIMIT_AS, (mapped + _MEMORY, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE, _FILE))
        for number in numbers:
            os.write(log, json.dumps([number, "", None]).encode() + b"\n")
            faulthandler.dump_traceback_later(_SECONDS, exit=True)
            problem, counts = "", Counter[str]()
            try:
                counts = try_case(number, folder / "cases")
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
                problem = "".join(traceback.format_exception(error))
            os.write(log, json.dumps([number, problem[-3000:], counts]).encode() + b"\n")
        status = 0
    except BaseException:  # noqa: BLE001 - nothing of the parent may run here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)
