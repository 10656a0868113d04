"""Repair: damaged files of a slab are replaced by ones in which each block is what pack wrote."""

import hashlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from fieldslab.packer.check.findings import Problem, VerifyProgress, make_problem
from fieldslab.packer.check.foldercheck import find_unexpected_files
from fieldslab.packer.check.threads import open_thread_pool
from fieldslab.packer.check.verify import make_expected_names
from fieldslab.packer.repairing.damage import scan_folder
from fieldslab.packer.repairing.folder_repair import FolderRepair, Helpers
from fieldslab.packer.repairing.report import RepairReport
from fieldslab.packer.write.directories import lock_directory, remove_path
from fieldslab.schemas import layout
from fieldslab.schemas.access import iterate_folders
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.errors import (
    DamagedManifest,
    FieldslabError,
    IncompleteSlab,
    SlabChanged,
    Unreadable,
    UsageError,
)
from fieldslab.schemas.files import close_quietly
from fieldslab.schemas.folder import (
    SlabFiles,
    check_slab_path,
    get_partial_path,
    open_slab_files,
)
from fieldslab.schemas.manifest import MANIFEST, Manifest
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.signatures import read_manifest_bytes
from fieldslab.schemas.stores.directory import DirectoryStore
from fieldslab.schemas.stores.slab_objects import open_slab_anywhere
from fieldslab.schemas.write_errors import name_write_errors


def repair(
    slab: str | Path,
    *,
    against: Any = None,
    from_: str | Path | None = None,
    tokenizers: Sequence[str | Path] = (),
    delete: bool = False,
    dry_run: bool = False,
    progress: VerifyProgress | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> RepairReport:
    """Repair a slab in its directory: its `id` stays the same.

    Every block is read. Those that are damaged come from a copy, or are converted again from the
    source. A block counts only if its digest is the one that the manifest proves. Files are
    replaced by new ones, each in one rename: whoever has the slab open goes on reading, and a kill
    leaves each file as it was or repaired. What cannot be repaired stays as it was.

    Parameters
    ----------
    slab
        The slab's directory.
    against
        The source, as `verify` takes it. It is converted by the options in the manifest; only units
        that hold damaged rows are read.
    from_
        Another copy of the slab, a directory or a URL: only damaged blocks are read there. It is
        asked before the source. Only a copy can repair `manifest.json`.
    tokenizers
        Files of the tokenizers that the slab was packed with.
    delete
        Delete files that do not belong to the slab.
    dry_run
        Find what is damaged, and change nothing.
    progress
        Called with the rows and bytes that were checked since the last call.
    storage_options
        For URLs of `against` and `from_`: see `fieldslab.schemas.stores.store.open_store`.

    Returns
    -------
    A report: `report.repaired` lists the files that were replaced, `report.problems` what is left.

    Raises
    ------
    NotASlab, DamagedManifest
        There is no slab to repair, or only a copy could repair its manifest.
    UsageError
        There is nothing to repair it from, or a shuffled slab has no copy.
    SlabChanged
        The copy is one of another slab.
    SourceError, RemoteUnreadable, AccessDenied, MissingLibrary
        The source or the copy cannot be read.
    Busy, NoSpace, OutputDenied, OutputError
        Somebody packs or repairs the slab, or it cannot be written.
    """
    if against is None and from_ is None and not (dry_run or delete):
        raise UsageError(
            "there is nothing to repair from",
            hint=f"{mark_option('against', 'SRC')} names the source, {mark_option('from_')} a copy "
            f"of the slab; {mark_option('dry_run', True)} only lists what is damaged.",
        )
    started = time.monotonic()
    path = check_slab_path(slab)
    report = RepairReport(path, dry_run=dry_run)
    with ExitStack() as stack:
        copy = None
        if from_ is not None:
            copy = stack.enter_context(
                open_slab_anywhere(from_, storage_options=_choose_options(from_, storage_options))
            )
        if not dry_run:
            stack.enter_context(_lock(path))
        files = stack.enter_context(_open_or_restore(path, copy, report))
        if copy is not None and copy.manifest.id != files.manifest.id:
            raise SlabChanged(
                f"{mark_option('from_')}: is a copy of another slab",
                file=copy.path,
                expected=f"id {files.manifest.id}",
                found=f"id {copy.manifest.id}",
            )
        helpers = Helpers(files, copy, against, tokenizers, storage_options)
        _repair_folders(files, helpers, report, delete, progress)
    report.seconds = time.monotonic() - started
    return report


def _repair_folders(
    files: SlabFiles,
    helpers: Helpers,
    report: RepairReport,
    delete: bool,
    progress: VerifyProgress | None,
) -> None:
    with files.open_folder() as opened:
        extra = list(find_unexpected_files(opened, make_expected_names(files.manifest)))
    _handle_extra(extra, report, delete)
    copies = iter(()) if helpers.copy is None else iterate_folders(helpers.copy)
    shard = -1
    with open_thread_pool() as run:
        for folder in iterate_folders(files):
            shard += folder.holds_rows
            of_copy = next(copies, None)
            scan = scan_folder(folder, run)
            _handle_extra(scan.extra, report, delete)
            if not scan.is_whole:
                FolderRepair(scan, shard, of_copy, helpers, report).run()
            size = sum(file.data_bytes for file in folder.files)
            report.bytes += size
            if progress is not None:
                progress(folder.rows if folder.holds_rows else 0, size)


def _handle_extra(paths: Sequence[str], report: RepairReport, delete: bool) -> None:
    for path in paths:
        if not delete or report.dry_run:
            report.add_left(Problem(problem="does not belong here", file=path))
            continue
        with name_write_errors(Path(path)):
            remove_path(Path(path))
        report.deleted.append(path)


def _choose_options(
    place: str | Path, storage_options: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    return storage_options if "://" in str(place) else None


@contextmanager
def _lock(slab: Path) -> Iterator[None]:
    """Keep packers and other repairs away from a slab. Raises Busy, OutputExists, OutputError."""
    folder = get_partial_path(slab)
    with name_write_errors(folder):
        lock = lock_directory(folder)
    try:
        yield
    finally:
        with suppress(OSError):
            folder.rmdir()  # where no pack was cut off
        close_quietly(lock)


def _open_or_restore(slab: Path, copy: SlabFiles | None, report: RepairReport) -> SlabFiles:
    """Open a slab; where its manifest is damaged, restore that from a copy first."""
    try:
        return open_slab_files(slab)
    except (DamagedManifest, IncompleteSlab, Unreadable) as error:
        if copy is None:
            error.add_hint(
                f"No source tells what the manifest was: name a copy by {mark_option('from_')}."
            )
            raise
        if not _is_of(slab, copy.manifest):
            error.add_hint(
                f"Nothing in the directory shows that {copy.path} is a copy of it. If you know "
                f"that it is, copy its {MANIFEST} here, and repair again."
            )
            raise
        if report.dry_run:
            report.add_left(make_problem(error))
            raise
        DirectoryStore(slab).write(MANIFEST, read_manifest_bytes(copy))
        report.add_repaired(slab / MANIFEST, "manifest", error.problem, 0)
    return open_slab_files(slab)


def _is_of(slab: Path, manifest: Manifest) -> bool:
    """Return True if what is left of a slab shows that it was the one of this manifest.

    Its damaged manifest still has the same id, or one of its digest tables the same root.
    """
    with suppress(OSError):
        if re.search(rb'"id": "%s"' % manifest.id.encode(), (slab / MANIFEST).read_bytes()):
            return True
    roots = {layout.name_shard(n): shard.root for n, shard in enumerate(manifest.shards)}
    if manifest.tables is not None:
        roots[layout.TABLES] = manifest.tables
    for name, root in roots.items():
        with suppress(OSError, FieldslabError):
            table = (slab / name / layout.DIGESTS).read_bytes()[HEADER:]
            if hashlib.sha256(table).hexdigest() == root:
                return True
    return False
