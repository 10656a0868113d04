"""One field as a sequence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reader.conftest import ROWS, Example
from tests.slabs import write_slab

from fieldslab.reader import Ragged, Slab, Text, open_slab
from fieldslab.schemas.errors import RowOutOfRange, UsageError


def test_a_column_has_the_values_of_its_rows(slab: Slab, example: Example) -> None:
    """`column[i]` is `slab[i][name]`, for every field."""
    for name in slab.fields:
        column = slab[name]
        assert len(column) == ROWS
        for row in (0, 6, 7, 8, 207, 208, -1):
            assert np.array_equal(column[row], example.value(name, row))


def test_a_column_says_what_it_holds(slab: Slab) -> None:
    """Kind, dtype and shape are those of the field."""
    column = slab["box"]
    assert (column.kind, column.dtype, column.shape) == ("fixed", np.dtype("f4"), (2, 3))
    assert "300 rows" in repr(column)
    assert slab["time"].dtype == "<M8[us]"


@pytest.mark.parametrize(
    "cut", [slice(20, 90), slice(90, 20, -3), slice(8, 208), slice(30, 90, 7), slice(207, 7, -1)]
)
def test_a_slice_within_a_shard_shares_the_file(slab: Slab, cut: slice) -> None:
    """Fixed rows of one shard come as a read-only view of the mapped file, whatever the step."""
    stored = slab.storage.load_field("label").values[2]
    part = slab["label"][cut]
    assert isinstance(part, np.ndarray)
    assert part.tolist() == list(range(ROWS))[cut]
    assert np.shares_memory(part, stored)
    assert not part.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        part.flags.writeable = True


def test_variable_rows_within_a_shard_share_the_file(slab: Slab, example: Example) -> None:
    """Ragged and text rows of one shard share the mapped values; offsets start from 0."""
    part = slab["tokens"][20:90]
    assert isinstance(part, Ragged)
    assert np.shares_memory(part.values, slab.storage.load_field("tokens").values[2])
    assert part.offsets[0] == 0
    assert part.tolist() == [list(row) for row in example.values("tokens", range(20, 90))]
    text = slab["caption"][20:90]
    assert isinstance(text, Text)
    assert text.tolist() == example.values("caption", range(20, 90))


@pytest.mark.parametrize("cut", [slice(0, 9), slice(None), slice(None, None, -50), slice(5, 5)])
def test_a_slice_over_shards_is_a_copy(slab: Slab, example: Example, cut: slice) -> None:
    """Rows of several shards, or none, are gathered into one array of the same kind."""
    rows = list(range(ROWS))[cut]
    assert slab["label"][cut].tolist() == rows
    assert slab["caption"][cut].tolist() == example.values("caption", rows)


@pytest.mark.parametrize("rows", [[5, -1, 207], np.array([5, 299, 207]), range(200, 220, 4), []])
def test_chosen_rows_are_gathered(slab: Slab, rows: list[int]) -> None:
    """A list, array or range of rows gives what a gather of them gives."""
    actual, wanted = slab["caption"][rows], slab.gather(rows)["caption"]
    assert actual.tolist() == wanted.tolist()


def test_as_an_array(slab: Slab) -> None:
    """`numpy.asarray` has every row, of a view too; in place where one shard holds them."""
    assert np.array_equal(np.asarray(slab["label"]), np.arange(ROWS))
    inside = slab[8:208]["label"]
    assert not np.asarray(inside).flags.writeable
    assert np.array(inside).flags.writeable
    assert np.asarray(inside, dtype=np.float32).dtype == np.float32
    with pytest.raises(UsageError, match="offsets"):
        np.asarray(slab["tokens"])


def test_wrong_rows(slab: Slab) -> None:
    """Rows out of range, and keys that are no rows, are refused as they are for a slab."""
    column = slab["label"]
    with pytest.raises(RowOutOfRange):
        column[ROWS]
    with pytest.raises(RowOutOfRange):
        column[[0, ROWS]]
    keys: list[Any] = [1.0, "label", np.array([True])]
    for key in keys:
        with pytest.raises(UsageError):
            column[key]


def test_a_slice_outlives_its_slab(tmp_path: Path) -> None:
    """Mapped memory stays as long as an array over it, also when slab and file are gone."""
    path = write_slab(tmp_path / "x.slab", {"x": np.arange(100_000)})
    part = open_slab(path)["x"][10:]
    for file in path.rglob("*.npy"):
        file.unlink()
    assert isinstance(part, np.ndarray)
    assert part.sum() == sum(range(10, 100_000))
