"""A slab as a Parquet file: `fieldslab export`."""

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fieldslab.packer.check.arrow_rows import read_column
from fieldslab.packer.check.stored import StoredSlab
from fieldslab.packer.shard_rows import SHARDS_KEY, ShardRows, encode_shards
from fieldslab.schemas.arrow_arrays import ArrowMaker, make_schema, split_rows
from fieldslab.schemas.drafts import replace_file
from fieldslab.schemas.errors import OutputExists, UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.write_errors import name_write_errors

GROUP_BYTES = 64 * 2**20
"""A row group has at least as many bytes before they are encoded, so that few are small."""


def export_parquet(
    slab: StoredSlab,
    path: Path,
    fields: Sequence[Field],
    rows: np.ndarray | None = None,
    *,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write rows of a slab to a Parquet file, and return how many.

    The file is complete or not there, and durable: it is written beside its place, synced, and
    renamed. Memory holds a row group at a time.

    Parameters
    ----------
    fields
        The fields to write, in this order.
    rows
        The rows to write, ascending: int64[n]. Default: all.
    force
        Replace a file that is there.
    progress
        Called with the rows and bytes that were written since the last call.

    Raises
    ------
    OutputExists, OutputDenied, NoSpace, OutputError
        There is such a file; it cannot be written.
    UsageError
        A field has images that are stored as pixels, or another type that Parquet does not have.
    DamagedArray, SlabReplaced, Unreadable
        The slab's files are not what pack wrote; the disk fails.
    """
    if os.path.exists(path) and not force:
        raise OutputExists("exists already", file=path, hint=f"{mark_option('force')} replaces it.")
    makers = [
        ArrowMaker(field, slab.read_categories(field) if field.kind == "categorical" else None)
        for field in fields
    ]
    schema = make_schema(fields, makers, slab.manifest.attributes)
    if rows is None:  # so that `pack` cuts them again
        shards = encode_shards(_describe_shards(slab))
        schema = schema.with_metadata({**(schema.metadata or {}), SHARDS_KEY: shards})
    total = slab.manifest.rows if rows is None else len(rows)
    with name_write_errors(path):
        try:
            with replace_file(path) as file:
                # Their pages hold all categories, also those that no row has. Other columns have
                # no dictionary: without a limit, one of distinct values would be as large as they.
                names = [field.name for field in fields if field.kind == "categorical"]
                with pq.ParquetWriter(
                    file, schema, use_dictionary=names or False, dictionary_pagesize_limit=2**30
                ) as writer:
                    for table in _read_groups(slab, fields, makers, schema, rows):
                        writer.write_table(table, row_group_size=max(table.num_rows, 1))
                        if progress is not None:
                            progress(table.num_rows, table.nbytes)
        except pa.ArrowException as error:
            raise UsageError(
                f"Parquet cannot hold these fields: {error}",
                file=slab.path,
                hint=f"Name the other fields: {mark_option('fields')}.",
            ) from error
    return total


def _describe_shards(slab: StoredSlab) -> ShardRows:
    manifest = slab.manifest
    size = manifest.made.options.get("shard_size")
    rows = [shard.rows for shard in manifest.shards]
    return ShardRows(rows, size if isinstance(size, int) else None)


def _split_at_shards(slab: StoredSlab, fields: Sequence[Field]) -> Iterator[tuple[range, bool]]:
    """Split the rows into parts to read at a time; and whether a shard ends with a part."""
    ends = np.array(_describe_shards(slab).ends, np.int64)
    for part in split_rows(slab.manifest, fields, slab.manifest.rows):
        inner = ends[(ends > part.start) & (ends < part.stop)].tolist()
        for start, stop in pairwise([part.start, *inner, part.stop]):
            yield range(start, stop), bool((ends == stop).any())


def _read_groups(
    slab: StoredSlab,
    fields: Sequence[Field],
    makers: Sequence[ArrowMaker],
    schema: pa.Schema,
    rows: np.ndarray | None,
) -> Iterator[pa.Table]:
    """Read rows until they are a row group, which ends with a shard at the latest."""
    batches: list[pa.RecordBatch] = []
    size = 0
    for part, ends_shard in _split_at_shards(slab, fields):
        chosen = None
        if rows is not None:
            start, stop = np.searchsorted(rows, [part.start, part.stop])
            ends_shard = False
            if start == stop:
                continue
            chosen = rows[start:stop] - part.start
        batch = pa.RecordBatch.from_arrays(
            [
                read_column(slab, field, maker, part)
                for field, maker in zip(fields, makers, strict=True)
            ],
            schema=schema,
        )
        batches.append(batch if chosen is None else batch.take(pa.array(chosen)))
        size += batches[-1].nbytes
        if size >= GROUP_BYTES or ends_shard:
            yield pa.Table.from_batches(batches, schema)
            batches, size = [], 0
    if batches:
        yield pa.Table.from_batches(batches, schema)
