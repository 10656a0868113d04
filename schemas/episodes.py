"""Episodes: rows of a slab that follow each other, such as those of one demonstration."""

from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np

from fieldslab.schemas.manifest import SHUFFLE_ATTRIBUTE

EPISODES_ATTRIBUTE = "fieldslab.episodes"
"""The member of a manifest's `attributes` that lists the rows of each episode."""
MOST_EPISODES = 1_000_000
"""More are not listed: the manifest would become too large."""


class Episodes(Sequence[range]):
    """The episodes of a slab: `episodes[k]` is the range of rows of one.

    Attributes
    ----------
    starts, lengths
        First row of each episode, and its number of rows, which is never 0: int64[n].
    """

    def __init__(self, lengths: np.ndarray) -> None:
        """Take the rows of each episode, int64[n]; episodes follow each other from row 0."""
        self.lengths = lengths
        self.starts = np.cumsum(lengths) - lengths
        for array in (self.starts, self.lengths):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, key: int) -> range: ...
    @overload
    def __getitem__(self, key: slice) -> list[range]: ...
    def __getitem__(self, key: int | slice) -> range | list[range]:
        if isinstance(key, slice):
            return [self[index] for index in range(*key.indices(len(self)))]
        start = int(self.starts[key])
        return range(start, start + int(self.lengths[key]))

    def __repr__(self) -> str:
        return f"Episodes({len(self):,} of {int(self.lengths.sum()):,} rows)"


def find_episode_lengths(attributes: Mapping[str, Any], rows: int) -> list[int] | None:
    """Find the rows of each episode in the attributes of a slab with so many `rows`.

    None where the slab does not list them, or where they cannot be right: tools that do not know
    episodes copy the list to slabs of other rows.
    """
    lengths = attributes.get(EPISODES_ATTRIBUTE)
    if not isinstance(lengths, list) or SHUFFLE_ATTRIBUTE in attributes:
        return None
    if not all(type(length) is int for length in lengths):
        return None
    return lengths if sum(lengths) == rows and min(lengths, default=1) > 0 else None


def replace_episodes(attributes: Mapping[str, Any], lengths: list[int] | None) -> dict[str, Any]:
    """Return attributes that list these episodes, or none."""
    others = {name: value for name, value in attributes.items() if name != EPISODES_ATTRIBUTE}
    return others if lengths is None else others | {EPISODES_ATTRIBUTE: lengths}
