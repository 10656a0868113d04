"""Verify: the structure of a slab, its digests, and its values against the source."""

import fnmatch
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

from fieldslab.packer.check import digests
from fieldslab.packer.check.blocks import Checked, Piece, check_piece
from fieldslab.packer.check.findings import Findings, Problem, Progress, Report, problem_of
from fieldslab.packer.check.foldercheck import FolderCheck, unexpected
from fieldslab.packer.check.folders import Folder, all_folders
from fieldslab.packer.check.rules import rule_of
from fieldslab.packer.check.sampling import Selection, everything, select
from fieldslab.schemas import layout
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import (
    DamagedManifest,
    FieldslabError,
    UnknownField,
    UsageError,
)
from fieldslab.schemas.folder import load_manifest, slab_path
from fieldslab.schemas.layout import ArrayFile
from fieldslab.schemas.manifest import MANIFEST, Manifest

THREADS = min(4, os.cpu_count() or 1)


def verify(
    slab: str | Path, *, quick: bool = False, sample: str | None = None, against: Any = None,
    from_: str | None = None, tokenizers: Sequence[str | Path] = (),
    fields: str | Iterable[str] | None = None, max_errors: int = 20,
    progress: Progress | None = None, tell: Callable[[Problem], None] | None = None,
) -> Report:  # fmt: skip
    """Check a slab: every file, every header and, by default, every byte.

    Parameters
    ----------
    slab
        The slab's directory.
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

    Returns
    -------
    A report; `report.ok` says whether the slab is whole, `report.problems` what is wrong.

    Raises
    ------
    NotASlab, UnsupportedVersion
        There is no slab to check.
    UsageError, UnknownField
        The call contradicts itself or names a field that is not there.
    SourceUnreadable
        The source to compare with cannot be read.
    """
    if quick and sample is not None:
        raise UsageError("--quick reads no values: it does not go with --sample")
    started, path = time.monotonic(), slab_path(slab)
    report = Report(path, scope=_scope(quick, sample, against), compared=against is not None)
    findings = Findings(report, max_errors, tell)
    try:
        manifest = load_manifest(path)
    except DamagedManifest as error:
        findings.add(problem_of(error))
        report.seconds = time.monotonic() - started
        return report
    chosen = _choose(manifest, fields)
    report.rows, report.fields = manifest.rows, len(chosen)
    try:
        for name in unexpected(str(path), _top_names(manifest)):
            findings.add(Problem(problem="does not belong here", file=name))
    except OSError as error:
        findings.add(Problem(problem=f"cannot be listed: {error.strerror}", file=str(path)))
    _check_arrays(path, manifest, chosen, quick, sample, findings, progress)
    if against is not None:
        from fieldslab.packer.check.against import compare  # needs pyarrow, which takes its time

        compare(path, against, from_, chosen, findings, progress, tokenizers)
    report.seconds = time.monotonic() - started
    return report


def expected_bytes(slab: str | Path, *, quick: bool = False, sample: str | None = None,
                   against: Any = None, **_: Any) -> int | None:  # fmt: skip
    """Bytes that `verify` will read, for its progress; None where that is not known before."""
    if quick or sample is not None or against is not None:
        return None
    try:
        path = slab_path(slab)
        manifest = load_manifest(path)
    except FieldslabError:
        return None
    return sum(file.data_bytes for folder in all_folders(path, manifest) for file in folder.files)


def _scope(quick: bool, sample: str | None, against: Any) -> str:
    scope = "structure only" if quick else "all" if sample is None else f"sample of {sample}"
    if against is None:
        return scope
    return "compared with the source" if scope == "all" else f"{scope}, compared with the source"


def _choose(manifest: Manifest, fields: str | Iterable[str] | None) -> set[str]:
    names = [field.name for field in manifest.fields]
    if fields is None:
        return set(names)
    chosen: set[str] = set()
    for part in [fields] if isinstance(fields, str) else fields:
        for pattern in part.split(","):
            hits = [pattern] if pattern in names else fnmatch.filter(names, pattern.strip())
            if not hits:
                shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
                raise UnknownField(
                    "--fields: no such field", field=pattern, hint=f"The fields are: {shown}."
                )
            chosen.update(hits)
    return chosen


def _top_names(manifest: Manifest) -> set[str]:
    names = {MANIFEST} | {layout.shard_name(index) for index in range(len(manifest.shards))}
    return names if manifest.tables is None else names | {layout.TABLES}


def _check_arrays(
    path: Path, manifest: Manifest, chosen: set[str], quick: bool, sample: str | None,
    findings: Findings, progress: Progress | None,
) -> None:  # fmt: skip
    """Check every folder, its files spread over a few threads."""
    nullable = [field.name for field in manifest.fields if field.nullable]
    counts = [dict(zip(nullable, shard.nulls, strict=True)) for shard in manifest.shards]
    nulls: list[dict[str, int]] = [] if manifest.tables is None else [{}]
    total = sum(
        _blocks_there(folder, file)
        for folder in (all_folders(path, manifest) if sample is not None else ())
        for file in folder.files
        if file.field.name in chosen
    )
    selection = select(sample, total)
    number = 0
    with _threads() as run:
        for folder, counted in zip(all_folders(path, manifest), nulls + counts, strict=True):
            files = [file for file in folder.files if file.field.name in chosen]
            counts_there = (_blocks_there(folder, file) for file in files)
            numbers = list(accumulate(counts_there, initial=number))
            number = numbers.pop()
            check = FolderCheck(folder, counted, findings)
            if not check.start():
                continue
            work = [
                (file, _without_values(folder, file) if quick else selection, first)
                for file, first in zip(files, numbers, strict=True)
            ]
            for checked in run(check.pieces(work)):
                check.take(checked)
                findings.report.bytes += checked.bytes
                if findings.report.bytes >= digests.WORTH:
                    digests.release_lock()
                if progress is not None:
                    progress(0, checked.bytes)
            check.finish()


def _blocks_there(folder: Folder, file: ArrayFile) -> int:
    """Blocks of a file; 0 where it has not the size that the manifest says."""
    try:
        size = (folder.path / file.name).lstat().st_size
    except OSError:
        return 0
    return file.blocks if size == HEADER + file.data_bytes else 0


def _without_values(folder: Folder, file: ArrayFile) -> Selection:
    """For `quick`: all of an array whose content obeys a rule, nothing of any other."""
    return everything if rule_of(folder, file) is not None else _nothing


def _nothing(start: int, stop: int) -> Iterator[tuple[int, int]]:
    return iter(())


@contextmanager
def _threads() -> Iterator[Callable[[Iterator[Piece]], Iterator[Checked]]]:
    """A function that checks pieces in a few threads and gives the results in order."""
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="fieldslab-verify")
    try:
        yield lambda pieces: pool.map(check_piece, pieces)
    finally:
        pool.shutdown(cancel_futures=True)
