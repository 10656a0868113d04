"""Every bit of a small slab, flipped without new digests: reading and `verify` must notice."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from tests.contents import Row, gathered
from tests.golden.make import PHOTOS
from tests.jpegs import encode, photograph
from tests.kinds import make_table
from tests.mutations.subject import list_files

from fieldslab.packer import pack, verify
from fieldslab.reader import Slab, open_slab
from fieldslab.schemas.errors import FieldslabError
from fieldslab.schemas.folder import load_manifest

_ROWS = 3
_COLUMNS = (
    *("int16", "float or null", "bool or null", "zone", "text", "text or null", "binary", "json"),
    *("bytes or null", "ordered or null", "matrix", "ragged or null", "ragged pairs"),
)
_STRIDE = 1_000_003
"""A prime: cases that follow each other lie far apart, so that a part of them is a sample."""


class Group(NamedTuple):
    """Files of which each has one bit flipped at a time: of each field one at most."""

    names: tuple[str, ...]
    fields: tuple[str, ...]
    """The field of each; none for what belongs to all fields."""
    bits: int


def make_slab(folder: Path) -> Path:
    """Pack a slab with arrays of every role in one shard."""
    table = make_table(_ROWS).select(_COLUMNS)
    photos = [encode(photograph(24, 24, row), quality=50) for row in range(_ROWS)]
    pictures = [photos[0], PHOTOS["grey.png"], None]
    names = [f"name {row}" for row in range(1100)]
    more = {
        "photo": photos,
        "picture": pictures,
        "many": pa.DictionaryArray.from_arrays(pa.array([7, 500, 0]), pa.array(names)),
        "story": [f"once {row} " * 9 for row in range(_ROWS)],
        "lists": pa.array([[row] * 3 * row for row in range(_ROWS)], pa.list_(pa.int64())),
    }
    for name, values in more.items():
        table = table.append_column(name, values if isinstance(values, pa.Array) else [values])
    image = {"photo": None, "picture": "yuv420,fraction=0.1"}
    options: dict[str, Any] = {"compress": ["story", "lists"], "image": image, "jpeg_index": 8}
    return pack(table, folder / "whole.slab", nulls={"*": "mask"}, **options).path


def list_groups(slab: Path) -> list[Group]:
    """Divide the files of a slab into groups."""
    fields = {field.stem: field.name for field in load_manifest(slab).fields}
    rounds: list[dict[str, str]] = []
    alone = []
    for name in list_files(slab):
        field = fields.get(Path(name).name.split(".")[0])
        if field is None:
            alone.append(name)
            continue
        free = next((group for group in rounds if field not in group), None)
        if free is None:
            free = {}
            rounds.append(free)
        free[field] = name
    groups: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((name,), ()) for name in alone]
    groups += [(tuple(group.values()), tuple(group)) for group in rounds]
    return [
        Group(names, of, max(8 * (slab / name).stat().st_size for name in names))
        for names, of in groups
    ]


class Flips:
    """The cases: each flips the same bit of all files of a group."""

    def __init__(self, slab: Path) -> None:
        self._slab = slab
        self.groups = list_groups(slab)
        self.total = sum(group.bits for group in self.groups)
        whole = open_slab(slab)
        self._rows = {name: gathered(whole, range(len(whole)), name) for name in whole.fields}

    def locate(self, number: int) -> tuple[Group, int]:
        """Find the group and the bit of a case."""
        place = number * _STRIDE % self.total
        for group in self.groups:
            if place < group.bits:
                return group, place
            place -= group.bits
        raise AssertionError("a place behind the last bit")

    def try_case(self, number: int) -> Counter[str]:
        """Try the bit of a case."""
        return self.try_bit(*self.locate(number))

    def try_bit(self, group: Group, bit: int) -> Counter[str]:
        """Flip, look, and flip back. Raises AssertionError where nobody notices."""
        flipped = [name for name in group.names if bit < 8 * (self._slab / name).stat().st_size]
        for name in flipped:
            flip(self._slab / name, bit)
        try:
            counts = Counter(self._read(flipped, group))
            missed = set(flipped) - self._find_noticed(flipped)
            assert not missed, f"`verify` misses bit {bit} of {sorted(missed)}"
        finally:
            for name in flipped:
                flip(self._slab / name, bit)
        counts["bits"] += len(flipped)
        return counts

    def _find_noticed(self, flipped: list[str]) -> set[str]:
        try:
            problems = verify(self._slab, max_errors=1000).problems
        except FieldslabError:
            return set(flipped)  # only the manifest ends it, which is changed alone
        files = {str(problem.file) for problem in problems}
        return {name for name in flipped if str(self._slab / name) in files}

    def _read(self, flipped: list[str], group: Group) -> Iterator[str]:
        """Read the rows of each field: it has an error of ours, or the right rows."""
        try:
            slab = open_slab(self._slab)
        except FieldslabError:
            yield "read: refused"
            return
        for name in group.fields or slab.fields:
            with contextlib.suppress(FieldslabError):
                assert self._gather(slab, name) == self._rows[name], f"other rows: {flipped}"
                yield "read: right"
                continue
            yield "read: refused"

    def _gather(self, slab: Slab, name: str) -> list[Row]:
        return gathered(slab, range(len(slab)), name)


def flip(path: Path, bit: int) -> None:
    """Flip one bit of a file."""
    with path.open("r+b") as file:
        file.seek(bit // 8)
        [byte] = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))
