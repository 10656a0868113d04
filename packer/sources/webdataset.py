"""WebDataset: samples in tar files; members with one key are a row, their extensions its fields."""

import io
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.column_names import match_names
from fieldslab.packer.source import ColumnHint, Unit
from fieldslab.packer.sources.images.image_names import is_image
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.packer.sources.remote_lookup import is_remote_source
from fieldslab.packer.sources.table_files import AnyFile, TableFile
from fieldslab.packer.sources.table_source import TableSource
from fieldslab.packer.sources.tar_members import Member, Tar, open_tar
from fieldslab.schemas.errors import SourceUnreadable, UsageError
from fieldslab.schemas.optiontext import mark_option

KEY = "__key__"
_SAMPLES = 64
"""Of tars in stores, so many samples tell the extensions; files on disks are scanned."""
_HEAD = 1 << 20
_INTEGERS = ("cls", "cls2", "class", "count", "index", "inx", "id")
_TEXTS = ("txt", "text", "transcript")
_PICKLED = ("pkl", "pickle", "pyd", "pth", "pt", "dill")
_REFUSED = (
    "pickled members may run code when they are read",
    f"{mark_option('exclude', ['{0}'])} leaves them out, and "
    f"{mark_option('cast', 'binary', column='{0}')} keeps their bytes.",
)
_BYTES, _TEXT, _INTEGER = pa.large_binary(), pa.large_string(), pa.int64()
_JSON = pa.json_(pa.large_string())
_MOST_NAMES = 100_000


@dataclass(frozen=True)
class TarFile(TableFile):
    """One tar: how many samples have each extension, and what is passed over in it."""

    types: dict[str, pa.DataType]
    rows: int | None = None
    extensions: dict[str, tuple[int, pa.DataType]] = field(default_factory=dict)
    passed: dict[str, tuple[int, str]] = field(default_factory=dict)

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
        storage_options: Mapping[str, Any] | None = None,
        summary: Any = None,
    ) -> None:
        """Scan the headers of local tars; of those in stores, read the first samples."""
        self.types: dict[str, pa.DataType] = {}
        self._casts: set[str] = set()
        paths = [one for path in paths for one in expand_braces(path)]
        super().__init__(paths, storage_options=storage_options, summary=summary)
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
        return table if self._summarized else _scan(table)

    def apply_casts(self, casts: Mapping[str, str]) -> None:
        """Read what is cast as `casts` need it. An extension of no sample becomes a column."""
        for pattern, target in casts.items():
            names = match_names(pattern, self.types)
            if not names and not any(sign in pattern for sign in "*?["):
                names = [pattern]
            for name in names:
                if name != KEY:
                    self.types[name] = _choose_type(self.types.get(name, _BYTES), target)
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
        whole = len(names) == len(self.types)
        with (
            table.refuse_changed(),
            table.file.fetch([(0, table.file.size)]) as fetched,
            open_tar(fetched) as tar,
        ):
            rows: list[dict[str, Any]] = []
            size = 0
            for sample in tar.list_samples():
                row: dict[str, Any] = {KEY: sample[0].key}
                for member in sample:
                    if member.extension in names:
                        row[member.extension] = self._read_value(tar, member)
                        size += member.info.size
                    elif whole:
                        raise self._make_new_error(tar, member)
                rows.append(row)
                size += 64
                if size >= batch_bytes:
                    yield self._make_batch(rows, names)
                    rows, size = [], 0
                    table.file.check_unchanged()
            table.file.check_unchanged()
            if rows:
                yield self._make_batch(rows, names)

    def _read_value(self, tar: Tar, member: Member) -> Any:
        kind, data = self.types[member.extension], tar.read(member)
        try:
            if kind == _INTEGER:
                return _parse_integer(data)
            if kind == pa.float64():
                return float(data)
            if kind in (_TEXT, _JSON):
                return data.decode()
            return data if kind == _BYTES else _read_array(data, kind)
        except ValueError as error:
            advice = "binary" if kind != _INTEGER else "text"
            raise SourceUnreadable(
                "a member does not fit the type of its extension",
                file=f"{tar.path} byte {member.info.offset}",
                field=member.extension,
                expected=str(kind),
                found=f"{member.info.name}: {data[:40]!r}",
                hint=f"{mark_option('cast', advice, column=member.extension)} reads all of them "
                f"as {advice}.",
            ) from error

    def _make_batch(self, rows: list[dict[str, Any]], names: list[str]) -> pa.RecordBatch:
        if not names:
            return pa.RecordBatch.from_arrays([pa.nulls(len(rows))], ["rows"])
        arrays = [_make_array([row.get(name) for row in rows], self.types[name]) for name in names]
        return pa.RecordBatch.from_arrays(arrays, names)

    def _make_new_error(self, tar: Tar, member: Member) -> SourceUnreadable:
        return SourceUnreadable(
            "no sample that was looked at has this extension",
            file=f"{tar.path} byte {member.info.offset}",
            field=member.extension,
            found=member.info.name,
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
            if _get_kind(name) in _PICKLED or self.types[name] == pa.null():
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
    paths = [one for item in items for one in expand_braces(before + item + after)]
    if len(paths) > _MOST_NAMES:
        raise UsageError("too many names in braces", file=path, expected=f"{_MOST_NAMES:,}")
    return paths


def _scan(table: TarFile) -> TarFile:
    """Count the samples of a tar and their extensions; of an object, those of its first samples."""
    rows = 0
    extensions: dict[str, tuple[int, pa.DataType]] = {}
    passed: dict[str, tuple[int, str]] = {}
    remote = isinstance(table.file, RemoteFile)
    head = [(0, min(_HEAD, table.file.size))] if remote else []
    with (
        table.refuse_changed(),
        table.file.fetch(head) as fetched,
        open_tar(fetched) as tar,
    ):
        for sample in islice(tar.list_samples(), _SAMPLES if remote else None):
            rows += 1
            for member in sample:
                count, kind = extensions.get(member.extension, (0, None))
                if kind is None:
                    kind = _find_type(tar, member)
                extensions[member.extension] = count + 1, kind
        for name, why in tar.passed:
            count, first = passed.get(why, (0, name))
            passed[why] = count + 1, first
    count_rows = None if remote else rows
    return TarFile(
        table.file, table.schema, table.partition, table.types, count_rows, extensions, passed
    )


def _find_type(tar: Tar, member: Member) -> pa.DataType:
    """Find the type of an extension, by its last part; null for arrays of Python objects."""
    kind = _get_kind(member.extension)
    if kind in _INTEGERS:
        return _INTEGER
    if kind in _TEXTS:
        return _TEXT
    if kind in ("json", "jsn"):
        return _JSON
    if kind != "npy":
        return _BYTES
    header = _read_header(tar.read(member, 1 << 16))
    if header is None:
        return _BYTES
    shape, dtype = header
    if dtype.hasobject:
        return pa.null()
    if dtype.kind not in "iuf" or dtype.itemsize > 8 or 0 in shape:
        return _BYTES
    arrow = pa.from_numpy_dtype(dtype.newbyteorder("="))
    return pa.fixed_shape_tensor(arrow, shape) if shape else arrow


def _read_header(data: bytes) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Read shape and dtype of an `.npy`; None where it has no header of numpy."""
    stream, formats = io.BytesIO(data), np.lib.format
    try:
        version = formats.read_magic(stream)
        read = formats.read_array_header_1_0 if version == (1, 0) else formats.read_array_header_2_0
        shape, _, dtype = read(stream)
    except ValueError:
        return None
    return shape, dtype


def _read_array(data: bytes, kind: pa.DataType) -> np.ndarray:
    """Read an `.npy`, as one row of a column. Raises ValueError where it does not fit."""
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (EOFError, SyntaxError) as error:
        raise ValueError(str(error)) from error
    tensor = isinstance(kind, pa.FixedShapeTensorType)
    shape, value_type = (tuple(kind.shape), kind.value_type) if tensor else ((), kind)
    native = array.dtype.newbyteorder("=")
    if array.shape != shape or native != value_type.to_pandas_dtype():
        raise ValueError(f"{array.dtype}{array.shape}")
    return np.ascontiguousarray(array, native).reshape(-1)


def _make_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind == _JSON:
        return pa.ExtensionArray.from_storage(_JSON, pa.array(values, _TEXT))
    if isinstance(kind, pa.FixedShapeTensorType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    if any(isinstance(value, np.ndarray) for value in values):
        values = [None if value is None else value[0] for value in values]
    return pa.array(values, kind)


def _parse_integer(data: bytes) -> int:
    text = data.strip()
    if not re.fullmatch(rb"[+-]?[0-9]{1,19}", text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError("no integer of 64 bits")
    return int(text)


def _choose_type(kind: pa.DataType, target: str) -> pa.DataType:
    """Choose how members are read that are cast to a target."""
    if target == "json":
        return _JSON
    if target in ("text", "categorical"):
        return _TEXT
    if target == "binary":
        return _BYTES
    if kind in (_BYTES, _TEXT, _INTEGER):
        if target.startswith(("float", "bfloat")):
            return pa.float64()
        return _INTEGER if target.startswith(("int", "uint")) else kind
    return kind


def _get_kind(extension: str) -> str:
    return extension.rpartition(".")[2]


def _join_scans(files: list[TarFile]) -> dict[str, Any]:
    """Join what the scans of all tars say; arrays of several shapes stay bytes."""
    counts: dict[str, int] = {}
    types: dict[str, pa.DataType] = {}
    passed: dict[str, tuple[int, str]] = {}
    for file in files:
        for name, (count, kind) in file.extensions.items():
            counts[name] = counts.get(name, 0) + count
            known = types.setdefault(name, kind)
            if known != kind:
                types[name] = pa.null() if pa.null() in (known, kind) else _BYTES
        for why, (count, first) in file.passed.items():
            total, earliest = passed.get(why, (0, f"{file.path}: {first}"))
            passed[why] = total + count, earliest
    return {
        "extensions": [[KEY, _write_type(_TEXT)]]
        + [[name, _write_type(kind)] for name, kind in types.items()],
        "counts": counts | {KEY: sum(file.rows or 0 for file in files)},
        "warnings": [
            f"{count:,} members were passed over ({why}), the first is {first}"
            for why, (count, first) in passed.items()
        ],
    }


def _write_type(kind: pa.DataType) -> str:
    return pa.schema([("x", kind)]).serialize().to_pybytes().hex()


def _read_type(text: str) -> pa.DataType:
    return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(text))).field(0).type
