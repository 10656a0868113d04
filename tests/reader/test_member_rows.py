"""Which rows of a slab come from which of its members."""

from pathlib import Path

import numpy as np
import pytest
from tests.slabs import write_slab

from fieldslab.reader import open_slab
from fieldslab.reader.member_rows import MemberRows
from fieldslab.schemas.errors import RowOutOfRange


def test_rows_of_views_by_member() -> None:
    """For any view, the ranges of members and the member of each row agree with the rows."""
    random = np.random.default_rng(0)
    for _ in range(200):
        counts = random.integers(0, 5, random.integers(1, 6)).tolist()
        rows = MemberRows([str(number) for number in range(len(counts))], counts)
        owners = np.repeat(np.arange(len(counts)), counts)
        start, stop = random.integers(-3, len(owners) + 3, 2).tolist()
        view = range(len(owners))[start : stop : int(random.choice([-3, -2, -1, 1, 2, 3]))]
        found = rows.find_members(view, np.arange(len(view)))
        assert found.tolist() == [owners[row] for row in view]
        for name, positions in rows.find_ranges(view).items():
            assert list(positions) == np.flatnonzero(found == int(name)).tolist()


def test_a_slab_alone_is_its_own_member(tmp_path: Path) -> None:
    """All of its rows have its path as their name, and rows outside are refused."""
    slab = open_slab(write_slab(tmp_path / "x.slab", {"x": np.arange(5)}, [2, 3]))
    assert slab.members == {str(slab.path): range(5)}
    assert slab[1:4].members == {str(slab.path): range(3)}
    assert slab.member_of([0, -1]).tolist() == [0, 0]
    with pytest.raises(RowOutOfRange, match="position 1"):
        slab.member_of([0, 5])
