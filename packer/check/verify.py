"""Verify: the structure of a slab, its digests, and its values against the source."""

import fnmatch
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

from fieldslab.packer.check import digests
from fieldslab.packer.check.block_check import check_block_runs
from fieldslab.packer.check.findings import Findings, Problem, Report, VerifyProgress, make_problem
from fieldslab.packer.check.foldercheck import FolderCheck, find_unexpected_files
from fieldslab.packer.check.rules import choose_rule
from fieldslab.packer.check.sampling import Selection, parse_sample, select_all
from fieldslab.packer.check.threads import REMOTE_THREADS, THREADS, open_thread_pool
from fieldslab.schemas import layout
from fieldslab.schemas.access import Folder, iterate_folders
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.digest import XXH3
from fieldslab.schemas.errors import (
    DamagedArray,
    DamagedManifest,
    FieldslabError,
    RemoteUnreadable,
    UnknownField,
    Unreadable,
    UsageError,
)
from fieldslab.schemas.fields import Field
from fieldslab.schemas.folder import SlabFiles, check_pinned
from fieldslab.schemas.layout import ArrayFile
from fieldslab.schemas.manifest import MANIFEST, SIGNATURE, Manifest
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.slab_objects import (
    SlabObjects,
    find_slab_path,
    is_remote,
    open_slab_anywhere,
)


def verify(
    slab: str | Path,
    *,
    quick: bool = False,
    sample: str | None = None,
    against: Any = None,
    from_: str | None = None,
    tokenizers: Sequence[str | Path] = (),
    fields: str | Iterable[str] | None = None,
    max_errors: int = 20,
    progress: VerifyProgress | None = None,
    tell: Callable[[Problem], None] | None = None,
    follow_links: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    id: str | None = None,
) -> Report:
    """Check a slab: every file, every header and, by default, every byte.

    Parameters
    ----------
    slab
        The slab's directory, or its URL: then all of it is downloaded, and nothing kept.
    quick
        Check files, headers, digest tables, offsets, flags and category codes, and do not read
        the values.
    sample
        Read some of the blocks: `5%` at random, `3/30` the third of thirty parts, `10G` about so
        many bytes at random.
    against
        The source (paths, or an object as `pack` takes it): pack it again in memory, with the
        options that the slab was packed with, and compare every value.
    from_
        Name of the kind of source, where it is another than that of the slab.
    tokenizers
        Files of the tokenizers that the slab was packed with, to compare with the source; those
        of the same names in the working directory if not given.
    fields
        Names or patterns: check these fields only.
    max_errors
        How many problems to keep; all are counted.
    progress
        Called with the rows and bytes that were checked since the last call.
    tell
        Called with every problem that is kept, as soon as it is found.
    follow_links
        Follow links in the slab, wherever they lead; the slab's own path may be one in any case.
    storage_options
        For URLs of the slab and of `against`: see `fieldslab.schemas.stores.store.open_store`.
    id
        The `id` that the slab must have, or its first 16 digits or more.

    Returns
    -------
    A report; `report.ok` says whether the slab is whole, `report.problems` what is wrong.

    Raises
    ------
    NotASlab, UnsupportedVersion
        There is no slab to check, or there are links in it.
    SlabReplaced
        The slab was removed while it was checked.
    SlabChanged
        It has another `id` than the one that was asked for.
    UsageError, UnknownField
        The call contradicts itself or names a field that is not there.
    RemoteUnreadable, AccessDenied, MissingLibrary
        The store of a URL fails, refuses, or needs a library.
    SourceUnreadable
        The source to compare with cannot be read.
    """
    if quick and sample is not None:
        raise UsageError(
            f"{mark_option('quick', True)} reads no values: it does not go with "
            f"{mark_option('sample')}"
        )
    started = time.monotonic()
    report = Report(
        find_slab_path(slab),
        scope=_describe_scope(quick, sample, against),
        compared=against is not None,
    )
    findings = Findings(report, max_errors, tell)
    try:
        files = open_slab_anywhere(
            slab,
            follow_links=follow_links,
            storage_options=storage_options if against is None or is_remote(slab) else None,
        )
    except (DamagedManifest, Unreadable) as error:
        findings.add(make_problem(error))
        report.seconds = time.monotonic() - started
        return report
    with files:
        check_pinned(id, files.manifest.id, files.path)
        chosen = {field.name for field in choose_fields(files.manifest, fields)}
        report.rows, report.fields = files.manifest.rows, len(chosen)
        try:
            with files.open_folder() as opened:
                for name in find_unexpected_files(opened, make_expected_names(files.manifest)):
                    findings.add(Problem(problem="does not belong here", file=name))
        except Unreadable as error:
            findings.add(make_problem(error))
        rows_too = against is None  # otherwise they count as they are compared
        _check_arrays(files, chosen, quick, sample, findings, progress, rows_too)
        if against is not None:
            from fieldslab.packer.check.against import compare  # needs pyarrow: takes its time

            compare(files, against, from_, chosen, findings, progress, tokenizers, storage_options)
    report.seconds = time.monotonic() - started
    return report


def compute_expected_bytes(
    slab: str | Path,
    *,
    quick: bool = False,
    sample: str | None = None,
    against: Any = None,
    follow_links: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **_: Any,
) -> int | None:
    """Compute the bytes that `verify` will read, for its progress; None if that is unknown."""
    if quick or sample is not None or against is not None:
        return None
    try:
        files = open_slab_anywhere(slab, follow_links=follow_links, storage_options=storage_options)
    except RemoteUnreadable:
        raise  # to try again takes as long
    except FieldslabError:
        return None
    with files:
        return sum(file.data_bytes for folder in iterate_folders(files) for file in folder.files)


def _describe_scope(quick: bool, sample: str | None, against: Any) -> str:
    scope = "structure only" if quick else "all" if sample is None else f"sample of {sample}"
    if against is None:
        return scope
    return "compared with the source" if scope == "all" else f"{scope}, compared with the source"


def choose_fields(manifest: Manifest, fields: str | Iterable[str] | None) -> list[Field]:
    """Choose fields by names or patterns, in the order of these; all fields for None.

    Raises UnknownField where there is none of a name.
    """
    names = [field.name for field in manifest.fields]
    if fields is None:
        return list(manifest.fields)
    chosen: dict[str, None] = {}
    for part in [fields] if isinstance(fields, str) else fields:
        for pattern in part.split(","):
            hits = [pattern] if pattern in names else fnmatch.filter(names, pattern.strip())
            if not hits:
                shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
                raise UnknownField(
                    f"{mark_option('fields')}: no such field",
                    field=pattern,
                    hint=f"The fields are: {shown}.",
                )
            chosen.update(dict.fromkeys(hits))
    return [manifest.fields[names.index(name)] for name in chosen]


def make_expected_names(manifest: Manifest) -> set[str]:
    """Make the names of what belongs into a slab's own folder."""
    names = {MANIFEST, SIGNATURE} | {
        layout.name_shard(index) for index in range(len(manifest.shards))
    }
    return names if manifest.tables is None else names | {layout.TABLES}


def _check_arrays(
    slab: SlabFiles,
    chosen: set[str],
    quick: bool,
    sample: str | None,
    findings: Findings,
    progress: VerifyProgress | None,
    rows_too: bool,
) -> None:
    """Check every folder, its files spread over a few threads; `progress` counts rows, too."""
    manifest = slab.manifest
    nullable = [field.name for field in manifest.fields if field.nullable]
    counts = [dict(zip(nullable, shard.nulls, strict=True)) for shard in manifest.shards]
    nulls: list[dict[str, int]] = [] if manifest.tables is None else [{}]
    total = sum(
        sum(
            _count_blocks_of_intact_files(
                folder, [file for file in folder.files if file.field.name in chosen]
            )
        )
        for folder in (iterate_folders(slab) if sample is not None else ())
    )
    selection = parse_sample(sample, total)
    number = 0
    threads = REMOTE_THREADS if isinstance(slab, SlabObjects) else THREADS
    with open_thread_pool(threads) as run:
        for folder, counted in zip(iterate_folders(slab), nulls + counts, strict=True):
            files = [file for file in folder.files if file.field.name in chosen]
            numbers = list(accumulate(_count_blocks_of_intact_files(folder, files), initial=number))
            number = numbers.pop()
            check = FolderCheck(folder, counted, findings, run)
            if not check.read_digest_table():
                continue
            if isinstance(slab, SlabObjects):
                check.load_headers(files)
            work = [
                (file, _select_for_quick(folder, file) if quick else selection, first)
                for file, first in zip(files, numbers, strict=True)
            ]
            for checked in run(check_block_runs, check.split_work(work)):
                check.add_result(checked)
                findings.report.bytes += checked.bytes
                if folder.digest is XXH3 and findings.report.bytes >= digests.WORTH:
                    digests.switch_to_native_digests()
                if progress is not None:
                    progress(0, checked.bytes)
            check.check_whole_folder()
            if progress is not None and rows_too and folder.holds_rows:
                progress(folder.rows, 0)


def _count_blocks_of_intact_files(folder: Folder, files: list[ArrayFile]) -> list[int]:
    """Count the blocks of each file that can be read; 0 where its size is not the manifest's.

    A sample numbers these blocks.
    """
    counts = [0] * len(files)
    with suppress(DamagedArray, Unreadable), folder.open() as opened:
        for index, file in enumerate(files):
            if opened.find_size(file.name) == HEADER + file.data_bytes:
                counts[index] = file.blocks
    return counts


def _select_for_quick(folder: Folder, file: ArrayFile) -> Selection:
    """Select all blocks of an array whose content obeys a rule, and none of any other."""
    return select_all if choose_rule(folder, file) is not None else _select_nothing


def _select_nothing(start: int, stop: int) -> Iterator[tuple[int, int]]:
    return iter(())
