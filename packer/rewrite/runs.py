"""Rows as runs: (first row, end) of neighbouring rows, int64[n, 2], ascending."""

from collections.abc import Iterator

import numpy as np


def make_runs(rows: np.ndarray) -> np.ndarray:
    """Make runs of rows, int64[n], which ascend and of which none comes twice."""
    if not len(rows):
        return np.empty((0, 2), np.int64)
    breaks = np.flatnonzero(np.diff(rows) != 1)
    firsts = rows[np.concatenate([[0], breaks + 1])]
    lasts = rows[np.concatenate([breaks, [len(rows) - 1]])]
    return np.stack([firsts, lasts + 1], axis=1)


def list_rows(runs: np.ndarray) -> np.ndarray:
    """List the rows of runs: int64[rows]."""
    if len(runs) == 1:
        return np.arange(*runs[0], dtype=np.int64)
    counts = runs[:, 1] - runs[:, 0]
    ends = np.cumsum(counts)
    offsets = np.repeat(runs[:, 0] - (ends - counts), counts)
    rows: np.ndarray = offsets + np.arange(len(offsets), dtype=np.int64)
    return rows


def count_rows(runs: np.ndarray) -> int:
    """Count the rows of runs."""
    return int((runs[:, 1] - runs[:, 0]).sum())


def cut_runs(runs: np.ndarray, counts: list[int]) -> Iterator[np.ndarray]:
    """Cut runs into pieces with these numbers of rows, one behind the other."""
    index = 0
    first = int(runs[0, 0]) if len(runs) else 0
    for count in counts:
        piece = []
        while count:
            stop = min(int(runs[index, 1]), first + count)
            piece.append((first, stop))
            count -= stop - first
            first = stop
            if stop == runs[index, 1] and index + 1 < len(runs):
                index += 1
                first = int(runs[index, 0])
        yield np.array(piece, np.int64).reshape(-1, 2)


def group_runs(runs: np.ndarray, gap: int, most: int) -> Iterator[np.ndarray]:
    """Group runs that are read at one go: with gaps of at most `gap` rows, over `most` rows."""
    pieces = [
        (start, min(start + most, int(stop)))
        for begin, stop in runs
        for start in range(int(begin), int(stop), most)
    ]
    group: list[tuple[int, int]] = []
    for start, stop in pieces:
        if group and (start - group[-1][1] > gap or stop - group[0][0] > most):
            yield np.array(group, np.int64)
            group = []
        group.append((start, stop))
    if group:
        yield np.array(group, np.int64)
