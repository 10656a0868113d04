"""`fieldslab verify --rate`, `--resume` and the like: scrubs, for cron and timers."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fieldslab.packer.check.findings import Problem
from fieldslab.packer.check.scrub import Scrub
from fieldslab.packer.check.throttle import Throttle
from fieldslab.packer.commands.progress import show_bar
from fieldslab.packer.commands.terminal import convert_interrupts, print_json
from fieldslab.schemas.bytesizes import parse_size
from fieldslab.schemas.errors import Damaged, UsageError
from fieldslab.schemas.optiontext import mark_option

LEAST_SECONDS = 60.0
"""Seconds from the start of a pass to the start of the next: small slabs are read in no time."""


def scrub_slabs(
    slabs: Sequence[str],
    *,
    rate: str | None,
    max_load: float | None,
    resume: str | None,
    repeat: bool,
    metrics: str | None,
    as_json: bool,
    quiet: bool,
    hidden: bool,
    **options: Any,
) -> int:
    """Scrub slabs, once or for ever; return the exit code. `options` are those of `Scrub`."""
    bytes_per_second = None if rate is None else parse_size("rate", rate)
    if bytes_per_second == 0:
        raise UsageError(f"{mark_option('rate')} must be positive", found=rate)

    def print_problem(path: str, problem: Problem) -> None:
        problem = problem.with_shell_words()
        if as_json:
            print_json({"path": path, "problem": problem.as_dict()}, indent=None)
        else:
            print(problem, flush=True)

    scrub = Scrub(
        slabs,
        Throttle(bytes_per_second, max_load),
        state=None if resume is None else Path(resume),
        metrics=None if metrics is None else Path(metrics),
        tell=print_problem,
        **options,
    )
    hint = "" if resume is None else f"run the same command again to go on from {resume}"
    code = 0
    with convert_interrupts(lambda: hint):
        while True:
            started = time.monotonic()
            with show_bar("scrubbing", ", ".join(slabs), None, "bytes", hidden=hidden) as progress:
                for report in scrub.run(progress):
                    report.problems = [problem.with_shell_words() for problem in report.problems]
                    if as_json:
                        print_json(report.as_dict(), indent=None)
                    elif not (quiet and report.ok):
                        print(report, flush=True)
            code = max(code, Damaged.exit_code if scrub.found_problems else 0)
            if not repeat:
                return code
            time.sleep(max(0.0, started + LEAST_SECONDS - time.monotonic()))
