"""WebDataset: samples in tar files; members with one key are a row, their extensions its fields."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa

from fieldslab.packer.column_names import match_names
from fieldslab.packer.commands.text_format import format_count
from fieldslab.packer.source import ColumnHint, Unit
from fieldslab.packer.sources.images.image_names import is_image
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.packer.sources.remote_lookup import is_remote_source
from fieldslab.packer.sources.table_files import AnyFile, TableFile
from fieldslab.packer.sources.table_source import TableSource
from fieldslab.packer.sources.tar_members import Member, Tar, TarIndex, open_tar
from fieldslab.packer.sources.text.json_values import (
    Mixed,
    describe_value,
    make_type,
    merge_types,
)
from fieldslab.packer.sources.webdataset_values import (
    BYTES,
    INTEGER,
    JSON,
    KEY,
    PICKLED,
    TEXT,
    choose_type,
    find_type,
    get_kind,
    make_array,
)
from fieldslab.schemas.errors import SourceUnreadable, UsageError
from fieldslab.schemas.optiontext import mark_option

_SAMPLES = 64
"""Of tars in stores, so many samples tell the extensions; files on disks are scanned."""
_HEAD = 1 << 20
_REFUSED = (
    "pickled members may run code when they are read",
    f"{mark_option('exclude', ['{0}'])} leaves them out, and "
    f"{mark_option('cast', 'binary', column='{0}')} keeps their bytes.",
)
_FOLDERS = (
    "images alone, in folders: they are packed as samples, without labels; where the folders are "
    f"classes, decompress the tar and pack it with {mark_option('from_', 'images')}"
)
_MOST_NAMES = 100_000
_MOST_INDEXED = 4_000_000
"""Members of all tars whose places are kept, some 25 bytes each; others are looked for again."""


@dataclass(frozen=True)
class TarFile(TableFile):
    """One tar: how many samples have each extension, and what is passed over in it.

    `index` says where members are, `json` describes the values of extensions of JSON, and
    `in_folders` tells whether a key has a folder in front.
    """

    types: dict[str, pa.DataType]
    rows: int | None = None
    extensions: dict[str, tuple[int, pa.DataType]] = field(default_factory=dict)
    passed: dict[str, tuple[int, str]] = field(default_factory=dict)
    index: TarIndex | None = None
    json: dict[str, Any] = field(default_factory=dict)
    in_folders: bool = False

    @property
    def columns(self) -> dict[str, int]:
        """Position of each column of the source: a sample may lack any extension."""
        return {name: index for index, name in enumerate(self.types)}

    def list_units(self) -> list[list[Any]]:
        """List rows and bytes of the tar, which is read in one go."""
        return [[self.rows, self.file.size]]

    def get_type(self, name: str) -> pa.DataType | None:
        """Return the type that all files share; None where the file has no such column."""
        return self.types.get(name) or super().get_type(name)


class WebDatasetSource(TableSource):
    """Samples of tar files."""

    name = "webdataset"
    kind = "WebDataset tar"
    suffixes = (".tar", ".tar.gz", ".tgz")

    def __init__(
        self,
        paths: list[str],
        *,
        json_fields: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        summary: Any = None,
    ) -> None:
        """Scan the headers of local tars; of those in stores, read the first samples.

        With `json_fields`, the keys of JSON members become fields.
        """
        self._json_fields = json_fields
        self.types: dict[str, pa.DataType] = {}
        self._casts: set[str] = set()
        self._indexed = 0
        paths = [name for path in paths for name in expand_braces(path)]
        super().__init__(paths, storage_options=storage_options, summary=summary)
        self.settings = {"json_fields": True} if json_fields else {}
        if "extensions" not in self._known:
            self._known.update(_join_scans(list(self._files)))
        for name, text in self._known["extensions"]:
            self.types[name] = _read_type(text)
        self.warnings = tuple(self._known["warnings"])
        self._set_schema()

    @classmethod
    def accepts(cls, paths: list[str]) -> bool:
        """Return whether the first path names tars."""
        return super().accepts(expand_braces(paths[0])[:1])

    def open_table(self, file: AnyFile) -> TarFile:
        """Scan the headers of a tar."""
        table = TarFile(file, pa.schema([]), {}, self.types)
        if self._summarized:
            return table
        table = _scan(table, keep=self._indexed < _MOST_INDEXED, look_into_json=self._json_fields)
        self._indexed += 0 if table.index is None else len(table.index)
        return table

    def apply_casts(self, casts: Mapping[str, str]) -> None:
        """Read what is cast as `casts` need it. An extension of no sample becomes a column."""
        for pattern, target in casts.items():
            names = match_names(pattern, self.types)
            if not names and not any(sign in pattern for sign in "*?["):
                names = [pattern]
            for name in names:
                if name != KEY:
                    self.types[name] = choose_type(self.types.get(name, BYTES), target)
                    self._casts.add(name)
        self._set_schema()

    def null_count(self, path: tuple[int, ...]) -> int | None:
        """Return how many samples lack an extension; None where tars were not scanned."""
        counts = self._known["counts"]
        name = self.schema.field(path[0]).name
        rows = [unit.rows for unit in self.units]
        if len(path) > 1 or None in rows or name not in counts:
            return None
        return sum(row for row in rows if row is not None) - int(counts[name])

    def name_unit(self, path: str, unit: int) -> str:
        """Return the path: a tar is a unit."""
        return path

    def read_table(
        self, table: TarFile, unit: Unit, positions: list[int], batch_bytes: int
    ) -> Iterator[pa.RecordBatch]:
        """Read a tar from front to back; members of other columns are passed over."""
        names = [list(table.columns)[position] for position in positions]
        has_all = len(names) == len(self.types)
        with (
            table.refuse_changed(),
            table.file.fetch([(0, table.file.size)]) as fetched,
            open_tar(fetched) as tar,
        ):
            samples = tar.list_samples() if table.index is None else table.index.list_samples()
            members: dict[str, list[Member | None]] = {name: [] for name in names}
            values: dict[str, list[memoryview | None]] = {name: [] for name in names}
            keys: list[str] = []
            size = 0
            for sample in samples:
                for name in names:
                    members[name].append(None)
                    values[name].append(None)
                for member in sample:
                    if member.extension in values and member.extension != KEY:
                        members[member.extension][-1] = member
                        values[member.extension][-1] = tar.read(member)
                        size += member.size
                    elif has_all:
                        raise self._make_new_error(tar, member)
                keys.append(sample[0].key)
                size += 64
                if size >= batch_bytes:
                    table.file.check_unchanged()
                    yield self._make_batch(tar, keys, members, values)
                    members = {name: [] for name in names}
                    values = {name: [] for name in names}
                    keys, size = [], 0
            table.file.check_unchanged()
            if keys:
                yield self._make_batch(tar, keys, members, values)

    def _make_batch(
        self,
        tar: Tar,
        keys: list[str],
        members: dict[str, list[Member | None]],
        values: dict[str, list[memoryview | None]],
    ) -> pa.RecordBatch:
        if not values:
            return pa.RecordBatch.from_arrays([pa.nulls(len(keys))], ["rows"])
        arrays = []
        for name, column in values.items():
            try:
                kind = self.types[name]
                arrays.append(pa.array(keys, TEXT) if name == KEY else make_array(column, kind))
            except (ValueError, RecursionError) as error:
                raise self._make_misfit_error(tar, name, members[name], column) from error
        return pa.RecordBatch.from_arrays(arrays, list(values))

    def _make_misfit_error(
        self,
        tar: Tar,
        name: str,
        members: list[Member | None],
        values: list[memoryview | None],
    ) -> SourceUnreadable:
        """Make the error for the first member that does not fit the type of its extension."""
        kind = self.types[name]
        place, text = tar.path, ""
        for member, value in zip(members, values, strict=True):
            try:
                make_array([value], kind)
            except (ValueError, RecursionError):
                if member is not None and value is not None:
                    place = f"{tar.path} byte {member.offset}"
                    text = f"{member.shown}: {bytes(value[:40])!r}"
                break
        advice = "text" if kind == INTEGER else "json" if pa.types.is_struct(kind) else "binary"
        return SourceUnreadable(
            "a member does not fit the type of its extension",
            file=place,
            field=name,
            expected=str(kind),
            found=text,
            hint=f"{mark_option('cast', advice, column=name)} reads all of them as {advice}.",
        )

    def _make_new_error(self, tar: Tar, member: Member) -> SourceUnreadable:
        return SourceUnreadable(
            "no sample that was looked at has this extension",
            file=f"{tar.path} byte {member.offset}",
            field=member.extension,
            found=member.shown,
            hint=f"{mark_option('cast', 'binary', column=member.extension)} makes it a column, "
            f"{mark_option('fields')} names those to read.",
        )

    def _set_schema(self) -> None:
        first = self._files[0]
        fields = [pa.field(name, kind) for name, kind in self.types.items()]
        fields += [pa.field(key, value.type) for key, value in first.partition.items()]
        self.schema = pa.schema(fields)
        hints = {}
        for index, name in enumerate(self.types):
            if name in self._casts or name == KEY:
                continue
            if get_kind(name) in PICKLED or self.types[name] == pa.null():
                hints[index] = ColumnHint(why="pickled", refusal=_REFUSED)
            elif is_image(f".{name}"):
                hints[index] = ColumnHint(why="images", image=True)
        self.hints = hints


def expand_braces(path: str) -> list[str]:
    """Expand `{000..127}` and `{a,b}` in a path; a file of that very name is meant itself.

    Raises UsageError for more than 100,000 names.
    """
    match = re.search(r"\{(?:(\d+)\.\.(\d+)|([^{},]*(?:,[^{},]*)+))\}", path)
    if match is None or (not is_remote_source(path) and os.path.lexists(path)):
        return [path]
    if match[1] is None:
        items = match[3].split(",")
    else:
        first, last = int(match[1]), int(match[2])
        if abs(last - first) >= _MOST_NAMES:
            raise UsageError("too many names in braces", file=path, expected=f"{_MOST_NAMES:,}")
        padded = any(len(text) > 1 and text.startswith("0") for text in match.groups()[:2])
        width = max(len(match[1]), len(match[2])) if padded else 0
        step = 1 if first <= last else -1
        items = [f"{number:0{width}}" for number in range(first, last + step, step)]
    before, after = path[: match.start()], path[match.end() :]
    paths = [name for item in items for name in expand_braces(before + item + after)]
    if len(paths) > _MOST_NAMES:
        raise UsageError("too many names in braces", file=path, expected=f"{_MOST_NAMES:,}")
    return paths


def _scan(table: TarFile, *, keep: bool, look_into_json: bool) -> TarFile:
    """Count the samples of a tar and their extensions; of an object, those of its first samples.

    Where that is a plain file, and if `keep`, the places of members are kept.
    """
    rows, in_folders = 0, False
    json: dict[str, Any] = {}
    extensions: dict[str, tuple[int, pa.DataType]] = {}
    passed: dict[str, tuple[int, str]] = {}
    remote = isinstance(table.file, RemoteFile)
    head = [(0, min(_HEAD, table.file.size))] if remote else []
    index = TarIndex() if keep and not remote and table.path.lower().endswith(".tar") else None
    with (
        table.refuse_changed(),
        table.file.fetch(head) as fetched,
        open_tar(fetched, headers=True) as tar,
    ):
        for sample in islice(tar.list_samples(), _SAMPLES if remote else None):
            rows += 1
            in_folders = in_folders or "/" in sample[0].key.removeprefix("./")
            if index is not None:
                index.append(sample)
            for member in sample:
                count, kind = extensions.get(member.extension, (0, None))
                if kind is None:
                    kind = find_type(tar, member)
                extensions[member.extension] = count + 1, kind
                if look_into_json and kind == JSON and count < _SAMPLES:
                    described = json.get(member.extension)
                    json[member.extension] = merge_types(described, _describe_json(tar, member))
        for name, why in tar.passed:
            count, first = passed.get(why, (0, name))
            passed[why] = count + 1, first
    count_rows = None if remote else rows
    return replace(
        table,
        rows=count_rows,
        extensions=extensions,
        passed=passed,
        index=index,
        json=json,
        in_folders=in_folders,
    )


def _describe_json(tar: Tar, member: Member) -> Any:
    """Describe the value of a member, as far as it is JSON: whoever reads it says what is wrong."""
    try:
        return describe_value(msgspec.json.decode(tar.read(member)))
    except (ValueError, RecursionError):
        return Mixed


def _join_scans(files: list[TarFile]) -> dict[str, Any]:
    """Join what the scans of all tars say; arrays of several shapes stay bytes."""
    counts: dict[str, int] = {}
    types: dict[str, pa.DataType] = {}
    passed: dict[str, tuple[int, str]] = {}
    json: dict[str, Any] = {}
    for file in files:
        for name, (count, kind) in file.extensions.items():
            counts[name] = counts.get(name, 0) + count
            known_type = types.setdefault(name, kind)
            if known_type != kind:
                types[name] = pa.null() if pa.null() in (known_type, kind) else BYTES
        for name, described in file.json.items():
            json[name] = merge_types(json.get(name), described)
        for why, (count, first) in file.passed.items():
            total, earliest = passed.get(why, (0, f"{file.path}: {first}"))
            passed[why] = total + count, earliest
    types |= {name: make_type(kind) for name, kind in json.items() if isinstance(kind, dict)}
    alone = bool(types) and all(is_image(f".{name}") for name in types)
    return {
        "extensions": [[KEY, _write_type(TEXT)]]
        + [[name, _write_type(kind)] for name, kind in types.items()],
        "counts": counts | {KEY: sum(file.rows or 0 for file in files)},
        "warnings": [
            f"passed over {format_count(count, 'member')} ({why}), the first is {first}"
            for why, (count, first) in passed.items()
        ]
        + [_FOLDERS for _ in files[:1] if alone and any(file.in_folders for file in files)],
    }


def _write_type(kind: pa.DataType) -> str:
    return pa.schema([("x", kind)]).serialize().to_pybytes().hex()


def _read_type(text: str) -> pa.DataType:
    return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(text))).field(0).type
