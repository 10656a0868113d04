"""The first pass of a shuffle on many machines: shards whose rows are sorted by shuffle keys.

A shard of the second pass then reads one run of rows from each of these, as from the chunks of
`RepackPlan.plan_scattering`. Where damaged rows are left out, the number of a row, and so its key,
is known only when all shards in front of it are packed: then shards are not sorted, and the second
pass reads row by row. These rows hold images, which are large enough for that.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from msgspec.structs import replace as replace_struct

from fieldslab.packer.check.stored import StoredRows, join_pieces
from fieldslab.packer.convert.compress import Compressors
from fieldslab.packer.convert.damaged_rows import LeftOutRow
from fieldslab.packer.convert.fieldplan import ConvertedRows
from fieldslab.packer.definition import fill_defaults
from fieldslab.packer.plan import Plan
from fieldslab.packer.rewrite.options import RepackOptions
from fieldslab.packer.rewrite.plan import RepackPlan, make_key_field, make_repack_plan
from fieldslab.packer.rewrite.shuffle import compute_shuffle_keys
from fieldslab.packer.rewrite.work import take_rows
from fieldslab.packer.spans import ShardTask
from fieldslab.packer.unions.source_slabs import find_slabs
from fieldslab.packer.write.stream import MakeWriter, ShardWork
from fieldslab.packer.write.writers import ShardRecord, ShardWriter
from fieldslab.schemas.digest import BlockDigest
from fieldslab.schemas.fields import Field
from fieldslab.schemas.manifest import Manifest, create_manifest


class ScatterWork(ShardWork):
    """What it takes to write any shard of the first pass, in this process or another."""

    def choose_writer(self, task: ShardTask) -> MakeWriter:
        """Return what writes a shard: its rows sorted, unless their numbers are not known yet."""
        seed, leave_out = self.plan.options.shuffle, self.plan.options.leave_out
        if seed is None or leave_out:
            return ShardWriter
        return partial(SortingShardWriter, seed=seed, first_row=task.first_row)


class SortingShardWriter(ShardWriter):
    """Writes one shard, its rows sorted by their shuffle keys, and the keys as one more field."""

    def __init__(
        self,
        folder: Path,
        fields: list[Field],
        compressors: Compressors,
        digest: BlockDigest,
        *,
        seed: int,
        first_row: int,
    ) -> None:
        """Create the arrays; rows are numbered from `first_row` on."""
        super().__init__(folder, [*fields, make_key_field(fields)], compressors, digest)
        self._seed, self._first_row = seed, first_row
        self._pieces: list[list[ConvertedRows]] = [[] for _ in fields]

    def append(self, columns: Sequence[ConvertedRows]) -> None:
        """Keep converted rows, those of all fields, until the shard is closed."""
        for pieces, rows in zip(self._pieces, columns, strict=True):
            pieces.append(rows)

    def close(
        self, index: int, versions: dict[str, str], left_out: Sequence[LeftOutRow] = ()
    ) -> ShardRecord:
        """Sort and write the rows, field by field. The record does not speak of the keys."""
        *writers, key_writer = self.writers
        count = sum(map(_count_rows, self._pieces[0]))
        numbers = np.arange(self._first_row, self._first_row + count)
        keys = compute_shuffle_keys(self._seed, numbers)
        order = np.argsort(keys, kind="stable")
        for writer in writers if count else []:
            writer.append(_sort_rows(self._pieces.pop(0), order))
        key_writer.append(ConvertedRows(keys[order]))
        record = super().close(index, versions, left_out)
        return replace_struct(record, nulls=record.nulls[:-1])


def add_key_field(manifest: Manifest) -> Manifest:
    """Make the manifest of the first pass from one that does not speak of the keys."""
    names = ("rows", "shards", "tables", "attributes", "digest")
    members = {name: getattr(manifest, name) for name in names}
    fields = (*manifest.fields, make_key_field(manifest.fields))
    return create_manifest(manifest.made, fields=fields, **members)


def plan_second_pass(path: Path, first_pass: Manifest, plan: Plan) -> tuple[RepackPlan, RepackPlan]:
    """Plan the shuffled slab from the one of the first pass.

    Returns what is written, without the keys, and how it is read.
    """
    keys = [] if plan.options.leave_out else [first_pass.fields[-1].name]
    options = {"shuffle": plan.options.shuffle, "exclude": keys}
    values: RepackOptions = fill_defaults(RepackOptions, options, "repack")
    planned = make_repack_plan(find_slabs(path), first_pass, values)
    slab_plan = replace(planned, provenance=first_pass.made)
    return slab_plan, slab_plan.plan_gathering(path, first_pass) if keys else slab_plan


def _sort_rows(pieces: list[ConvertedRows], order: np.ndarray) -> ConvertedRows:
    joined = join_pieces([StoredRows(*rows[:4]) for rows in pieces])
    tally: Counter[str] = Counter()
    for rows in pieces:
        tally.update(rows.tally)
    pieces.clear()
    return ConvertedRows(*take_rows(joined, order), tally=tally)


def _count_rows(rows: ConvertedRows) -> int:
    return len(rows.values if rows.lengths is None else rows.lengths)
