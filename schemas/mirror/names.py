"""What lies where in a cache directory, and what the system says when something fails there.

fieldslab-cache.json    says that the directory is a cache; users of it hold a lock on it
room                    bytes in use, under a lock
ID/                     a slab, perhaps with holes: `manifest.json` is there once it is whole
ID.mirror/manifest.json the manifest
ID.mirror/marks         which blocks are there
ID.mirror/place.json    where the slab came from, for people
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fieldslab.schemas.errors import FieldslabError, NoSpace, OutputDenied, OutputError
from fieldslab.schemas.optiontext import mark_option

MARKER = "fieldslab-cache.json"
ROOM = "room"
MARKS = "marks"
PLACE = "place.json"
PIN = "pin"
SIDE = ".mirror"


@contextmanager
def name_cache_errors(path: Path) -> Iterator[None]:
    """Turn an OSError while writing into a cache directory into an error that names the path."""
    try:
        yield
    except FieldslabError:
        raise
    except OSError as error:
        raise make_cache_error(error, path) from error


def refuse_link(path: Path) -> None:
    """Raise OutputError where a folder of a cache is a link: nothing is written through one."""
    if path.is_symlink():
        raise OutputError(
            "is a link, and there are none in a cache directory", file=path, hint="Remove it."
        )


def make_cache_error(error: OSError, path: Path) -> OutputError:
    """Return the error for what cannot be written into a cache directory."""
    option = mark_option("cache_limit")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = f"Free some space, give another {mark_option('cache_dir')}, or a lower {option}."
        return NoSpace("the cache directory is full", file=path, hint=hint)
    if error.errno == errno.EFBIG:
        return NoSpace(
            "a file would be larger than the file system or `ulimit -f` allows",
            file=path,
            hint=f"Give another {mark_option('cache_dir')}.",
        )
    denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    kind = OutputDenied if denied else OutputError
    return kind(
        f"the cache directory cannot be written: {error.strerror or error}",
        file=path,
        hint=f"Give another {mark_option('cache_dir')}.",
    )
