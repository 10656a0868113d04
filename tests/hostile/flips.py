"""Every bit of small slabs, flipped without new digests: reading and `verify` must notice."""

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from tests.contents import Row, gathered
from tests.golden.make import PHOTOS
from tests.jpegs import encode, photograph
from tests.kinds import make_table
from tests.mutations.subject import list_files

from fieldslab.packer import pack, verify
from fieldslab.reader import open_slab
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import FieldslabError
from fieldslab.schemas.fields import MAX_INLINE_CATEGORIES
from fieldslab.schemas.folder import load_manifest

_ROWS = 3
_COLUMNS = ("int16", "text or null", "ordered or null", "bytes or null", "ragged pairs")
_STRIDE = 1_000_003
"""A prime: cases that follow each other lie far apart, so that a part of them is a sample."""


class Group(NamedTuple):
    """Files of a slab that are flipped in the same cases, and the bits of the largest."""

    slab: str
    files: tuple[str, ...]
    bits: int


class Subject:
    """A slab of which each bit is flipped.

    Attributes
    ----------
    name
        Its folder's.
    whole
        Where it lies, unchanged.
    rows
        The rows of each field.
    files
        The array files of each field.
    """

    def __init__(self, whole: Path) -> None:
        self.name = whole.name
        self.whole = whole
        slab = open_slab(whole)
        self.rows = {name: gathered(slab, range(len(slab)), name) for name in slab.fields}
        stems = {field.stem: field.name for field in load_manifest(whole).fields}
        self.files: dict[str, list[str]] = defaultdict(list)
        self._alone: list[str] = []
        for name in list_files(whole):
            field = stems.get(Path(name).name.split(".")[0])
            self._alone.append(name) if field is None else self.files[field].append(name)
        self.sizes = {name: (whole / name).stat().st_size for name in list_files(whole)}

    @cached_property
    def groups(self) -> list[Group]:
        """The manifest and each digest table alone, as they concern all fields; then all arrays."""
        arrays = tuple(name for names in self.files.values() for name in names)
        return [
            Group(self.name, files, 8 * max(self.sizes[name] for name in files))
            for files in (*((name,) for name in self._alone), arrays)
        ]


def make_subjects(folder: Path) -> list[Subject]:
    """Pack slabs with arrays of every role, and digests of both kinds."""
    return [Subject(_pack_kinds(folder)), Subject(_pack_tables(folder))]


def _pack_kinds(folder: Path) -> Path:
    table = make_table(_ROWS).select(_COLUMNS)
    photos = [encode(photograph(24, 24, row), quality=50) for row in range(_ROWS)]
    more = {
        "photo": photos,
        "picture": [photos[0], PHOTOS["grey.png"], None],
        "story": [f"once {row} " * 9 for row in range(_ROWS)],
        "lists": pa.array([[[row] * row] * row for row in range(_ROWS)]),
    }
    for name, values in more.items():
        table = table.append_column(name, values if isinstance(values, pa.Array) else [values])
    options: dict[str, Any] = {"compress": ["story"], "jpeg_index": 8}
    options["image"] = {"photo": None, "picture": "yuv420,fraction=0.1"}
    return pack(table, folder / "kinds.slab", nulls={"*": "mask"}, **options).path


def _pack_tables(folder: Path) -> Path:
    """Pack categories and a dictionary, which have tables, with digests of SHA-256."""
    names = pa.array([str(row) for row in range(MAX_INLINE_CATEGORIES + 1)])
    rows = range(101)  # fewer have no dictionary
    texts = [f'{{"kind": "photograph", "name": "{row}.jpeg", "licence": "none"}}' for row in rows]
    many = pa.DictionaryArray.from_arrays(pa.array(rows, pa.int16()), names)
    source, path = folder / "tables.parquet", folder / "tables.slab"
    pq.write_table(pa.table({"many": many, "text": texts}), source)
    pack(source, path, compress=["text"], digest="sha256")
    assert (path / "tables" / "01-text.dictionary.npy").exists()
    return path


class Flips:
    """The cases: each flips the same bit of all files of a group."""

    def __init__(self, subjects: Sequence[Subject]) -> None:
        self._subjects = {subject.name: subject for subject in subjects}
        self.groups = [group for subject in subjects for group in subject.groups]
        self.total = sum(group.bits for group in self.groups)

    def locate(self, number: int) -> tuple[Group, int]:
        """Find the group and the bit of a case."""
        place = number * _STRIDE % self.total
        for group in self.groups:
            if place < group.bits:
                return group, place
            place -= group.bits
        raise AssertionError("a place behind the last bit")

    def try_case(self, number: int, folder: Path) -> Counter[str]:
        """Try the bit of a case, in copies of the slabs that are made in `folder`."""
        return self.try_bit(*self.locate(number), folder)

    def try_bit(self, group: Group, bit: int, folder: Path) -> Counter[str]:
        """Flip, look, and flip back. Raises AssertionError where nobody notices.

        `verify` looks at all files at once. Rows are read with one file of each field at a time.
        """
        subject, slab = self._subjects[group.slab], folder / group.slab
        if not slab.exists():
            shutil.copytree(subject.whole, slab)
        files = {name for name in group.files if bit < 8 * subject.sizes[name]}
        with _flip_bits(slab, files, bit):
            assert not (missed := files - _verify(slab, bit, subject)), (
                f"`verify` misses {sorted(missed)}"
            )
            if len(group.files) == 1:
                return Counter(_read(slab, subject.rows)) + Counter(bits=1)
        counts = Counter(bits=len(files))
        turns = ([name for name in names if name in files] for names in subject.files.values())
        for names in zip_longest(*turns):
            fields = {f: name for f, name in zip(subject.files, names, strict=True) if name}
            with _flip_bits(slab, fields.values(), bit):
                counts.update(_read(slab, {field: subject.rows[field] for field in fields}))
        return counts


def _verify(slab: Path, bit: int, subject: Subject) -> set[str]:
    """Find the files that `verify` names; of arrays, where it tells the right place as well."""
    arrays = {name for names in subject.files.values() for name in names}
    header = bit // 8 if bit < 8 * HEADER else HEADER  # files are so small that they have one block
    try:
        problems = verify(slab, max_errors=1000).problems
    except FieldslabError:
        return set(subject.sizes) - arrays  # only the manifest, which is changed alone, ends it
    named = [(str(Path(p.file or "").relative_to(slab)), p.offset) for p in problems]
    return {name for name, offset in named if name not in arrays or offset == header}


def _read(slab: Path, expected: Mapping[str, list[Row]]) -> Iterator[str]:
    """Read the rows of fields: each has an error of ours, or the right rows."""
    try:
        opened = open_slab(slab)
    except FieldslabError:
        yield "slabs: refused"
        return
    for name, rows in expected.items():
        try:
            assert gathered(opened, range(len(rows)), name) == rows, (
                f"{slab.name}: other rows of {name}"
            )
            yield "fields: right"
        except FieldslabError:
            yield "fields: refused"


@contextmanager
def _flip_bits(slab: Path, names: Iterable[str], bit: int) -> Iterator[None]:
    """Flip the same bit of files for a `with` block."""
    names = list(names)
    for name in names:
        flip(slab / name, bit)
    try:
        yield
    finally:
        for name in names:
            flip(slab / name, bit)


def flip(path: Path, bit: int) -> None:
    """Flip one bit of a file."""
    file = os.open(path, os.O_RDWR)
    try:
        [byte] = os.pread(file, 1, bit // 8)
        os.pwrite(file, bytes([byte ^ 1 << bit % 8]), bit // 8)
    finally:
        os.close(file)
