"""Which blocks `verify --sample` reads: a random share, one part of several, about so many bytes.

Blocks are counted through all arrays that are checked, in manifest order.
"""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from fieldslab.schemas.bytesizes import parse_size
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option

Run = tuple[int, int]
"""A block, and the block after the last of a run."""

Selection = Callable[[int, int], Iterator[Run]]
"""Gives the chosen runs among the blocks `start` to `stop`."""

_SPELLINGS = "5%, 3/30 or 10G"


def select_all(start: int, stop: int) -> Iterator[Run]:
    """Select every block."""
    if start < stop:
        yield start, stop


def parse_sample(sample: str | None, total: int) -> Selection:
    """Parse `sample` into a selection among `total` blocks; None selects all.

    `5%` is a random twentieth, `3/30` the third of thirty parts, so that thirty runs read every
    block once, `10G` a random choice of about 10 GiB.

    Raises UsageError for anything else.
    """
    if sample is None:
        return select_all
    text = str(sample).strip()
    if match := re.fullmatch(r"(\d+)/(\d+)", text):
        part, parts = int(match[1]), int(match[2])
        if not 1 <= part <= parts:
            raise UsageError(
                f"{mark_option('sample')}: no such part", found=sample, expected=f"1/{parts} and up"
            )
        return _make_range_selection(total * (part - 1) // parts, total * part // parts)
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)%", text):
        percent = float(match[1])
        if not 0 < percent <= 100:
            raise UsageError(
                f"{mark_option('sample')}: not a percentage", found=sample, expected="0.1% to 100%"
            )
        return _make_random_selection(total, percent / 100)
    if not re.fullmatch(r"\d+\s*[KMGT]i?B?|\d+\s*B?", text, re.IGNORECASE):
        raise UsageError(
            f"{mark_option('sample')}: is not valid", found=sample, expected=_SPELLINGS
        )
    return _make_random_selection(total, parse_size("sample", text) / max(total * BLOCK, 1))


def _make_range_selection(first: int, last: int) -> Selection:
    def select_runs(start: int, stop: int) -> Iterator[Run]:
        yield from select_all(max(start, first), min(stop, last))

    return select_runs


def _make_random_selection(total: int, share: float) -> Selection:
    """Select one random block of each of equal strides: spread evenly, never the same twice."""
    count = min(total, max(1, round(total * share)))
    edges = np.linspace(0, total, count + 1).astype(np.int64)
    widths = np.diff(edges)
    picks = edges[:-1] + (np.random.default_rng().random(count) * widths).astype(np.int64)

    def select_runs(start: int, stop: int) -> Iterator[Run]:
        first, last = np.searchsorted(picks, [start, stop])
        chosen = picks[first:last]
        cuts = np.flatnonzero(np.diff(chosen) != 1) + 1
        bounds = [0, *cuts.tolist(), len(chosen)]
        for a, b in pairwise(bounds):
            if a < b:
                yield int(chosen[a]), int(chosen[b - 1]) + 1

    return select_runs
