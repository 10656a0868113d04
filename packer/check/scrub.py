"""Scrub: a pass over all blocks of slabs that takes its time, and can be interrupted anywhere."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from fieldslab.packer.check.block_check import CheckResult, check_block_runs
from fieldslab.packer.check.findings import Findings, Problem, Report, VerifyProgress, make_problem
from fieldslab.packer.check.foldercheck import FolderCheck, find_unexpected_files
from fieldslab.packer.check.sampling import Run, Selection, select_all
from fieldslab.packer.check.scrub_state import SlabPass, load_passes, save_passes, write_metrics
from fieldslab.packer.check.throttle import Throttle
from fieldslab.packer.check.verify import make_expected_names
from fieldslab.schemas import layout
from fieldslab.schemas.access import Folder, iterate_folders
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import DamagedManifest, Unreadable
from fieldslab.schemas.folder import SlabFiles
from fieldslab.schemas.layout import ArrayFile
from fieldslab.schemas.stores.slab_objects import (
    find_slab_path,
    is_remote,
    open_slab_anywhere,
)

PIECE_BLOCKS = 64
"""Blocks that are read at a time, 4 MiB: short enough for a slow rate, long enough for a disk."""
SAVE_SECONDS = 60.0
"""Seconds from one save of the state to the next, for those who are killed."""


@dataclass
class ScrubReport(Report):
    """What a pass found, including what earlier runs of the same pass did."""

    blocks: int = 0
    damaged_blocks: int = 0
    unreadable_blocks: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready values."""
        counts = ("blocks", "damaged_blocks", "unreadable_blocks")
        return super().as_dict() | {name: getattr(self, name) for name in counts}


class Scrub:
    """Passes over slabs. What is damaged or cannot be read is counted, and the pass goes on."""

    def __init__(
        self,
        slabs: Sequence[str | Path],
        throttle: Throttle,
        *,
        state: Path | None = None,
        metrics: Path | None = None,
        follow_links: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        max_errors: int = 20,
        tell: Callable[[str, Problem], None] | None = None,
    ) -> None:
        """Check these slabs, directories or URLs, one after the other.

        `state` is the file that says how far a pass has come, `metrics` a file for Prometheus.
        `tell` gets the path of a slab and each of the first `max_errors` problems that a run finds
        in it. Nothing is read here: see `run`.
        """
        self._slabs = slabs
        self._throttle = throttle
        self._state = state
        self._metrics = metrics
        self._options: dict[str, Any] = {
            "follow_links": follow_links,
            "storage_options": storage_options,
        }
        self._max_errors = max_errors
        self._tell = tell
        self._places: list[str | Path] = []
        self._passes: list[SlabPass] = []
        self._unopened: list[SlabPass] = []
        self._saved_at = 0.0

    @property
    def found_problems(self) -> bool:
        """Whether this pass found any, also in slabs that an earlier run was done with."""
        return any(entry.problems for entry in (*self._passes, *self._unopened))

    def run(self, progress: VerifyProgress | None = None) -> Iterator[ScrubReport]:
        """Go on with a pass, or begin one; yield the report of each slab that was not done yet.

        However it ends, the state says which block is next.

        Raises
        ------
        UsageError
            The state is one of other slabs.
        NotASlab, UnsupportedVersion, SlabReplaced
            There is no slab to check.
        RemoteUnreadable, AccessDenied, MissingLibrary
            The store of a URL fails, refuses, or needs a library.
        OutputError
            The state or the metrics cannot be written.
        """
        earlier = {entry.path: entry for entry in self._passes}
        self._places, self._passes, self._unopened = [], [], []
        for slab in self._slabs:
            opened = self._look(slab)
            if isinstance(opened, Report):
                self._unopened.append(SlabPass(_name_slab(slab), "", 0, problems=opened.count))
                yield opened
                continue
            if self._state is None and opened.path in earlier:
                last = earlier[opened.path]
                opened = replace(opened, completed=last.completed, duration=last.duration)
            self._places.append(slab)
            self._passes.append(opened)
        if self._state is not None:
            self._passes = load_passes(
                self._state, self._passes, [_name_slab(slab) for slab in self._slabs]
            )
        self._save()  # who cannot, is to know before anything is read
        try:
            for index, entry in enumerate(self._passes):
                if not entry.done:
                    yield self._check_slab(index, progress)
        finally:
            self._save()

    def _look(self, slab: str | Path) -> SlabPass | ScrubReport:
        """Open a slab to know its id and size; a report where its manifest is damaged."""
        try:
            with open_slab_anywhere(slab, **self._options) as files:
                blocks = sum(layout.count_total_blocks(f.files) for f in iterate_folders(files))
                return SlabPass(_name_slab(slab), files.manifest.id, blocks)
        except (DamagedManifest, Unreadable) as error:
            report = ScrubReport(find_slab_path(slab))
            self._make_findings(report).add(make_problem(error))
            return report

    def _make_findings(self, report: Report) -> Findings:
        path, tell = str(report.path), self._tell
        return Findings(
            report,
            self._max_errors,
            None if tell is None else lambda problem: tell(path, problem),
        )

    def _check_slab(self, index: int, progress: VerifyProgress | None) -> ScrubReport:
        entry = self._passes[index]
        with open_slab_anywhere(self._places[index], **self._options) as files:
            report = ScrubReport(
                files.path,
                files.manifest.rows,
                len(files.manifest.fields),
                entry.bytes,
                count=entry.problems,
                blocks=entry.checked_blocks,
                damaged_blocks=entry.damaged_blocks,
                unreadable_blocks=entry.unreadable_blocks,
            )
            started = time.monotonic() - entry.seconds

            def advance(next_block: int) -> None:
                report.seconds = time.monotonic() - started
                self._passes[index] = replace(
                    entry,
                    next_block=next_block,
                    checked_blocks=report.blocks,
                    damaged_blocks=report.damaged_blocks,
                    unreadable_blocks=report.unreadable_blocks,
                    problems=report.count,
                    bytes=report.bytes,
                    seconds=report.seconds,
                )
                if time.monotonic() - self._saved_at > SAVE_SECONDS:
                    self._save()

            check = _SlabCheck(files, report, self._make_findings(report), self._throttle, advance)
            check.run(entry.next_block, progress)
            advance(entry.blocks)
        self._passes[index] = self._passes[index].complete()
        self._save()
        return report

    def _save(self) -> None:
        if self._state is not None:
            save_passes(self._state, self._passes)
        if self._metrics is not None:
            write_metrics(self._metrics, [*self._passes, *self._unopened])
        self._saved_at = time.monotonic()


class _SlabCheck:
    """The blocks of one slab, from some block on, piece by piece."""

    def __init__(
        self,
        files: SlabFiles,
        report: ScrubReport,
        findings: Findings,
        throttle: Throttle,
        advance: Callable[[int], None],
    ) -> None:
        self._files = files
        self._report = report
        self._findings = findings
        self._throttle = throttle
        self._advance = advance

    def run(self, first: int, progress: VerifyProgress | None) -> None:
        """Check from block `first` on."""
        if first == 0:
            self._list_slab()
        number = 0
        for folder in iterate_folders(self._files):
            total = layout.count_total_blocks(folder.files)
            if first < number + total or first == number:
                self._check_folder(folder, number, max(first - number, 0), progress)
                self._advance(number + total)
            number += total

    def _list_slab(self) -> None:
        try:
            with self._files.open_folder() as opened:
                for name in find_unexpected_files(
                    opened, make_expected_names(self._files.manifest)
                ):
                    self._findings.add(Problem(problem="does not belong here", file=name))
        except Unreadable as error:
            self._findings.add(make_problem(error))

    def _check_folder(
        self, folder: Folder, number: int, first: int, progress: VerifyProgress | None
    ) -> None:
        """Check a folder from its block `first` on; its block 0 is block `number` of the slab."""
        check = FolderCheck(folder, {}, self._findings, map)
        if not check.read_digest_table(list_files=first == 0):
            self._report.unreadable_blocks += layout.count_total_blocks(folder.files) - first
            return
        for file in folder.files:
            if file.first_block + file.blocks > first or file.first_block >= first:
                self._check_file(check, file, number, max(first - file.first_block, 0), progress)
        check.check_table()

    def _check_file(
        self,
        check: FolderCheck,
        file: ArrayFile,
        number: int,
        start: int,
        progress: VerifyProgress | None,
    ) -> None:
        report, done = self._report, start
        work = [(file, _select_from(start), 0)]
        for runs in check.split_work(work, PIECE_BLOCKS, keeps_cache=True):
            [(first, stop)] = runs.ranges
            if not runs.hole:
                self._throttle.wait((stop - first) * BLOCK)
            checked = check_block_runs(runs)
            check.add_result(checked)
            readable = sum(len(digests) for _, digests in checked.digests)
            report.blocks += readable
            report.unreadable_blocks += stop - first - readable
            report.damaged_blocks += _count_wrong_blocks(checked)
            report.bytes += checked.bytes
            if progress is not None:
                progress(0, checked.bytes)
            done = stop
            self._advance(number + file.first_block + stop)
        report.unreadable_blocks += file.blocks - done  # of a file that is not what it should be


def _select_from(start: int) -> Selection:
    def select_runs(first: int, stop: int) -> Iterator[Run]:
        yield from select_all(max(first, start), stop)

    return select_runs


def _count_wrong_blocks(checked: CheckResult) -> int:
    expected = checked.runs.digests
    if expected is None:
        return 0
    return sum(
        int(np.count_nonzero(expected[first : first + len(digests)] != digests))
        for first, digests in checked.digests
    )


def _name_slab(slab: str | Path) -> str:
    """Return the place of a slab as a state names it: the same, whatever directory a run is in."""
    return str(find_slab_path(slab)) if is_remote(slab) else os.path.abspath(slab)
