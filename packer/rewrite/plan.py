"""What a repack writes: decided before any data is read."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np

from fieldslab.packer.rewrite.options import RepackOptions
from fieldslab.packer.rewrite.runs import count_rows, cut_runs, list_rows, make_runs
from fieldslab.packer.rewrite.selection import choose_fields, choose_rows
from fieldslab.packer.rewrite.shuffle import compute_shuffle_keys, find_parts
from fieldslab.packer.rewrite.work import RepackTask
from fieldslab.packer.shardsize import USUAL_SHARDS, compute_most_shards
from fieldslab.schemas import layout
from fieldslab.schemas.bytesizes import parse_size
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field, make_file_stem
from fieldslab.schemas.manifest import VERSION, Manifest, Provenance
from fieldslab.schemas.optiontext import mark_option

DIRECT_SHARDS = 4
"""So many shards are written by reading all of the slab for each."""
CHUNK_BYTES = 2**28
"""Bytes that are sorted at a time where rows are first brought near to others of their shard."""
MOST_CHUNKS = 4096


@dataclass(frozen=True)
class RepackPlan:
    """A slab that is to be written from another.

    Attributes
    ----------
    path, source
        The slab that is read.
    fields
        The fields that are read, and what each is in the new slab.
    runs
        The rows that are read; see `fieldslab.packer.rewrite.runs`.
    seed
        Of the shuffle, None without one.
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

    path: Path
    source: Manifest
    fields: tuple[tuple[Field, Field], ...]
    runs: np.ndarray
    seed: int | None
    shard_count: int | None
    key_field: Field | None = None
    reads_keys: bool = False
    provenance: Provenance | None = None
    consumes_source: bool = False

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

    def make_tasks(self) -> list[RepackTask]:
        """Cut the rows into shards."""
        if not self.rows:
            return []
        if self.reads_keys:
            pieces = self._find_chunk_rows()
        elif self.key_field is not None:
            pieces = cut_runs(self.runs, self._count_chunk_rows())
        elif self.seed is not None:
            pieces = self._find_shuffled_rows()
        else:
            pieces = cut_runs(self.runs, self._count_shard_rows())
        kept = [runs for runs in pieces if len(runs)]
        return [RepackTask(number, runs, str(self.path)) for number, runs in enumerate(kept)]

    def plan_scattering(self) -> "RepackPlan":
        """Plan the slab in which chunks of rows are sorted by their shuffle keys."""
        names, name = {field.name for field, _ in self.fields}, "shuffle key"
        while name in names:
            name += "#"
        stem = make_file_stem(len(self.fields), name)
        key_field = Field(name=name, stem=stem, kind="fixed", dtype="uint64")
        return replace(self, key_field=key_field, consumes_source=False)

    def plan_gathering(self, path: Path, scattered: Manifest) -> "RepackPlan":
        """Plan this slab by what `plan_scattering` planned, once it is written."""
        *fields, key_field = scattered.fields
        return replace(
            self,
            path=path,
            source=scattered,
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

    def _find_shuffled_rows(self) -> Iterator[np.ndarray]:
        """Find the rows of each shard of a shuffle, in the slab that is read."""
        assert self.seed is not None
        assert self.shard_count is not None
        rows = list_rows(self.runs)
        parts = find_parts(compute_shuffle_keys(self.seed, rows), self.shard_count)
        for part in range(self.shard_count):
            yield make_runs(rows[parts == part])

    def _find_chunk_rows(self) -> Iterator[np.ndarray]:
        """Find the rows of each shard in the chunks, which are sorted: one run of each chunk."""
        assert self.seed is not None
        assert self.shard_count is not None
        count = self.shard_count
        firsts, ends = [], []
        chunk_rows = [shard.rows for shard in self.source.shards]
        first = 0
        for runs, rows in zip(cut_runs(self.runs, chunk_rows), chunk_rows, strict=True):
            parts = find_parts(compute_shuffle_keys(self.seed, list_rows(runs)), count)
            edges = first + np.concatenate([[0], np.cumsum(np.bincount(parts, minlength=count))])
            firsts.append(edges[:-1])
            ends.append(edges[1:])
            first += rows
        edges_by_shard = np.stack([np.stack(firsts, axis=1), np.stack(ends, axis=1)], axis=2)
        for runs in edges_by_shard:
            yield runs[runs[:, 0] < runs[:, 1]]


def make_repack_plan(
    path: Path, source: Manifest, values: RepackOptions, matching: np.ndarray | None = None
) -> RepackPlan:
    """Decide what is written, of the rows in `matching` if given.

    Raises UsageError, RowOutOfRange, SlabChanged.
    """
    chosen = choose_fields(source.fields, values["fields"], values["exclude"])
    rows = choose_rows(source, values["rows_file"], values["drop_rows"], matching)
    runs = np.array([[0, source.rows]], np.int64) if rows is None else make_runs(rows)
    plan = RepackPlan(path, source, tuple(_rename_files(chosen)), runs, values["shuffle"], None)
    return replace(plan, shard_count=_count_shards(plan, values["shard_size"]))


def _count_shards(plan: RepackPlan, shard_size: str | int | None) -> int | None:
    """Count the shards to write; None for those that there are."""
    shards = len(plan.source.shards)
    if shard_size is None and plan.seed is None and plan.rows == plan.source.rows:
        return None
    if shard_size is None:
        count = shards * plan.rows / max(plan.source.rows, 1)
    else:
        size = parse_size("shard_size", shard_size)
        if size < 1:
            raise UsageError(f"{mark_option('shard_size')} must be positive", found=shard_size)
        count = -(-plan.rows * plan.row_bytes // size)
    most = compute_most_shards([new for _, new in plan.fields])
    return max(1, min(round(count), USUAL_SHARDS, most, plan.rows))


def _rename_files(fields: Sequence[Field]) -> Iterator[tuple[Field, Field]]:
    """Pair fields with what they are for writers, in a slab that has these alone.

    Whether there are nulls, the manifest says when all is written.
    """
    for index, field in enumerate(fields):
        stem = make_file_stem(index, field.name)
        yield field, msgspec.structs.replace(field, stem=stem, nullable=False)


def _cut_evenly(total: int, count: int) -> list[int]:
    return [total * (index + 1) // count - total * index // count for index in range(count)]
