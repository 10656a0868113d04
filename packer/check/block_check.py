"""Checks blocks of one array file: their digests, and the rule that the content obeys.

Data is read into a buffer that each thread uses again and again, and digested while it is in the
processor's cache: faster than to map it (measured), which costs more for each page than to copy it.
"""

import os
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fieldslab.packer.check.digests import compute_digests, digest_file
from fieldslab.packer.check.findings import Problem, make_problem
from fieldslab.packer.check.page_cache import keep_page_cache
from fieldslab.packer.check.rules import ContentRule, choose_rule
from fieldslab.packer.check.sampling import Run
from fieldslab.schemas.access import ArrayReader, Folder
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import DamagedArray, RemoteUnreadable, Unreadable
from fieldslab.schemas.files import RemoteDescriptor, read_bytes, read_exactly
from fieldslab.schemas.layout import ArrayFile
from fieldslab.schemas.mapping import allocate_aligned

CHUNK = 1024 * 1024
"""Bytes looked at, at a time: they stay in the processor's cache."""
REMOTE_CHUNK = 4 * CHUNK
"""Bytes of another machine that are asked for at a time: each request takes a round trip."""
_REMOTE_ATTEMPTS = 3
"""How often such bytes are read, if they do not match: some are damaged on their way."""

_thread = threading.local()


class BlockRuns(NamedTuple):
    """Runs of blocks of one array, and the digests of the array's blocks if they are known.

    With `keeps_cache`, the page cache is left as it was: see `keep_page_cache`. A `hole` is one run
    of blocks that were never written: they are zeros, and are not read.
    """

    folder: Folder
    file: ArrayFile
    ranges: tuple[Run, ...]
    digests: np.ndarray | None
    keeps_cache: bool = False
    hole: bool = False


class CheckResult(NamedTuple):
    """What a check of runs found.

    `wrong` are the problems of blocks that differ from the digest table, `problems` all others.
    `digests` are those of the blocks that could be read, by first block in the array; `nulls`
    counts the zeros of a `valid` array.
    """

    runs: BlockRuns
    problems: list[Problem]
    wrong: list[Problem]
    digests: list[tuple[int, np.ndarray]]
    bytes: int
    nulls: int


def check_block_runs(runs: BlockRuns) -> CheckResult:
    """Read blocks and check them; what is wrong with the file is in the result.

    Raises SlabReplaced and NotASlab, as `SlabFiles.open_folder` does.
    """
    folder, file = runs.folder, runs.file
    if runs.hole:
        return _check_hole(runs)
    try:
        with ArrayReader(folder, file).open() as fd:
            if not runs.keeps_cache:
                _advise_access(fd, runs)
                return check_blocks(fd, runs)
            start, stop = HEADER + runs.ranges[0][0] * BLOCK, HEADER + runs.ranges[-1][1] * BLOCK
            with keep_page_cache(fd, start, min(stop, HEADER + file.data_bytes)):
                return check_blocks(fd, runs)
    except (DamagedArray, Unreadable) as error:
        return CheckResult(runs, [make_problem(error, get_row_range(folder))], [], [], 0, 0)


def _check_hole(runs: BlockRuns) -> CheckResult:
    """Check blocks that are zeros. The rule needs no look: it holds in the block before them."""
    [(start, stop)] = runs.ranges
    zeros = runs.folder.digest.compute_blocks(memoryview(bytes(BLOCK)))
    digests = np.broadcast_to(zeros, (stop - start,))
    problems = list(_find_wrong_blocks(runs, start, digests))
    size = (stop - start) * BLOCK
    nulls = size if runs.file.role == "valid" else 0
    return CheckResult(runs, [], problems, [(start, digests)], size, nulls)


def check_blocks(fd: int, runs: BlockRuns) -> CheckResult:
    """Check blocks of an array; its header was checked when the file was opened."""
    checked = CheckResult(runs, [], [], [], 0, 0)
    rule = choose_rule(runs.folder, runs.file)
    size = nulls = 0
    looks = rule is not None or runs.file.role == "valid"
    for start, stop in runs.ranges:
        if not looks:
            digests = _digest_run(fd, runs, start, stop)
            checked.digests.append((start, digests))
            checked.wrong.extend(_find_wrong_blocks(runs, start, digests))
            size += len(digests) * BLOCK
            start += len(digests)
        for first, data in _read_chunks(fd, runs, start, stop, checked.problems):
            size += len(data)
            digests = compute_digests(runs.folder.digest, data)
            problems = list(_find_wrong_blocks(runs, first, digests))
            for _ in range(_REMOTE_ATTEMPTS - 1 if isinstance(fd, RemoteDescriptor) else 0):
                if problems:
                    data = _read_chunk(fd, runs, first, first + len(digests))
                    digests = compute_digests(runs.folder.digest, data)
                    problems = list(_find_wrong_blocks(runs, first, digests))
            checked.digests.append((first, digests))
            checked.wrong.extend(problems)
            if rule is not None and not problems:
                checked.problems.extend(_check_rule(rule, fd, runs, first, data))
            if runs.file.role == "valid":
                nulls += len(data) - int(np.count_nonzero(data))
    return checked._replace(bytes=size, nulls=nulls)


def get_row_range(folder: Folder) -> tuple[int, int] | None:
    """Return the first and last row of a folder."""
    return (folder.first_row, folder.first_row + folder.rows - 1) if folder.rows else None


def make_block_problem(runs: BlockRuns, first: int, stop: int, **details: str) -> Problem:
    """Make the problem for blocks that differ from their digests."""
    folder, file = runs.folder, runs.file
    start, end = first * BLOCK, min(stop * BLOCK, file.data_bytes)
    single = stop - first == 1
    text = (
        "a block does not match its digest"
        if single
        else (f"{stop - first} blocks do not match their digests")
    )
    if file.role.startswith("categories."):
        a, b = folder.find_categories(file, start, end)
        text += f"; it holds categories {a}..{b}"
    return Problem(
        problem=text,
        file=str(folder.path / file.name),
        field=file.field.name,
        rows=folder.find_rows(file, start, end),
        offset=HEADER + start,
        **details,
    )


def _digest_run(fd: int, runs: BlockRuns, start: int, stop: int) -> np.ndarray:
    """Digest the whole blocks of a run, or fewer: see `digest_file`."""
    stop = min(stop, runs.file.data_bytes // BLOCK)
    count = max(stop - start, 0)
    return digest_file(runs.folder.digest, fd, HEADER + start * BLOCK, count, _get_buffer())


def _read_chunks(
    fd: int, runs: BlockRuns, start: int, stop: int, problems: list[Problem]
) -> Iterator[tuple[int, np.ndarray]]:
    """Read a run in chunks: first block and bytes of each. What is unreadable becomes a problem."""
    blocks = (REMOTE_CHUNK if isinstance(fd, RemoteDescriptor) else CHUNK) // BLOCK
    for first in range(start, stop, blocks):
        last = min(first + blocks, stop)
        try:
            yield first, _read_chunk(fd, runs, first, last)
        except RemoteUnreadable:
            raise
        except Unreadable as failure:  # block by block, to know which rows they are
            problems_before = len(problems)
            for block in range(first, last):
                try:
                    yield block, _read_chunk(fd, runs, block, block + 1)
                except Unreadable as error:
                    problems.append(_make_unread_problem(runs, block, error))
            if len(problems) == problems_before:  # a disk that fails once is a finding, too
                problems.append(_make_unread_problem(runs, first, failure))


def _make_unread_problem(runs: BlockRuns, block: int, error: Unreadable) -> Problem:
    start = block * BLOCK
    end = min(start + BLOCK, runs.file.data_bytes)
    return make_problem(error, runs.folder.find_rows(runs.file, start, end))


def _read_chunk(fd: int, runs: BlockRuns, first: int, last: int) -> np.ndarray:
    """Read the bytes of blocks `first` to `last`. Raises Unreadable."""
    start, stop = HEADER + first * BLOCK, HEADER + min(last * BLOCK, runs.file.data_bytes)
    data = _get_buffer(stop - start)
    path, field = runs.folder.path / runs.file.name, runs.file.field.name
    read_exactly(fd, memoryview(data.data), start, path, field)
    return data


def _get_buffer(size: int = CHUNK) -> np.ndarray:
    """Return this thread's buffer, uint8[size]."""
    if not hasattr(_thread, "buffer") or len(_thread.buffer) < size:
        _thread.buffer = allocate_aligned(max(size, CHUNK))
    buffer: np.ndarray = _thread.buffer
    return buffer[:size]


def _advise_access(fd: int, runs: BlockRuns) -> None:
    if hasattr(os, "posix_fadvise") and not isinstance(fd, RemoteDescriptor):
        sequential = len(runs.ranges) == 1
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL if sequential else os.POSIX_FADV_RANDOM)


def _find_wrong_blocks(runs: BlockRuns, first: int, computed: np.ndarray) -> Iterator[Problem]:
    """Yield one problem for each run of blocks that differ from the digest table."""
    if runs.digests is None:
        return
    expected = runs.digests[first : first + len(computed)]
    flags = computed != expected
    if not flags.any():
        return
    wrong = np.flatnonzero(flags)
    cuts = [0, *(np.flatnonzero(np.diff(wrong) != 1) + 1).tolist(), len(wrong)]
    for a, b in pairwise(cuts):
        start, stop = int(wrong[a]), int(wrong[b - 1]) + 1
        details = {}
        if stop - start == 1:
            show = runs.folder.digest.format
            details = {
                "expected": show(expected[start].item()),
                "found": show(computed[start].item()),
            }
        yield make_block_problem(runs, first + start, first + stop, **details)


def _check_rule(
    rule: ContentRule, fd: int, runs: BlockRuns, first: int, data: np.ndarray
) -> Iterator[Problem]:
    """Yield a problem for the first item of a chunk that breaks the array's rule."""
    items = data.view(rule.dtype)
    first_item = first * BLOCK // rule.dtype.itemsize
    flags = rule.find_broken(items, first_item, _read_item_before(fd, runs, rule, first_item))
    if not flags.any():
        return
    index = int(np.argmax(flags))
    byte = (first_item + index) * rule.dtype.itemsize
    folder, file = runs.folder, runs.file
    yield Problem(
        problem=rule.problem,
        file=str(folder.path / file.name),
        field=file.field.name,
        rows=folder.find_rows(file, byte, byte + 1),
        offset=HEADER + byte,
        expected=rule.expected,
        found=str(items[index]),
    )


def _read_item_before(fd: int, runs: BlockRuns, rule: ContentRule, index: int) -> int:
    """Read the item in front of `index`, 0 at the start: offsets must not fall below it."""
    size = rule.dtype.itemsize
    if index == 0 or rule.dtype != np.dtype("<u8"):
        return 0
    try:
        item = read_bytes(fd, size, HEADER + (index - 1) * size, runs.folder.path)
    except Unreadable:
        return 0  # the check of that block reports it
    return int.from_bytes(item, "little")
