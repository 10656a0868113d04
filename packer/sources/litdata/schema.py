"""Which columns a LitData stream has: by its index, and by a few rows where that leaves it open."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from fieldslab.packer.source import ColumnHint, Unit
from fieldslab.packer.sources.litdata.array_leaves import (
    LeafArrays,
    make_tokens_decoder,
    parse_array_rows,
)
from fieldslab.packer.sources.litdata.arrow_chunks import merge_schemas
from fieldslab.packer.sources.litdata.chunks import ChunkFile
from fieldslab.packer.sources.litdata.items import BadRow, LeafDecoder, RowBytes, split_leaves
from fieldslab.packer.sources.litdata.leaf_decoders import (
    describe_refusal,
    is_refused,
    make_decoder,
    needs_sample,
)
from fieldslab.packer.sources.litdata.library import NotInstalled
from fieldslab.packer.sources.litdata.litdata_stream import LitDataStream
from fieldslab.packer.sources.litdata.stream_index import TOKENS, Index, LeafFormat
from fieldslab.schemas.errors import SourceError
from fieldslab.schemas.optiontext import mark_option

_SAMPLE_BYTES = 4 * 1024 * 1024


class LeafColumns(NamedTuple):
    """The columns of a stream of leaves, one a leaf; `decoders` has None where one is refused."""

    schema: pa.Schema
    hints: dict[int, ColumnHint]
    decoders: list[LeafDecoder | None]


def read_arrow_schema(stream: LitDataStream, units: Sequence[Unit]) -> pa.Schema | None:
    """Read the schema of a stream in the Arrow layout; None where it is in the other."""
    if stream.index.loader == TOKENS:
        return None
    schemas = []
    for unit in _choose_units(units):
        with stream.open_chunk(unit.key) as file:
            if is_arrow(stream, file):
                schemas.append((file.label, file.read_arrow_batches(None)[0]))
    return merge_schemas(schemas, stream.index.types) if schemas else None


def read_leaf_columns(
    stream: LitDataStream, units: Sequence[Unit], block: int | None
) -> LeafColumns:
    """Read the columns of a stream of serialised leaves; tokens are cut into blocks of `block`.

    Raises NotInstalled where litdata is needed to tell.
    """
    samples = _sample_leaves(stream, units)
    columns = LeafColumns(pa.schema([]), {}, [])
    fields = []
    for number, leaf in enumerate(stream.index.leaves):
        attributes, kind = {"litdata": leaf.format}, pa.large_binary()
        hint = ColumnHint(attributes=attributes, why=leaf.format)
        leaf_decoder = None
        try:
            leaf_decoder = _make_leaf_decoder(stream.index, leaf, samples[number], block)
        except NotInstalled:
            raise
        except SourceError as error:
            hint = replace(
                hint,
                refusal=(_get_problem(error), f"{mark_option('exclude', ['{}'])} leaves it out."),
            )
        else:
            if leaf_decoder is None:
                hint = replace(hint, refusal=describe_refusal(leaf))
            else:
                kind = leaf_decoder.type
                hint = ColumnHint(attributes=attributes, dtype=leaf_decoder.dtype)
        columns.decoders.append(leaf_decoder)
        columns.hints[number] = hint
        fields.append(pa.field(leaf.name, kind))
    return columns._replace(schema=pa.schema(fields))


def is_arrow(stream: LitDataStream, file: ChunkFile) -> bool:
    """Return whether the rows of a chunk stand in an Arrow file."""
    return not stream.needs_litdata_library(file) and file.find_arrow_part() is not None


def split_items(index: Index, file: ChunkFile, row: int, items: RowBytes) -> list[RowBytes]:
    """Split items into leaves; the first item is row `row` of the chunk."""
    if index.loader == TOKENS:
        return [items]
    with name_row(file, None, row):
        return split_leaves(items, len(index.leaves))


@contextmanager
def name_row(file: ChunkFile, field: str | None, row: int) -> Iterator[None]:
    """Turn a bad row into an error that names chunk, field and row; the piece begins at `row`."""
    try:
        yield
    except BadRow as error:
        file.refuse_damaged(
            error.problem, row + error.row, field=field, expected=error.expected, found=error.found
        )


def _make_leaf_decoder(
    index: Index, leaf: LeafFormat, samples: list[LeafArrays | SourceError], block: int | None
) -> LeafDecoder | None:
    if index.loader == TOKENS:
        return make_tokens_decoder(leaf, block)
    for error in samples:
        if isinstance(error, SourceError):
            raise error
    arrays_seen = [arrays for arrays in samples if isinstance(arrays, LeafArrays)]
    return None if is_refused(leaf) else make_decoder(leaf, arrays_seen)


def _sample_leaves(
    stream: LitDataStream, units: Sequence[Unit]
) -> list[list[LeafArrays | SourceError]]:
    """Sample rows of each leaf whose format is not enough, or tell why that failed."""
    index = stream.index
    samples: list[list[LeafArrays | SourceError]] = [[] for _ in index.leaves]
    if index.loader == TOKENS or not any(map(needs_sample, index.leaves)):
        return samples
    for unit in _choose_units(units):
        with stream.open_chunk(unit.key) as file:
            row, items = next(stream.read_items(file, _SAMPLE_BYTES))
            pieces = split_items(index, file, row, items)
            for leaf, piece, looked in zip(index.leaves, pieces, samples, strict=True):
                if not needs_sample(leaf):
                    continue
                try:
                    with name_row(file, leaf.name, row):
                        looked.append(parse_array_rows(leaf, piece))
                except NotInstalled:
                    raise
                except SourceError as error:
                    looked.append(error)
    return samples


def _choose_units(units: Sequence[Unit]) -> list[Unit]:
    """Choose the first, the middle and the last unit."""
    count = len(units)
    return [units[index] for index in sorted({0, count // 2, count - 1})] if count else []


def _get_problem(error: SourceError) -> str:
    """Return the problem of an error without its hint."""
    return str(type(error)(error.problem, **error.context))
