"""Opening slabs."""

import os
from collections.abc import Mapping
from typing import Any, Literal

from fieldslab.reader.interpreters import check_interpreter
from fieldslab.reader.quarantine import make_quarantine
from fieldslab.reader.slab import Slab
from fieldslab.reader.slab_storage import Storage
from fieldslab.schemas.folder import check_content_id, check_pinned
from fieldslab.schemas.unions.open_members import Places, open_members


def open_slab(
    path: Places,
    *,
    missing: str | None = None,
    verify: bool = True,
    follow_links: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_limit: str | int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache_shared: bool = False,
    on_damage: Literal["raise", "skip", "fill"] = "raise",
    max_damaged: float = 0.001,
    id: str | None = None,  # what the manifest and `info` call it
) -> Slab:
    """Open a slab, or many as one. Only manifests are read, so the time does not depend on rows.

    Of many, the rows follow each other, and fields are joined by name: they must have the same
    kind, dtype and shape, and are nullable if one is. Codes of categories and classes are those
    of all slabs together. `slab.members` says which rows each slab has.

    The slab's directory stays open, and files are found below it, never by `path` again. So the
    slab stays the same, whatever is packed to `path` later.

    A slab at a URL, and any slab with `cache_dir`, is read through a mirror: blocks are fetched
    when they are first needed, compared with their digests, and kept in the cache directory for all
    processes of the machine. Once it is whole, the mirror is a slab itself.

    Parameters
    ----------
    path
        The directory that `fieldslab pack` wrote, or its URL: `s3://`, `gs://`, `az://`,
        `https://`.
        Of many: a list of them, a dict of them by name, a pattern such as `parts/*.slab`, or a
        file `NAME.slabs` that `fieldslab union` wrote. A name may stand for a list, too.
    missing
        "null": read nulls where a slab lacks a field that others have. Default: an error.
    verify
        Compare each 64 KiB block with its digest when this process first touches it. The first
        pass over data in memory then runs at about 0.6 of the speed; later passes are not slower.
        Mirrors are always verified.
    follow_links
        Follow links in the slab, wherever they lead, as in the caches of Hugging Face and DVC.
        `path` itself may be a link in any case.
    cache_dir
        A directory for mirrors, on a local disk; it is created. Default for URLs: the variable
        FIELDSLAB_CACHE_DIR, or `~/.cache/fieldslab/slabs`. ":memory:" keeps blocks in memory: the
        default for directories on network file systems.
    cache_limit
        Bytes that all mirrors there may take, such as "500G": what is needed last goes.
    storage_options
        For obstore, which reads URLs, beside what the environment says, as by AWS_REGION.
    cache_shared
        Allow a `cache_dir` that anybody may write into.
    on_damage
        What batches do with rows that do not match their digests, or that the disk cannot read.
        "raise" the error, "skip" these rows in all fields, so that a batch has fewer rows, or
        "fill" them: with zeros, nothing, -1 for categories, and null where a field may be. Images
        that are decoded get the `fill` of `ImageSteps`. `Batch.failures` names rows and fields, and
        `Loader.stats()` counts them. Single rows, columns and addresses raise in any case.
    max_damaged
        The share of all rows that may be damaged; with more, the error is raised.
    id
        The `id` that the content must have, as `fieldslab info` shows it: 64 hexadecimal digits,
        or the first 16 or more of them. Of many slabs, it is that of all together.

    Raises
    ------
    NotASlab, IncompleteSlab, UnsupportedVersion, DamagedManifest, Unreadable, RemoteUnreadable
        There is no slab, it is incomplete, too new or damaged; the disk or the server fails.
    AccessDenied, MissingLibrary
        A server refuses; reading the URL needs a library.
    SlabChanged
        A slab is not the one that a union file lists, or that `id` names.
    UsageError
        Arguments make no sense, slabs contradict each other, `cache_dir` holds something else, or
        this is a subinterpreter, which numpy and numba do not support.
    NoSpace, OutputDenied, OutputError
        The cache directory is full, or cannot be written.
    """
    check_interpreter()
    quarantine = make_quarantine(on_damage, max_damaged)
    if id is not None:
        check_content_id(id)
    slabs = open_members(
        path,
        missing=missing,
        follow_links=follow_links,
        cache_dir=cache_dir,
        cache_limit=cache_limit,
        storage_options=storage_options,
        cache_shared=cache_shared,
    )
    check_pinned(id, slabs.manifest.id, slabs.path)
    return Slab(Storage(slabs, verify, quarantine), range(slabs.manifest.rows))
