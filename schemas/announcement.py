"""Say why a first batch takes long: kernels are compiled."""

import logging
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from fieldslab.schemas import kernelcache

_HOUR = 3600


@cache
def announce_compiling() -> None:
    """Log, once for all processes of a job, why the first batch takes so long."""
    folder = kernelcache.find_cache_folder()
    if folder is None:
        kept = "no directory can keep the result: set NUMBA_CACHE_DIR to one of your own"
    else:
        kept = f"the result is kept in {folder}"
        if not _claim_announcement(folder):
            return
    # Without logging set up, a warning goes to stderr; with it, to wherever the program wants it.
    logging.getLogger("fieldslab").warning(
        "fieldslab: compiling for this processor, which takes up to half a minute; %s", kept
    )


def _claim_announcement(folder: Path) -> bool:
    """Return True for the first process of this process group: workers start together."""
    group = os.getpgid(0) if hasattr(os, "getpgid") else os.getppid()  # Windows has no groups
    mark = folder / f"announced-{group}"
    with suppress(OSError):
        for other in folder.glob("announced-*"):
            if time.time() - other.stat().st_mtime > _HOUR:  # ids of groups are used again
                other.unlink()
    try:
        mark.touch(exist_ok=False)
    except OSError:
        return not mark.exists()  # if nothing can be written, everybody tells
    return True
