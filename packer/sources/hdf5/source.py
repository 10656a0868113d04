"""HDF5 files: every dataset is a column, axis 0 are the rows."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from fieldslab.packer.commands.text_format import format_size
from fieldslab.packer.source import SAMPLE_ROWS, Source, Unit
from fieldslab.packer.sources.hdf5.dataset_storage import check_filters, describe_unwritten
from fieldslab.packer.sources.hdf5.hdf5_files import (
    SUFFIXES,
    find_files,
    looks_like_hdf5,
    name_hdf5_errors,
)
from fieldslab.packer.sources.hdf5.parts import (
    Key,
    ScannedFile,
    collect_columns,
    collect_warnings,
    describe_columns,
    find_most_common,
)
from fieldslab.packer.sources.hdf5.read import DatasetColumns, OpenFiles, read_columns
from fieldslab.packer.sources.hdf5.repeated import check_not_repeated
from fieldslab.packer.sources.hdf5.scan import scan_file
from fieldslab.packer.sources.hdf5.windows import (
    WORTH_SAYING,
    ReadMemory,
    compute_batch_rows,
    compute_memory,
    compute_window_starts,
    get_physical_memory,
)
from fieldslab.packer.sources.path_lookup import NoFiles
from fieldslab.schemas.bytesizes import parse_size
from fieldslab.schemas.errors import SourceInconsistent, SourceUnreadable, UsageError
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.urls import is_url

_MOST_WINDOWS = 1_000_000
_MOST_WARNINGS = 10


class HDF5Source(Source):
    """Datasets of one or many HDF5 files."""

    name = "hdf5"
    rereadable = True
    libraries = ("h5py", "hdf5plugin")

    def __init__(
        self,
        paths: list[str],
        *,
        rows_attr: str | None = None,
        raw: bool = False,
        external: bool = False,
        memory: str | int | None = None,
    ) -> None:
        """Walk through every file.

        Parameters
        ----------
        rows_attr
            Attribute of each file that says how many of its rows were written.
        raw
            Pack opaque bytes, as uint8.
        external
            Admit external links, virtual datasets and external raw storage.
        memory
            Memory limit for reading, such as '4G'; by default half of the machine's memory.

        Raises
        ------
        SourceUnreadable
            A file is missing or damaged, or holds no dataset.
        """
        settings = {"rows_attr": rows_attr, "raw": raw, "external": external}
        _check_types(settings)
        self.settings = {key: value for key, value in settings.items() if value}
        self._rows_attr = rows_attr
        self._memory = (
            get_physical_memory() // 2 if memory is None else parse_size("memory", memory)
        )
        scans = [scan_file(path, raw=raw, external=external) for path in find_files(paths)]
        self._parts = [ScannedFile.from_scan(scanned) for scanned in scans]
        self._columns = collect_columns(self._parts)
        if not self._columns:
            raise SourceUnreadable(
                "the file has no dataset that can be packed", file=self._parts[0].path
            )
        self._keys = list(self._columns)
        self.schema, self.hints = describe_columns(self._columns)
        self.attributes = scans[0].attributes
        self._scan_warnings = collect_warnings(scans)
        self.warnings = self._scan_warnings
        self._sampled: dict[Key, float] = {}
        self._spare: OpenFiles | None = None
        self.units = self._cut_units(self._choose_default_columns())

    @staticmethod
    def accepts(paths: list[str]) -> bool:
        """Return whether the first file looks like HDF5, by its name or its first bytes."""
        if is_url(paths[0]):
            return paths[0].lower().endswith(SUFFIXES)  # to be refused with advice
        try:
            return looks_like_hdf5(find_files(paths[:1])[0])
        except NoFiles:
            return False

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without open files: another process opens them again."""
        return self.__dict__ | {"_spare": None}

    def check(self, columns: list[int]) -> None:
        """Settle on these columns: from now on `units` and `warnings` are about them.

        Raises
        ------
        SourceInconsistent
            Files differ in these columns, or the columns in their number of rows.
        SourceUnsupported
            A filter is not installed, or there is too little memory.
        """
        keys = [self._keys[column] for column in columns]
        for part in self._parts:
            part.check_same_columns(self._columns, keys)
            part.check_lengths(keys)
        warnings = self._check_storage(keys)
        self._sample_lengths(columns)
        needed = max(self._check_memory(part, keys) for part in self._parts)
        self.units = self._cut_units(keys)
        if needed > WORTH_SAYING:
            warnings.append(f"reading takes about {format_size(needed)} of memory")
        self.warnings = self._scan_warnings + warnings

    def check_default_columns(self, columns: list[int]) -> None:
        """Raise SourceInconsistent where these columns are groups of a series, such as episodes."""
        keys = [self._keys[column] for column in columns]
        for part in self._parts:
            check_not_repeated(part, [key for key in keys if key in part.columns])

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Read the rows of a window, in whole chunks or even parts of one.

        Raises
        ------
        SourceUnreadable, SourceInconsistent
            The file is damaged, or a value is not what its type admits.
        SourceChanged
            It is not the file that was looked at first.
        """
        number, start, stop, last = unit.key
        part, opened = self._parts[number], self._reuse_open_files(number)
        try:
            yield from self._read_batches(part, opened, columns, start, stop, batch_bytes)
        finally:
            if last:
                opened.close()
            else:
                self._spare = opened
        for file in (part.scan.file, *part.scan.others):
            file.check_unchanged()

    def sample(self, columns: list[int]) -> list[pa.RecordBatch]:
        """Read a few rows from start, middle and end of the first file that has all datasets."""
        keys = [self._keys[column] for column in columns]
        having = [part for part in self._parts if part.columns.keys() >= set(keys)]
        if not having:
            return []
        part, opened = having[0], OpenFiles(self._parts.index(having[0]))
        rows = min((part.columns[key][0].rows or 0 for key in keys), default=0)
        count = min(SAMPLE_ROWS, rows)
        starts = sorted({0, max(rows // 2 - count, 0), rows - count})
        try:
            return [
                next(self._read_batches(part, opened, columns, start, start + count, 1 << 40))
                for start in starts
                if count
            ]
        finally:
            opened.close()

    def null_count(self, path: tuple[int, ...]) -> int:
        """Return 0: HDF5 has no nulls."""
        return 0

    def column_bytes(self, path: tuple[int, ...]) -> int:
        """Count the bytes of all values; estimate variable lengths from the sample."""
        key = self._keys[path[0]]
        parts = (part for part in self._parts if key in part.columns)
        return int(
            sum(
                (part.columns[key][0].rows or 0) * self._estimate_row_bytes(part, [key])
                for part in parts
            )
        )

    def fingerprint(self) -> list[dict[str, Any]]:
        """Return path, size and time of each file, those behind links included."""
        files = [file for part in self._parts for file in (part.scan.file, *part.scan.others)]
        return [file.describe() for file in dict.fromkeys(files)]

    def _choose_default_columns(self) -> list[Key]:
        """The columns of the most common length that all files have and that can be packed."""
        first = self._parts[0].columns
        common = [
            key
            for key in first
            if all(
                key in part.columns and part.columns[key][1].refusal is None for part in self._parts
            )
        ]
        length = find_most_common(first[key][0].rows for key in common)
        return [key for key in common if length is not None and first[key][0].rows == length]

    def _cut_units(self, keys: list[Key]) -> list[Unit]:
        units: list[Unit] = []
        for number, part in enumerate(self._parts if keys else []):
            rows, row_bytes = (
                part.count_rows(keys, self._rows_attr),
                self._estimate_row_bytes(part, keys),
            )
            datasets = [wanted.dataset for wanted in part.group_columns(keys)]
            starts = compute_window_starts(datasets, rows, row_bytes)
            if len(starts) > _MOST_WINDOWS:
                raise SourceInconsistent(
                    f"its rows take {format_size(rows * row_bytes)}, more than a file can hold",
                    file=part.path,
                    hint=f"{mark_option('rows_attr')} leaves out rows that were never written.",
                )
            for start in starts:
                stop = min(start + starts.step, rows)
                name = f"{part.path} rows {start}..{stop - 1}"
                taken = int((stop - start) * row_bytes)
                key = (number, start, stop, stop == rows)
                units.append(Unit(name, stop - start, taken, key, file=part.path))
        return units

    def _estimate_row_bytes(self, part: ScannedFile, keys: Sequence[Key]) -> float:
        return sum(
            self._sampled.get(
                key, part.columns[key][1].count_row_bytes(part.columns[key][0].row_shape)
            )
            for key in keys
        )

    def _sample_lengths(self, columns: list[int]) -> None:
        """Bytes of a row of the columns whose rows differ in length, from a few of them."""
        first = self._parts[0].columns
        variable = [column for column in columns if first[self._keys[column]][1].variable]
        for batch in self.sample(variable) if variable else []:
            for column, array in zip(variable, batch.columns, strict=True):
                key = self._keys[column]
                self._sampled[key] = max(self._sampled.get(key, 0), array.nbytes / len(array))

    def _check_memory(self, part: ScannedFile, keys: Sequence[Key]) -> int:
        """Return the bytes of memory that reading takes. Raises SourceUnsupported if too many."""
        memory = self._compute_memory(part.group_columns(keys))
        row_bytes = self._estimate_row_bytes(part, keys)
        memory.check_limit(self._memory, int(row_bytes), part.path)
        return memory.compute_usual_bytes(self._memory, int(row_bytes))

    def _compute_memory(self, wanted: Sequence[DatasetColumns]) -> ReadMemory:
        return compute_memory([each.dataset for each in wanted])

    def _check_storage(self, keys: Sequence[Key]) -> list[str]:
        """Warnings of rows never written. Raises SourceUnsupported for filters not installed."""
        warnings: list[str] = []
        for number, part in enumerate(self._parts):
            opened = OpenFiles(number)
            rows = part.count_rows(keys, self._rows_attr)
            for wanted in part.group_columns(keys):
                with name_hdf5_errors(wanted.dataset.file, wanted.dataset.name):
                    dataset = opened.get_dataset(wanted.dataset)
                    check_filters(dataset, wanted.dataset)
                    if (text := describe_unwritten(dataset, wanted.dataset, rows)) is not None:
                        warnings.append(text)
            opened.close()
        if len(warnings) > _MOST_WARNINGS:
            more = f"and {len(warnings) - _MOST_WARNINGS} more datasets were not written whole"
            warnings = [*warnings[:_MOST_WARNINGS], more]
        return warnings

    def _read_batches(
        self,
        part: ScannedFile,
        opened: OpenFiles,
        columns: list[int],
        start: int,
        stop: int,
        batch_bytes: int,
    ) -> Iterator[pa.RecordBatch]:
        keys = [self._keys[column] for column in columns]
        wanted = part.group_columns(keys)
        datasets = [each.dataset for each in wanted]
        schema = pa.schema([self.schema.field(column) for column in columns])
        batch_bytes = self._compute_memory(wanted).limit_batch_bytes(self._memory, batch_bytes)
        row_bytes = self._estimate_row_bytes(part, keys)
        while start < stop:
            end = min(start + compute_batch_rows(datasets, row_bytes, batch_bytes), stop)
            arrays = {
                (each.dataset.name, column.member): array
                for each in wanted
                for column, array in zip(
                    each.columns, read_columns(opened, each, start, end), strict=True
                )
            }
            batch = pa.RecordBatch.from_arrays([arrays[key] for key in keys], schema=schema)
            row_bytes = max(row_bytes, batch.nbytes / batch.num_rows)
            yield batch
            start = end

    def _reuse_open_files(self, number: int) -> OpenFiles:
        """The files that the last window left open, where they are those of the same part."""
        spare, self._spare = self._spare, None
        if spare is not None and spare.usable and spare.part == number:
            return spare
        if spare is not None and spare.usable:
            spare.close()
        return OpenFiles(number)


def _check_types(settings: dict[str, Any]) -> None:
    """Raise UsageError for settings that do not have their types: a slab may hold any."""
    for name, value in settings.items():
        kind: Any = str | None if name == "rows_attr" else bool
        if not isinstance(value, kind):
            raise UsageError(f"settings: {name} has the wrong type", found=repr(value))
