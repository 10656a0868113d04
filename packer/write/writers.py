"""Writes the arrays of one shard: a folder, a writer for each field, the digest table."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from fieldslab.packer.convert.compress import Compressor, Compressors
from fieldslab.packer.convert.fieldplan import Converted
from fieldslab.packer.convert.soundness import LeftOut
from fieldslab.schemas import layout
from fieldslab.schemas.arrays import ArrayWriter
from fieldslab.schemas.digest import root
from fieldslab.schemas.fields import VALID, ArraySpec, Field, Role
from fieldslab.schemas.images import CODECS
from fieldslab.schemas.manifest import COUNTS


class ShardRecord(msgspec.Struct, frozen=True):
    """What a finished shard adds to the manifest; one line of the journal.

    `nulls` has a count for every field, `codecs` for each image field how many images of each
    codec it holds ('' where the header could not be read), `points` for each indexed field its
    index points, `remarks` how many images are odd in which way, `decoded` for each compressed
    field the bytes of its rows before compression, `shortened` for each tokenized field how many
    rows were cut, `rounded` for each field the integers that `--cast` rounded; `left_out` are the
    rows that are not in it, since their images are damaged.
    """

    index: int
    rows: int
    elements: list[int]
    nulls: list[int]
    root: str
    codecs: dict[str, dict[str, int]]
    bytes: int
    decoded: dict[str, int] = {}
    shortened: dict[str, int] = {}
    points: list[int] = []
    remarks: dict[str, dict[str, int]] = {}
    rounded: dict[str, int] = {}
    left_out: list[LeftOut] = []


class FieldWriter:
    """Appends rows of one field to its arrays."""

    def __init__(self, folder: Path, field: Field, compressor: Compressor | None = None) -> None:
        """Create the arrays of `field` in `folder`; `valid` only when the first null comes."""
        self.field = field
        self.rows = self.nulls = self.decoded = self.shortened = self.rounded = 0
        self.counts: Counter[str] = Counter()
        self.codecs: Counter[str] = Counter()
        self.remarks: Counter[str] = Counter()
        self._compressor = compressor
        self._folder = folder
        self._specs = field.arrays()
        self._arrays = {spec.role: self._create(spec) for spec in self._specs}
        self._ends: dict[Role, np.ndarray] = {}
        for spec in self._specs:
            if spec.per == "row+1":
                self._ends[spec.role] = np.zeros(1, np.uint64)
                self._arrays[spec.role].append(self._ends[spec.role])

    def append(self, rows: Converted) -> None:
        """Append converted rows."""
        count = len(rows.values) if rows.lengths is None else len(rows.lengths)
        self._append_valid(rows.valid, count)
        self.shortened += rows.shortened
        self.rounded += rows.rounded
        self.remarks.update(rows.remarks)
        if self.field.kind == "image":
            codes = rows.beside["codec"]
            present = codes if rows.valid is None else codes[rows.valid]
            self.codecs.update(CODECS[code] or "" for code in present.tolist())
        if self._compressor is not None:
            rows = self._compressed(self._compressor, rows)
        items = {"values": rows.values, "offsets": rows.lengths, **rows.beside}
        for spec in self._specs:
            if spec.role != "valid":
                self._append(spec, items[spec.role])
        self.rows += count

    def close(self) -> list[np.ndarray]:
        """Finish the arrays; their digests, array by array in file order."""
        roles: list[Role] = [spec.role for spec in self._specs if spec.role != "valid"]
        order: list[Role] = [*roles, "valid"]
        return [self._arrays[role].close()[1] for role in order if role in self._arrays]

    def _append(self, spec: ArraySpec, items: np.ndarray | None) -> None:
        assert items is not None
        if spec.per == "row+1":
            items = np.cumsum(items, dtype=np.uint64) + self._ends[spec.role]
            self._ends[spec.role] = items[-1:] if len(items) else self._ends[spec.role]
        elif spec.per in COUNTS:
            self.counts[spec.per] += len(items)
        self._arrays[spec.role].append(items)

    def _compressed(self, compressor: Compressor, rows: Converted) -> Converted:
        self.decoded += rows.values.nbytes
        frames = compressor.compress(self.field, rows)
        beside: dict[Role, np.ndarray] = {}
        if rows.lengths is not None:
            beside["lengths"] = rows.lengths.astype("<u8")
        return Converted(frames.values, frames.lengths, rows.valid, beside=beside)

    def _append_valid(self, valid: np.ndarray | None, count: int) -> None:
        nulls = 0 if valid is None else count - int(np.count_nonzero(valid))
        if nulls and "valid" not in self._arrays:
            self._arrays["valid"] = self._create(VALID)
            self._arrays["valid"].append(np.ones(self.rows, bool))
        if "valid" in self._arrays:
            self._arrays["valid"].append(np.ones(count, bool) if valid is None else valid)
        self.nulls += nulls

    def _create(self, spec: ArraySpec) -> ArrayWriter:
        path = self._folder / layout.file_name(self.field, spec.role)
        return ArrayWriter(path, spec.dtype, spec.shape)


class ShardWriter:
    """Writes one shard into an empty folder."""

    def __init__(self, folder: Path, fields: list[Field], compressors: Compressors) -> None:
        """Create the arrays of all fields in `folder`, which must exist and be empty."""
        self._folder = folder
        self.writers = [FieldWriter(folder, field, compressors.get(field.name)) for field in fields]

    def close(self, index: int, left_out: Sequence[LeftOut] = ()) -> ShardRecord:
        """Finish every array, write the digest table, and say what the shard holds, and lacks."""
        digests = [digest for writer in self.writers for digest in writer.close()]
        total = write_digests(self._folder, digests)
        rows = {writer.rows for writer in self.writers}
        if len(rows) != 1:
            raise AssertionError(f"fields of one shard differ in rows: {rows}")
        return ShardRecord(
            index=index,
            rows=rows.pop(),
            nulls=[writer.nulls for writer in self.writers],
            root=total,
            codecs={w.field.name: dict(w.codecs) for w in self.writers if w.field.kind == "image"},
            decoded={w.field.name: w.decoded for w in self.writers if w.field.compression},
            shortened={w.field.name: w.shortened for w in self.writers if w.shortened},
            **{member: self._counts(per) for per, member in COUNTS.items()},
            remarks={w.field.name: dict(w.remarks) for w in self.writers if w.remarks},
            left_out=list(left_out),
            rounded={w.field.name: w.rounded for w in self.writers if w.rounded},
            bytes=sum(file.stat().st_size for file in self._folder.iterdir()),
        )

    def _counts(self, per: str) -> list[int]:
        """How many items each field has per this; of fields that have such an array."""
        return [
            writer.counts[per]
            for writer in self.writers
            if any(spec.per == per for spec in writer.field.arrays())
        ]


def write_digests(folder: Path, digests: list[np.ndarray]) -> str:
    """Write a folder's `digests.npy`; returns its root."""
    table = np.concatenate([np.empty(0, np.uint64), *digests])
    writer = ArrayWriter(folder / layout.DIGESTS, np.dtype("<u8"))
    writer.append(table)
    writer.close()
    return root(table)
