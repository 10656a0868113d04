"""Shards of a slab that is written again: read rows of another slab, sort them, write them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fieldslab.packer.check.stored import StoredRows, StoredSlab, join_pieces
from fieldslab.packer.convert.compress import Compressors
from fieldslab.packer.convert.fieldplan import ConvertedRows
from fieldslab.packer.pack_options import Progress
from fieldslab.packer.rewrite.categories import UsedCategories
from fieldslab.packer.rewrite.runs import count_rows, group_runs, list_rows
from fieldslab.packer.rewrite.shuffle import compute_shuffle_keys
from fieldslab.packer.unions.source_slabs import SourceSlabs
from fieldslab.packer.write.attempts import Attempts
from fieldslab.packer.write.stream import ignore_progress
from fieldslab.packer.write.writers import ShardRecord, ShardWriter
from fieldslab.schemas import layout
from fieldslab.schemas.digest import BLOCK_DIGESTS, DigestName
from fieldslab.schemas.errors import SourceChanged
from fieldslab.schemas.fields import Field, Role
from fieldslab.schemas.write_errors import name_write_errors

_READ_BYTES = 64 * 2**20
"""Bytes to read at a time."""
_GAP_BYTES = 256 * 1024
"""Bytes between rows that are read along with them."""
_DIVIDED: dict[Role, Role] = {
    "points.values": "points.offsets",
    "lists.values": "lists.offsets",
}
"""Arrays of which each row has items of its own number, and the numbers."""


class RepackTask(NamedTuple):
    """One shard to write: its number, and the rows of the slab that is read, as runs.

    `memory` is an estimate of the bytes that it takes.
    """

    number: int
    runs: np.ndarray
    source: str
    memory: int = 0


@dataclass(frozen=True)
class RepackWork:
    """What it takes to write any shard, in this process or another.

    Attributes
    ----------
    slabs, content
        The slab that is read, or many as one, and its id.
    fields
        The fields that are read, and what each is in the slab that is written.
    compressors, categories
        Of the fields that are compressed anew, and of those that lose categories, by name.
    row_bytes
        Mean bytes of a row.
    seed
        Rows are sorted by the shuffle keys of this seed. None: they keep their sequence.
    digest
        The kind of digests that are written.
    key_field
        A field that holds shuffle keys: it is written last, or with `reads_keys` read instead of
        computing the keys, and left out.
    attempts, versions
        See `ShardWork` and `ShardRecord`.
    """

    slabs: SourceSlabs
    content: str
    fields: tuple[tuple[Field, Field], ...]
    compressors: Compressors
    categories: Mapping[str, UsedCategories]
    row_bytes: int
    seed: int | None
    digest: DigestName
    key_field: Field | None
    reads_keys: bool
    attempts: Attempts
    versions: dict[str, str]

    def write(self, task: RepackTask, progress: Progress = ignore_progress) -> ShardRecord:
        """Write one shard by `attempts`.

        Raises DamagedArray, Unreadable, SourceChanged and OutputError.
        """
        name = layout.name_shard(task.number)
        return self.attempts.write(name, lambda folder: self._write(task, folder, progress))

    def _write(self, task: RepackTask, folder: Path, progress: Progress) -> ShardRecord:
        added = [] if self.key_field is None or self.reads_keys else [self.key_field]
        with self.slabs.open() as members:
            stored = StoredSlab(members)
            if stored.manifest.id != self.content:
                problem = "the slab was packed again while it was read"
                raise SourceChanged(problem, file=self.slabs.path)
            with name_write_errors(folder):
                fields = [*(new for _, new in self.fields), *added]
                digest = BLOCK_DIGESTS[self.digest]
                writer = ShardWriter(folder, fields, self.compressors, digest)
                for columns in self._read_columns(stored, task, progress):
                    writer.append(columns)
                return writer.close(task.number, self.versions)

    def _read_columns(
        self, stored: StoredSlab, task: RepackTask, progress: Progress
    ) -> Iterator[list[ConvertedRows]]:
        """Yield the columns of the shard: in pieces, or all at once where they are sorted."""
        if self.seed is None:
            for rows, columns in self._read_pieces(stored, task.runs, progress):
                yield self._convert(columns, rows)
            return
        pieces = list(self._read_pieces(stored, task.runs, progress))
        if not pieces:
            return
        rows = np.concatenate([rows for rows, _ in pieces])
        joined = [join_pieces(list(column)) for column in zip(*(p for _, p in pieces), strict=True)]
        pieces.clear()
        keys = joined.pop().values if self.reads_keys else compute_shuffle_keys(self.seed, rows)
        # Of equal keys the row that comes first in the slab stays the first.
        order = np.argsort(keys, kind="stable")
        sorted_columns = []
        while joined:
            sorted_columns.append(take_rows(joined.pop(0), order))
        if self.key_field is not None and not self.reads_keys:
            sorted_columns.append(StoredRows(keys[order]))
        yield self._convert(sorted_columns, rows)

    def _read_pieces(
        self, stored: StoredSlab, runs: np.ndarray, progress: Progress
    ) -> Iterator[tuple[np.ndarray, list[StoredRows]]]:
        """Yield rows that lie near each other: their numbers, and what is stored of each field."""
        fields = [field for field, _ in self.fields]
        if self.key_field is not None and self.reads_keys:
            fields.append(self.key_field)
        row_bytes = max(self.row_bytes, 1)
        most = max(_READ_BYTES // row_bytes, 1)
        for group in group_runs(runs, _GAP_BYTES // row_bytes, most):
            first, end = int(group[0, 0]), int(group[-1, 1])
            rows = list_rows(group)
            columns = [self._read_field(stored, field, first, end) for field in fields]
            if len(rows) < end - first:
                columns = [take_rows(column, rows - first) for column in columns]
            yield rows, columns
            progress(len(rows), count_rows(group) * row_bytes)

    def _read_field(self, stored: StoredSlab, field: Field, first: int, end: int) -> StoredRows:
        read = stored.read if field.name in self.compressors else stored.read_stored
        return read(field, first, end)

    def _convert(self, columns: list[StoredRows], rows: np.ndarray) -> list[ConvertedRows]:
        fields = [new for _, new in self.fields]
        for index, field in enumerate(fields):
            used = self.categories.get(field.name)
            if used is not None:
                columns[index] = columns[index]._replace(values=used.convert(columns[index].values))
        converted = [
            _make_converted(field, column, len(rows), is_stored=field.name not in self.compressors)
            for field, column in zip(fields, columns, strict=False)
        ]
        return converted + [ConvertedRows(column.values) for column in columns[len(fields) :]]


def take_rows(rows: StoredRows, indexes: np.ndarray) -> StoredRows:
    """Take rows by their indexes, int64[n], in this sequence."""
    other_arrays: dict[Role, np.ndarray] = {}
    for role, items in rows.other_arrays.items():
        by = _DIVIDED.get(role)
        if by is not None:
            counts = rows.other_arrays[by]
            other_arrays[role] = _take_items(items, counts, indexes)
        else:
            other_arrays[role] = items[indexes]
    valid = None if rows.valid is None else rows.valid[indexes]
    if rows.lengths is None:
        return StoredRows(rows.values[indexes], None, valid, other_arrays)
    values = _take_items(rows.values, rows.lengths, indexes)
    return StoredRows(values, rows.lengths[indexes], valid, other_arrays)


def _take_items(items: np.ndarray, counts: np.ndarray, indexes: np.ndarray) -> np.ndarray:
    """Take the items (n, *shape) of rows that have different numbers of them."""
    item_bytes = items.dtype.itemsize * int(np.prod(items.shape[1:], dtype=np.int64))
    offsets = np.concatenate([[0], np.cumsum(counts * item_bytes, dtype=np.int64)])
    data: Any = pa.py_buffer(np.ascontiguousarray(items).reshape(-1).view(np.uint8))
    buffers = [None, pa.py_buffer(offsets), data]
    array = pa.Array.from_buffers(pa.large_binary(), len(counts), buffers).take(pa.array(indexes))
    total = int(counts[indexes].sum())
    content = np.frombuffer(array.buffers()[2] or b"", np.uint8, total * item_bytes)
    return content.view(items.dtype).reshape(total, *items.shape[1:])


def _make_converted(
    field: Field, rows: StoredRows, count: int, *, is_stored: bool
) -> ConvertedRows:
    """Make the rows ready for a writer, which takes them as they are if they are as stored."""
    tally: dict[str, int] = {}
    if field.compression is not None and is_stored:
        lengths = rows.other_arrays.get("lengths")
        items = count if lengths is None else int(lengths.sum())
        tally = {"bytes before compression": items * field.item_bytes}
    return ConvertedRows(rows.values, rows.lengths, rows.valid, rows.other_arrays, tally)
