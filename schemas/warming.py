"""Every kernel, compiled ahead: for this machine, or into a folder that a package brings along."""

import importlib
import multiprocessing
import pkgutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

from fieldslab.schemas import kernelcache
from fieldslab.schemas.cores import count_usable_cores
from fieldslab.schemas.jit import Kernel

ROOMS = ("schemas", "reader", "packer")
"""Folders of fieldslab whose kernels users run."""
_IMAGES = ("codecs", "decoders", "images", "pixels")
"""Folders in them whose kernels only images need."""
_MOST_PROCESSES = 8
"""Each takes some hundred megabytes to compile."""


class WarmedKernel(NamedTuple):
    """A kernel that is ready: module and name, whether it was compiled, and the seconds it took."""

    name: str
    compiled: bool
    seconds: float


def find_kernels(images: bool = True) -> Iterator[Kernel]:
    """Yield what Python calls, all or without images; import the modules that have kernels."""
    for room in ROOMS:
        for module in sorted(_find_modules(f"fieldslab.{room}")):
            if not images and not set(_IMAGES).isdisjoint(module.split(".")):
                continue
            for value in vars(importlib.import_module(module)).values():
                if type(value) is Kernel and value.__module__ == module:
                    yield value


def _find_modules(package: str) -> Iterator[str]:
    spec: Any = find_spec(package)
    for module in pkgutil.iter_modules(spec.submodule_search_locations, f"{package}."):
        if module.ispkg:
            yield from _find_modules(module.name)
        else:
            loader: Any = find_spec(module.name)
            if "\n@kernel(" in loader.loader.get_source(module.name):
                yield module.name


def load_kernels(images: bool) -> list[WarmedKernel]:
    """Load or compile kernels, on all cores, and keep their machine code for later processes."""
    names = [(kernel.__module__, kernel.__name__) for kernel in find_kernels(images)]
    # Forked, they have imported everything. Elsewhere than on Linux, libraries may not survive it.
    processes = min(count_usable_cores(), _MOST_PROCESSES) if sys.platform == "linux" else 1
    if processes == 1 or are_kernels_ready(images):
        return list(starmap(_load_kernel, names))
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
        return list(pool.map(_load_kernel, *zip(*names, strict=True)))


def _load_kernel(module: str, name: str) -> WarmedKernel:
    kernel: Kernel = getattr(sys.modules[module], name)
    started = time.perf_counter()
    compiled = kernel.load()
    return WarmedKernel(f"{module}.{name}", compiled, time.perf_counter() - started)


def are_kernels_ready(images: bool) -> bool:
    """Return True if all machine code is cached or came with the package."""
    keys = (kernel.find_key() for kernel in find_kernels(images))
    return all(key is not None and kernelcache.read_code(key) is not None for key in keys)


def compile_kernels_into(folder: Path) -> None:
    """Compile each kernel into a folder, by the name under which a package brings it."""
    folder.mkdir(parents=True)
    for kernel in find_kernels():
        key = kernel.find_key()
        assert key is not None, f"{kernel.__name__} has no source"
        code = kernelcache.add_digest(kernel.compile(key.symbol))
        (folder / kernelcache.name_shipped_file(key)).write_bytes(code)


if __name__ == "__main__":
    compile_kernels_into(Path(sys.argv[1]))
