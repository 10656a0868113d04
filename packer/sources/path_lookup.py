"""Which files the user means: a file, those below a directory, those that a glob matches."""

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fieldslab.schemas.errors import (
    FieldslabError,
    SourceDenied,
    SourceNotFound,
    SourceUnreadable,
    SourceUnsupported,
    make_unreadable_source_error,
)
from fieldslab.schemas.urls import get_scheme, hide_credentials, is_url, restore_url

_DOWNLOADS = {
    "s3": "aws s3 cp{recursive} {url} .",
    "gs": "gcloud storage cp{recursive} {url} .",
    "az": "azcopy copy{recursive} {url} .",
    "hf": "hf download --repo-type dataset --local-dir . {dataset}",
}
"""Commands that download, by the scheme of a URL."""


class NoFiles(SourceNotFound):
    """No file of the kind that was looked for."""


def list_files(path: str, suffixes: Sequence[str], kind: str) -> list[str]:
    """List the files that a path names, sorted; of a directory, those with a known suffix.

    Hidden files, and those whose name begins with an underscore, are left out of directories.
    Links are followed, to folders too, other than those that lead back to where they are.

    Raises
    ------
    NoFiles
        There is none; `kind` is what they are called.
    SourceUnreadable
        A directory, or the way to it, may not be read.
    SourceUnsupported
        A URL.
    """
    check_readable(path)
    if os.path.isdir(path):
        files = _collect_files(path, suffixes)
        problem, hint = f"no {kind} files ({', '.join(suffixes)}) in here", None
    else:
        paths = [path] if os.path.lexists(path) else list(find_matches(path))
        files = [file for file in paths if not os.path.isdir(file)]
        problem, hint = "no such file", "Check the path."
        if not files and glob.has_magic(path):
            problem = "no file matches"
    if not files and is_url(path):
        raise make_remote_error(path, kind)
    if not files:
        raise NoFiles(problem, file=path, hint=hint)
    return sorted(files)


def make_remote_error(url: str, kind: str) -> SourceUnsupported:
    """Make the error for the URL of files that are not read from such a place."""
    url = hide_credentials(restore_url(url))
    scheme = get_scheme(url)
    command = _DOWNLOADS.get(scheme, "curl -O {url}").format(
        url=url,
        recursive="" if os.path.splitext(url)[1] else " --recursive",
        dataset="/".join(url.removeprefix("hf://datasets/").split("/")[:2]),
    )
    return SourceUnsupported(
        f"{kind} files are not read from {scheme}:// URLs",
        file=url,
        hint=f"Download them first: {command}",
    )


def find_matches(pattern: str) -> Iterator[str]:
    """Find the matches of a glob. `**` follows links, but not back to a folder on its path.

    `glob` would follow such a loop up to forty times, and again for each further link.

    Raises SourceUnreadable where a folder below `**` cannot be listed.
    """
    parts = pattern.split("/")
    if "**" not in parts:
        yield from glob.iglob(pattern)
        return
    head, tail = "/".join(parts[: parts.index("**")]), parts[parts.index("**") + 1 :]
    bases = glob.glob(head) if head else ["/" if pattern.startswith("/") else ""]
    listed: set[str] = set()
    for base in bases:
        for folder in (
            _walk_folders(base, FolderPath(base or ".")) if os.path.isdir(base or ".") else ()
        ):
            for path in find_matches(os.path.join(glob.escape(folder), *(tail or ["*"]))):
                if path not in listed:
                    listed.add(path)
                    yield path


def _walk_folders(folder: str, folders: "FolderPath") -> Iterator[str]:
    """Yield a folder and the folders in it, without hidden ones."""
    yield folder
    for entry in list_folder(folder or "."):
        if not entry.name.startswith(".") and entry.is_dir():
            path = os.path.join(folder, entry.name)
            with folders.descend(path) as new:
                if new:
                    yield from _walk_folders(path, folders)


def get_glob_root(pattern: str) -> str:
    """Return the directory in front of the first wildcard."""
    while glob.has_magic(pattern):
        pattern = os.path.dirname(pattern)
    return pattern


def check_readable(path: str) -> None:
    """Raise SourceUnreadable for what is there and may not be read, or cannot be looked at."""
    fixed = path if os.path.lexists(path) else get_glob_root(path) or "."
    try:
        os.stat(fixed)
    except PermissionError as error:
        raise _make_denied_error(fixed) from error
    except OSError:
        return
    needed = os.R_OK | os.X_OK if os.path.isdir(fixed) else os.R_OK
    if not os.access(fixed, needed, effective_ids=os.access in os.supports_effective_ids):
        raise _make_denied_error(fixed)


def list_folder(path: str) -> list[os.DirEntry[str]]:
    """List the entries of a folder, by name. Raises SourceUnreadable."""
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise _make_unlisted_error(error) from error


class FolderPath:
    """The folders from a root down to the current one, so that endless links are not followed.

    Links to folders are followed, unless they lead back to a folder of this path.
    """

    def __init__(self, root: str) -> None:
        """Start at `root`. Raises SourceUnreadable if it cannot be read."""
        self._identities = [_get_identity(root)]

    @contextmanager
    def descend(self, path: str) -> Iterator[bool]:
        """Enter a folder for a `with` block; yield False if the path already leads through it."""
        folder = _get_identity(path)
        if folder in self._identities:
            yield False
            return
        self._identities.append(folder)
        try:
            yield True
        finally:
            self._identities.pop()


def _get_identity(path: str) -> tuple[int, int]:
    try:
        info = os.stat(path)
    except OSError as error:
        raise _make_unlisted_error(error) from error
    return info.st_dev, info.st_ino


@contextmanager
def name_disk_errors() -> Iterator[None]:
    """Turn whatever a failing disk raises into SourceUnreadable."""
    try:
        yield
    except FieldslabError:
        raise
    except OSError as error:
        raise make_unreadable_source_error(
            error, f"cannot be read: {error.strerror or error}", file=error.filename
        ) from error


def _collect_files(directory: str, suffixes: Sequence[str]) -> list[str]:
    """List the files of a directory and below it. Raises SourceUnreadable; none is skipped."""
    return list(_walk_files(directory, tuple(suffixes), FolderPath(directory)))


def _walk_files(directory: str, suffixes: tuple[str, ...], folders: FolderPath) -> Iterator[str]:
    for entry in list_folder(directory):
        path = os.path.join(directory, entry.name)
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir():
            with folders.descend(path) as new:
                if new:
                    yield from _walk_files(path, suffixes, folders)
        elif entry.name.lower().endswith(suffixes):
            if entry.is_file():
                yield path
            elif entry.is_symlink() and not os.path.exists(path):
                raise SourceUnreadable(
                    "is a broken link",
                    file=path,
                    expected=os.path.realpath(path),
                    hint="Restore the file that the link points to, or remove the link.",
                )


def _make_unlisted_error(error: OSError) -> SourceUnreadable:
    """Make the error for a folder that cannot be listed."""
    if isinstance(error, PermissionError):
        return _make_denied_error(str(error.filename))
    return make_unreadable_source_error(
        error, f"cannot be listed: {error.strerror}", file=error.filename
    )


def _make_denied_error(path: str) -> SourceUnreadable:
    return SourceDenied(
        "no permission to read it",
        file=path,
        hint="Change the permissions of the file, and of every directory above it.",
    )
