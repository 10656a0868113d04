"""Files of numpy: `.npy` and `.npz`. Keys and names of files are fields, axis 0 are the rows."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.packer.sources.remote_lookup import RemotePath, holds_object, is_remote_source
from fieldslab.packer.sources.stored_files import StoredFile, find_stored_files
from fieldslab.packer.sources.table_files import map_in_threads
from fieldslab.schemas.errors import AccessDenied, SourceInconsistent, SourceUnreadable, UsageError
from fieldslab.schemas.manifest import MANIFEST
from fieldslab.schemas.optiontext import mark_option

NpyFiles = Literal["fields", "rows"]


class NpySource(ArraySource):
    """Arrays of `.npy` files and `.npz` archives."""

    name = "npy"
    suffixes = (".npy", ".npz")

    def __init__(
        self,
        paths: list[str],
        *,
        npy_files: NpyFiles | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Read the headers of all files.

        `npy_files` says what `.npy` files of one folder are: "fields" side by side, "rows" one
        behind the other. Without it they are fields, unless their names are numbered.

        Raises
        ------
        SourceUnreadable
            A file is missing, damaged or cut off, or belongs to a slab.
        SourceInconsistent
            Files of one dtype and shape have numbered names, and `npy_files` is missing.
        AccessDenied, RemoteUnreadable, MissingLibrary
            The store of a URL refuses, fails, or needs a library.
        """
        if npy_files not in (None, "fields", "rows"):
            raise UsageError(
                f"{mark_option('npy_files')}: must be 'fields' or 'rows'", found=repr(npy_files)
            )
        self.settings = {} if npy_files is None else {"npy_files": npy_files}
        files = find_stored_files(paths, self.suffixes, "numpy", storage_options)
        _refuse_slabs(files)
        self.set_parts(list(_list_parts(files, npy_files)))

    @staticmethod
    def accepts(paths: list[str]) -> bool:
        """Return whether the first file looks like numpy's, by its name or its first bytes."""
        if is_remote_source(paths[0]):
            return paths[0].lower().endswith(NpySource.suffixes)
        try:
            first = list_files(paths[0], NpySource.suffixes, "numpy")[0]
        except (NoFiles, SourceUnreadable):
            return False
        if not os.path.isfile(first) or _is_of_slab(LocalFile.from_path(first)):
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


Opened = tuple[StoredFile, Header]


def _list_parts(files: Sequence[StoredFile], npy_files: NpyFiles | None) -> Iterator[ArrayPart]:
    opened = list(zip(files, map_in_threads(_open, files), strict=True))
    folders: dict[str, list[Opened]] = {}
    for file, content in opened:
        if isinstance(content, Header):
            folders.setdefault(os.path.dirname(file.path), []).append((file, content))
    for file, content in opened:
        if isinstance(content, NpzPart):
            yield content
            continue
        side_by_side = folders.pop(os.path.dirname(file.path), [])
        if npy_files == "rows":
            yield from (_make_rows(*each) for each in side_by_side)
        elif len(side_by_side) == 1:
            yield _make_alone(file, content, _get_stem(file.path))
        elif side_by_side:
            yield _make_fields(side_by_side, npy_files)


def _open(file: StoredFile) -> Header | NpzPart:
    return open_npz(file) if file.path.lower().endswith(".npz") else open_npy(file)


def _make_alone(file: StoredFile, header: Header, name: str) -> NpyPart:
    """Make the part of a file by itself; the members of a structured array are its fields."""
    name = "" if header.dtype.names else name
    return NpyPart(file.path, {name: header.make_array(name)}, files={name: (file, header)})


def _make_rows(file: StoredFile, header: Header) -> NpyPart:
    name = re.sub(r"[-_. ]*\d+$", "", _get_stem(file.path)) or "values"
    return _make_alone(file, header, name)


def _make_fields(side_by_side: Sequence[Opened], npy_files: NpyFiles | None) -> NpyPart:
    opened: dict[str, Opened] = {}
    for file, header in side_by_side:
        name = _get_stem(file.path)
        if name in opened:
            raise SourceInconsistent(
                f"two files would be the field {name}",
                file=file.path,
                hint=f"Rename one, or name it once; {mark_option('npy_files', 'rows')} reads files "
                "one behind the other.",
            )
        opened[name] = file, header
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
    folder = os.path.dirname(side_by_side[0][0].path) or "."
    return NpyPart(folder, arrays, files=opened)


def _get_stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _refuse_slabs(files: Sequence[StoredFile]) -> None:
    """Raise SourceUnreadable for files that belong to a slab: one of each folder is looked at."""
    firsts = {os.path.dirname(file.path): file for file in reversed(files)}.values()
    for file, is_of_slab in zip(firsts, map_in_threads(_is_of_slab, list(firsts)), strict=True):
        if is_of_slab:
            raise SourceUnreadable(
                "the file belongs to a slab",
                file=file.path,
                hint="Pack the slab's source, or the slab: "
                f"{mark_option('from_', 'slab')} with its path.",
            )


def _is_of_slab(file: StoredFile) -> bool:
    if isinstance(file, RemoteFile):
        folder = file.key.rpartition("/")[0]
        parents = dict.fromkeys((folder, folder.rpartition("/")[0]))
        with suppress(AccessDenied):  # what some servers answer for what is not there
            return any(holds_object(RemotePath(file.place, parent), MANIFEST) for parent in parents)
        return False
    folder = os.path.dirname(os.path.abspath(file.path))
    return any(
        os.path.isfile(os.path.join(each, MANIFEST)) for each in (folder, os.path.dirname(folder))
    )
