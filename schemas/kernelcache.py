"""Where compiled kernels are kept between processes; an old one is never taken for a new one.

The name of a file says all that its machine code depends on: the sources of the kernel and of all
that becomes part of it, its types, the processor, the compiler.
"""

import hashlib
import importlib.util
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import llvmlite.binding as llvm

NEWEST = 16
"""Files that are kept of each kernel: of other versions, checkouts, processors."""
SHIPPED = "machine"
"""The folder beside this file that packages bring machine code in, by processor."""
_COMPILER = "fieldslab.schemas.compiling"
_IMPORT = re.compile(rb"^from (fieldslab[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
_SETTINGS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "CPU_NAME", "CPU_FEATURES")
"""Of numba, as NUMBA_* in the environment: those that change the code."""
LEVELS = {
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl avx2 bmi bmi2 f16c fma lzcnt movbe",
    "x86-64-v3": "avx2 bmi bmi2 f16c fma lzcnt movbe",
}
"""Processors of x86 that packages bring code for, the best first, and what they must have."""
_DIGEST_BYTES = hashlib.sha256().digest_size


class KernelKey(NamedTuple):
    """The name under which machine code of a kernel is cached."""

    kernel: str
    """Module, name and line, as the beginning of a file name."""
    stamp: str
    """Digest of what the kernel is made of: sources, compiler and signature."""

    @property
    def symbol(self) -> str:
        """The name of its function in object files."""
        return f"kernel_{self.stamp}"


def make_key(function: Any, signature: str) -> KernelKey | None:
    """Make the key of a kernel; None if there is no source, as for code typed into a prompt."""
    sources, compiler = digest_sources(function.__module__), _digest_compiler()
    if sources is None or compiler is None or function.__closure__:
        return None
    code = function.__code__
    kernel = re.sub(r"[^\w.-]", "", f"{function.__module__}.{code.co_name}-{code.co_firstlineno}")
    return KernelKey(kernel, _digest(repr((sources, compiler, signature, kernel)).encode())[:32])


def read_code(key: KernelKey) -> bytes | None:
    """Read the machine code of this kernel for this processor; None if there is none.

    What came with the package is taken first, then what an earlier process kept.
    """
    for path in _find_files(key):
        with suppress(OSError):
            data = path.read_bytes()
            if hashlib.sha256(data[_DIGEST_BYTES:]).digest() == data[:_DIGEST_BYTES]:
                with suppress(OSError):
                    os.utime(path)  # those that are used last are kept
                return data[_DIGEST_BYTES:]
            # else it was not written to its end, or has decayed
    return None


def keep_code(key: KernelKey, code: bytes) -> None:
    """Keep machine code for the next process, if there is a folder for it and room."""
    path = _find_kept_file(key)
    if path is not None:
        with suppress(OSError):
            _write_atomically(path, add_digest(code))
            _remove_old(path)


def add_digest(code: bytes) -> bytes:
    """Put a digest in front of the code, as cache files hold it."""
    return hashlib.sha256(code).digest() + code


def name_shipped_file(key: KernelKey) -> str:
    """Return the name of the file in which a package ships this kernel."""
    return f"{key.kernel}-{key.stamp}.kernel"


class Target(NamedTuple):
    """What code is compiled for, in the words of LLVM."""

    processor: str
    features: str
    triple: str
    """Architecture, system and format of object files."""


@cache
def describe_target() -> Target:
    """Describe this machine, or what the environment chooses: numba's way, or for wheels."""
    if chosen := os.environ.get("FIELDSLAB_TARGET"):
        processor, triple = chosen.split()
        return Target(processor, "", triple)
    name, features = (os.environ.get(f"NUMBA_CPU_{word}") for word in ("NAME", "FEATURES"))
    if name is None and features is None:
        features = _find_features().flatten()
    return Target(name or llvm.get_host_cpu_name(), features or "", llvm.get_process_triple())


def _find_features() -> Any:
    try:
        return llvm.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know how to ask here; it goes by the processor's name
        return llvm.FeatureMap()


@cache
def find_processor_levels() -> list[str]:
    """List the processor levels that this processor belongs to, the best first.

    None of them where the environment chooses how kernels are compiled.
    """
    if any(f"NUMBA_{name}" in os.environ for name in _SETTINGS):
        return []
    system, machine = sys.platform, platform.machine()
    if machine not in ("x86_64", "AMD64"):
        return [f"{system}-{machine}"]
    features = _find_features()
    known = [level for level, needed in LEVELS.items() if all(map(features.get, needed.split()))]
    return [f"{system}-{level}" for level in known]


def _find_files(key: KernelKey) -> Iterator[Path]:
    for level in find_processor_levels():
        yield Path(__file__).with_name(SHIPPED) / level / name_shipped_file(key)
    kept = _find_kept_file(key)
    if kept is not None:
        yield kept


def _find_kept_file(key: KernelKey) -> Path | None:
    folder = find_cache_folder()
    if folder is None:
        return None
    settings = [os.environ.get(f"NUMBA_{name}") for name in _SETTINGS]
    versions = _digest_numba(), llvmlite.__version__
    target = _digest(repr((versions, settings, describe_target())).encode())[:16]
    return folder / f"{key.kernel}-{key.stamp}{target}.kernel"


@cache
def _digest_numba() -> str:
    """Digest of the file that holds numba's version: importing numba takes half a second."""
    spec = importlib.util.find_spec("numba")
    version = Path(spec.origin or "").with_name("_version.py") if spec else Path()
    return _digest(version.read_bytes()) if version.is_file() else ""


@cache
def _digest_compiler() -> str | None:
    """Digest of what makes machine code of kernels, and of how it is called."""
    spec: Any = importlib.util.find_spec(_COMPILER)
    try:
        return _digest(spec.loader.get_data(spec.origin))
    except (AttributeError, OSError):
        return None


@cache
def find_cache_folder() -> Path | None:
    """Find a folder in which to cache compiled kernels; None if none is safe and writable.

    That is `fieldslab-kernels` in the NUMBA_CACHE_DIR of the environment, else in the user's
    cache directory. A path that is not absolute depends on the working directory and is passed
    over, as is a folder that belongs to another user, or that others may write to: what lies
    there runs.
    """
    for base in _list_cache_bases():
        kept = base / "fieldslab-kernels"
        with suppress(OSError):
            kept.mkdir(mode=0o700, parents=True, exist_ok=True)
            about = kept.stat()
            # On Windows, rights are not in the mode, and the profile is the user's own.
            if not hasattr(os, "geteuid") or (
                about.st_uid in (0, os.geteuid()) and not about.st_mode & 0o022
            ):
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
            stamps[name], imported = _digest_module(name)
            names += imported
    return _digest(repr(sorted(stamps.items())).encode()) if stamps.get(module) else None


@cache
def _digest_module(name: str) -> tuple[str, list[str]]:
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


def _list_cache_bases() -> Iterator[Path]:
    caches = ".cache" if sys.platform != "darwin" else "Library/Caches"
    chosen = [os.environ.get(name, "") for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")]
    home = os.path.expanduser("~")
    return (Path(path) for path in (*chosen, f"{home}/{caches}") if os.path.isabs(path))


def _write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically, even if other processes write it at the same time."""
    # Named as a file of the kernel, so that what a killed process leaves is removed in its turn.
    handle, draft = tempfile.mkstemp(".kernel", f"{_parse_kernel_name(path)}-draft", path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def _remove_old(path: Path) -> None:
    """Remove all but the newest files of a kernel."""
    files = sorted(path.parent.glob(f"{_parse_kernel_name(path)}-*.kernel"), key=os.path.getmtime)
    for file in files[:-NEWEST]:
        file.unlink(missing_ok=True)


def _parse_kernel_name(path: Path) -> str:
    return path.name.rsplit("-", 2)[0]
