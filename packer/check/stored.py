"""Rows of a slab as they are stored, for the packer's own use (`head`, `verify --against`)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from fieldslab.schemas.access import ArrayReader, Folder
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import DamagedArray, RowOutOfRange
from fieldslab.schemas.fields import POINT_ITEMS, Field, Role
from fieldslab.schemas.folder import SlabFiles
from fieldslab.schemas.frames import FrameReader
from fieldslab.schemas.images import find_codecs
from fieldslab.schemas.stored_tables import load_categories, load_dictionary
from fieldslab.schemas.unions.members import Member, Members


class StoredRows(NamedTuple):
    """Some rows of one field.

    `values` is (rows, *shape), or (elements, *shape) with `lengths` int64[rows]; `valid` is
    bool[rows], or None where no row is null. `other_arrays` has the items of the other arrays, by
    role: for offsets, the numbers of items, int64[rows].
    """

    values: np.ndarray
    lengths: np.ndarray | None = None
    valid: np.ndarray | None = None
    other_arrays: Mapping[Role, np.ndarray] = {}


class StoredSlab:
    """Reads ranges of rows from a slab; with `checked`, every block that it reads is digested."""

    def __init__(self, files: SlabFiles | Members, *, checked: bool = True) -> None:
        """Read the slab whose files these are, or many as one, as long as they are open."""
        if isinstance(files, SlabFiles):
            files = Members([Member(str(files.path), files)], is_union=False)
        self.members = files
        self.path = files.path
        self.manifest = files.manifest
        self._checked = checked
        rows = [shard.rows for shard in self.manifest.shards]
        self._starts = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])
        self._shard = lru_cache(maxsize=2)(self._open_shard)
        self._tables = lru_cache(maxsize=2)(self._open_tables)
        self._frames: dict[tuple[int, str], FrameReader] = {}

    def read(self, field: Field, start: int, stop: int) -> StoredRows:
        """Read the rows `start` to `stop` of a field, from whichever shards hold them.

        Raises
        ------
        RowOutOfRange
            The slab does not have these rows.
        DamagedArray
            A block is not what its digest says, or offsets point outside.
        SlabReplaced, NotASlab, Unreadable
            The slab was removed since it was opened; a link is in the way; the disk fails.
        """
        if not 0 <= start <= stop <= self.manifest.rows:
            raise RowOutOfRange(
                "no such row",
                file=self.path,
                row=f"{start}..{stop - 1}",
                expected=f"0..{self.manifest.rows - 1}",
            )
        pieces = [
            self._read_shard_rows(shard, field, first, last, decompressed=True)
            for shard, first, last in self._split_by_shard(start, stop)
        ]
        return join_pieces(pieces) if pieces else make_null_rows(field, 0)

    def read_stored(self, field: Field, start: int, stop: int) -> StoredRows:
        """Read the rows `start` to `stop`, one at least, as they are stored.

        Rows of a compressed field are frames. Raises what `read` raises.
        """
        return join_pieces(
            [
                self._read_shard_rows(shard, field, first, last, decompressed=False)
                for shard, first, last in self._split_by_shard(start, stop)
            ]
        )

    def read_table(self, field: Field, role: Role) -> np.ndarray:
        """Read an array of the folder `tables`: its items. Raises what `read` raises.

        Of many slabs, the categories are those of all; a dictionary is that of the first.
        """
        joined = self.members.categories.get(field.name)
        if joined is None or role == "dictionary":
            return self._tables(0).get_required_array(field, role).read()
        return encode_categories(joined, role)

    def locate(self, field: Field, role: Role, row: int, byte: int) -> tuple[Path, int]:
        """Locate the file and offset of a byte of a row's items in an array.

        Of a compressed row, where its frame begins.
        """
        shard, first, _ = next(self._split_by_shard(row, row + 1))
        folder = self._shard(shard)
        array = folder.get_required_array(field, role)
        if array.file.spec.by is not None:
            first = folder.get_required_array(field, array.file.spec.by)[first]
        offset_in_item = byte if field.compression is None else 0
        return array.path, HEADER + first * array.file.item_bytes + offset_in_item

    def read_categories(self, field: Field) -> list[str]:
        """Read the categories of a categorical field, by code.

        Raises DamagedArray where a stored table is not what pack wrote.
        """
        joined = self.members.categories.get(field.name, field.categories)
        if joined is not None:
            return list(joined)
        ends, text = load_categories(field, self._tables(0))
        data = text.tobytes()
        try:
            return [data[start:stop].decode() for start, stop in pairwise(ends.tolist())]
        except UnicodeDecodeError as error:
            values = self._tables(0).get_required_array(field, "categories.values")
            raise values.make_damaged_error("a category is not UTF-8") from error

    def _split_by_shard(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield the shards that hold these rows: number, first row and stop row within it."""
        shard = int(np.searchsorted(self._starts, start, side="right")) - 1
        while start < stop:
            base, end = int(self._starts[shard]), int(self._starts[shard + 1])
            last = min(stop, end)
            yield shard, start - base, last - base
            start, shard = last, shard + 1

    def _read_shard_rows(
        self, shard: int, field: Field, start: int, stop: int, decompressed: bool
    ) -> StoredRows:
        members, member, part = self.members, 0, field
        if members.is_union:
            member = members.find_member(shard)
            member_field = members.get_field(member, field.name)
            if member_field is None:
                return make_null_rows(field, stop - start, decompressed=decompressed)
            part = member_field
        folder = self._shard(shard)
        rows = _read_rows(folder, part, start, stop)
        if decompressed and part.compression is not None:
            rows = self._decompress(rows, part, member)
        return convert_member_rows(rows, field, part, members, shard) if members.is_union else rows

    def _decompress(self, rows: StoredRows, field: Field, member: int) -> StoredRows:
        key = member, field.name
        if key not in self._frames:
            tables = self._tables(member) if field.list_arrays_in_tables() else None
            self._frames[key] = FrameReader(field.name, load_dictionary(field, tables))
        counts = rows.other_arrays.get("lengths")
        assert rows.lengths is not None
        offsets = np.concatenate([[0], np.cumsum(rows.lengths)])
        values = self._frames[key].read_values(rows.values, offsets, counts, field)
        lengths = None if counts is None else counts.astype(np.int64)
        other_arrays = dict(rows.other_arrays)
        other_arrays.pop("lengths", None)
        return StoredRows(values, lengths, rows.valid, other_arrays)

    def _open_tables(self, member: int) -> Folder:
        folder = self.members.find_tables(member, mapped=False)
        assert folder is not None  # a manifest with a field that needs `tables` has them
        self._load_digests(folder)
        return folder

    def _open_shard(self, index: int) -> Folder:
        folder = self.members.find_folder(index, int(self._starts[index]), mapped=False)
        self._load_digests(folder)
        return folder

    def _load_digests(self, folder: Folder) -> None:
        if self._checked:
            folder.load_digests()


def _read_rows(folder: Folder, field: Field, start: int, stop: int) -> StoredRows:
    rows: dict[Role, np.ndarray] = {}
    for spec in field.list_arrays():
        array = folder.get_array(field, spec.role)
        if array is not None and spec.by is not None:
            rows[spec.role], rows[spec.by] = _read_variable_items(array, spec.by, start, stop)
        elif array is not None and spec.per == "row":
            rows[spec.role] = array.read(start, stop)
    return _make_stored_rows(rows)


def _make_stored_rows(rows: dict[Role, np.ndarray]) -> StoredRows:
    return StoredRows(rows.pop("values"), rows.pop("offsets", None), rows.pop("valid", None), rows)


def _read_variable_items(
    values: ArrayReader, by: Role, start: int, stop: int
) -> tuple[np.ndarray, np.ndarray]:
    """Read items of which each row has its own number, and those numbers: int64[rows]."""
    offsets = values.folder.get_required_array(values.file.field, by)
    ends = offsets.read(start, stop + 1)
    bad_offsets = (ends[1:] < ends[:-1]) | (ends[1:] > len(values))
    if bad_offsets.any():
        index = int(np.argmax(bad_offsets))
        first, last = int(ends[index]), int(ends[index + 1])
        raise offsets.make_damaged_offsets_error(start + index, first, last, len(values))
    return values.read(int(ends[0]), int(ends[-1])), np.diff(ends).astype(np.int64)


def join_pieces(pieces: list[StoredRows]) -> StoredRows:
    """Join rows that follow each other."""
    if len(pieces) == 1:
        return pieces[0]
    valid = None
    if any(piece.valid is not None for piece in pieces):
        valid = np.concatenate(
            [
                np.ones(_count_rows(piece), bool) if piece.valid is None else piece.valid
                for piece in pieces
            ]
        )

    def join_role(role: Role) -> np.ndarray:
        return np.concatenate([piece.other_arrays[role] for piece in pieces])

    lengths = [piece.lengths for piece in pieces if piece.lengths is not None]
    return StoredRows(
        np.concatenate([piece.values for piece in pieces]),
        np.concatenate(lengths) if lengths else None,
        valid,
        {role: join_role(role) for role in pieces[0].other_arrays},
    )


def _count_rows(rows: StoredRows) -> int:
    return len(rows.values if rows.lengths is None else rows.lengths)


def encode_categories(names: Sequence[str], role: Role) -> np.ndarray:
    """Encode the names of categories as an array of a category table."""
    texts = [name.encode() for name in names]
    if role == "categories.values":
        return np.frombuffer(b"".join(texts), np.uint8)
    return np.cumsum([0, *map(len, texts)], dtype="<u8")


def make_null_rows(field: Field, count: int, *, decompressed: bool = True) -> StoredRows:
    """Make rows that are null; with `decompressed`, those of a compressed field are no frames."""
    if decompressed and field.compression is not None:
        field = msgspec.structs.replace(field, compression=None)
    rows: dict[Role, np.ndarray] = {}
    for spec in field.list_arrays():
        dtype = np.dtype(np.int64) if spec.per == "row+1" else spec.dtype
        items = count if spec.per in ("row", "row+1") else 0
        rows[spec.role] = np.zeros((items, *spec.shape), dtype)
    if field.kind == "categorical":
        rows["values"][:] = -1
    return _make_stored_rows(rows)


def convert_member_rows(
    rows: StoredRows, field: Field, part: Field, members: Members, shard: int
) -> StoredRows:
    """Convert rows of a shard of one of many slabs to what they are in all of them together.

    `part` is what `field` is in that slab. Raises DamagedArray for a code without a category.
    """
    other_arrays = dict(rows.other_arrays)
    codes = members.codes.get(field.name)
    if codes is not None:
        wrong = codes.translate(rows.values, np.full(len(rows.values), shard))
        if wrong >= 0:
            raise DamagedArray(
                "a code has no category",
                file=members.files[members.find_member(shard)].path,
                field=field.name,
                expected=f"0..{codes.counts[shard] - 1}",
                found=int(rows.values[wrong]),
                hint="Verify this slab: fieldslab verify.",
            )
        if rows.valid is not None and field.kind != "categorical":
            rows.values[~rows.valid] = 0
    if field.kind == "image" and rows.lengths is not None:
        if field.index is None:
            other_arrays.pop("points.values", None)
            other_arrays.pop("points.offsets", None)
        elif part.index is None:
            other_arrays["points.values"] = np.zeros((0, POINT_ITEMS), np.uint16)
            other_arrays["points.offsets"] = np.zeros(len(rows.lengths), np.int64)
        if field.coded and not part.coded:
            other_arrays["codec"] = find_codecs(rows.values, rows.lengths, part.codec)
    return rows._replace(other_arrays=other_arrays)
