"""Folders of image files: a file is a row, the folder that it is in its class."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.commands.text_format import format_count
from fieldslab.packer.source import ColumnHint, Source, Unit
from fieldslab.packer.sources.images.file_reading import read_files
from fieldslab.packer.sources.images.image_files import (
    HEAD,
    SUFFIXES,
    ImageFiles,
    begins_as_image,
    find_images,
    holds_images,
    is_image,
)
from fieldslab.packer.sources.remote_lookup import is_remote_source
from fieldslab.schemas.errors import SourceInconsistent, SourceUnsupported
from fieldslab.schemas.fields import Logical
from fieldslab.schemas.optiontext import mark_option

UNIT_FILES = 512
UNIT_BYTES = 2**24
"""Most files to read at a time, and about the most bytes."""

MOST_BYTES = 2**31 - 1
"""Of one image."""

_SPLITS = {"train", "training", "val", "valid", "validation", "eval", "dev", "test", "testing"}
"""Names of folders that hold parts of a dataset, not classes."""


class ImageSource(Source):
    """Image files below folders.

    Fields are `image`, the bytes of the file; `label`, the first folder below the one that was
    named, as the index of its name in sorted order; and `path`, relative to the folder that was
    named. Without folders there is no `label`.
    """

    name = "images"
    rereadable = True
    suffixes = SUFFIXES

    def __init__(
        self,
        paths: list[str],
        *,
        tolerant: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Look at every file, without reading any. If `tolerant`, other files may be among them.

        Raises SourceUnreadable where one is missing, may not be read, or has a name that is not
        UTF-8, and for URLs what stores raise.
        """
        self._files = find_images(paths, storage_options)
        labels = self._files.labels
        columns = [pa.field("image", pa.large_binary())]
        self.hints = hints = {0: ColumnHint(why="image files", image=True)}
        if labels:
            columns.append(pa.field("label", pa.int64()))
            names = format_count(len(labels), "folder")
            hints[1] = ColumnHint(logical=Logical("class_label", names=labels), why=names)
        columns.append(pa.field("path", pa.string()))
        self.schema = pa.schema(columns)
        self._tolerant = tolerant
        self.warnings = (*self._files.warnings, *_find_class_warnings(self._files))
        self.units = list(self._cut_units())

    @staticmethod
    def accepts(paths: list[str]) -> bool:
        """Tell whether the first path is an image by its name, or a folder or glob of images."""
        return is_image(paths[0]) if is_remote_source(paths[0]) else holds_images(paths[0])

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Read files into batches near `batch_bytes`, or of one file."""
        start, stop = unit.key
        chosen = pa.schema([self.schema.field(column) for column in columns])
        while start < stop:
            ends = np.cumsum(self._files.sizes[start:stop])
            end = start + max(1, int(np.searchsorted(ends, batch_bytes, "right")))
            arrays = [self._make_column(name, start, end) for name in chosen.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=chosen)
            start = end

    def null_count(self, path: tuple[int, ...]) -> int:
        """Return 0: image files have no nulls."""
        return 0

    def column_bytes(self, path: tuple[int, ...]) -> int:
        """Count the bytes of a column: for images, the sizes of the files."""
        name = self.schema.field(path[0]).name
        if name == "image":
            return int(self._files.sizes.sum())
        return 8 * len(self._files.classes) if name == "label" else self._files.paths.nbytes

    def check(self, columns: list[int]) -> None:
        """Raise SourceInconsistent where some files have a class and others have none."""
        if "label" not in [self.schema.field(column).name for column in columns]:
            return
        without = np.flatnonzero(self._files.classes < 0)
        if len(without):
            raise SourceInconsistent(
                f"{len(without):,} images are not in a class folder; this is the first",
                file=self.file_of(int(without[0])),
                hint="Move them into folders, or leave the classes out: "
                f"{mark_option('exclude', ['label'])}.",
            )

    def fingerprint(self) -> list[dict[str, Any]]:
        """Return one dict for each folder: path, files, bytes, and a digest of names and times."""
        files, folders, start = self._files, [], 0
        for root, count in files.parts:
            rows = slice(start, start + count)
            digest = hashlib.sha256("\0".join(files.paths[rows].to_pylist()).encode())
            digest.update(files.sizes[rows].tobytes() + files.modified[rows].tobytes())
            total = int(files.sizes[rows].sum())
            folders.append(
                {"path": root, "files": count, "bytes": total, "digest": digest.hexdigest()}
            )
            start += count
        return folders

    def file_of(self, row: int) -> str:
        """Return the path of the file that is a row."""
        return self._files.get_path(row)

    def _cut_units(self) -> Iterator[Unit]:
        ends = np.cumsum(self._files.sizes)
        start, before = 0, 0
        while start < len(ends):
            stop = int(np.searchsorted(ends, before + UNIT_BYTES, "right"))
            stop = min(max(stop, start + 1), start + UNIT_FILES, len(ends))
            name = f"{self.file_of(start)} and on"
            yield Unit(name, stop - start, int(ends[stop - 1]) - before, (start, stop))
            start, before = stop, int(ends[stop - 1])

    def _make_column(self, name: str, start: int, end: int) -> pa.Array:
        if name == "image":
            return self._read_images(start, end)
        if name == "label":
            return pa.array(self._files.classes[start:end])
        return self._files.paths[start:end]

    def _read_images(self, start: int, end: int) -> pa.LargeBinaryArray:
        """Read files into one buffer, one after the other."""
        offsets = np.zeros(end - start + 1, np.int64)
        np.cumsum(self._files.sizes[start:end], out=offsets[1:])
        sizes = self._files.sizes[start:end]
        if (largest := int(sizes.max(initial=0))) > MOST_BYTES:
            raise SourceUnsupported(
                "is too large for an image",
                file=self.file_of(start + int(sizes.argmax())),
                expected=f"up to {MOST_BYTES} bytes",
                found=largest,
                hint="Move it elsewhere.",
            )
        values = np.empty(int(offsets[-1]), np.uint8)
        rows = range(start, end)
        places = [values.data[first:last] for first, last in pairwise(offsets.tolist())]
        read_files(self._files, rows, places)
        for row, into in zip(rows, places, strict=True):
            self._check_content(row, into)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
        return pa.Array.from_buffers(pa.large_binary(), end - start, buffers)

    def _check_content(self, row: int, into: memoryview) -> None:
        """Raise SourceUnsupported for what is no image, unless `tolerant`."""
        path = self.file_of(row)
        if not self._tolerant and not begins_as_image(bytes(into[:HEAD])):
            raise SourceUnsupported(
                "is not an image" if len(into) else "is empty, so it is not an image",
                file=path,
                expected="the beginning of a JPEG, PNG, WebP or other image file",
                found=bytes(into[:HEAD]).hex(" ") if len(into) else None,
                hint=f"Move it elsewhere, or leave such files out: "
                f"{mark_option('on_error', 'skip')}.",
            )


def _find_class_warnings(files: ImageFiles) -> Iterator[str]:
    """Warnings where folders are taken for classes that may be none, or the other way round."""
    labels = files.labels
    if labels and {label.lower() for label in labels} <= _SPLITS:
        yield (
            f"label: the folders are called {', '.join(labels)}, and are taken for classes; to "
            f"pack one part of the dataset, name its folder: {os.path.join(files.base, labels[0])}"
        )
    if not labels and len(files.parts) > 1:
        yield (
            "no label: images lie directly in the folders that were named; where these are "
            f"classes, name the folder above them: {files.base}"
        )
