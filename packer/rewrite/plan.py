"""What a repack writes: decided before any data is read."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from fieldslab.packer.check.stored import StoredSlab
from fieldslab.packer.convert.compress import Compressors
from fieldslab.packer.options import parse_digest
from fieldslab.packer.rewrite.categories import UsedCategories, find_used_categories
from fieldslab.packer.rewrite.dictionaries import train_compressors
from fieldslab.packer.rewrite.options import RepackOptions
from fieldslab.packer.rewrite.runs import count_rows, cut_runs, list_rows, make_runs
from fieldslab.packer.rewrite.selection import find_matching_rows, select_fields, select_rows
from fieldslab.packer.rewrite.shuffle import compute_shuffle_keys, find_parts
from fieldslab.packer.rewrite.work import RepackTask
from fieldslab.packer.shardsize import choose_shard_bytes, compute_most_shards
from fieldslab.packer.unions.source_slabs import SourceSlabs, find_slabs
from fieldslab.schemas import layout
from fieldslab.schemas.bytesizes import parse_size
from fieldslab.schemas.digest import DigestName
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field, make_file_stem
from fieldslab.schemas.manifest import VERSION, Manifest, Provenance
from fieldslab.schemas.optiontext import mark_option

DIRECT_SHARDS = 4
"""So many shards are written by reading all of the slab for each."""
CHUNK_BYTES = 2**28
"""Bytes that are sorted at a time where rows are first brought near to others of their shard."""
MOST_CHUNKS = 4096
_BLOCK_ROWS = 2**20
"""Rows that are looked up at a time."""
_TASK_MEMORY = 2**28
"""What a task takes beside its rows."""


@dataclass(frozen=True)
class RepackPlan:
    """A slab that is to be written from another.

    Attributes
    ----------
    slabs, source
        The slab that is read, or many as one, and its manifest.
    fields
        The fields that are read, and what each is in the new slab.
    compressors, categories
        Of fields that are compressed anew, and of those that lose categories, by name.
    runs
        The rows that are read; see `fieldslab.packer.rewrite.runs`.
    seed
        Of the shuffle, None without one.
    digest
        The kind of digests of the new slab.
    shard_count
        Shards of the new slab, None to cut it as the old one. In a shuffle of few rows, some stay
        empty and are left out.
    key_field
        The field of shuffle keys, where it is written, or read instead of computing them.
    reads_keys
        Whether `key_field` is read. The rows then come in chunks that are sorted by it.
    provenance
        What the manifest says of sources and options; None: that it was packed from a slab.
    consumes_source
        Whether the slab that is read is removed: its shards as soon as their rows are sorted by
        shard, all else before the new slab is put in its place.
    """

    slabs: SourceSlabs
    source: Manifest
    fields: tuple[tuple[Field, Field], ...]
    compressors: Compressors
    categories: Mapping[str, UsedCategories]
    runs: np.ndarray
    seed: int | None
    digest: DigestName
    shard_count: int | None
    key_field: Field | None = None
    reads_keys: bool = False
    provenance: Provenance | None = None
    consumes_source: bool = False

    @property
    def path(self) -> Path:
        """Place of the slab that is read."""
        return self.slabs.path

    @property
    def rows(self) -> int:
        """Rows of the new slab."""
        return count_rows(self.runs)

    @property
    def needs_scattering(self) -> bool:
        """Whether rows are first sorted by shard, in another slab, which is read in their place."""
        scatters = self.seed is not None and self.key_field is None
        return scatters and (self.shard_count or 0) > DIRECT_SHARDS

    @property
    def steps(self) -> int:
        """How often each row is written."""
        return 2 if self.needs_scattering else 1

    @cached_property
    def row_bytes(self) -> int:
        """Mean bytes of a row in the slab that is read."""
        names = {field.name for field, _ in self.fields}
        total = sum(
            file.data_bytes
            for index in range(len(self.source.shards))
            for file in layout.list_shard_files(self.source, index)
            if file.field.name in names
        )
        return total // max(self.source.rows, 1)

    def make_tasks(self, is_own: Callable[[int], bool] = lambda _: True) -> list[RepackTask]:
        """Cut the rows into shards: the tasks of those whose numbers `is_own` takes."""
        if not self.rows:
            return []
        if self.seed is not None and (self.reads_keys or self.key_field is None):
            pieces = self._find_shuffled_rows(is_own)
        else:
            is_chunk = self.key_field is not None
            counts = self._count_chunk_rows() if is_chunk else self._count_shard_rows()
            shard_runs = (runs for runs in cut_runs(self.runs, counts) if len(runs))
            pieces = ((number, runs) for number, runs in enumerate(shard_runs) if is_own(number))
        return [
            RepackTask(number, runs, str(self.path), self._estimate_memory(runs))
            for number, runs in pieces
        ]

    def count_shuffled_shards(self) -> int:
        """Count the shards of a shuffle."""
        return len(self._find_shards()) if self.rows else 0

    def plan_scattering(self) -> "RepackPlan":
        """Plan the slab in which chunks of rows are sorted by their shuffle keys."""
        key_field = make_key_field([field for field, _ in self.fields])
        return replace(self, key_field=key_field, consumes_source=False)

    def plan_gathering(self, path: Path, scattered: Manifest) -> "RepackPlan":
        """Plan this slab by what `plan_scattering` planned, once it is written."""
        *fields, key_field = scattered.fields
        return replace(
            self,
            slabs=find_slabs(path),
            source=scattered,
            compressors={},
            categories={},
            fields=tuple((field, new) for field, (_, new) in zip(fields, self.fields, strict=True)),
            key_field=key_field,
            reads_keys=True,
        )

    def compute_fingerprint(self) -> str:
        """Compute a SHA-256 over what decides which bytes are written."""
        content = [
            VERSION,
            self.source.id,
            [msgspec.to_builtins(new) for _, new in self.fields],
            hashlib.sha256(self.runs.tobytes()).hexdigest(),
            [self.seed, self.shard_count, self.key_field is not None],
        ]
        shared = {name: compressor.dictionary for name, compressor in self.compressors.items()}
        for name, used in self.categories.items():
            shared[name] = used.codes.tobytes()
        if self.digest != self.source.digest:
            content.append(self.digest)
        if shared:
            content.append(
                {name: hashlib.sha256(data).hexdigest() for name, data in shared.items()}
            )
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _count_shard_rows(self) -> list[int]:
        """Count the rows of each shard: as they are, or equal numbers."""
        if self.shard_count is None:
            return [shard.rows for shard in self.source.shards]
        return _cut_evenly(self.rows, self.shard_count)

    def _count_chunk_rows(self) -> list[int]:
        """Count the rows of each chunk that is sorted."""
        total = self.rows * max(self.row_bytes, 1)
        return _cut_evenly(self.rows, min(-(-total // CHUNK_BYTES), MOST_CHUNKS))

    def _estimate_memory(self, runs: np.ndarray) -> int:
        """Estimate what it takes to write a shard: where it is sorted, all of it, three times."""
        sorted_bytes = 0 if self.seed is None else count_rows(runs) * self.row_bytes
        return _TASK_MEMORY + 3 * sorted_bytes

    def _find_shuffled_rows(
        self, is_own: Callable[[int], bool]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Find the rows of shards of a shuffle, in the slab that is read: number and runs."""
        shards = self._find_shards()
        numbers = [number for number in range(len(shards)) if is_own(number)]
        find = self._find_chunk_runs if self.reads_keys else self._find_single_rows
        return zip(numbers, find(shards[numbers]), strict=True)

    def _find_shards(self) -> np.ndarray:
        """Find the parts of all keys that have rows: each becomes a shard of a shuffle."""
        totals = np.zeros(self.shard_count or 0, np.int64)
        for _, parts in self._find_parts():
            totals += np.bincount(parts, minlength=len(totals))
        return np.flatnonzero(totals)

    def _find_parts(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the rows, block by block, and which part of all keys each belongs to.

        Where rows come in chunks that are sorted, a block is a chunk.
        """
        assert self.seed is not None
        assert self.shard_count is not None
        counts = [shard.rows for shard in self.source.shards]
        if not self.reads_keys:
            counts = _cut_evenly(self.rows, -(-self.rows // _BLOCK_ROWS))
        for runs in cut_runs(self.runs, counts):
            rows = list_rows(runs)
            yield rows, find_parts(compute_shuffle_keys(self.seed, rows), self.shard_count)

    def _find_single_rows(self, shards: np.ndarray) -> Iterator[np.ndarray]:
        """Find the rows of these parts of all keys, as runs."""
        index = np.full(self.shard_count or 0, -1, np.int64)
        index[shards] = np.arange(len(shards))
        rows, owners = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for block, parts in self._find_parts():
            owner = index[parts]
            rows.append(block[owner >= 0])
            owners.append(owner[owner >= 0])
        all_owners = np.concatenate(owners)
        ordered = np.concatenate(rows)[np.argsort(all_owners, kind="stable")]
        ends = np.cumsum(np.bincount(all_owners, minlength=len(shards)))
        return map(make_runs, np.split(ordered, ends[:-1]))

    def _find_chunk_runs(self, shards: np.ndarray) -> Iterator[np.ndarray]:
        """Find the rows of these parts of all keys in chunks: one run of each chunk."""
        chunk_runs = []
        first = 0
        for rows, parts in self._find_parts():
            counts = np.bincount(parts, minlength=self.shard_count or 0)
            ends = first + np.cumsum(counts)
            chunk_runs.append(np.stack([ends - counts, ends], axis=1)[shards])
            first += len(rows)
        for runs in np.stack(chunk_runs, axis=1):
            yield runs[runs[:, 0] < runs[:, 1]]


def make_repack_plan(
    slabs: SourceSlabs, source: Manifest, values: RepackOptions, slab: StoredSlab | None = None
) -> RepackPlan:
    """Decide what is written of a slab, or of many as one, with this manifest.

    `slab` reads it, where rows are chosen or where there are many. Raises UsageError,
    RowOutOfRange, SlabChanged, and what `StoredSlab.read` raises.
    """
    chosen = select_fields(source.fields, values["fields"], values["exclude"])
    matching = None
    if slab is not None and values["where"] is not None:
        matching = find_matching_rows(slab, values["where"])
    rows = select_rows(source, values["rows_file"], values["drop_rows"], matching)
    runs = np.array([[0, source.rows]], np.int64) if rows is None else make_runs(rows)
    compressors = {} if slab is None else train_compressors(slab, chosen, runs)
    option, categories = "remove_unused_categories", {}
    removing = values["remove_unused_categories"]
    if slab is not None and removing:
        for field in select_fields(chosen, removing, option=option):
            categories[field.name] = find_used_categories(slab, field, runs)
    fields = tuple(
        (field, categories[field.name].describe(new) if field.name in categories else new)
        for field, new in _rename_files(chosen)
    )
    digest = source.digest if values["digest"] is None else parse_digest(values["digest"])
    plan = RepackPlan(
        slabs, source, fields, compressors, categories, runs, values["shuffle"], digest, None
    )
    return replace(plan, shard_count=_count_shards(plan, values["shard_size"]))


def find_warnings(plan: RepackPlan, where: object) -> list[str]:
    """List what is odd about a plan that was made with this condition: a sentence each."""
    if plan.rows or not plan.source.rows:
        return []
    reason = "" if where is None else f" for which {where} is true"
    return [f"of {plan.source.rows:,} rows none is left{reason}: the new slab has no rows"]


def make_key_field(fields: Sequence[Field]) -> Field:
    """Make the field of shuffle keys that comes behind these fields."""
    names, name = {field.name for field in fields}, "shuffle key"
    while name in names:
        name += "#"
    stem = make_file_stem(len(fields), name)
    return Field(name=name, stem=stem, kind="fixed", dtype="uint64")


def _count_shards(plan: RepackPlan, shard_size: str | int | None) -> int | None:
    """Count the shards to write; None for those that there are."""
    shards = len(plan.source.shards)
    if shard_size is None and plan.seed is None and plan.rows == plan.source.rows:
        return None
    fields = [new for _, new in plan.fields]
    if shard_size is None:
        count = shards * plan.rows / max(plan.source.rows, 1)
    else:
        size = parse_size("shard_size", shard_size)
        if size < 1:
            raise UsageError(f"{mark_option('shard_size')} must be positive", found=shard_size)
        total = plan.rows * plan.row_bytes
        count = -(-total // choose_shard_bytes(total, size, fields))
    return max(1, min(round(count), compute_most_shards(fields), plan.rows))


def _rename_files(fields: Sequence[Field]) -> Iterator[tuple[Field, Field]]:
    """Pair fields with what they are for writers, in a slab that has these alone.

    Whether there are nulls, the manifest says when all is written.
    """
    for index, field in enumerate(fields):
        stem = make_file_stem(index, field.name)
        yield field, msgspec.structs.replace(field, stem=stem, nullable=False)


def _cut_evenly(total: int, count: int) -> list[int]:
    return [total * (index + 1) // count - total * index // count for index in range(count)]
