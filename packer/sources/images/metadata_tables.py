"""Tables of images, as of HuggingFace's ImageFolder: `metadata.csv`, `.jsonl`, `.parquet`.

The column `file_name` names the image of a row, below the folder of the table; `x_file_name` names
an image of the column `x`. A row of the table is a row of the slab.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa

from fieldslab.packer.column_names import make_names_unique, match_names
from fieldslab.packer.source import ColumnHint
from fieldslab.packer.sources.images.annotation_files import AnnotationFiles, NameIndex
from fieldslab.packer.sources.images.image_files import ImageFiles
from fieldslab.packer.sources.images.image_rows import (
    ImageRows,
    Unmatched,
    find_split,
    refuse_missing,
    refuse_unlisted,
)
from fieldslab.packer.sources.parquet.source import ParquetSource
from fieldslab.packer.sources.table_source import TableSource
from fieldslab.packer.sources.text.csv import CsvSource
from fieldslab.packer.sources.text.jsonl import JsonLinesSource
from fieldslab.schemas.errors import SourceUnsupported
from fieldslab.schemas.optiontext import mark_option

_SOURCES: dict[str, Callable[..., TableSource]] = {
    ".csv": CsvSource,
    ".jsonl": JsonLinesSource,
    ".parquet": ParquetSource,
}
_NAME = "file_name"
_BATCH_BYTES = 32 << 20


def read_metadata_rows(
    files: ImageFiles,
    annotations: AnnotationFiles,
    unmatched: Unmatched,
    casts: Mapping[str, str],
) -> ImageRows:
    """Read the rows of tables, and find their images.

    Raises
    ------
    SourceInconsistent
        Tables differ in their columns; images are missing, or are not listed.
    SourceUnsupported
        No column names images.
    SourceUnreadable
        A table is damaged.
    """
    suffix = os.path.splitext(annotations.files[0].path.lower())[1]
    source = _SOURCES[suffix](cast(Any, annotations.files))
    column_names = source.schema.names
    source.apply_casts({name: to for name, to in casts.items() if match_names(name, column_names)})
    source.check(list(range(len(source.schema))))
    table, tables = _read_table(source)
    columns = _find_image_columns(table, annotations.files[0].path)
    folders = [os.path.dirname(name or "") for name in annotations.names]
    index = NameIndex(files.paths.to_pylist())
    images, missing = {}, []
    for name, image in columns.items():
        numbers, lost = _find_files(table[name], tables, folders, index)
        images[image] = numbers
        missing += lost
    keep = np.logical_and.reduce([numbers != -2 for numbers in images.values()])
    what = annotations.described
    warnings = refuse_missing(missing, unmatched, what, files.base)
    listed = np.zeros(len(files.paths), bool)
    for numbers in images.values():
        listed[numbers[numbers >= 0]] = True
    unlisted = np.flatnonzero(~listed)
    warnings += refuse_unlisted(
        len(unlisted), unmatched, what, lambda: files.get_path(int(unlisted[0]))
    )
    table = table.drop_columns(list(columns)).filter(pa.array(keep))
    images = {name: numbers[keep] for name, numbers in images.items()}
    if unmatched == "keep" and len(unlisted) and "image" in images:
        table = _append_nulls(table, len(unlisted))
        fill = np.full(len(unlisted), -1)
        images = {
            name: np.concatenate([numbers, unlisted if name == "image" else fill])
            for name, numbers in images.items()
        }
    return _join(files, images, table, source, tuple(warnings))


def _join(
    files: ImageFiles,
    images: dict[str, np.ndarray],
    table: pa.Table,
    source: TableSource,
    warnings: tuple[str, ...],
) -> ImageRows:
    """Add what is known of each image beside the table, under names that it does not have."""
    hints: dict[str, ColumnHint] = {
        source.schema.field(number).name: hint for number, hint in source.hints.items()
    }
    primary = next(iter(images.values()))
    image_columns: dict[str, Any] = {}
    if (primary >= 0).all():
        image_columns = find_split(files, primary) | {"path": files.paths.take(pa.array(primary))}
    names = make_names_unique([*images, *table.column_names, *image_columns])
    hints = {
        new: hints[old]
        for new, old in zip(
            names[len(images) :], [*table.column_names, *image_columns], strict=True
        )
        if old in hints and old not in image_columns
    }
    table = pa.Table.from_arrays([*table.columns, *image_columns.values()], names[len(images) :])
    return ImageRows(images, table, hints, warnings)


def _read_table(source: TableSource) -> tuple[pa.Table, np.ndarray]:
    """Read all rows; also the number of the table that each is from."""
    columns = list(range(len(source.schema)))
    batches, counts, numbers = [], [], []
    for unit in source.units:
        for batch in source.read(unit, columns, _BATCH_BYTES):
            batches.append(batch)
            counts.append(batch.num_rows)
            numbers.append(unit.key[0])
    schema = batches[0].schema if batches else source.schema
    return pa.Table.from_batches(batches, schema), np.repeat(
        np.array(numbers, np.int64), np.array(counts, np.int64)
    )


def _find_image_columns(table: pa.Table, path: str) -> dict[str, str]:
    """Find the columns that name images, and what the columns of these images are called."""
    columns = {}
    for name in table.column_names:
        if name in ("file_names",) or name.endswith("_file_names"):
            raise SourceUnsupported(
                "lists of images in one row are not packed",
                file=path,
                field=name,
                hint="Give each image a column of its own, such as left_file_name.",
            )
        if name == _NAME or name.endswith(f"_{_NAME}"):
            kind = table.schema.field(name).type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise SourceUnsupported(
                    "names of images must be text", file=path, field=name, found=str(kind)
                )
            columns[name] = name[: -len(_NAME) - 1] or "image"
    if not columns:
        raise SourceUnsupported(
            "no column names the images",
            file=path,
            expected="file_name, or names such as mask_file_name",
            found=", ".join(table.column_names),
            hint=f"{mark_option('annotations', 'none')} packs the images without this table.",
        )
    return dict(sorted(columns.items(), key=lambda item: item[1] != "image"))


def _find_files(
    names: pa.ChunkedArray, tables: np.ndarray, folders: list[str], index: NameIndex
) -> tuple[np.ndarray, list[str]]:
    """Find the numbers of files by name: -1 for null, -2 for those that are missing."""
    numbers = np.full(len(names), -1, np.int64)
    missing = []
    for row, name in enumerate(names.to_pylist()):
        if name is None:
            continue
        path = os.path.normpath(os.path.join(folders[tables[row]], name))
        number = index.find_exact(path)
        numbers[row] = -2 if number is None else number
        if number is None:
            missing.append(path)
    return numbers, missing


def _append_nulls(table: pa.Table, count: int) -> pa.Table:
    nulls = [pa.nulls(count, kind) for kind in table.schema.types]
    return pa.concat_tables([table, pa.Table.from_arrays(nulls, schema=table.schema)])
