"""Takes from Python what Windows does not have, then uses a reader. A program, run by a test.

    python as_on_windows.py SLAB DAMAGED

What remains is Linux: it shows that nothing asks for what is not there, and not that the rest works
as it does on Windows. Prints what was read, as JSON.
"""

import asyncio
import builtins
import concurrent.futures
import ctypes
import io
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
OF_WINDOWS = (
    *("abort", "access", "chdir", "chmod", "close", "closerange", "cpu_count", "device_encoding"),
    *("dup", "dup2", "environ", "error", "execv", "execve", "fspath", "fstat", "fsync"),
    *("ftruncate", "get_inheritable", "get_terminal_size", "getcwd", "getcwdb", "getlogin"),
    *("getpid", "getppid", "isatty", "kill", "link", "listdir", "lseek", "lstat", "mkdir", "open"),
    *("pipe", "putenv", "read", "readlink", "remove", "rename", "replace", "rmdir", "scandir"),
    *("set_inheritable", "spawnv", "spawnve", "stat", "strerror", "symlink", "system", "times"),
    *("truncate", "umask", "unlink", "unsetenv", "urandom", "utime", "waitpid"),
    *("waitstatus_to_exitcode", "write", "DirEntry", "stat_result", "statvfs_result"),
    *("terminal_size", "times_result", "uname_result", "F_OK", "R_OK", "W_OK", "X_OK", "TMP_MAX"),
    *("O_RDONLY", "O_WRONLY", "O_RDWR", "O_APPEND", "O_CREAT", "O_EXCL", "O_TRUNC"),
    *("P_WAIT", "P_NOWAIT", "P_NOWAITO"),
)
"""What `os` has from the system there, in Python 3.11."""
OF_SIGNAL = (
    *("SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIG_DFL", "SIG_IGN"),
    *("default_int_handler", "getsignal", "raise_signal", "set_wakeup_fd", "signal", "strsignal"),
    *("valid_signals", "NSIG", "Signals", "Handlers"),
)
"""What `signal` has there."""
LIBRARIES: list[Any] = [asyncio, concurrent.futures, multiprocessing, subprocess, tempfile]
LIBRARIES += [llvmlite.binding, msgspec, numpy, pyarrow, xxhash, zstandard]


def remove_posix() -> None:
    """Remove what Windows lacks, once all other libraries are imported."""
    modules: dict[str, Any] = sys.modules
    modules |= dict.fromkeys(MODULES)
    posix: Any = sys.modules["posix"]
    for name in vars(posix):
        if not name.startswith("_") and name not in OF_WINDOWS and hasattr(os, name):
            delattr(os, name)
    for name in ("SEEK_DATA", "SEEK_HOLE", "fwalk", "register_at_fork"):
        vars(os).pop(name, None)
    of_system = vars(sys.modules["_signal"])
    for name in vars(signal).copy():
        if not name.startswith("_") and name not in OF_SIGNAL and name in of_system:
            delattr(signal, name)
    for name in vars(mmap).copy():
        if name.startswith(("MAP_", "PROT_", "MADV_")):
            delattr(mmap, name)
    os.supports_dir_fd = os.supports_fd = os.supports_follow_symlinks = set()
    for name in ("open", "stat", "lstat", "rename", "unlink", "mkdir", "rmdir"):
        setattr(os, name, _refuse_descriptors(getattr(os, name)))
    os.listdir = _refuse_descriptors(os.listdir)
    builtins.open = io.open = _refuse_system_files(io.open)
    os.stat = _refuse_system_files(os.stat)
    os.scandir = _refuse_system_files(os.scandir)
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


def _refuse_system_files(function: Callable[..., Any]) -> Any:
    def call(path: Any = ".", *arguments: Any, **options: Any) -> Any:
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
        return function(path, *arguments, **options)

    return call


def main() -> None:
    """Open a slab, and read it in all ways of the core package."""
    remove_posix()
    from fieldslab.reader import Loader, RandomResizedCrop, Shuffled, Windows, open_slab

    slab = open_slab(sys.argv[1])
    rows = slab.gather([3, 1, 3])
    answer: dict[str, Any] = {"x": rows["x"].tolist(), "s": list(rows["s"])}
    rows_file = pathlib.Path(sys.argv[1]).with_name("chosen.rows")
    slab.select([2, 5]).save(rows_file)
    answer["chosen"] = slab.select(rows_file).gather([1])["x"].tolist()
    prefetches: tuple[Any, ...] = 3, 0, "auto"
    for prefetch in prefetches:
        loader = Loader(slab, 4, Shuffled(seed=0), prefetch=prefetch)
        numbers = sorted(number for batch in loader for number in batch["x"].tolist())
        answer[f"epoch {prefetch}"] = numbers
    answer["row"] = int(slab[7]["x"])
    answer["column"] = slab["x"][2:5].tolist()
    answer["lengths"] = slab.lengths([2], "s").tolist()
    answer["where"] = slab.where("x >= 17").gather(range(3))["x"].tolist()
    answer["table"] = slab.to_arrow([4], ["x"]).to_pylist()
    answer["preloaded"] = slab.preload(["x"])
    windows = Loader(slab, 4, Windows(3, seed=None), fields=["x"])
    answer["windows"] = [window for batch in windows for window in batch["x"].tolist()][:2]
    both = open_slab([sys.argv[1], sys.argv[1] + "/../b.slab"])
    answer["union"] = both.gather([0, len(slab)], ["x"])["x"].tolist()
    answer["images"] = slab.gather([0], decode={"image": [RandomResizedCrop(8)]})["image"].shape
    numpy.save(f"{sys.argv[1]}/../rows.npy", numpy.array([5, 6]))
    answer["file of rows"] = slab.select(f"{sys.argv[1]}/../rows.npy").gather([1])["x"].tolist()
    damaged = open_slab(sys.argv[2], on_damage="skip", max_damaged=1.0)
    answer["skipped"] = len(damaged.gather(range(20)).failures)
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
