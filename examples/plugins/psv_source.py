"""Values between bars as a source: `fieldslab pack a.psv b.psv -o table.slab`."""

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import csv

from fieldslab.packer.source import Source, Unit
from fieldslab.schemas.errors import SourceInconsistent, SourceUnreadable


class PsvSource(Source):
    """Files with equal columns, whose values stand between bars; each file is a unit.

    The types are those that pyarrow infers from the beginning of the first file.
    """

    name = "psv"  # as in the entry point; `--from psv`
    rereadable = True  # `read` may be called again, so an interrupted pack can resume

    def __init__(self, paths: list[str], *, delimiter: str = "|") -> None:
        """Read the headers; `delimiter` is a setting: `pack(..., settings={"delimiter": ";"})`."""
        self._delimiter = delimiter
        self.settings = {"delimiter": delimiter}
        self.schema = self._open(paths[0]).schema
        for path in paths[1:]:
            names = self._open(path).schema.names
            if names != self.schema.names:
                raise SourceInconsistent(
                    "other columns than in the first file",
                    file=path,
                    expected=", ".join(self.schema.names),
                    found=", ".join(names),
                    hint="Pack files with other columns into another slab.",
                )
        # Rows are not known before a file is read; its size is a good estimate of its bytes.
        self.units = [Unit(path, None, os.path.getsize(path), path, file=path) for path in paths]

    @staticmethod
    def accepts(paths: list[str]) -> bool:
        """Whether to take these paths if the user does not say `--from`."""
        return all(path.endswith(".psv") for path in paths)

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows of one file, in batches of about `batch_bytes`."""
        try:
            for batch in self._open(unit.key, self.schema, batch_bytes):
                yield batch.select(columns)
        except pa.ArrowInvalid as error:
            raise SourceUnreadable(str(error), file=unit.key, hint="Correct the file.") from error

    def fingerprint(self) -> list[dict[str, Any]]:
        """What changes when a file changes: a pack does not resume, and says why."""
        files = [(unit.key, os.stat(unit.key)) for unit in self.units]
        return [{"path": path, "size": s.st_size, "time": s.st_mtime_ns} for path, s in files]

    def _open(
        self, path: str, schema: pa.Schema | None = None, block_bytes: int = 2**20
    ) -> csv.CSVStreamingReader:
        """Open a file; with a schema, values that do not fit its types are errors."""
        types = None if schema is None else {column.name: column.type for column in schema}
        try:
            return csv.open_csv(
                path,
                csv.ReadOptions(block_size=min(block_bytes, 2**30)),
                csv.ParseOptions(delimiter=self._delimiter),
                csv.ConvertOptions(column_types=types),
            )
        except pa.ArrowInvalid as error:
            raise SourceUnreadable(str(error), file=path, hint="Correct the file.") from error
