"""Reads a mutated slab in every way."""

import contextlib
import ctypes
import pickle
from pathlib import Path

from tests.contents import Row, as_row, gathered
from tests.mutations.subject import Subject

from fieldslab.packer import verify
from fieldslab.reader import Slab, open_slab
from fieldslab.schemas.errors import FieldslabError


def examine(slab: Path, subject: Subject, accident: bool) -> None:
    """Read a mutated slab in every way. Raises AssertionError where that gives a wrong row.

    Whatever else is raised, but FieldslabError, is a bug; it is not caught here.
    """
    for checked in (True, False):
        with contextlib.suppress(FieldslabError):
            examine_columns(
                open_slab(slab, verify=checked), subject if accident and checked else None
            )
    changed = accident and not _same(slab, subject.slab)
    try:
        report = verify(slab)
    except FieldslabError:
        return
    assert not (changed and report.ok), "verify finds nothing wrong"


def examine_columns(slab: Slab, expected: Subject | None) -> None:
    """Read rows and columns; each error ends one way of reading, not all of them."""
    count = len(slab)
    order = [(7 * row + 5) % count for row in range(count)] if count else []
    if count > 40:
        order = [0, 1, count // 2, count - 2, count - 1]
    assert repr(slab)
    assert len(pickle.loads(pickle.dumps(slab))) == count
    for name in list(slab.fields)[:30]:
        rows = None if expected is None else [expected.rows[name][row] for row in order]
        with contextlib.suppress(FieldslabError):
            told = gathered(slab, order, name)
            assert rows is None or told == rows, f"{name}: a gather gives other rows"
            for way in (_by_row, _by_slice, _into_buffers):
                with contextlib.suppress(FieldslabError):
                    actual = way(slab, order, name, told)
                    assert actual == told, f"{name}: {way.__name__} gives others"
        with contextlib.suppress(FieldslabError):
            _touch(slab, order, name)
    with contextlib.suppress(FieldslabError):
        slab.gather(order)
    with contextlib.suppress(FieldslabError):
        for row in order:
            found_row = slab[row]
            if expected is not None:
                for name, value in found_row.items():
                    assert as_row(value) == expected.rows[name][row], f"{name}: slab[i] is wrong"


def _by_row(slab: Slab, order: list[int], name: str, told: list[Row]) -> list[Row]:
    column = slab[name]
    return [as_row(column[row]) for row in order]


def _by_slice(slab: Slab, order: list[int], name: str, told: list[Row]) -> list[Row]:
    """Slices do not tell nulls and categories: those are taken from a gather."""
    column = slab[name]
    if column.kind == "categorical":
        return told
    parts = [column[row : min(row + 3, len(slab))] for row in order]
    return [None if row is None else as_row(part[0]) for part, row in zip(parts, told, strict=True)]


def _into_buffers(slab: Slab, order: list[int], name: str, told: list[Row]) -> list[Row]:
    batch = slab.gather(order, out=slab.buffers(len(order) + 1, [name]))
    if slab.fields[name].kind == "categorical":
        return told
    return [None if row is None else as_row(batch[name][index]) for index, row in enumerate(told)]


def _touch(slab: Slab, order: list[int], name: str) -> None:
    """Read what lies at the addresses of rows, where a field has them."""
    addresses, lengths = slab.addresses(order, name)
    for address, length in zip(addresses.tolist(), lengths.tolist(), strict=True):
        ctypes.string_at(address, length)


def _same(slab: Path, whole: Path) -> bool:
    """Whether a mutation changed nothing, as when a file was swapped with itself."""
    if any(path.is_symlink() for path in [slab, *slab.iterdir(), *slab.glob("*/*")]):
        return False
    actual = sorted(path.relative_to(slab) for path in slab.rglob("*"))
    if actual != sorted(path.relative_to(whole) for path in whole.rglob("*")):
        return False
    for path in actual:
        first, other = slab / path, whole / path
        if first.is_file() != other.is_file() or first.is_dir() != other.is_dir():
            return False
        if first.is_file() and not first.samefile(other) and first.stat().st_size < 2**30:
            if first.read_bytes() != other.read_bytes():
                return False
        elif first.is_file() and first.stat().st_size != other.stat().st_size:
            return False
    return True
