"""Repairs one folder of a slab: from a copy, then from the source, then file by file into place."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.packer.check.block_check import BlockRuns, get_row_range, make_block_problem
from fieldslab.packer.check.findings import Problem, make_problem
from fieldslab.packer.repairing.damage import WRONG_HEADER, FileScan, FolderScan, find_runs
from fieldslab.packer.repairing.from_copy import fill_from_copy, find_table
from fieldslab.packer.repairing.patch import Patch, remove_unfinished
from fieldslab.packer.repairing.report import RepairReport
from fieldslab.schemas import layout
from fieldslab.schemas.access import Folder
from fieldslab.schemas.arrays import make_array_header
from fieldslab.schemas.errors import (
    Damaged,
    MissingLibrary,
    OutputError,
    SourceError,
    Unreadable,
)
from fieldslab.schemas.fields import Role
from fieldslab.schemas.folder import SlabFiles
from fieldslab.schemas.stores.directory import DirectoryStore
from fieldslab.schemas.write_errors import name_write_errors


@dataclass
class Helpers:
    """What a slab is repaired from: a copy, a source, or both. The source is opened when needed."""

    files: SlabFiles
    copy: SlabFiles | None
    against: Any
    tokenizers: Sequence[str | Path]
    storage_options: Mapping[str, Any] | None

    @cached_property
    def source(self) -> Any:
        """The source, planned; None without one. Raises what `SourceRows` raises."""
        if self.against is None:
            return None
        from fieldslab.packer.repairing.from_source import SourceRows  # needs pyarrow

        return SourceRows(self.files, self.against, self.tokenizers, self.storage_options)


class FolderRepair:
    """One folder that is not whole."""

    def __init__(
        self,
        scan: FolderScan,
        shard: int,
        of_copy: Folder | None,
        helpers: Helpers,
        report: RepairReport,
    ) -> None:
        """`shard` is the number of the folder, if it is a shard; `of_copy` is that of a copy."""
        self._scan = scan
        self._folder = scan.folder
        self._shard = shard
        self._of_copy = of_copy
        self._helpers = helpers
        self._report = report
        self._reasons: dict[str, str] = {}

    def run(self) -> None:
        """Repair what can be; enter in the report what was, and what was not."""
        scan = self._scan
        if scan.table is None and self._of_copy is not None:
            table = find_table(self._of_copy)
            if table is not None:
                scan.accept_table(table)
                self._folder.accept_digests(table)
        if self._report.dry_run:
            self._report_damage()
            return
        path = self._folder.path
        with name_write_errors(path):
            path.mkdir(exist_ok=True)
        with ExitStack() as stack:
            opened = stack.enter_context(self._folder.open())
            remove_unfinished(opened)
            patches = {
                file.file.name: stack.enter_context(Patch(opened, file, self._folder.digest))
                for file in scan.files
                if not file.is_whole
            }
            if self._of_copy is not None and scan.table is not None:
                for patch in patches.values():
                    fill_from_copy(self._of_copy, patch, scan.get_digests(patch.file))
            self._fill_from_source(patches)
            if scan.table is None:
                self._find_table(patches)
            if scan.table is None:
                self._report_unknown_table()
                return
            self._put_in_place(patches)
        if scan.table_problem is not None:
            self._write_table(scan.table)

    def _fill_from_source(self, patches: Mapping[str, Patch]) -> None:
        names = {patch.file.field.name for patch in patches.values() if patch.left.any()}
        by_field: dict[str, dict[Role, Patch]] = defaultdict(dict)
        for patch in patches.values():
            if patch.file.field.name in names:  # also offsets whose header alone is damaged
                by_field[patch.file.field.name][patch.file.role] = patch
        if not by_field or self._helpers.source is None:
            return
        if not self._folder.holds_rows:
            with self._note_failure(*by_field):
                self._helpers.source.fill_tables(by_field)
        for name, of_field in by_field.items() if self._folder.holds_rows else ():
            field = next(iter(of_field.values())).file.field
            with self._note_failure(name):
                self._helpers.source.fill_field(
                    self._folder, self._shard, field, of_field, self._get_expected(of_field)
                )
        if self._scan.table is not None:
            for patch in patches.values():
                patch.accept(self._scan.get_digests(patch.file))

    def _find_table(self, patches: Mapping[str, Patch]) -> None:
        """Find the digest table by the blocks that were converted, if its root then is right."""
        parts = []
        for file in self._scan.files:
            digests = file.digests.copy()
            patch = patches.get(file.file.name)
            if patch is not None:
                digests[patch.left] = patch.compute_digests()[patch.left]
            parts.append(digests)
        table = self._folder.digest.join_tables(parts)
        if self._folder.digest.compute_root(table) == self._folder.root:
            self._scan.accept_table(table)
            for patch in patches.values():
                patch.left[:] = False

    def _put_in_place(self, patches: Mapping[str, Patch]) -> None:
        for file in self._scan.files:
            patch = patches.get(file.file.name)
            if patch is None or file.is_whole:
                continue
            repaired = int(np.count_nonzero(file.damaged & ~patch.left))
            gains = repaired or (file.problem and not patch.left.all())
            # To write a file again without a block that a disk may yet give would lose it.
            if (gains or not file.file.blocks) and not (patch.left & file.lost).any():
                try:
                    patch.put_in_place(self._scan.get_digests(file.file))
                except (Unreadable, OutputError) as error:
                    if not isinstance(error.__cause__, IsADirectoryError | None):
                        raise
                    self._report.add_left(make_problem(error))
                    continue
                what = self._describe_file(file)
                self._report.add_repaired(patch.path, what, file.problem or "damaged", repaired)
                self._report_blocks(file, patch.left)
            else:
                self._report_file(file)
                self._report_blocks(file, file.damaged)

    def _write_table(self, table: np.ndarray) -> None:
        header = make_array_header(*self._folder.digest.describe_file(len(table)))
        data = [header, table.tobytes()]
        DirectoryStore(self._folder.path).write(layout.DIGESTS, data)
        path = self._folder.path / layout.DIGESTS
        what = f"digest table of {self._describe_folder()}"
        self._report.add_repaired(path, what, self._scan.table_problem or "damaged", 0)

    def _describe_file(self, file: FileScan) -> str:
        header = "header of " if file.problem == WRONG_HEADER else ""
        role, name = file.file.role, file.file.field.name
        return f"{header}{role} of field {name}, {self._describe_folder()}"

    def _describe_folder(self) -> str:
        return f"shard {self._shard}" if self._folder.holds_rows else "tables"

    def _report_damage(self) -> None:
        """Enter all that is wrong in the report, where nothing is to be changed."""
        if self._scan.table_problem is not None:
            self._report.add_left(self._make_table_problem(self._scan.table_problem))
        for file in self._scan.files:
            self._report_file(file)
            if self._scan.table is not None:
                self._report_blocks(file, file.damaged)

    def _report_unknown_table(self) -> None:
        text = (
            f"{self._scan.table_problem}; nothing proves what the blocks of this folder should be"
        )
        reasons = [f": {reason}" for reason in sorted(set(self._reasons.values()))]
        self._report.add_left(self._make_table_problem(text + "".join(reasons)))
        for file in self._scan.files:
            self._report_file(file)

    def _make_table_problem(self, text: str) -> Problem:
        path = self._folder.path / layout.DIGESTS
        return Problem(problem=text, file=str(path), rows=get_row_range(self._folder))

    def _report_file(self, file: FileScan) -> None:
        if file.problem is not None:
            self._report.add_left(
                Problem(
                    problem=file.problem,
                    file=str(self._folder.path / file.file.name),
                    field=file.file.field.name,
                    rows=get_row_range(self._folder),
                )
            )

    def _report_blocks(self, file: FileScan, blocks: np.ndarray) -> None:
        reason = self._reasons.get(file.file.field.name)
        for first, stop in find_runs(blocks):
            runs = BlockRuns(self._folder, file.file, (), None)
            problem = make_block_problem(runs, first, stop)
            if reason is not None:
                problem = replace(problem, problem=f"{problem.problem}; {reason}")
            self._report.add_left(problem)

    def _get_expected(self, of_field: Mapping[Role, Patch]) -> Mapping[Role, np.ndarray] | None:
        if self._scan.table is None:
            return None
        return {role: self._scan.get_digests(patch.file) for role, patch in of_field.items()}

    @contextmanager
    def _note_failure(self, *fields: str) -> Iterator[None]:
        """Note why the source does not help these fields, if it does not."""
        try:
            yield
        except MissingLibrary:
            raise
        except (SourceError, Damaged, Unreadable) as error:
            reason = f"the source does not help: {error.problem}"
            self._reasons |= dict.fromkeys(fields, reason)
