"""Files of values between delimiters: CSV and TSV."""

import csv
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from fieldslab.packer.column_names import make_names_unique, match_names
from fieldslab.packer.sources.table_files import AnyFile
from fieldslab.packer.sources.text.records import Block, FindEnds, make_quoted_finder
from fieldslab.packer.sources.text.text_source import TextFile, TextSource, get_suffix
from fieldslab.packer.sources.text.text_values import infer_type, parse_texts
from fieldslab.schemas.errors import SourceUnreadable, UsageError
from fieldslab.schemas.optiontext import mark_option

_AS_TEXT = ("text", "binary", "json", "categorical")


class CsvSource(TextSource):
    """Rows of CSV files; the first record names the columns."""

    name = "csv"
    kind = "CSV"
    endings_of_names = (".csv", ".tsv")

    def __init__(
        self,
        paths: list[str],
        *,
        delimiter: str | None = None,
        header: bool = True,
        unify: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        summary: Any = None,
    ) -> None:
        """Count the rows of local files, and infer the types of columns from samples.

        `delimiter` is a comma by default, and a tab for `.tsv`. Without a `header`, columns are
        named f0, f1 and so on. Raises what other sources of files raise.
        """
        if delimiter is not None and (len(delimiter.encode()) != 1 or delimiter in '"\r\n'):
            raise UsageError(
                f"{mark_option('delimiter')}: must be one character", found=repr(delimiter)
            )
        self._delimiter, self._header = delimiter, header
        super().__init__(paths, unify=unify, storage_options=storage_options, summary=summary)
        self.settings = {**self.settings, **({} if header else {"header": False})}
        self.settings |= {} if delimiter is None else {"delimiter": delimiter}

    def find_delimiter(self, file: AnyFile) -> str:
        """Return the sign between the values of a file."""
        if self._delimiter is not None:
            return self._delimiter
        return "\t" if get_suffix(file.path) == ".tsv" else ","

    def make_finder(self, file: AnyFile) -> FindEnds:
        """Return what finds the ends of records, some of which hold line ends in quotes."""
        return make_quoted_finder(self.find_delimiter(file))

    def read_names(self, file: AnyFile, first: Block) -> tuple[list[str], int]:
        """Read the names of columns from the first record, and where the rows begin."""
        filled = [
            index for index in range(len(first.ends)) if _get_record(first, index).strip(b"\r\n")
        ]
        if not filled:
            raise SourceUnreadable(
                "the file is empty: it does not even name its columns", file=file.path
            )
        try:
            record = _get_record(first, filled[0]).decode()
            (names,) = csv.reader([record], delimiter=self.find_delimiter(file), doublequote=True)
        except (ValueError, csv.Error) as error:  # not UTF-8, say, or a line end without quotes
            raise SourceUnreadable(
                "the first record cannot be read", file=file.path, expected="CSV", found=str(error)
            ) from error
        if not self._header:
            return [f"f{number}" for number in range(len(names))], 0
        return make_names_unique(names), int(first.ends[filled[0]])

    def infer_types(self, samples: list[tuple[TextFile, Block]]) -> dict[str, pa.DataType]:
        """Infer the types of columns; text where no other type gives back each value."""
        columns: dict[str, list[pa.ChunkedArray]] = {}
        for file, block in samples:
            names = file.schema.names
            try:
                table = self._read_texts(file, block, names)
            except pa.ArrowInvalid as error:
                raise self._make_misfit_error(file, block, [], error) from error
            for name in names:
                columns.setdefault(name, []).append(table[name])
        return {
            name: infer_type(pa.chunked_array([c for a in arrays for c in a.chunks], pa.string()))
            for name, arrays in columns.items()
        }

    def apply_casts(self, casts: Mapping[str, str]) -> None:
        """Read columns that are cast as text, from which their values are parsed."""
        for pattern, target in casts.items():
            for name in match_names(pattern, self.types):
                self.types[name] = pa.string() if target in _AS_TEXT else pa.large_string()
        self.set_schema()

    def parse(self, file: TextFile, block: Block, names: list[str]) -> pa.RecordBatch:
        """Parse some columns of a block. Raises pa.ArrowInvalid where a value does not fit."""
        table = self._read_texts(file, block, names)
        arrays = [parse_texts(table[name], self.types[name]).combine_chunks() for name in names]
        return pa.RecordBatch.from_arrays(arrays, names)

    def find_misfit(
        self, file: TextFile, record: bytes, names: list[str]
    ) -> tuple[str, str] | None:
        """Find the column and the text of the value that does not fit, in a record."""
        block = Block(record, 0, 1, np.array([len(record)]))
        for name in names:
            try:
                texts = self._read_texts(file, block, [name])[name]
            except pa.ArrowInvalid:  # it has another number of values
                return None
            try:
                parse_texts(texts, self.types[name])
            except pa.ArrowInvalid:
                return name, str(texts[0].as_py())
        return None

    def _read_texts(self, file: TextFile, block: Block, names: list[str]) -> pa.Table:
        if not block.data:
            return file.schema.empty_table().select(names)
        return pc.read_csv(
            pa.BufferReader(block.data),
            read_options=pc.ReadOptions(
                use_threads=False, block_size=len(block.data) + 1, column_names=file.schema.names
            ),
            parse_options=pc.ParseOptions(
                delimiter=self.find_delimiter(file.file), newlines_in_values=True
            ),
            convert_options=pc.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=False,
            ),
        )


def _get_record(block: Block, index: int) -> bytes:
    start = int(block.ends[index - 1]) if index else 0
    return block.data[start : int(block.ends[index])]
