"""Slabs for tests, written with nothing but `fieldslab.schemas`, right or wrong on purpose."""

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fieldslab.schemas import layout
from fieldslab.schemas.arrays import HEADER, ArrayWriter
from fieldslab.schemas.digest import XXH3
from fieldslab.schemas.fields import CategoryTable, Field, Kind, Logical, Role, make_file_stem
from fieldslab.schemas.files import OpenFolder
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.manifest import (
    MANIFEST,
    Manifest,
    Provenance,
    Shard,
    create_manifest,
    encode_manifest,
)

DIGEST = np.dtype("<u8")
NO_ROOT = "0" * 64


@dataclass(frozen=True)
class Column:
    """Values of one field, row by row, and what the manifest shall say of it.

    `values` is an array (rows, *shape) or, for kinds of variable length, a list with an item for
    each row. `valid` (bool[rows]) makes the field nullable; `size` (rows, 2) belongs to images, and
    so do `points`, for each row a list of index points, which make an index, and `codes`.
    """

    values: np.ndarray | Sequence[Any]
    kind: Kind = "fixed"
    dtype: str = "uint8"
    shape: tuple[int, ...] = ()
    valid: np.ndarray | None = None
    size: np.ndarray | None = None
    points: Sequence[Any] | None = None
    codes: np.ndarray | None = None
    logical: Logical | None = None
    categories: Sequence[str] | None = None
    table: bool = False


def ragged(rows: Sequence[Any], dtype: str, shape: tuple[int, ...] = ()) -> Column:
    """A ragged field: each row becomes an array (length, *shape)."""
    return Column(
        [np.array(row, dtype).reshape(len(row), *shape) for row in rows], "ragged", dtype, shape
    )


def images(rows: Sequence[bytes], size: np.ndarray, **beside: Any) -> Column:
    """An image field; the bytes may be anything. `beside` may be `points` and `codes`."""
    return Column(rows, "image", size=size, **beside)


def categorical(codes: Any, categories: Sequence[str], table: bool = False) -> Column:
    """A categorical field; its names go to a table of their own if `table`."""
    codes = np.asarray(codes, np.int32)
    return Column(codes, "categorical", "int32", categories=categories, table=table)


def write_slab(path: Path, columns: Mapping[str, Any], shards: Sequence[int] | None = None) -> Path:
    """Write a complete slab and return its path.

    Parameters
    ----------
    columns
        Name -> `Column`, or what stands for one: an array (fixed), a list of str or of bytes.
    shards
        Rows of each shard; one shard with every row if not given.
    """
    packed_columns = {name: _column(values) for name, values in columns.items()}
    fields = tuple(_field(index, *item) for index, item in enumerate(packed_columns.items()))
    if shards is None:
        rows = len(next(iter(packed_columns.values())).values)
        shards = [rows] if rows else []
    path.mkdir(parents=True)
    entries, first = [], 0
    for index, rows in enumerate(shards):
        folder = path / layout.name_shard(index)
        entries.append(_write_shard(folder, fields, list(packed_columns.values()), first, rows))
        first += rows
    tables = _write_tables(path / layout.TABLES, fields, list(packed_columns.values()))
    store(path, rows=first, fields=fields, shards=tuple(entries), tables=tables)
    return path


def store(path: Path, **content: Any) -> Manifest:
    """Write a manifest, sealed as it should be, whatever it says."""
    provenance = Provenance(tool="tests", time="2000-01-01T00:00:00Z", plan=NO_ROOT)
    manifest = create_manifest(provenance, **content)
    (path / MANIFEST).write_bytes(encode_manifest(manifest))
    return manifest


def lie(path: Path, **changes: Any) -> Manifest:
    """Replace members of a slab's manifest; the files stay as they are."""
    manifest = load_manifest(path)
    members = ("rows", "fields", "shards", "tables", "attributes")
    return store(path, **{name: getattr(manifest, name) for name in members} | changes)


def lie_about(path: Path, name: str, **changes: Any) -> Manifest:
    """Replace members of one field in a slab's manifest."""
    fields = load_manifest(path).fields
    return lie(
        path,
        fields=tuple(
            msgspec.structs.replace(field, **changes) if field.name == name else field
            for field in fields
        ),
    )


def array_path(path: Path, name: str, role: Role = "values", shard: int | None = 0) -> Path:
    """File of one array of a slab; of a table where `shard` is None."""
    (field,) = (field for field in load_manifest(path).fields if field.name == name)
    folder = layout.TABLES if shard is None else layout.name_shard(shard)
    return path / folder / layout.name_file(field, role)


def poke(file: Path, data: bytes | np.ndarray, offset: int = 0) -> None:
    """Overwrite data of an array file, `at` bytes behind its header."""
    with file.open("r+b") as opened:
        opened.seek(HEADER + offset)
        opened.write(data if isinstance(data, bytes) else data.tobytes())


def flip(file: Path, offset: int = 0) -> None:
    """Flip the lowest bit of one data byte of an array file."""
    content = file.read_bytes()
    poke(file, struct.pack("B", content[HEADER + offset] ^ 1), offset)


def redigest(path: Path) -> None:
    """Make digests and manifest agree with the files, as a hostile writer would."""
    manifest = load_manifest(path)
    shards = []
    for index, shard in enumerate(manifest.shards):
        files = layout.list_shard_files(manifest, index)
        actual = _digest_folder(path / layout.name_shard(index), files)
        shards.append(msgspec.structs.replace(shard, root=XXH3.compute_root(actual)))
    tables = manifest.tables
    if tables is not None:
        tables = XXH3.compute_root(
            _digest_folder(path / layout.TABLES, layout.list_table_files(manifest))
        )
    lie(path, shards=tuple(shards), tables=tables)


def _column(values: Any) -> Column:
    if isinstance(values, Column):
        return values
    if isinstance(values, np.ndarray):
        return Column(values, "fixed", values.dtype.name, values.shape[1:])
    return Column(values, "text" if all(isinstance(row, str) for row in values) else "binary")


def _field(index: int, name: str, column: Column) -> Field:
    names = tuple(column.categories) if column.categories is not None else None
    text = "".join(names or ()).encode()
    return Field(
        name=name,
        stem=make_file_stem(index, name),
        kind=column.kind,
        dtype=column.dtype,  # type: ignore[arg-type]
        shape=column.shape,
        nullable=column.valid is not None,
        codec="jpeg" if column.kind == "image" else None,
        index=None if column.points is None else 8,
        coded=column.codes is not None,
        logical=column.logical,
        categories=None if column.table else names,
        table=CategoryTable(len(names or ()), len(text)) if column.table else None,
    )


def _write_shard(
    folder: Path, fields: Sequence[Field], columns: Sequence[Column], first: int, rows: int
) -> Shard:
    folder.mkdir()
    digests, elements, nulls, points = [], [], [], []
    for field, column in zip(fields, columns, strict=True):
        arrays = _arrays(field, column, slice(first, first + rows))
        if field.variable:
            elements.append(len(arrays["values"]))
        if field.index is not None:
            points.append(len(arrays["points.values"]))
        if field.nullable:
            nulls.append(int((~arrays["valid"]).sum()))
            if nulls[-1] == 0:
                del arrays["valid"]
        digests += [_write(folder, field, role, array) for role, array in arrays.items()]
    digest = _write_digests(folder, digests)
    return Shard(rows, tuple(elements), tuple(nulls), digest, tuple(points))


def _arrays(field: Field, column: Column, rows: slice) -> dict[Role, np.ndarray]:
    """Arrays of a field in one shard, by role and in file order."""
    values = column.values[rows]
    arrays: dict[Role, np.ndarray] = {}
    if field.variable:
        parts = [_elements(field, row) for row in values]
        empty = np.empty((0, *field.shape), field.storage)
        arrays["values"] = np.concatenate([empty, *parts])
        arrays["offsets"] = np.cumsum([0, *map(len, parts)]).astype("<u8")
    else:
        arrays["values"] = np.asarray(values).view(field.storage)
    if column.size is not None:
        arrays["size"] = column.size[rows].astype("<u4")
    if column.points is not None:
        points = [np.array(row, "<u2").reshape(-1, 5) for row in column.points[rows]]
        arrays["points.values"] = np.concatenate([np.empty((0, 5), "<u2"), *points])
        arrays["points.offsets"] = np.cumsum([0, *map(len, points)]).astype("<u8")
    if column.codes is not None:
        arrays["codec"] = column.codes[rows].astype("u1")
    if column.valid is not None:
        arrays["valid"] = column.valid[rows]
    return arrays


def _elements(field: Field, row: Any) -> np.ndarray:
    if isinstance(row, str):
        row = row.encode()
    return np.frombuffer(row, np.uint8) if isinstance(row, bytes) else row.view(field.storage)


def _write_tables(folder: Path, fields: Sequence[Field], columns: Sequence[Column]) -> str | None:
    if not any(column.table for column in columns):
        return None
    folder.mkdir()
    digests = []
    for field, column in zip(fields, columns, strict=True):
        if column.table:
            names = [name.encode() for name in column.categories or ()]
            text = np.frombuffer(b"".join(names), np.uint8)
            offsets = np.cumsum([0, *map(len, names)]).astype("<u8")
            digests.append(_write(folder, field, "categories.values", text))
            digests.append(_write(folder, field, "categories.offsets", offsets))
    return _write_digests(folder, digests)


def _write(folder: Path, field: Field, role: Role, array: np.ndarray) -> np.ndarray:
    writer = ArrayWriter(folder / layout.name_file(field, role), array.dtype, array.shape[1:])
    writer.append(array)
    return writer.close()[1]


def _write_digests(folder: Path, digests: Sequence[np.ndarray]) -> str:
    table = np.concatenate([np.empty(0, DIGEST), *digests])
    writer = ArrayWriter(folder / layout.DIGESTS, DIGEST)
    writer.append(table)
    writer.close()
    return XXH3.compute_root(table)


def _digest_folder(folder: Path, files: Sequence[layout.ArrayFile]) -> np.ndarray:
    """Digest files anew and overwrite their folder's table."""
    actual = [np.empty(0, DIGEST)]
    for file in files:
        actual.append(XXH3.compute_blocks(memoryview((folder / file.name).read_bytes())[HEADER:]))
    table = np.concatenate(actual)
    poke(folder / layout.DIGESTS, table)
    return table


@contextmanager
def opened(folder: Path) -> Iterator[OpenFolder]:
    """A folder, held open for a `with` block."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield OpenFolder(folder, fd)
    finally:
        os.close(fd)
