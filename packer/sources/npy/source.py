"""Files of numpy: `.npy` and `.npz`. Keys and names of files are fields, axis 0 are the rows."""

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from fieldslab.packer.sources.array_source import ArrayPart, ArraySource
from fieldslab.packer.sources.local_file import LocalFile
from fieldslab.packer.sources.npy.npy_files import (
    MAGIC,
    Header,
    NpyPart,
    NpzPart,
    open_npy,
    open_npz,
)
from fieldslab.packer.sources.path_lookup import NoFiles, list_files
from fieldslab.schemas.errors import SourceInconsistent, SourceUnreadable, UsageError
from fieldslab.schemas.manifest import MANIFEST
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.urls import is_url

NpyFiles = Literal["fields", "rows"]


class NpySource(ArraySource):
    """Arrays of `.npy` files and `.npz` archives."""

    name = "npy"
    suffixes = (".npy", ".npz")

    def __init__(self, paths: list[str], *, npy_files: NpyFiles | None = None) -> None:
        """Read the headers of all files.

        `npy_files` says what `.npy` files of one folder are: "fields" side by side, "rows" one
        behind the other. Without it they are fields, unless their names are numbered.

        Raises
        ------
        SourceUnreadable
            A file is missing, damaged or cut off, or belongs to a slab.
        SourceInconsistent
            Files of one dtype and shape have numbered names, and `npy_files` is missing.
        """
        if npy_files not in (None, "fields", "rows"):
            raise UsageError(
                f"{mark_option('npy_files')}: must be 'fields' or 'rows'", found=repr(npy_files)
            )
        self.settings = {} if npy_files is None else {"npy_files": npy_files}
        files = [file for path in paths for file in list_files(path, self.suffixes, "numpy")]
        for file in files:
            if _is_of_slab(file):
                raise SourceUnreadable(
                    "the file belongs to a slab",
                    file=file,
                    hint="Pack the slab's source, or the slab: "
                    f"{mark_option('from_', 'slab')} with its path.",
                )
        self.set_parts(list(_list_parts(files, npy_files)))

    @staticmethod
    def accepts(paths: list[str]) -> bool:
        """Return whether the first file looks like numpy's, by its name or its first bytes."""
        if is_url(paths[0]):
            return paths[0].lower().endswith(NpySource.suffixes)  # to be refused with advice
        try:
            first = list_files(paths[0], NpySource.suffixes, "numpy")[0]
        except (NoFiles, SourceUnreadable):
            return False
        if not os.path.isfile(first) or _is_of_slab(first):
            return False
        if first.lower().endswith(NpySource.suffixes):
            return True
        with open(first, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC

    def read_arrays(
        self, part: int, names: Sequence[str], start: int, stop: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """Read rows of some arrays; of `.npy` files at one go."""
        arrays = self._parts[part]
        if isinstance(arrays, NpzPart):
            yield from arrays.read_pieces(names, start, stop)
        elif isinstance(arrays, NpyPart):
            yield arrays.read(names, start, stop)

    def fingerprint(self) -> list[dict[str, Any]]:
        """Return path, size and time of each file."""
        files = []
        for part in self._parts:
            if isinstance(part, NpzPart):
                files.append(part.file)
            elif isinstance(part, NpyPart):
                files += [file for file, _ in part.files.values()]
        return [file.describe() for file in files]


def _list_parts(files: Sequence[str], npy_files: NpyFiles | None) -> Iterator[ArrayPart]:
    folders: dict[str, list[str]] = {}
    for file in files:
        if not file.lower().endswith(".npz"):
            folders.setdefault(os.path.dirname(file), []).append(file)
    for file in files:
        if file.lower().endswith(".npz"):
            yield open_npz(file)
            continue
        side_by_side = folders.pop(os.path.dirname(file), [])
        if npy_files == "rows":
            yield from (_open_rows(each) for each in side_by_side)
        elif len(side_by_side) == 1:
            yield _open_alone(side_by_side[0], _get_stem(file))
        elif side_by_side:
            yield _open_fields(side_by_side, npy_files)


def _open_alone(path: str, name: str) -> NpyPart:
    """Open a file that is a part by itself; the members of a structured array are its fields."""
    file, header = open_npy(path)
    name = "" if header.dtype.names else name
    return NpyPart(path, {name: header.make_array(name)}, files={name: (file, header)})


def _open_rows(path: str) -> NpyPart:
    return _open_alone(path, re.sub(r"[-_. ]*\d+$", "", _get_stem(path)) or "values")


def _open_fields(paths: Sequence[str], npy_files: NpyFiles | None) -> NpyPart:
    opened: dict[str, tuple[LocalFile, Header]] = {}
    for path in paths:
        if _get_stem(path) in opened:
            raise SourceInconsistent(
                f"two files would be the field {_get_stem(path)}",
                file=path,
                hint=f"Rename one, or name it once; {mark_option('npy_files', 'rows')} reads files "
                "one behind the other.",
            )
        opened[_get_stem(path)] = open_npy(path)
    file_names: dict[Any, str] = {}
    for name, (file, header) in opened.items():
        kind = (re.sub(r"\d+", "#", name), header.dtype, header.shape[1:])
        if npy_files is None and kind in file_names:
            raise SourceInconsistent(
                f"its name differs from that of {file_names[kind]} by a number alone, so they may "
                "be rows, one after the other, or fields, side by side",
                file=file.path,
                hint=f"Say which: {mark_option('npy_files', 'rows')} or "
                f"{mark_option('npy_files', 'fields')}.",
            )
        file_names[kind] = os.path.basename(file.path)
    arrays = {name: header.make_array(name) for name, (_, header) in opened.items()}
    return NpyPart(os.path.dirname(paths[0]) or ".", arrays, files=opened)


def _get_stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _is_of_slab(path: str) -> bool:
    folder = os.path.dirname(os.path.abspath(path))
    return any(
        os.path.isfile(os.path.join(each, MANIFEST)) for each in (folder, os.path.dirname(folder))
    )
