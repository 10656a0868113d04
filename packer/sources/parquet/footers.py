"""What the footers of Parquet files say."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fieldslab.packer.column_names import check_utf8_names
from fieldslab.packer.sources.batches import describe_exception, make_damage_error
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.packer.sources.table_files import AnyFile, TableFile
from fieldslab.schemas.errors import FieldslabError, SourceUnreadable

MAGIC = (b"PAR1", b"PARE")
_MOST_BUFFER = 1 << 20
_LEAST_BUFFER = 1 << 14
_ALL_BUFFERS = 1 << 26

_FOOTER = 1 << 16
"""Bytes at the end of a file that pyarrow reads first."""

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}


@dataclass(frozen=True)
class ParquetPart(TableFile):
    """One Parquet file with its footer."""

    metadata: pq.FileMetaData
    encrypted: frozenset[int]

    @cached_property
    def leaves(self) -> list[range]:
        """The Parquet leaf columns of each column."""
        ranges, first = [], 0
        for field in self.schema:
            count = count_leaves(field.type)
            ranges.append(range(first, first + count))
            first += count
        return ranges

    @cached_property
    def empty_struct_columns(self) -> frozenset[int]:
        """Positions of the columns with an empty struct, which pyarrow does not read."""
        return frozenset(
            index for index, field in enumerate(self.schema) if has_empty_struct(field.type)
        )

    @property
    def int96_unit(self) -> str:
        """The unit that INT96 timestamps are read in: Spark's have microseconds."""
        return _find_int96_unit(self.metadata)

    def list_units(self) -> list[list[Any]]:
        """List rows and bytes of each row group."""
        groups = map(self.metadata.row_group, range(self.metadata.num_row_groups))
        return [[group.num_rows, group.total_byte_size] for group in groups]

    def find_int96_leaf(self, position: int) -> int | None:
        """Find the leaf of a column of INT96 timestamps; None for any other column."""
        leaf = self.leaves[position].start
        single = pa.types.is_timestamp(self.schema.field(position).type)
        int96 = self.metadata.schema.column(leaf).physical_type == "INT96"
        return leaf if single and int96 else None

    def open(
        self, leaves: int, read_dictionary: Sequence[str] = (), int96_unit: str | None = None
    ) -> pq.ParquetFile:
        """Open the file to read so many of its leaf columns, each of which has a buffer.

        Those at the paths `read_dictionary` come as dictionaries.
        """
        return pq.ParquetFile(
            self.file.open(),
            metadata=self.metadata,
            pre_buffer=False,
            read_dictionary=list(read_dictionary),
            coerce_int96_timestamp_unit=int96_unit or self.int96_unit,
            buffer_size=min(_MOST_BUFFER, max(_LEAST_BUFFER, _ALL_BUFFERS // max(leaves, 1))),
            page_checksum_verification=True,
            arrow_extensions_enabled=True,
        )

    def get_chunk(self, group: int, leaf: int) -> pq.ColumnChunkMetaData:
        """Return the footer's metadata of a leaf column in a row group.

        Raises SourceUnreadable where it is encrypted or contradicts itself: pyarrow would end
        the process over either.
        """
        name = f"{self.path} row group {group}"
        if leaf in self.encrypted:
            raise _make_encrypted_error(name, f"column {self.metadata.schema.column(leaf).path}")
        chunk = self.metadata.row_group(group).column(leaf)
        if chunk.physical_type != self.metadata.schema.column(leaf).physical_type:
            raise _make_footer_error(name)
        return chunk

    def estimate_leaf_bytes(self, group: int, leaf: int) -> int:
        """Estimate the decoded bytes of a leaf column in a row group; exact for fixed widths."""
        chunk = self.get_chunk(group, leaf)
        width = _WIDTHS.get(chunk.physical_type)
        if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
            width = self.metadata.schema.column(leaf).length
        if width is None:
            return int(max(chunk.total_uncompressed_size, 4 * chunk.num_values))
        return int(chunk.num_values * width)

    def is_fixed_width(self, leaf: int) -> bool:
        """Return whether each row of a leaf column takes the same number of bytes."""
        column = self.metadata.schema.column(leaf)
        return column.max_repetition_level == 0 and column.physical_type != "BYTE_ARRAY"

    @contextmanager
    def fetch(self, group: int, leaves: Iterable[int]) -> Iterator["ParquetPart"]:
        """Yield the file with these leaf columns of a row group on their way, if it is remote."""
        if isinstance(self.file, RemoteFile):
            chunks = [self.get_chunk(group, leaf) for leaf in leaves]
            with self.file.fetch([_find_range(chunk) for chunk in chunks]) as fetched:
                yield replace(self, file=fetched)
        else:
            yield self


def _find_range(chunk: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Find where in a file a column chunk lies."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return start, start + chunk.total_compressed_size


def open_part(file: AnyFile) -> ParquetPart:
    """Read the footer of one file.

    Raises SourceUnreadable where it is damaged or encrypted.
    """
    with name_parquet_errors(file.path):
        end = file.fetch_end(_FOOTER)
        metadata = pq.read_metadata(end.open())
        with pq.ParquetFile(
            end.open(),
            metadata=metadata,
            pre_buffer=False,
            buffer_size=_LEAST_BUFFER,
            coerce_int96_timestamp_unit=_find_int96_unit(metadata),
            arrow_extensions_enabled=True,
        ) as parquet:
            schema = parquet.schema_arrow
            check_utf8_names(schema)
            _check_groups(parquet.metadata, file.path)
            encrypted = _find_encrypted_leaves(parquet)
            return ParquetPart(file, schema, {}, parquet.metadata, encrypted)


def _check_groups(metadata: pq.FileMetaData, path: str) -> None:
    """Raise SourceUnreadable where a row group lacks columns of the schema, or counts no rows."""
    for group in range(metadata.num_row_groups):
        info = metadata.row_group(group)
        if info.num_columns != metadata.num_columns or info.num_rows < 0:
            raise _make_footer_error(
                f"{path} row group {group}",
                expected=f"{metadata.num_columns} columns",
                found=f"{info.num_columns} columns and {info.num_rows} rows",
            )


def _find_int96_unit(metadata: pq.FileMetaData) -> str:
    return "us" if (metadata.created_by or "").startswith("parquet-mr") else "ns"


def _find_encrypted_leaves(file: pq.ParquetFile) -> frozenset[int]:
    """Find the encrypted leaf columns; a plaintext footer does not list them.

    Reads no rows of each row group, which looks at what the footer says of every column. What
    this raises would end the process where pyarrow met it elsewhere. So would reading no columns.
    """
    leaves, first = list[int](), 0
    for field in file.schema_arrow:
        count = count_leaves(field.type)
        leaves += [] if has_empty_struct(field.type) else range(first, first + count)
        first += count
    if not leaves:
        return frozenset()
    groups = [
        group for group in range(file.num_row_groups) if file.metadata.row_group(group).num_rows
    ]
    if all(_is_readable(file, group, leaves) for group in groups):
        return frozenset()
    return frozenset(
        leaf for leaf in leaves for group in groups if not _is_readable(file, group, [leaf])
    )


def _is_readable(file: pq.ParquetFile, group: int, leaves: list[int]) -> bool:
    try:
        next(file.reader.iter_batches(0, row_groups=[group], column_indices=leaves), None)
    except OSError as error:
        if "crypt" not in str(error).lower():
            raise
        return False
    return True


@contextmanager
def name_parquet_errors(what: str) -> Iterator[None]:
    """Turn what pyarrow raises on bad files into a named error."""
    try:
        yield
    except FieldslabError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        text = describe_exception(error)
        if "crypt" in text.lower():
            raise _make_encrypted_error(what, text) from error
        raise make_damage_error(error, "Parquet", what) from error


def _make_footer_error(what: str, **context: Any) -> SourceUnreadable:
    error = ValueError("the footer contradicts itself")
    return make_damage_error(error, "Parquet", what, **context)


def _make_encrypted_error(what: str, reason: str) -> SourceUnreadable:
    return SourceUnreadable(f"encrypted Parquet: {reason}", file=what, hint="Decrypt it first.")


def count_leaves(kind: pa.DataType) -> int:
    """Count the Parquet leaf columns of a type."""
    if isinstance(kind, pa.BaseExtensionType):
        return count_leaves(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return count_leaves(kind.value_type)
    if not kind.num_fields:
        return 0 if pa.types.is_struct(kind) else 1
    return sum(count_leaves(kind.field(index).type) for index in range(kind.num_fields))


def has_empty_struct(kind: pa.DataType) -> bool:
    """Return whether a type is a struct without members, or has one inside."""
    if isinstance(kind, pa.BaseExtensionType):
        return has_empty_struct(kind.storage_type)
    if not kind.num_fields:
        return pa.types.is_struct(kind)
    return any(has_empty_struct(kind.field(index).type) for index in range(kind.num_fields))
