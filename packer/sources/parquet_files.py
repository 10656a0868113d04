"""Which Parquet files are meant, and what their footers say."""

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from fieldslab.packer.source import unique_names
from fieldslab.schemas.errors import SourceChanged, SourceUnreadable

SUFFIXES = (".parquet", ".pq", ".parq")
MAGIC = (b"PAR1", b"PARE")
_MOST_BUFFER = 1 << 20
_LEAST_BUFFER = 1 << 14
_ALL_BUFFERS = 1 << 26

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}


class NoParquet(SourceUnreadable):
    """No Parquet file where one was looked for."""


@dataclass(frozen=True)
class ParquetPart:
    """One Parquet file: its footer, and the values of its hive partition, by column name."""

    path: str
    metadata: pq.FileMetaData
    schema: pa.Schema
    partition: dict[str, pa.Scalar]
    size: int
    modified: int
    inode: int

    @cached_property
    def columns(self) -> dict[str, int]:
        """Position of each column of the file by its name, made unique."""
        return {name: at for at, name in enumerate(unique_names(self.schema.names))}

    @cached_property
    def leaves(self) -> list[range]:
        """The Parquet leaf columns of each column."""
        ranges, first = [], 0
        for field in self.schema:
            count = leaf_count(field.type)
            ranges.append(range(first, first + count))
            first += count
        return ranges

    def types(self) -> dict[str, pa.DataType]:
        """Type of each column by name, partition columns last."""
        types = {name: self.schema.field(at).type for name, at in self.columns.items()}
        return types | {key: value.type for key, value in self.partition.items()}

    def open(self, leaves: int) -> pq.ParquetFile:
        """Open the file to read so many of its leaf columns, each of which has a buffer."""
        return pq.ParquetFile(
            self.path, metadata=self.metadata, pre_buffer=False,
            buffer_size=min(_MOST_BUFFER, max(_LEAST_BUFFER, _ALL_BUFFERS // max(leaves, 1))),
            page_checksum_verification=True, arrow_extensions_enabled=True,
        )  # fmt: skip

    def leaf_bytes(self, group: int, leaf: int) -> int:
        """Bytes of a leaf column of a row group once decoded: an estimate for byte strings."""
        chunk = self.metadata.row_group(group).column(leaf)
        width = _WIDTHS.get(chunk.physical_type)
        if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
            width = self.metadata.schema.column(leaf).length
        if width is None:
            return int(max(chunk.total_uncompressed_size, 4 * chunk.num_values))
        return int(chunk.num_values * width)

    def fixed_width(self, leaf: int) -> bool:
        """Whether each row of a leaf column takes the same number of bytes."""
        column = self.metadata.schema.column(leaf)
        return column.max_repetition_level == 0 and column.physical_type != "BYTE_ARRAY"

    def check_unchanged(self) -> None:
        """Raise SourceChanged where the file is not the one whose footer was read."""
        try:
            info = os.stat(self.path)
        except OSError as error:
            raise SourceChanged("the file went away while it was read", file=self.path) from error
        found = (info.st_size, info.st_mtime_ns, info.st_ino)
        if found != (self.size, self.modified, self.inode):
            raise SourceChanged(
                "the file changed while it was read", file=self.path,
                hint="Pack again when nothing writes to it.",
            )  # fmt: skip

    @contextmanager
    def or_changed(self) -> Iterator[None]:
        """Raise SourceChanged for what cannot be read because the file is another one now."""
        try:
            yield
        except SourceUnreadable:
            self.check_unchanged()
            raise


def open_parts(paths: list[str]) -> list[ParquetPart]:
    """Read the footers of all files that are meant, in order.

    Raises SourceUnreadable where one is missing, damaged or encrypted.
    """
    parts = []
    for path, directory in discover(paths):
        partition = directory.get(path, {})
        with reading(path):
            info = os.stat(path)
            with pq.ParquetFile(path, arrow_extensions_enabled=True) as file:
                schema = file.schema_arrow
                own = {key: value for key, value in partition.items() if key not in schema.names}
                facts = (info.st_size, info.st_mtime_ns, info.st_ino)
                parts.append(ParquetPart(path, file.metadata, schema, own, *facts))
    return parts


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what pyarrow raises on bad files into a named error."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split()).rstrip(".")
        if isinstance(error, PermissionError):
            raise SourceUnreadable("no permission to read it", file=what) from error
        if "crypt" in text.lower():
            raise SourceUnreadable(
                f"encrypted Parquet: {text}", file=what, hint="Decrypt it first."
            ) from error
        raise SourceUnreadable(
            f"damaged or unreadable Parquet: {text}", file=what,
            hint="Write or download the file again.",
        ) from error  # fmt: skip


def discover(paths: Sequence[str]) -> list[tuple[str, dict[str, dict[str, pa.Scalar]]]]:
    """Files in the order given, globs and directories sorted, each with its partitions.

    Raises NoParquet where there is none.
    """
    found: list[tuple[str, dict[str, dict[str, pa.Scalar]]]] = []
    for path in paths:
        if os.path.isdir(path):
            files = sorted(str(file) for file in Path(path).rglob("*") if _packable(file, path))
            if not files:
                raise NoParquet("no Parquet files in here", file=path)
            partitions = _partitions(path, files)
            found += [(file, partitions) for file in files]
            continue
        files = [path] if os.path.lexists(path) else glob.glob(path, recursive=True)
        files = sorted(file for file in files if not os.path.isdir(file))
        if not files:
            raise NoParquet("no such file", file=path, hint="Check the path.")
        found += [(file, {}) for file in files]
    return found


def _packable(file: Path, directory: str) -> bool:
    hidden = any(part.startswith((".", "_")) for part in file.relative_to(directory).parts)
    return file.suffix.lower() in SUFFIXES and not hidden and file.is_file()


def _partitions(directory: str, files: list[str]) -> dict[str, dict[str, pa.Scalar]]:
    """Values of the hive partitions (`year=2024/`) below a directory, by file and column."""
    folders = [os.path.relpath(os.path.dirname(file), directory) for file in files]
    if not any("=" in folder for folder in folders):
        return {}
    factory = ds.HivePartitioning.discover(infer_dictionary=False)
    schema = factory.inspect([folder + "/" for folder in folders])
    partitioning = ds.HivePartitioning(schema)
    values: dict[str, dict[str, pa.Scalar]] = {}
    for file, folder in zip(files, folders, strict=True):
        keys = ds.get_partition_keys(partitioning.parse(folder + "/"))
        values[file] = {
            field.name: pa.scalar(keys[field.name], field.type)
            for field in schema
            if field.name in keys
        }
    return values


def leaf_count(kind: pa.DataType) -> int:
    """The Parquet leaf columns of a type."""
    if isinstance(kind, pa.BaseExtensionType):
        return leaf_count(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return leaf_count(kind.value_type)
    return sum(leaf_count(kind.field(at).type) for at in range(kind.num_fields)) or 1
