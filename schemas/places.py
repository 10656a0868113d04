"""Opening a slab wherever it lies: mapped where it is, or through a mirror."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fieldslab.schemas.bytesizes import parse_size
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.folder import SlabFiles, check_place, find_enclosing_slab, open_slab_files
from fieldslab.schemas.networks import find_network_file_system
from fieldslab.schemas.notices import warn
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.system import HAS_DIRECTORY_DESCRIPTORS
from fieldslab.schemas.urls import is_url


def open_place(
    place: str | os.PathLike[str],
    *,
    follow_links: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_limit: str | int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache_shared: bool = False,
) -> SlabFiles:
    """Open the files of a slab, to be closed, and read its manifest. See `open_slab`.

    Raises
    ------
    NotASlab, IncompleteSlab, UnsupportedVersion, DamagedManifest, Unreadable
        There is no slab, it is incomplete, too new or damaged, or the disk fails.
    RemoteUnreadable, AccessDenied, MissingLibrary
        The store fails, refuses, or needs a library.
    UsageError, NoSpace, OutputDenied, OutputError
        Options contradict each other; the cache directory cannot be used.
    """
    text = check_place(place)
    remote = is_url(text) and not os.path.exists(text)
    network = None if remote or follow_links else find_network_file_system(text)
    if not remote and cache_dir is None and network is None:
        for name, value in (("cache_limit", cache_limit), ("storage_options", storage_options)):
            if value is not None:
                raise UsageError(
                    f"{mark_option(name)} is for slabs that are read through a cache",
                    file=text,
                    hint=f"Give {mark_option('cache_dir')}, too, or leave it out.",
                )
        return open_slab_files(text, follow_links=follow_links)
    if not HAS_DIRECTORY_DESCRIPTORS:
        raise UsageError(
            "URLs and caches need Linux or macOS",
            file=text,
            hint="Copy the slab to a directory of this machine.",
        )
    # Who reads local slabs alone does not wait for these to be imported.
    from fieldslab.schemas.mirror.cache import MEMORY, find_default_cache, find_memory_cache
    from fieldslab.schemas.mirror.channel import Origin
    from fieldslab.schemas.mirror.opening import open_mirror

    limit = None if cache_limit is None else parse_size("cache_limit", cache_limit)
    if not isinstance(cache_dir, str | os.PathLike | None):
        raise UsageError(f"{mark_option('cache_dir')} must be a path", found=repr(cache_dir))
    if not isinstance(storage_options, Mapping | None):
        raise UsageError(f"{mark_option('storage_options')} must be a dict of options")
    temporary = cache_dir == MEMORY or (network is not None and cache_dir is None)
    if temporary:
        memory = find_memory_cache()
        if memory is None and cache_dir is None:
            warn(f"{text} lies on {network}, where mapped files are slow: give `cache_dir`")
            return open_slab_files(text)
        if memory is None:
            raise UsageError(f"{mark_option('cache_dir', MEMORY)}: too little memory in /dev/shm")
        cache, most = memory
        limit = most if limit is None else min(limit, most)
    else:
        cache = find_default_cache() if cache_dir is None else Path(cache_dir)
    slab = find_enclosing_slab(cache)
    if slab is not None:
        problem = f"{mark_option('cache_dir')} cannot lie within a slab"
        raise UsageError(problem, file=cache, found=slab)
    origin = Origin(
        text if remote else os.path.abspath(text),
        dict(storage_options or {}),
        os.path.abspath(cache),
        limit,
        cache_shared,
        temporary,
    )
    if network is not None and cache_dir is None:
        warn(
            f"{text} lies on {network}: blocks are kept in memory, {limit:,} bytes at most; give "
            "`cache_dir` to keep them on a local disk"
        )
    return open_mirror(origin)
