"""LitData streams: directories that `litdata.optimize` wrote, here or where litdata reads from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from fieldslab.packer.source import ColumnHint, Source, Unit, sample_units
from fieldslab.packer.sources.litdata.arrow_chunks import read_widened
from fieldslab.packer.sources.litdata.chunks import ChunkFile
from fieldslab.packer.sources.litdata.items import RowBytes
from fieldslab.packer.sources.litdata.library import SCHEMES, EncryptionKey
from fieldslab.packer.sources.litdata.litdata_stream import LitDataStream, count_tokens
from fieldslab.packer.sources.litdata.schema import (
    LeafColumns,
    is_arrow,
    name_row,
    read_arrow_schema,
    read_leaf_columns,
    split_items,
)
from fieldslab.packer.sources.litdata.stream_index import (
    INDEX,
    PARQUET,
    TOKENS,
    Chunk,
    is_index,
)
from fieldslab.packer.sources.parquet.source import ParquetSource
from fieldslab.packer.sources.remote_lookup import is_remote_source
from fieldslab.schemas.errors import (
    SourceInconsistent,
    SourceUnreadable,
    SourceUnsupported,
    UsageError,
)
from fieldslab.schemas.optiontext import mark_option


class LitDataOpener:
    """What `--from litdata` opens: a LitData stream, or the Parquet files of litdata's index."""

    name = "litdata"

    @staticmethod
    def accepts(paths: list[str]) -> bool:
        """Tell whether the path is a directory with an index, that index, or a remote stream."""
        if len(paths) != 1:
            return False
        path = Path(paths[0])
        if paths[0].startswith(SCHEMES) and path.suffix not in ParquetSource.suffixes:
            return not is_remote_source(paths[0])  # `find_source` has looked for an index there
        return is_index(path if path.name == INDEX else path / INDEX)

    def __new__(  # type: ignore[misc]
        cls,
        paths: list[str],
        *,
        block: int | None = None,
        key: str | None = None,
        key_password_file: str | None = None,
    ) -> Source:
        """Open a stream.

        Parameters
        ----------
        paths
            The directory, its `index.json`, or a URL that litdata can download from.
        block
            For a stream of tokens: rows of so many tokens, cut as litdata's TokensLoader cuts
            them. Without it a row is a document.
        key, key_password_file
            For an encrypted stream: the file that litdata's `Encryption.save` wrote, and a file
            whose first line is its password.
        """
        if len(paths) != 1:
            raise UsageError("a LitData stream is one directory", found=", ".join(paths))
        if key is None and key_password_file is not None:
            raise UsageError(f"{mark_option('key_password_file')} needs {mark_option('key')}")
        stream = LitDataStream(
            paths[0], None if key is None else EncryptionKey(key, key_password_file)
        )
        if stream.index.loader == PARQUET:
            return _open_parquet(stream)
        if block is not None:
            _check_block(stream, block)
        if key is not None and stream.index.encryption is None:
            raise UsageError(
                f"{mark_option('key')}: the stream is not encrypted", file=stream.where
            )
        settings = {"block": block, "key": key, "key_password_file": key_password_file}
        return LitDataSource(stream, {key: value for key, value in settings.items() if value})


class LitDataSource(Source):
    """The chunks of one stream."""

    name = "litdata"
    rereadable = True
    libraries = ("litdata", "zstandard")

    def __init__(self, stream: LitDataStream, settings: dict[str, Any]) -> None:
        """Look at a few rows of a stream; nothing is unpickled, here or later."""
        self._stream = stream
        self._index = stream.index
        self.settings = settings
        self._block: int | None = settings.get("block")
        self.units = [
            Unit(place, self._count_rows(chunk), chunk.bytes, number, file=place)
            for number, chunk in enumerate(self._index.chunks)
            if self._count_rows(chunk) and (place := stream.get_location(chunk.name))
        ]
        self._arrow = read_arrow_schema(stream, self.units)
        if self._arrow is None:
            columns = read_leaf_columns(stream, self.units, self._block)
        else:
            columns = LeafColumns(self._arrow, {}, [])
        self.schema, self.hints, self._decoders = columns
        self.warnings = self._describe_left_out()
        self._sizes: list[int | None] = []

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Read the rows of one chunk."""
        self.check(columns)
        with self._stream.open_chunk(unit.key) as file:
            self._check_layout(file)
            if self._arrow is not None:
                yield from read_widened(file, self._arrow, columns, batch_bytes)
                return
            fields = [self.schema.field(column) for column in columns]
            for row, items in self._read_items(file, batch_bytes):
                arrays = self._decode_columns(file, row, items, columns)
                kinds = [array.type for array in arrays]
                typed = [field.with_type(kind) for field, kind in zip(fields, kinds, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(typed))

    def sample(self, columns: list[int]) -> list[pa.RecordBatch]:
        """Sample the first rows of the first, the middle and the last chunk."""
        self.check(columns)
        return sample_units(self, self.units, columns)

    def null_count(self, path: tuple[int, ...]) -> int | None:
        """Return 0 for leaves, which are never null; None for the Arrow layout."""
        return 0 if self._arrow is None else None

    def column_bytes(self, path: tuple[int, ...]) -> int | None:
        """Estimate the bytes of a column from sampled rows."""
        if not self._sizes:
            self._sizes = [None] * len(self.schema)
            everything = range(len(self.schema))
            chosen = [index for index in everything if self._get_refusal(index) is None]
            batches = self.sample(chosen)
            total = sum(unit.rows or 0 for unit in self.units)
            rows = sum(batch.num_rows for batch in batches)
            for index, column in enumerate(chosen):
                size = sum(batch.column(index).nbytes for batch in batches)
                self._sizes[column] = size * total // max(rows, 1)
        return self._sizes[path[0]] if len(path) == 1 else None

    def check(self, columns: list[int]) -> None:
        """Raise SourceUnsupported where one of the columns cannot be packed."""
        for column in columns:
            if (refusal := self._get_refusal(column)) is not None:
                name = self.schema.field(column).name
                raise SourceUnsupported(refusal[0], field=name, hint=refusal[1].format(name))

    def fingerprint(self) -> list[dict[str, Any]]:
        """Return the digest of the index; path, size and time of each chunk in a local file."""
        files = self._stream.compute_fingerprint()
        if self._block is not None:
            files[0]["block"] = self._block
        return files

    def _get_refusal(self, column: int) -> tuple[str, str] | None:
        return self.hints.get(column, ColumnHint()).refusal

    def _count_rows(self, chunk: Chunk) -> int:
        return chunk.rows if self._block is None else (chunk.tokens or 0) // self._block

    def _describe_left_out(self) -> list[str]:
        """What the user should know of lists without items, and tokens that fill no block."""
        empty = [
            f"{name}: left out, a list or dict that is empty in every row"
            for name in self._index.empty
        ]
        if self._block is None:
            return empty
        tokens = sum(chunk.tokens or 0 for chunk in self._index.chunks)
        left = tokens - self._block * sum(unit.rows or 0 for unit in self.units)
        return [f"{left} of {tokens} tokens left out: blocks end with their chunk"] if left else []

    def _read_items(self, file: ChunkFile, batch_bytes: int) -> Iterator[tuple[int, RowBytes]]:
        if self._block is None:
            return self._stream.read_items(file, batch_bytes)
        decoder = self._decoders[0]
        assert decoder is not None
        itemsize = decoder.type.value_type.bit_width // 8
        count_tokens(file, itemsize)
        return file.read_blocks(self._block * itemsize, batch_bytes)

    def _decode_columns(
        self, file: ChunkFile, row: int, items: RowBytes, columns: list[int]
    ) -> list[pa.Array]:
        pieces = split_items(self._index, file, row, items)
        arrays = []
        for column in columns:
            decoder = self._decoders[column]
            assert decoder is not None
            with name_row(file, self._index.leaves[column].name, row):
                arrays.append(decoder.read(pieces[column]))
        return arrays

    def _check_layout(self, file: ChunkFile) -> None:
        layouts = ("serialised leaves", "an Arrow file")
        expected, is_arrow_file = self._arrow is not None, is_arrow(self._stream, file)
        if expected != is_arrow_file:
            raise SourceInconsistent(
                "a chunk is in another layout than the first",
                file=file.label,
                expected=layouts[expected],
                found=layouts[is_arrow_file],
                hint="Run litdata.optimize on the whole dataset again.",
            )


def _open_parquet(stream: LitDataStream) -> ParquetSource:
    """The Parquet files that an index names. Raises SourceInconsistent where rows are missing."""
    chunks = stream.index.chunks
    source = ParquetSource([stream.get_location(chunk.name) for chunk in chunks])
    rows = [0] * len(chunks)
    for unit in source.units:
        number, _ = unit.key
        rows[number] += unit.rows or 0
    for chunk, row_count in zip(chunks, rows, strict=True):
        if row_count != chunk.rows:
            raise SourceInconsistent(
                "the number of rows differs from the index",
                file=stream.get_location(chunk.name),
                expected=f"{chunk.rows:,} rows",
                found=f"{row_count:,} rows",
                hint="Index the Parquet files again: litdata.index_parquet_dataset.",
            )
    return source


def _check_block(stream: LitDataStream, block: Any) -> None:
    if stream.index.loader != TOKENS:
        raise UsageError(
            f"{mark_option('block')} is for streams that were written for TokensLoader",
            file=stream.get_location(INDEX),
            found=stream.index.loader,
        )
    if not isinstance(block, int) or block < 1:
        raise UsageError(
            f"{mark_option('block')} must be a number of tokens, at least 1", found=block
        )
    if stream.index.encryption is not None:
        raise UsageError(
            f"{mark_option('block')} cannot be used for an encrypted stream", file=stream.where
        )
    for chunk in stream.index.chunks:
        if chunk.tokens is None:
            raise SourceUnreadable(
                "the index does not say how many tokens the chunk holds",
                file=stream.get_location(chunk.name),
                hint="litdata does not write it where the first document is empty. Without "
                f"{mark_option('block')}, each row is a document, and the number is not needed.",
            )
