"""Takes from Python what Windows does not have, then uses a reader. A program, run by a test.

    python as_on_windows.py SLAB

What remains is Linux: it shows that nothing asks for what is not there, and not that the rest works
as it does on Windows. Prints what was read, as JSON.
"""

import asyncio
import concurrent.futures
import ctypes
import json
import mmap
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import llvmlite.binding
import msgspec
import numpy
import pyarrow
import xxhash
import zstandard

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "_posixshmem")
OF_OS = (
    *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "EFD_CLOEXEC", "EFD_SEMAPHORE"),
    *("eventfd", "eventfd_read", "eventfd_write", "fork", "memfd_create", "register_at_fork"),
    *("fchmod", "fchown", "getuid", "geteuid", "getloadavg", "killpg", "sched_getaffinity"),
    *("posix_fadvise", "posix_fallocate", "pread", "preadv", "pwrite", "pwritev"),
    *("statvfs", "fstatvfs", "uname", "SEEK_DATA", "SEEK_HOLE"),
)
OF_SIGNAL = ("SIGBUS", "SIGKILL", "SIGPIPE", "SIGHUP", "SIGUSR1", "pthread_sigmask", "pthread_kill")
LIBRARIES: list[Any] = [asyncio, concurrent.futures, multiprocessing, subprocess, tempfile]
LIBRARIES += [llvmlite.binding, msgspec, numpy, pyarrow, xxhash, zstandard]


def remove_posix() -> None:
    """Remove what Windows lacks, once all other libraries are imported."""
    modules: dict[str, Any] = sys.modules
    modules |= dict.fromkeys(MODULES)
    for module, names in ((os, OF_OS), (signal, OF_SIGNAL)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in vars(mmap).copy():
        if name.startswith(("MAP_", "PROT_", "MADV_")):
            delattr(mmap, name)
    os.supports_dir_fd = os.supports_fd = os.supports_follow_symlinks = set()
    for name in ("open", "stat", "lstat", "rename", "unlink", "mkdir", "rmdir"):
        setattr(os, name, _refuse_descriptors(getattr(os, name)))
    os.listdir = _refuse_descriptors(os.listdir)
    real_load = ctypes.CDLL.__init__

    def load(self: Any, name: Any, *arguments: Any, **options: Any) -> None:
        if name is None:
            raise TypeError("bad argument type for built-in operation")
        real_load(self, name, *arguments, **options)

    ctypes.CDLL.__init__ = load  # type: ignore[method-assign]


def _refuse_descriptors(function: Callable[..., Any]) -> Any:
    def call(path: Any = ".", *arguments: Any, dir_fd: Any = None, **options: Any) -> Any:
        if dir_fd is not None or (function.__name__ == "listdir" and isinstance(path, int)):
            raise NotImplementedError("dir_fd unavailable on this platform")
        if function.__name__ == "open" and os.path.isdir(path):
            raise PermissionError(13, "Permission denied", path)
        return function(path, *arguments, **options)

    return call


def main() -> None:
    """Open a slab, read rows of it, and go through an epoch."""
    remove_posix()
    from fieldslab.reader import Loader, Shuffled, open_slab

    slab = open_slab(sys.argv[1])
    rows = slab.gather([3, 1, 3])
    answer: dict[str, Any] = {"x": rows["x"].tolist(), "s": list(rows["s"])}
    rows_file = pathlib.Path(sys.argv[1]).with_name("chosen.rows")
    slab.select([2, 5]).save(rows_file)
    answer["chosen"] = slab.select(rows_file).gather([1])["x"].tolist()
    batches = Loader(slab, 4, Shuffled(seed=0))
    answer["epoch"] = sorted(number for batch in batches for number in batch["x"].tolist())
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
