"""HDF5 files: every dataset is a column, axis 0 are the rows. Groups or files may be episodes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from fieldslab.packer.commands.text_format import format_size
from fieldslab.packer.source import SAMPLE_ROWS, Source, Unit
from fieldslab.packer.sources.hdf5.episode_columns import EpisodeColumn
from fieldslab.packer.sources.hdf5.episode_ends import count_episode_rows, make_added_columns
from fieldslab.packer.sources.hdf5.episodes import (
    EpisodeRules,
    describe_likely_episodes,
    make_natural_key,
    parse_episode_rules,
)
from fieldslab.packer.sources.hdf5.hdf5_files import (
    SUFFIXES,
    find_files,
    looks_like_hdf5,
)
from fieldslab.packer.sources.hdf5.parts import (
    Key,
    Part,
    check_same_columns,
    collect_columns,
    collect_warnings,
    describe_columns,
    describe_dropped_steps,
    find_most_common,
    split_file,
)
from fieldslab.packer.sources.hdf5.pieces import PieceRows, join_rows, make_units, read_piece
from fieldslab.packer.sources.hdf5.read import OpenFiles
from fieldslab.packer.sources.hdf5.repeated import check_not_repeated
from fieldslab.packer.sources.hdf5.scan import scan_file
from fieldslab.packer.sources.hdf5.settings import check_settings
from fieldslab.packer.sources.hdf5.storage_check import check_storage
from fieldslab.packer.sources.hdf5.windows import (
    WORTH_SAYING,
    Piece,
    compute_memory,
    compute_window_starts,
    get_physical_memory,
)
from fieldslab.packer.sources.path_lookup import NoFiles
from fieldslab.schemas.bytesizes import parse_size
from fieldslab.schemas.episodes import MOST_EPISODES, replace_episodes
from fieldslab.schemas.errors import SourceInconsistent, SourceUnreadable, UsageError
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.urls import is_url

_MOST_WINDOWS = 1_000_000


class HDF5Source(Source):
    """Datasets of one or many HDF5 files."""

    name = "hdf5"
    rereadable = True
    libraries = ("h5py", "hdf5plugin")

    def __init__(
        self,
        paths: list[str],
        *,
        episodes: str | None = None,
        episode_attrs: str | Sequence[str] | None = None,
        drop_extra_step: bool = False,
        rows_attr: str | None = None,
        rows_axis: int = 0,
        raw: bool = False,
        external: bool = False,
        memory: str | int | None = None,
    ) -> None:
        """Walk through every file.

        Parameters
        ----------
        episodes
            Which groups are episodes, as a pattern of their paths; "files" if each file is one;
            "ends:a,b" if they end where dataset a or b is not 0.
        episode_attrs
            Names of attributes of episodes that become columns, a list or with commas.
        drop_extra_step
            Leave out the last row of datasets that have one more than others of their episode.
        rows_attr
            Attribute of each file, or episode, that says how many of its rows were written.
        rows_axis
            Which axis of datasets has the rows: 0, the first, or -1, the last.
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
        UsageError
            A setting has the wrong type, or no group is an episode.
        """
        settings: dict[str, Any] = {
            "episodes": episodes,
            "drop_extra_step": drop_extra_step,
            "rows_attr": rows_attr,
            "rows_axis": rows_axis,
            "raw": raw,
            "external": external,
        }
        check_settings(settings)
        rules = parse_episode_rules(episodes, episode_attrs, drop_extra_step, rows_attr)
        if rules is not None and rules.attributes:
            settings["episode_attrs"] = list(rules.attributes)
        self.settings = {key: value for key, value in settings.items() if value}
        self._rules = rules
        self._rows_attr = rows_attr
        self._memory = (
            get_physical_memory() // 2 if memory is None else parse_size("memory", memory)
        )
        files = find_files(paths, None if rules is None else make_natural_key)
        scans = [
            scan_file(path, raw=raw, external=external, rows_axis=rows_axis, rules=rules)
            for path in files
        ]
        self._parts = [part for scanned in scans for part in split_file(scanned, rules)]
        self._columns = collect_columns(self._parts)
        if not self._columns:
            _refuse_nothing(files[0], rules)
        self._keys = list(self._columns)
        self._added: list[EpisodeColumn] = []
        if rules is not None:
            self._added = make_added_columns(self._parts, rules)
        self.schema, self.hints = describe_columns(self._columns, self._added)
        self.attributes = scans[0].attributes
        self._scan_warnings = [*collect_warnings(scans), *_name_clashes(self.schema, self._added)]
        if rules is None:
            self._scan_warnings += describe_likely_episodes(files)
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
        keys = self._choose_keys(columns)
        check_same_columns(self._parts, self._columns, keys)
        for part in self._parts:
            part.check_lengths(keys, self._rules)
        warnings = check_storage(self._parts, keys, self._rows_attr)
        if self._rules is not None:
            warnings += describe_dropped_steps(self._parts, keys)
        self._sample_lengths(columns)
        needed = max(self._check_memory(part, keys) for part in self._parts)
        self.units = self._cut_units(keys)
        if needed > WORTH_SAYING:
            warnings.append(f"reading takes about {format_size(needed)} of memory")
        self.warnings = self._scan_warnings + warnings

    def check_default_columns(self, columns: list[int]) -> None:
        """Raise SourceInconsistent where these columns are groups of a series, such as episodes."""
        if self._rules is not None and self._rules.groups:
            return
        keys = self._choose_keys(columns)
        for part in self._parts:
            check_not_repeated(part, [key for key in keys if key in part.columns])

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Read the rows of a window, in whole chunks or even parts of one, or of some episodes.

        Raises
        ------
        SourceUnreadable, SourceInconsistent
            The file is damaged, or a value is not what its type admits.
        SourceChanged
            It is not the file that was looked at first.
        """
        pieces: Sequence[Piece] = unit.key
        scan = self._parts[pieces[0].part].scan
        opened = self._reuse_open_files(scan.file.path)
        try:
            rows = self._read_pieces(opened, pieces, columns, batch_bytes)
            groups = join_rows(rows, batch_bytes) if len(pieces) > 1 else ([each] for each in rows)
            for group in groups:
                yield self._make_batch(columns, group)
        except SourceUnreadable:
            for file in (scan.file, *scan.others):
                file.check_unchanged()
            raise
        finally:
            if pieces[-1].last:
                opened.close()
            else:
                self._spare = opened
        for file in (scan.file, *scan.others):
            file.check_unchanged()

    def sample(self, columns: list[int]) -> list[pa.RecordBatch]:
        """Read a few rows from start, middle and end of the first file that has all datasets."""
        keys = set(self._choose_keys(columns))
        having = (n for n, part in enumerate(self._parts) if part.columns.keys() >= keys)
        if (number := next(having, None)) is None:
            return []
        part = self._parts[number]
        opened = OpenFiles(part.path)
        rows = min((part.columns[key][0].rows or 0 for key in keys), default=0)
        count = min(SAMPLE_ROWS, rows)
        starts = sorted({0, max(rows // 2 - count, 0), rows - count}) if count else []
        pieces = [Piece(number, start, start + count, False) for start in starts]
        try:
            rows_read = self._read_pieces(opened, pieces, columns, 1 << 40)
            return [self._make_batch(columns, [each]) for each in rows_read]
        finally:
            opened.close()

    def null_count(self, path: tuple[int, ...]) -> int | None:
        """Return 0: HDF5 has no nulls, but for columns of AnnData, which are not counted."""
        if path[0] >= len(self._keys):
            return 0
        key = self._keys[path[0]]
        dataset, _ = self._columns[key].columns[key]
        return None if dataset.encoding in ("categorical", "nullable") else 0

    def column_bytes(self, path: tuple[int, ...]) -> int:
        """Count the bytes of all values; estimate variable lengths from the sample."""
        if path[0] >= len(self._keys):
            rows = sum(unit.rows or 0 for unit in self.units)
            return int(self._added[path[0] - len(self._keys)].row_bytes * rows)
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

    def _choose_keys(self, columns: Sequence[int]) -> list[Key]:
        """The keys of columns that are read from datasets."""
        return [self._keys[column] for column in columns if column < len(self._keys)]

    def _cut_units(self, keys: list[Key]) -> list[Unit]:
        keys = keys or (self._choose_default_columns() if self._added else [])
        if not keys:
            return []
        units = list(make_units(self._cut_pieces(keys), self._parts))
        if self._rules is not None:
            lengths = [part.count_rows(keys, self._rows_attr) for part in self._parts]
            listed = count_episode_rows(self._added, lengths)
            self.attributes = replace_episodes(
                self.attributes, listed if len(listed) <= MOST_EPISODES else None
            )
        return units

    def _cut_pieces(self, keys: list[Key]) -> Iterator[tuple[Piece, float]]:
        """Cut each part along its chunks; yields pieces and their bytes."""
        added_bytes = sum(column.row_bytes for column in self._added)
        for number, part in enumerate(self._parts):
            if not part.columns.keys() >= set(keys):
                continue  # `check` refuses it
            rows = part.count_rows(keys, self._rows_attr)
            row_bytes = self._estimate_row_bytes(part, keys) + added_bytes
            datasets = [columns.dataset for columns in part.group_columns(keys)]
            starts = compute_window_starts(datasets, rows, row_bytes)
            if len(starts) > _MOST_WINDOWS:
                raise SourceInconsistent(
                    f"its rows take {format_size(rows * row_bytes)}, more than a file can hold",
                    file=part.path,
                    hint=f"{mark_option('rows_attr')} leaves out rows that were never written.",
                )
            for start in starts:
                stop = min(start + starts.step, rows)
                yield Piece(number, start, stop, stop == rows), (stop - start) * row_bytes

    def _estimate_row_bytes(self, part: Part, keys: Sequence[Key]) -> float:
        return sum(
            self._sampled.get(
                key, part.columns[key][1].count_row_bytes(part.columns[key][0].row_shape)
            )
            for key in keys
        )

    def _sample_lengths(self, columns: list[int]) -> None:
        """Bytes of a row of the columns whose rows differ in length, from a few of them."""
        first = self._parts[0].columns
        variable = [
            column
            for column in columns
            if column < len(self._keys) and first[self._keys[column]][1].variable
        ]
        for batch in self.sample(variable) if variable else []:
            for column, array in zip(variable, batch.columns, strict=True):
                key = self._keys[column]
                self._sampled[key] = max(self._sampled.get(key, 0), array.nbytes / len(array))

    def _check_memory(self, part: Part, keys: Sequence[Key]) -> int:
        """Return the bytes of memory that reading takes. Raises SourceUnsupported if too many."""
        memory = compute_memory([columns.dataset for columns in part.group_columns(keys)])
        row_bytes = self._estimate_row_bytes(part, keys)
        memory.check_limit(self._memory, int(row_bytes), part.path)
        return memory.compute_usual_bytes(self._memory, int(row_bytes))

    def _read_pieces(
        self, opened: OpenFiles, pieces: Iterable[Piece], columns: list[int], batch_bytes: int
    ) -> Iterator[PieceRows]:
        keys = self._choose_keys(columns)
        for piece in pieces:
            part = self._parts[piece.part]
            row_bytes = self._estimate_row_bytes(part, keys)
            yield from read_piece(opened, part, piece, keys, row_bytes, batch_bytes, self._memory)
            if piece.last:
                opened.close_datasets()

    def _make_batch(self, columns: list[int], rows: Sequence[PieceRows]) -> pa.RecordBatch:
        """Make a batch of what was read behind each other, with the columns of episodes."""
        arrays = [
            pa.concat_arrays(list(each)) for each in zip(*(r.arrays for r in rows), strict=True)
        ]
        pieces = [each.piece for each in rows]
        for column in columns:
            if column >= len(self._keys):
                arrays.append(self._added[column - len(self._keys)].make_array(pieces))
        schema = pa.schema([self.schema.field(column) for column in columns])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _reuse_open_files(self, path: str) -> OpenFiles:
        """The files that the last window left open, where they are those of the same file."""
        spare, self._spare = self._spare, None
        if spare is not None and spare.usable and spare.path == path:
            return spare
        if spare is not None and spare.usable:
            spare.close()
        return OpenFiles(path)


def _name_clashes(schema: pa.Schema, added: Sequence[EpisodeColumn]) -> list[str]:
    """Warnings about columns that got another name, because the data has one of theirs."""
    names = schema.names[len(schema.names) - len(added) :]
    return [
        f"the data has a field {column.name}: the {column.hint.why} is {name}"
        for column, name in zip(added, names, strict=True)
        if name != column.name
    ]


def _refuse_nothing(file: str, rules: EpisodeRules | None) -> NoReturn:
    """Raise for files without anything to pack."""
    if rules is None or not rules.groups:
        raise SourceUnreadable("the file has no dataset that can be packed", file=file)
    raise UsageError(
        f"{mark_option('episodes')}: no group with datasets matches",
        file=file,
        found="/".join(rules.groups),
        hint="`h5ls -r` lists the groups of a file.",
    )
