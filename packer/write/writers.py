"""Writes the arrays of one shard: a folder, a writer for each field, the digest table."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from fieldslab.packer.convert.compress import Compressor, Compressors, convert_to_frames
from fieldslab.packer.convert.damaged_rows import LeftOutRow
from fieldslab.packer.convert.fieldplan import ConvertedRows
from fieldslab.schemas import layout
from fieldslab.schemas.arrays import ArrayWriter
from fieldslab.schemas.digest import BlockDigest
from fieldslab.schemas.fields import VALID, ArraySpec, Field, Role
from fieldslab.schemas.manifest import COUNTS


class ShardRecord(msgspec.Struct, frozen=True):
    """What a finished shard adds to the manifest; one line of the journal.

    `nulls` has a count for every field, `elements` and `points` for each field that has such
    arrays. `tallies` has other counts of each field, as in `ConvertedRows`; of a compressed field,
    the bytes of its rows before compression, too. `left_out` are the rows that are not in it, since
    their images are damaged. `attempt` is the name of the folder that the shard was written in, and
    `versions` are those of the libraries that wrote it. In a store, `objects` are the versions of
    the objects that the shard became, by file name.
    """

    index: int
    rows: int
    elements: list[int]
    nulls: list[int]
    root: str
    tallies: dict[str, dict[str, int]]
    bytes: int
    attempt: str
    versions: dict[str, str]
    points: list[int] = []
    left_out: list[LeftOutRow] = []
    objects: dict[str, str] = {}


class FinishedShard(msgspec.Struct, frozen=True):
    """A finished shard, and of how many parts the one that wrote it was."""

    record: ShardRecord
    parts: int


Tallies = dict[str, Counter[str]]
"""What was counted in all shards, by field."""


def merge_tallies(records: Iterable[ShardRecord]) -> Tallies:
    """Add up the tallies of shards; a field that has none counts as zero throughout."""
    totals: Tallies = defaultdict(Counter)
    for record in records:
        for name, tally in record.tallies.items():
            totals[name].update(tally)
    return totals


class FieldWriter:
    """Appends rows of one field to its arrays."""

    def __init__(
        self,
        folder: Path,
        field: Field,
        digest: BlockDigest,
        compressor: Compressor | None = None,
    ) -> None:
        """Create the arrays of `field` in `folder`; `valid` only when the first null comes."""
        self.field = field
        self.rows = self.nulls = 0
        self.items: Counter[str] = Counter()
        self.tally: Counter[str] = Counter()
        self._compressor = compressor
        self._folder = folder
        self._digest = digest
        self._specs = field.list_arrays()
        self._arrays = {spec.role: self._create_writer(spec) for spec in self._specs}
        self._ends: dict[Role, np.ndarray] = {}
        for spec in self._specs:
            if spec.per == "row+1":
                self._ends[spec.role] = np.zeros(1, np.uint64)
                self._arrays[spec.role].append(self._ends[spec.role])

    def append(self, rows: ConvertedRows) -> None:
        """Append converted rows."""
        count = len(rows.values) if rows.lengths is None else len(rows.lengths)
        self._append_valid(rows.valid, count)
        self.tally.update(rows.tally)
        if self._compressor is not None:
            self.tally["bytes before compression"] += rows.values.nbytes
            rows = convert_to_frames(self._compressor, self.field, rows)
        items = {"values": rows.values, "offsets": rows.lengths, **rows.other_arrays}
        for spec in self._specs:
            if spec.role != "valid":
                self._append_items(spec, items[spec.role])
        self.rows += count

    def close(self) -> list[np.ndarray]:
        """Finish the arrays; their digests, array by array in file order."""
        roles: list[Role] = [spec.role for spec in self._specs if spec.role != "valid"]
        order: list[Role] = [*roles, "valid"]
        return [self._arrays[role].close()[1] for role in order if role in self._arrays]

    def _append_items(self, spec: ArraySpec, items: np.ndarray | None) -> None:
        assert items is not None
        if spec.per == "row+1":
            items = np.cumsum(items, dtype=np.uint64) + self._ends[spec.role]
            self._ends[spec.role] = items[-1:] if len(items) else self._ends[spec.role]
        elif spec.per in COUNTS:
            self.items[spec.per] += len(items)
        self._arrays[spec.role].append(items)

    def _append_valid(self, valid: np.ndarray | None, count: int) -> None:
        nulls = 0 if valid is None else count - int(np.count_nonzero(valid))
        if nulls and "valid" not in self._arrays:
            self._arrays["valid"] = self._create_writer(VALID)
            self._arrays["valid"].append(np.ones(self.rows, bool))
        if "valid" in self._arrays:
            self._arrays["valid"].append(np.ones(count, bool) if valid is None else valid)
        self.nulls += nulls

    def _create_writer(self, spec: ArraySpec) -> ArrayWriter:
        path = self._folder / layout.name_file(self.field, spec.role)
        return ArrayWriter(path, spec.dtype, spec.shape, self._digest)


class ShardWriter:
    """Writes one shard into an empty folder."""

    def __init__(
        self, folder: Path, fields: list[Field], compressors: Compressors, digest: BlockDigest
    ) -> None:
        """Create the arrays of all fields in `folder`, which must exist and be empty."""
        self._folder = folder
        self._digest = digest
        self.writers = [
            FieldWriter(folder, field, digest, compressors.get(field.name)) for field in fields
        ]

    def append(self, columns: Sequence[ConvertedRows]) -> None:
        """Append converted rows, those of all fields."""
        for converted, writer in zip(columns, self.writers, strict=True):
            writer.append(converted)

    def close(
        self, index: int, versions: dict[str, str], left_out: Sequence[LeftOutRow] = ()
    ) -> ShardRecord:
        """Finish every array, write the digest table, and say what the shard holds, and lacks."""
        digests = [digest for writer in self.writers for digest in writer.close()]
        total = write_digests(self._folder, self._digest, digests)
        rows = {writer.rows for writer in self.writers}
        if len(rows) != 1:
            raise AssertionError(f"fields of one shard differ in rows: {rows}")
        return ShardRecord(
            index=index,
            rows=rows.pop(),
            nulls=[writer.nulls for writer in self.writers],
            root=total,
            tallies={w.field.name: dict(w.tally) for w in self.writers if w.tally},
            **{member: self._count_items(per) for per, member in COUNTS.items()},
            left_out=list(left_out),
            attempt=self._folder.name,
            versions=versions,
            bytes=sum(file.stat().st_size for file in self._folder.iterdir()),
            objects={},
        )

    def _count_items(self, per: str) -> list[int]:
        """Count the items of each field that has an array `per` this."""
        return [
            writer.items[per]
            for writer in self.writers
            if any(spec.per == per for spec in writer.field.list_arrays())
        ]


def write_digests(folder: Path, digest: BlockDigest, tables: Iterable[np.ndarray]) -> str:
    """Write a folder's `digests.npy`; returns its root."""
    table = digest.join_tables(tables)
    dtype, shape = digest.describe_file(len(table))
    writer = ArrayWriter(folder / layout.DIGESTS, dtype, shape[1:])
    writer.append(table.view(dtype).reshape(shape))
    writer.close()
    return digest.compute_root(table)
