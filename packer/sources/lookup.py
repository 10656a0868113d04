"""Which files the user means: a file, those below a directory, those that a glob matches."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from fieldslab.schemas.errors import (
    SourceDenied,
    SourceNotFound,
    SourceUnreadable,
    source_unreadable,
)
from fieldslab.schemas.folder import is_url, url_text


class NoFiles(SourceNotFound):
    """No file of the kind that was looked for."""


def look_up(path: str, suffixes: Sequence[str], kind: str) -> list[str]:
    """The files that a path names, sorted; of a directory those with one of the suffixes.

    Hidden files, and those whose name begins with an underscore, are left out of directories.

    Raises
    ------
    NoFiles
        There is none; `kind` is what they are called.
    SourceUnreadable
        A directory, or the way to it, may not be read.
    """
    check_readable(path)
    if os.path.isdir(path):
        files = _below(path, suffixes)
        problem, hint = f"no {kind} files ({', '.join(suffixes)}) in here", None
    else:
        found = [path] if os.path.lexists(path) else glob.glob(path, recursive=True)
        files = [file for file in found if not os.path.isdir(file)]
        problem, hint = "no such file", "Check the path."
        if not files and glob.has_magic(path):
            problem = "no file matches"
    if not files and is_url(path):
        raise remote(path)
    if not files:
        raise NoFiles(problem, file=path, hint=hint)
    return sorted(files)


def remote(url: str) -> NoFiles:
    """Error for a URL: nothing but LitData streams is read from one."""
    return NoFiles(
        "remote sources are not supported yet: only LitData streams are read from URLs",
        file=url_text(url),
        hint="Download it first, or give `pack` what reads it, from Python: "
        "pyarrow.dataset.dataset(url).scanner().to_reader(), or a HuggingFace dataset.",
    )


def fixed_part(pattern: str) -> str:
    """The directory in front of the first wildcard."""
    while glob.has_magic(pattern):
        pattern = os.path.dirname(pattern)
    return pattern


def check_readable(path: str) -> None:
    """Raise SourceUnreadable for what is there and may not be read, or cannot be looked at."""
    fixed = path if os.path.lexists(path) else fixed_part(path) or "."
    try:
        os.stat(fixed)
    except PermissionError as error:
        raise _forbidden(fixed) from error
    except OSError:
        return
    needed = os.R_OK | os.X_OK if os.path.isdir(fixed) else os.R_OK
    if not os.access(fixed, needed, effective_ids=os.access in os.supports_effective_ids):
        raise _forbidden(fixed)


def list_folder(path: str) -> list[os.DirEntry[str]]:
    """What is in a folder, by name. Raises SourceUnreadable where it may not be listed."""
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise _unlisted(error) from error


def _below(directory: str, suffixes: Sequence[str]) -> list[str]:
    """Files of a directory and those in it. Raises SourceUnreadable: none is passed over."""

    def fail(error: OSError) -> None:
        raise _unlisted(error) from error

    files = []
    for folder, folders, names in os.walk(directory, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        wanted = (n for n in names if n.lower().endswith(tuple(suffixes)))
        shown = (Path(folder, name) for name in wanted if not name.startswith((".", "_")))
        files += [str(file) for file in shown if file.is_file()]
    return files


def _unlisted(error: OSError) -> SourceUnreadable:
    """Why a folder cannot be listed."""
    if isinstance(error, PermissionError):
        return _forbidden(str(error.filename))
    return source_unreadable(error, f"cannot be listed: {error.strerror}", file=error.filename)


def _forbidden(path: str) -> SourceUnreadable:
    return SourceDenied(
        "no permission to read it", file=path,
        hint="Give yourself the right to read it, and to enter every directory on the way.",
    )  # fmt: skip
