"""What the system says when something cannot be written, as named errors."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fieldslab.schemas.errors import FieldslabError, NoSpace, OutputDenied, OutputError
from fieldslab.schemas.optiontext import mark_option


@contextmanager
def name_write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError while writing into an OutputError that names the path."""
    try:
        yield
    except FieldslabError:
        raise
    except OSError as error:
        file = error.filename or path
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpace(
                "no space left on the device",
                file=file,
                hint="Free some space and run the same command again.",
            ) from error
        if error.errno == errno.EFBIG:
            raise NoSpace(
                "a file would be larger than the file system or `ulimit -f` allows",
                file=file,
                hint=f"A smaller {mark_option('shard_size')} makes smaller files.",
            ) from error
        denied = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
        kind = OutputDenied if denied else OutputError
        raise kind(f"cannot be written: {error.strerror or error}", file=file) from error
