"""Folders of image files: a file is a row, the folder that it is in its class."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.source import Source, Unit
from fieldslab.packer.sources.images.annotation_files import NONE, find_annotations
from fieldslab.packer.sources.images.archives import ARCHIVES, looks_like_image_tar
from fieldslab.packer.sources.images.coco import read_coco_rows
from fieldslab.packer.sources.images.file_reading import read_files
from fieldslab.packer.sources.images.image_files import ImageFiles, find_images
from fieldslab.packer.sources.images.image_names import (
    HEAD,
    SUFFIXES,
    begins_as_image,
    holds_images,
    is_image,
)
from fieldslab.packer.sources.images.image_rows import (
    SPLITS,
    ImageRows,
    check_unmatched,
    make_plain_rows,
)
from fieldslab.packer.sources.images.metadata_tables import read_metadata_rows
from fieldslab.packer.sources.images.voc import read_voc_rows
from fieldslab.packer.sources.path_lookup import find_matches
from fieldslab.packer.sources.remote_lookup import is_remote_source
from fieldslab.schemas.errors import SourceInconsistent, SourceUnsupported
from fieldslab.schemas.optiontext import mark_option

UNIT_FILES = 512
UNIT_BYTES = 2**24
"""Most files to read at a time, and about the most bytes."""

MOST_BYTES = 2**31 - 1
"""Of one image."""


class ImageSource(Source):
    """Image files below folders.

    Fields are `image`, the bytes of the file; `label`, the first folder below the one that was
    named, as the index of its name in sorted order; and `path`, relative to the folder that was
    named. Without folders there is no `label`. Annotations give other fields instead of it.
    """

    name = "images"
    rereadable = True
    suffixes = SUFFIXES

    def __init__(
        self,
        paths: list[str],
        *,
        annotations: str | None = None,
        unmatched: str = "raise",
        tolerant: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Look at every file, and read annotations. If `tolerant`, other files may be among them.

        `annotations` names a file or folder of them, or is "none"; by default, those among the
        images are recognised. `unmatched` says what to do with images that they do not list, and
        with those that are missing: "raise", "skip" or "keep".

        Raises SourceUnreadable where one is missing, may not be read, or has a name that is not
        UTF-8, what annotations raise, and for URLs what stores raise.
        """
        self._unmatched = check_unmatched(unmatched)
        self.settings = {"unmatched": unmatched} if unmatched != "raise" else {}
        if annotations is not None:
            inside = annotations == NONE or not os.path.lexists(annotations)
            annotations = annotations if inside else os.path.abspath(annotations)
            self.settings["annotations"] = annotations
        self._files = find_images(paths, storage_options)
        read_file = self._files.read_annotation
        self._annotations = find_annotations(self._files, annotations, read_file)
        self._tolerant = tolerant
        self._set_rows(self._read_rows({}))

    def _read_rows(self, casts: Mapping[str, str]) -> ImageRows:
        files, annotations = self._files, self._annotations
        if annotations is None:
            return make_plain_rows(files)
        if annotations.kind == "metadata":
            return read_metadata_rows(files, annotations, self._unmatched, casts)
        read = read_coco_rows if annotations.kind == "coco" else read_voc_rows
        return read(files, annotations, self._unmatched)

    def _set_rows(self, rows: ImageRows) -> None:
        self._rows = rows
        self._table = rows.table.combine_chunks()
        self.schema, self.hints = rows.schema, rows.list_hints()
        used = set() if self._annotations is None else self._annotations.used
        left_out = [text for part in self._files.parts for text in part.list_warnings(used)]
        classes = _find_class_warnings(self._files) if self._annotations is None else ()
        self.warnings = (*left_out, *rows.warnings, *classes)
        self._sizes = np.zeros(len(rows.primary), np.int64)
        for numbers in rows.images.values():
            self._sizes += np.where(numbers < 0, 0, self._files.sizes[numbers])
        self.units = list(self._cut_units())

    def apply_casts(self, casts: Mapping[str, str]) -> None:
        """Read tables of metadata as their columns are cast."""
        if casts and self._annotations is not None and self._annotations.kind == "metadata":
            self._set_rows(self._read_rows(casts))

    @staticmethod
    def accepts(paths: list[str]) -> bool:
        """Tell whether the first path is an image, or a folder, glob or archive of images."""
        path = paths[0]
        if is_remote_source(path):
            return is_image(path)
        archive = next(find_matches(path), path) if not os.path.lexists(path) else path
        if archive.lower().endswith(ARCHIVES) and os.path.isfile(archive):
            return archive.lower().endswith(".zip") or looks_like_image_tar(archive)
        return holds_images(path)

    def read(self, unit: Unit, columns: list[int], batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Read files into batches near `batch_bytes`, or of one file."""
        start, stop = unit.key
        chosen = pa.schema([self.schema.field(column) for column in columns])
        while start < stop:
            ends = np.cumsum(self._sizes[start:stop])
            end = start + max(1, int(np.searchsorted(ends, batch_bytes, "right")))
            arrays = [self._make_column(name, start, end) for name in chosen.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=chosen)
            start = end

    def null_count(self, path: tuple[int, ...]) -> int | None:
        """Return the number of rows without an image, or without another value."""
        name = self.schema.field(path[0]).name
        if name in self._rows.images:
            return int(np.count_nonzero(self._rows.images[name] < 0))
        return None if len(path) > 1 else self._table[name].null_count

    def column_bytes(self, path: tuple[int, ...]) -> int | None:
        """Count the bytes of a column: for images, the sizes of the files."""
        name = self.schema.field(path[0]).name
        if name in self._rows.images:
            numbers = self._rows.images[name]
            return int(self._files.sizes[numbers[numbers >= 0]].sum())
        return None if len(path) > 1 else int(self._table[name].nbytes)

    def check(self, columns: list[int]) -> None:
        """Raise SourceInconsistent where some files have a class and others have none."""
        names = [self.schema.field(column).name for column in columns]
        if self._annotations is not None or "label" not in names:
            return
        unclassed = np.flatnonzero(self._files.classes < 0)
        if len(unclassed):
            raise SourceInconsistent(
                f"{len(unclassed):,} images are not in a class folder; this is the first",
                file=self.file_of(int(unclassed[0])),
                hint="Move them into folders, or leave the classes out: "
                f"{mark_option('exclude', ['label'])}.",
            )

    def fingerprint(self) -> list[dict[str, Any]]:
        """Return one dict for each folder: path, files, bytes, and a digest of names and times."""
        files, folders, start = self._files, [], 0
        for part in files.parts:
            rows = slice(start, start + part.count)
            digest = hashlib.sha256("\0".join(files.paths[rows].to_pylist()).encode())
            digest.update(files.sizes[rows].tobytes() + files.modified[rows].tobytes())
            total = int(files.sizes[rows].sum())
            folders.append(
                {
                    "path": part.root,
                    "files": part.count,
                    "bytes": total,
                    "digest": digest.hexdigest(),
                }
            )
            start += part.count
        return folders + ([] if self._annotations is None else [self._annotations.describe()])

    def file_of(self, row: int) -> str:
        """Return the path of the file that a row is named by: the first that it has."""
        number = max(int(numbers[row]) for numbers in self._rows.images.values())
        return self._files.get_path(number)

    def _cut_units(self) -> Iterator[Unit]:
        ends = np.cumsum(self._sizes)
        start, before = 0, 0
        while start < len(ends):
            stop = int(np.searchsorted(ends, before + UNIT_BYTES, "right"))
            stop = min(max(stop, start + 1), start + UNIT_FILES, len(ends))
            name = f"{self.file_of(start)} and on"
            yield Unit(name, stop - start, int(ends[stop - 1]) - before, (start, stop))
            start, before = stop, int(ends[stop - 1])

    def _make_column(self, name: str, start: int, end: int) -> pa.Array:
        if name in self._rows.images:
            return self._read_images(self._rows.images[name][start:end])
        return self._table[name].slice(start, end - start).combine_chunks()

    def _read_images(self, numbers: np.ndarray) -> pa.LargeBinaryArray:
        """Read files into one buffer, one after the other."""
        has_file = numbers >= 0
        sizes = np.where(has_file, self._files.sizes[numbers], 0)
        offsets = np.zeros(len(numbers) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        if (largest := int(sizes.max(initial=0))) > MOST_BYTES:
            raise SourceUnsupported(
                "is too large for an image",
                file=self._files.get_path(int(numbers[sizes.argmax()])),
                expected=f"up to {MOST_BYTES} bytes",
                found=largest,
                hint="Move it elsewhere.",
            )
        values = np.empty(int(offsets[-1]), np.uint8)
        ends = list(pairwise(offsets.tolist()))
        chosen = np.flatnonzero(has_file).tolist()
        places = [values.data[slice(*ends[position])] for position in chosen]
        files = numbers[has_file].tolist()
        read_files(self._files, files, places)
        for number, into in zip(files, places, strict=True):
            self._check_content(number, into)
        valid = None if has_file.all() else pa.array(has_file).buffers()[1]
        buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(values)]
        return pa.Array.from_buffers(pa.large_binary(), len(numbers), buffers)

    def _check_content(self, number: int, into: memoryview) -> None:
        """Raise SourceUnsupported for what is no image, unless `tolerant`."""
        path = self._files.get_path(number)
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
    if labels and {label.lower() for label in labels} <= SPLITS:
        yield (
            f"label: the folders are called {', '.join(labels)}, and are taken for classes; to "
            f"pack one part of the dataset, name its folder: {os.path.join(files.base, labels[0])}"
        )
    if not labels and len(files.parts) > 1:
        yield (
            "no label: images lie directly in the folders that were named; where these are "
            f"classes, name the folder above them: {files.base}"
        )
