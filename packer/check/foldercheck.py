"""Checks one folder of a slab: its files, its digest table, and what its blocks came to."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from fieldslab.packer.check.block_check import (
    BlockRuns,
    CheckResult,
    get_row_range,
    make_block_problem,
)
from fieldslab.packer.check.findings import Findings, Problem, make_problem
from fieldslab.packer.check.inner_list_check import check_inner_lists
from fieldslab.packer.check.picture_check import check_pictures
from fieldslab.packer.check.sampling import Run, Selection
from fieldslab.packer.check.threads import MapInThreads
from fieldslab.schemas import layout
from fieldslab.schemas.access import ArrayReader, Folder
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import DamagedArray, FieldslabError, Unreadable
from fieldslab.schemas.fields import Field
from fieldslab.schemas.files import OpenFolder
from fieldslab.schemas.holes import find_large_holes
from fieldslab.schemas.layout import ArrayFile

PIECE_BLOCKS = 32 * 1024 * 1024 // BLOCK
"""Blocks that one thread checks at a time."""

_MOST_JUDGED = 2**26
"""Blocks of a folder, 4 TiB, up to which a damaged digest table is told from damaged values:
all of their digests are kept until then."""

_HARMLESS = ("Thumbs.db", "desktop.ini")


class FolderCheck:
    """One folder, from the listing to the verdict."""

    def __init__(
        self, folder: Folder, nulls: dict[str, int], findings: Findings, run: MapInThreads
    ) -> None:
        """`nulls` are those that the manifest counts in this folder, by field."""
        self.folder = folder
        self._nulls = nulls
        self._findings = findings
        self._run = run
        self._table: np.ndarray | None = None
        self._table_problem: Problem | None = None
        self._held: list[Problem] = []
        self._doubtful: list[Problem] = []
        self._computed: list[tuple[int, np.ndarray]] = []
        self._read: Counter[str] = Counter()
        self._zeros: Counter[str] = Counter()
        self._wrong: set[str] = set()
        self._judges = layout.count_total_blocks(folder.files) <= _MOST_JUDGED

    def read_digest_table(self, *, list_files: bool = True) -> bool:
        """Read the folder's digest table; False where there is no folder to check.

        With `list_files`, files that do not belong there are reported.
        """
        rows = get_row_range(self.folder)
        names = {file.name for file in self.folder.files} | {layout.DIGESTS}
        try:
            with self.folder.open() as opened:
                for path in find_unexpected_files(opened, names) if list_files else ():
                    self._findings.add(Problem(problem="file does not belong here", file=path))
        except (DamagedArray, Unreadable) as error:
            self._findings.add(make_problem(error, rows))
            return False
        try:
            self._table = self.folder.read_digests()
            self.folder.accept_digests(self._table)
        except (DamagedArray, Unreadable) as error:
            self._table_problem = replace(make_problem(error), field=None)
        return True

    def load_headers(self, files: list[ArrayFile]) -> None:
        """Read the headers of a slab on another machine, many at a time: they are remembered."""

        def load(file: ArrayFile) -> None:
            with suppress(FieldslabError), ArrayReader(self.folder, file).open():
                pass  # what is wrong with it is found when it is checked

        list(self._run(load, files))

    def split_work(
        self,
        files: list[tuple[ArrayFile, Selection, int]],
        piece: int = PIECE_BLOCKS,
        *,
        keeps_cache: bool = False,
    ) -> Iterator[BlockRuns]:
        """Split the check of arrays, each with its selection and the number of its first block.

        The runs rise, and have about `piece` blocks. `keeps_cache` is that of `BlockRuns`.
        """
        for file, selection, number in files:
            # Before work is cut out by a size in the manifest, the file must have that size.
            try:
                holes = self._check_header(file)
            except (DamagedArray, Unreadable) as error:
                self._findings.add(make_problem(error, get_row_range(self.folder)))
                continue
            digests = None
            if self._table is not None:
                digests = self._table[file.first_block : file.first_block + file.blocks]
            runs: list[Run] = []
            filled = 0
            for start, stop, hole in _split_runs_at_holes(
                selection(number, number + file.blocks), number, holes, piece
            ):
                if not hole:
                    runs.append((start, stop))
                    filled += stop - start
                if runs and (hole or filled >= piece):
                    yield BlockRuns(self.folder, file, tuple(runs), digests, keeps_cache)
                    runs, filled = [], 0
                if hole:
                    yield BlockRuns(self.folder, file, ((start, stop),), digests, hole=True)
            if runs:
                yield BlockRuns(self.folder, file, tuple(runs), digests, keeps_cache)

    def add_result(self, checked: CheckResult) -> None:
        """Add the result of a check of blocks."""
        file = checked.runs.file
        if self._table_problem is not None and self._judges:
            self._computed += [
                (file.first_block + first, digests) for first, digests in checked.digests
            ]
        self._read[file.name] += checked.bytes
        self._zeros[file.name] += checked.nulls
        if checked.problems or checked.wrong:
            self._wrong.add(file.name)
        if self._table_problem is None:
            for problem in (*checked.problems, *checked.wrong):
                self._findings.add(problem)
        else:
            self._held += checked.problems
            self._doubtful += checked.wrong

    def check_table(self) -> None:
        """Judge a digest table that is damaged."""
        if self._table_problem is not None:
            self._check_table(self._table_problem)

    def check_whole_folder(self) -> None:
        """Check what needs the whole folder: its digest table, nulls, pictures and lists."""
        self.check_table()
        for file in self.folder.files:
            if file.role == "valid" and self._is_array_sound(file):
                self._check_nulls(file)
            if file.role in ("size", "lists.values"):
                arrays = [other for other in self.folder.files if other.field is file.field]
                if all(map(self._is_array_sound, arrays)):
                    check = check_pictures if file.role == "size" else check_inner_lists
                    self._check_rows(file.field, check)

    def _is_array_sound(self, file: ArrayFile) -> bool:
        """Return True if all of an array was read, and nothing is wrong with it."""
        return self._read[file.name] == file.data_bytes and file.name not in self._wrong

    def _check_table(self, problem: Problem) -> None:
        """Tell damage of the digest table from damage of the values, where all were read."""
        whole = self._judges and all(
            self._read[file.name] == file.data_bytes for file in self.folder.files
        )
        parts = sorted(self._computed, key=lambda part: part[0]) if whole else []
        computed = self.folder.digest.join_tables(digests for _, digests in parts)
        intact = whole and self.folder.digest.compute_root(computed) == self.folder.root
        if intact and self._table is not None:
            for block in np.flatnonzero(self._table != computed).tolist():
                self._findings.add(self._make_entry_problem(block, computed))
            return
        if intact:
            text = f"digest table: {problem.problem}; the values are intact"
            self._findings.add(replace(problem, problem=text))
            return
        if not whole:  # unknown whether the table or the values are wrong
            reason = (
                "only a full verify can tell" if self._judges else "the shard is too large to tell"
            )
            text = f"{problem.problem}; whether the values are damaged too, {reason}"
            problem = replace(problem, problem=text)
        self._findings.add(replace(problem, rows=get_row_range(self.folder)))
        for finding in (*self._held, *(self._doubtful if whole else ())):
            self._findings.add(finding)
        if whole and self._table is None and not self._held:
            text = "some values are not what pack wrote; only the digest table could tell which"
            self._findings.add(
                Problem(
                    problem=text,
                    file=str(self.folder.path),
                    rows=get_row_range(self.folder),
                )
            )

    def _check_header(self, file: ArrayFile) -> list[Run]:
        """Check a file's size and header; return the holes in it."""
        with ArrayReader(self.folder, file).open() as fd:
            return list(find_large_holes(fd, file.data_bytes))

    def _make_entry_problem(self, block: int, computed: np.ndarray) -> Problem:
        assert self._table is not None
        kind = self.folder.digest
        file = next(f for f in self.folder.files if block < f.first_block + f.blocks)
        first = block - file.first_block
        covered = make_block_problem(BlockRuns(self.folder, file, (), None), first, first + 1)
        return replace(
            covered,
            file=str(self.folder.path / layout.DIGESTS),
            offset=HEADER + kind.count_bytes(block),
            problem=f"digest table is damaged; the values in {file.name} are intact",
            expected=kind.format(computed[block].item()),
            found=kind.format(self._table[block].item()),
        )

    def _check_nulls(self, file: ArrayFile) -> None:
        expected, zeros = self._nulls[file.field.name], self._zeros[file.name]
        if zeros != expected:
            self._findings.add(
                Problem(
                    problem="the number of nulls differs from the manifest",
                    file=str(self.folder.path / file.name),
                    field=file.field.name,
                    rows=get_row_range(self.folder),
                    expected=str(expected),
                    found=str(zeros),
                )
            )

    def _check_rows(self, field: Field, check: Callable[..., Iterator[Problem]]) -> None:
        try:
            for problem in check(self.folder, field, self._run):
                self._findings.add(problem)
        except (DamagedArray, Unreadable) as error:
            self._findings.add(make_problem(error, get_row_range(self.folder)))


def find_unexpected_files(folder: OpenFolder, names: set[str]) -> Iterator[str]:
    """Find the paths of files in a folder that are not in `names`; hidden files are harmless.

    Raises Unreadable where the folder cannot be listed.
    """
    for entry in sorted(folder.list_names()):
        if entry not in names and not entry.startswith(".") and entry not in _HARMLESS:
            yield str(folder.path / entry)


def _split_runs_at_holes(
    runs: Iterator[Run], number: int, holes: list[Run], piece: int
) -> Iterator[tuple[int, int, bool]]:
    """The same runs, counted from block `number`, cut at holes; others no longer than a piece.

    Each comes with whether it is a hole.
    """
    for first, last in runs:
        start, stop = first - number, last - number
        for a, b in holes:
            if start < b and a < stop:
                yield from _split_run(start, a, piece)
                yield max(start, a), min(stop, b), True
                start = min(stop, b)
        yield from _split_run(start, stop, piece)


def _split_run(start: int, stop: int, piece: int) -> Iterator[tuple[int, int, bool]]:
    for first in range(start, stop, piece):
        yield first, min(first + piece, stop), False
