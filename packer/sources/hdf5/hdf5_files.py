"""Which HDF5 files are meant, and how what goes wrong in them is told."""

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import h5py

from fieldslab.packer.sources.batches import describe_exception, make_damage_error
from fieldslab.packer.sources.path_lookup import list_files
from fieldslab.schemas.errors import (
    FieldslabError,
    SourceUnreadable,
)
from fieldslab.schemas.optiontext import mark_option

SUFFIXES = (".h5", ".hdf5", ".hdf", ".he5", ".h5py", ".h5ad", ".nc", ".nc4", ".nxs")
_NAMED_SUFFIXES = (*SUFFIXES, ".mat")
"""Those of files that are named: folders of images have annotations of MATLAB, which stay out."""
MAGIC = b"\x89HDF\r\n\x1a\n"


def find_files(paths: Sequence[str], key: Callable[[str], Any] | None = None) -> list[str]:
    """Find the files in the order given, globs and directories sorted; all sorted by a `key`.

    Raises NoFiles if there are no files, SourceUnreadable if a directory may not be read.
    """
    files = [file for path in paths for file in list_files(path, SUFFIXES, "HDF5")]
    return files if key is None else sorted(files, key=key)


def looks_like_hdf5(path: str) -> bool:
    """Return whether a file has one of the usual names, or begins as HDF5 does.

    Raises OSError where the disk fails.
    """
    if path.lower().endswith(_NAMED_SUFFIXES):
        return True
    if not os.path.isfile(path):  # a pipe would block forever
        return False
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC or h5py.is_hdf5(path)
    except PermissionError:
        return False  # the last source that is asked reports it


def open_file(path: str) -> h5py.File:
    """Open a file for reading. Raises SourceUnreadable."""
    with name_hdf5_errors(path):
        if not os.path.isfile(path):  # a pipe would block forever
            raise SourceUnreadable("is not a file", file=path)
        return h5py.File(path, "r", locking="best-effort")


def _find_format_hint(path: str) -> str:
    """Find what to do with a file that is not HDF5, by its first bytes."""
    try:
        with open(path, "rb") as file:
            head = file.read(8)
    except OSError:
        head = b""
    if head == b"MATLAB 5":
        return "It is of an older MATLAB: save it there by save(file, '-v7.3')."
    if head[:3] == b"CDF":
        return "It is a classic netCDF file: nccopy -k nc4 OLD NEW writes it as HDF5."
    return f"{mark_option('from_')} names the kind of source."


@contextmanager
def name_hdf5_errors(file: str, field: str | None = None, row: Any = None) -> Iterator[None]:
    """Turn what h5py raises on bad files into SourceUnreadable."""
    try:
        yield
    except FieldslabError:
        raise
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, SystemError) as error:
        text, problem = describe_exception(error), ""
        if "file signature not found" in text:
            problem, hint = "is not an HDF5 file", _find_format_hint(file)
        if "unable to lock file" in text:
            problem, hint = "another program has it open for writing", "Pack again when it is done."
        if "already open for" in text:  # by marks in the file itself
            problem = "is marked as open for writing"
            hint = (
                "Pack again when the program that writes it is done. If that program died: "
                f"h5clear -s {shlex.quote(file)} removes the mark; what it did not write is lost."
            )
        if not problem:
            raise make_damage_error(error, "HDF5", file, field=field, row=row) from error
        raise SourceUnreadable(problem, file=file, field=field, row=row, hint=hint) from error
