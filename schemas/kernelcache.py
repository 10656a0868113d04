"""Where compiled kernels are kept between processes; an old one is never taken for a new one.

Numba's own cache looks at the file of a kernel alone: it does not notice that a part which was
inlined from another file has changed. Here the name of a file says all that its code depends on.
"""

import hashlib
import os
import pickle
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite

from fieldslab.schemas.numbaimport import numba

NEWEST = 16
"""Files that are kept of each kernel: of other versions, checkouts, processors."""
_IMPORT = re.compile(rb"^from (fieldslab[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
_SETTINGS = ("OPT", "BOUNDSCHECK", "DEBUGINFO_DEFAULT", "LOOP_VECTORIZE", "SLP_VECTORIZE")
"""Of numba: those that change the code and nothing else that is in a file's name."""
_DIGEST_BYTES = hashlib.sha256().digest_size

_caching: Any = numba.core.caching
_rebuild: Any = numba.core.compiler.CompileResult._rebuild
_dumps: Any = numba.core.serialize.dumps


class KernelCache(_caching.NullCache):  # type: ignore[misc]  # numba has no types
    """The cache of one kernel, as numba's dispatchers use one.

    Parameters
    ----------
    function
        The kernel as Python, defined at the top of a module.
    """

    def __init__(self, function: Any) -> None:
        self._function = function

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The compiled kernel, or None: there is none of just this code for this processor."""
        context.refresh()
        path = self._path(signature, context.codegen())
        if path is None:
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if hashlib.sha256(data[_DIGEST_BYTES:]).digest() != data[:_DIGEST_BYTES]:
            return None  # was not written to its end, or has decayed
        with suppress(OSError):
            os.utime(path)  # those that are used last are kept
        # The folder is the user's, and nobody else writes there: see `folder`.
        return _rebuild(context, *pickle.loads(data[_DIGEST_BYTES:]))  # noqa: S301

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep a compiled kernel, if there is a folder for it and the disk has room."""
        path = self._path(signature, result.codegen)
        if path is None or result.lifted or result.library.has_dynamic_globals:
            return
        data = _dumps(result._reduce())
        with suppress(OSError):
            _write(path, hashlib.sha256(data).digest() + data)
            _remove_old(path)

    def _path(self, signature: Any, codegen: Any) -> Path | None:
        kept, stamp = find_cache_folder(), digest_sources(self._function.__module__)
        if kept is None or stamp is None or self._function.__closure__:
            return None
        code = self._function.__code__
        versions = numba.__version__, llvmlite.__version__, sys.implementation.cache_tag
        settings = [getattr(numba.core.config, name, None) for name in _SETTINGS]
        key = stamp, versions, settings, str(signature), codegen.magic_tuple(), code.co_code
        place = f"{self._function.__module__}.{code.co_name}-{code.co_firstlineno}"
        name = re.sub(r"[^\w.-]", "", place)
        return kept / f"{name}-{_digest(repr(key).encode())[:32]}.kernel"


@cache
def find_cache_folder() -> Path | None:
    """Where compiled kernels are kept, or None: no place is safe, or none can be written to.

    That is `fieldslab-kernels` in the NUMBA_CACHE_DIR of the environment, else in the user's
    cache directory. A path that is not absolute depends on the working directory and is passed
    over, as is a folder that belongs to another user, or that others may write to: what lies
    there is unpickled.
    """
    for base in _bases():
        kept = base / "fieldslab-kernels"
        with suppress(OSError):
            kept.mkdir(mode=0o700, parents=True, exist_ok=True)
            about = kept.stat()
            if about.st_uid in (0, os.geteuid()) and not about.st_mode & 0o022:
                return kept
    return None


@cache
def digest_sources(module: str) -> str | None:
    """Digest of the source of a module and of all of fieldslab that it imports, or None.

    None where there is no source: code that was typed in. Imports within functions do not count:
    kernels have none.
    """
    names, stamps = [module], dict[str, str]()
    while names:
        name = names.pop()
        if name not in stamps and name in sys.modules:
            stamps[name], imported = _read(name)
            names += imported
    return _digest(repr(sorted(stamps.items())).encode()) if stamps.get(module) else None


@cache
def _read(name: str) -> tuple[str, list[str]]:
    """Digest of what a module was made from, empty if there is nothing; names it may import."""
    path = getattr(sys.modules[name], "__file__", None)
    if path is None:
        return "", []
    try:
        source = Path(path).read_bytes()
    except OSError:
        loader: Any = sys.modules[name].__loader__  # knows how to read an archive
        try:
            source = loader.get_data(path)
        except (AttributeError, OSError):
            return "", []
    imported = []
    for package, words in _IMPORT.findall(source):
        # A word may be a module; if it is not, nothing is imported under this name.
        imported += [b".".join([package, word]) for word in re.findall(rb"\w+", words)] + [package]
    return _digest(source), [name.decode() for name in imported]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _bases() -> Iterator[Path]:
    caches = ".cache" if sys.platform != "darwin" else "Library/Caches"
    chosen = [os.environ.get(name, "") for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")]
    home = os.path.expanduser("~")
    return (Path(path) for path in (*chosen, f"{home}/{caches}") if os.path.isabs(path))


def _write(path: Path, data: bytes) -> None:
    """Write a file that is there as a whole or not at all, whoever else writes it just now."""
    # Named as a file of the kernel, so that what a killed process leaves is removed in its turn.
    handle, draft = tempfile.mkstemp(".kernel", f"{_kernel_of(path)}-draft", path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def _remove_old(path: Path) -> None:
    """Remove all but the newest files of a kernel."""
    files = sorted(path.parent.glob(f"{_kernel_of(path)}-*.kernel"), key=os.path.getmtime)
    for file in files[:-NEWEST]:
        file.unlink(missing_ok=True)


def _kernel_of(path: Path) -> str:
    return path.name.rsplit("-", 2)[0]
