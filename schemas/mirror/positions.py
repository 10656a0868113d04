"""Runs of neighbouring blocks."""

from collections.abc import Iterator

import numpy as np


def join_positions(positions: np.ndarray) -> Iterator[tuple[int, int]]:
    """Join ascending positions, int64[n], to runs without gaps: first, and end."""
    if not len(positions):
        return iter(())
    cuts = np.flatnonzero(np.diff(positions) > 1)
    starts = positions[np.concatenate([[0], cuts + 1])]
    ends = positions[np.concatenate([cuts, [len(positions) - 1]])] + 1
    return zip(starts.tolist(), ends.tolist(), strict=True)
