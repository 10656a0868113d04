"""Addresses and lengths of rows: what they lead to, and what they refuse, verified or not."""

import ctypes
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.naming import case
from tests.reader.conftest import ROWS, Example
from tests.slabs import array_path, poke, redigest, write_slab

from fieldslab.reader import open_slab
from fieldslab.reader.rows import Rows
from fieldslab.schemas.errors import DamagedArray, RowOutOfRange, UnknownField, UsageError

PICKS = [299, 0, 7, 8, -1, 150]
REPEATS = 3
"""The first call verifies blocks, and the next ones find them verified."""


@pytest.mark.parametrize("verify", [True, False])
def test_addresses_point_at_the_values(example: Example, verify: bool) -> None:
    """Addresses and lengths in bytes lead to the stored bytes, for fixed and variable rows."""
    slab = open_slab(example.path, verify=verify)
    for name, _ in product(("photo", "box", "tokens", "label"), range(REPEATS)):
        addresses, lengths = slab.addresses(PICKS, name)
        assert addresses.dtype == np.uint64
        assert lengths.dtype == np.int64
        stored = [
            ctypes.string_at(int(address), int(length))
            for address, length in zip(addresses, lengths, strict=True)
        ]
        wanted = example.values(name, PICKS)
        assert stored == [
            np.asarray(value).tobytes() if name != "photo" else value for value in wanted
        ]
    assert len(slab.addresses([], "photo")[0]) == 0


@pytest.mark.parametrize("verify", [True, False])
def test_addresses_of_views_are_those_of_their_rows(example: Example, verify: bool) -> None:
    """Rows of a view lie where those of the slab do, in any step and in any form of row numbers."""
    slab = open_slab(example.path, verify=verify)
    forms: list[Rows] = [[3, -2, 0], np.array([3, -2, 0], np.int32), np.array([3, -2, 0])]
    for part, rows, _ in product((slice(9, 90, 7), slice(None, None, -3)), forms, range(REPEATS)):
        view = slab[part]
        numbers = np.arange(ROWS)[part][np.asarray(rows)]
        with case(part, type(rows)):
            assert view.addresses(rows, "tokens")[0].tolist() == (
                slab.addresses(numbers, "tokens")[0].tolist()
            )
            assert view.lengths(rows, "tokens").tolist() == (
                slab.lengths(numbers, "tokens").tolist()
            )
    fixed = np.array([3, -2, 0])
    fixed.flags.writeable = False
    slab.addresses(fixed, "label")
    assert fixed.tolist() == [3, -2, 0], "the caller's rows are left alone"


def test_wrong_rows_and_fields_are_refused(example: Example) -> None:
    """A row that is not there, and an unknown field, are named: in the first call and later."""
    slab = open_slab(example.path)
    for _ in range(REPEATS):
        for wrong in (ROWS, -ROWS - 1):
            with pytest.raises(RowOutOfRange, match="position 1"):
                slab.addresses([0, wrong], "photo")
            with pytest.raises(RowOutOfRange, match="position 1"):
                slab.lengths([0, wrong], "photo")
        for read in (slab.addresses, slab.lengths):
            with pytest.raises(UnknownField):
                read([0], "photos")
        with pytest.raises(UsageError, match="fixed size"):
            slab.lengths([0], "label")
        slab.addresses(PICKS, "photo")


def test_lengths_read_offsets_alone(tmp_path: Path) -> None:
    """Damaged values do not matter to lengths, wrong offsets do; addresses name both."""
    path = write_slab(tmp_path / "t.slab", {"t": ["alpha", "", "gamma"]})
    poke(array_path(path, "t"), b"z")
    slab = open_slab(path)
    for _ in range(REPEATS):
        assert slab.lengths([2, 1, 0], "t").tolist() == [5, 0, 5]
        with pytest.raises(DamagedArray, match="digest"):
            slab.addresses([2, 1, 0], "t")
    poke(array_path(path, "t", "offsets"), np.array([9], np.uint64), 8)
    redigest(path)
    slab = open_slab(path)
    for _ in range(REPEATS):
        assert slab.lengths([2], "t").tolist() == [5]
        for read in (slab.addresses, slab.lengths):
            with pytest.raises(DamagedArray, match="offsets"):
                read([2, 1], "t")
