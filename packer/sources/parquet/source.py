"""Parquet files, globs of them, and directories with hive partitions."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from fieldslab.packer.source import ColumnHint, Unit
from fieldslab.packer.sources.parquet.footers import MAGIC, ParquetPart, count_leaves, open_part
from fieldslab.packer.sources.parquet.row_groups import read_row_group
from fieldslab.packer.sources.table_files import AnyFile
from fieldslab.packer.sources.table_source import TableSource
from fieldslab.schemas.optiontext import mark_option

_EMPTY_STRUCT = ColumnHint(
    refusal=(
        "a group without members holds no values, and pyarrow cannot read the columns next to it",
        f"{mark_option('exclude', ['{}'])} leaves it out.",
    )
)


class ParquetSource(TableSource):
    """Row groups of one or many Parquet files."""

    name = "parquet"
    kind = "Parquet"
    suffixes = (".parquet", ".pq", ".parq")
    magic = MAGIC

    def __init__(
        self,
        paths: list[str],
        *,
        unify: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        summary: Any = None,
    ) -> None:
        """Open every file's footer; with the summary of all, each when it is first needed.

        Raises SourceUnreadable where one is missing, damaged or encrypted, and for URLs what
        stores raise.
        """
        super().__init__(paths, unify=unify, storage_options=storage_options, summary=summary)
        self.hints = dict.fromkeys(self._files[0].empty_struct_columns, _EMPTY_STRUCT)

    def open_table(self, file: AnyFile) -> ParquetPart:
        """Read the footer of one file."""
        return open_part(file)

    def read_table(
        self, table: ParquetPart, unit: Unit, positions: list[int], batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Decode one row group batch by batch; page checksums are verified where present."""
        return read_row_group(table, unit.key[1], positions, batch_bytes, unit.name)

    def name_unit(self, path: str, unit: int) -> str:
        """Return the name of a row group."""
        return f"{path} row group {unit}"

    def null_count(self, path: tuple[int, ...]) -> int | None:
        """Count nulls by the row groups' statistics; None in lists, and if a group has none."""
        return self._look_up("nulls", path, self._count_nulls)

    def _count_nulls(self, path: tuple[int, ...]) -> int | None:
        around = [self._find_type(path[: depth + 1]) for depth in range(len(path) - 1)]
        if not all(map(pa.types.is_struct, around)):
            return None  # an empty list counts as a null, too
        if pa.types.is_nested(self._find_type(path)):
            return None
        name = self.schema.field(path[0]).name
        if self._unified and any(file.get_type(name) is None for file in self._files):
            return None
        total = 0
        for part, leaves in self._find_leaves(path):
            for leaf in leaves:
                for group in range(part.metadata.num_row_groups):
                    statistics = part.get_chunk(group, leaf).statistics
                    if statistics is None or not statistics.has_null_count:
                        return None
                    total += int(statistics.null_count)
        return total

    def column_bytes(self, path: tuple[int, ...]) -> int | None:
        """Return the bytes of the values once decoded, from the footers."""
        return self._look_up("bytes", path, self._estimate_bytes)

    def _look_up(
        self, what: str, path: tuple[int, ...], compute: Callable[[tuple[int, ...]], int | None]
    ) -> int | None:
        """Look up what the footers of all files say together; compute it the first time."""
        key = f"{what} of {path}"
        if key not in self._known:
            self._known[key] = compute(path)
        return self._known[key]

    def _estimate_bytes(self, path: tuple[int, ...]) -> int:
        return sum(
            part.estimate_leaf_bytes(group, leaf)
            for part, leaves in self._find_leaves(path)
            for group in range(part.metadata.num_row_groups)
            for leaf in leaves
        )

    def _find_type(self, path: tuple[int, ...]) -> pa.DataType:
        kind = self.schema.field(path[0]).type
        for child in path[1:]:
            kind = _unwrap_extension(kind).field(child).type
        return _unwrap_extension(kind)

    def _find_leaves(self, path: tuple[int, ...]) -> Iterator[tuple[ParquetPart, range]]:
        """Find the leaf columns below a path, in each file that is like the first."""
        field = self.schema.field(path[0])
        kind, skipped = field.type, 0
        for child in path[1:]:
            kind = _unwrap_extension(kind)
            skipped += sum(count_leaves(kind.field(index).type) for index in range(child))
            kind = kind.field(child).type
        count = count_leaves(kind)
        for part in self._files:
            if field.name in part.columns and not self.find_differences(part, [path[0]]):
                start = part.leaves[part.columns[field.name]].start + skipped
                yield part, range(start, start + count)


def _unwrap_extension(kind: pa.DataType) -> pa.DataType:
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind
