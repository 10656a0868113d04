"""The output: what is there already, and what the system refuses."""

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.packer.packing import (
    PYTHON,
    ROWS,
    batches,
    content,
    interrupt,
    listing,
    pack_shards,
    table,
    tree,
)

from fieldslab.packer import pack
from fieldslab.packer.outputs import replaced
from fieldslab.packer.write.directories import remove_path
from fieldslab.schemas.errors import (
    AccessDenied,
    FieldslabError,
    NoSpace,
    OutputDenied,
    OutputError,
    OutputExists,
    UsageError,
)
from fieldslab.schemas.folder import get_partial_path
from fieldslab.schemas.manifest import MANIFEST

# Errors of the system


def fail_at(monkeypatch: pytest.MonkeyPatch, name: str, wanted: int, number: int) -> list[int]:
    """Let the `wanted`-th call of a function of `os` fail; the list has an item per call."""
    real, calls = getattr(os, name), list[int]()

    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == wanted:
            raise OSError(number, os.strerror(number))
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, call)
    return calls


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("fsync", errno.EIO),
        ("fsync", errno.ENOSPC),
        ("pwrite", errno.ENOSPC),
        ("pwrite", errno.EDQUOT),
        ("pwrite", errno.EFBIG),
        ("rename", errno.EACCES),
        ("mkdir", errno.EMFILE),
        ("open", errno.EMFILE),
    ],
)
def test_every_failing_call(
    name: str, number: int, source: Path, out: Path, tmp_path: Path
) -> None:
    """Whichever system call fails: a named error, nothing half-written, and a rerun succeeds."""
    expected = content(pack_shards(source, tmp_path / "whole.slab").path)
    kind = NoSpace if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else OutputError
    for wanted in range(1, 1000, 1 if name in ("rename", "mkdir") else 7):
        with pytest.MonkeyPatch.context() as patch:
            calls = fail_at(patch, name, wanted, number)
            try:
                pack_shards(source, out)
            except OutputError as error:
                assert isinstance(error, OutputError if out.exists() else kind)  # noqa: PT017
        if len(calls) < wanted:
            break
        if not out.exists():
            assert set(listing(out.parent)) <= {get_partial_path(out).name}
            pack_shards(source, out)
        assert content(out) == expected
        assert listing(out.parent) == ["x.slab"]
        shutil.rmtree(out)
    assert wanted > 4


def test_a_shard_whose_fsync_failed_is_written_anew(
    source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed fsync may have lost data for good: its shard is not journaled, nor reused."""
    with monkeypatch.context() as patch:
        calls = fail_at(patch, "fsync", 10**9, errno.EIO)
        interrupt(source, out, 1)
    shutil.rmtree(get_partial_path(out))
    with monkeypatch.context() as patch:
        fail_at(patch, "fsync", len(calls) + 1, errno.EIO)
        with pytest.raises(OutputError, match="Input/output error"):
            pack_shards(source, out)
    assert listing(get_partial_path(out) / "slab") == ["shard-00000"]
    assert (get_partial_path(out) / "journal.jsonl").read_bytes().count(b"\n") == 2
    assert pack_shards(source, out).reused_shards == 1


def test_file_size_limit(source: Path, out: Path) -> None:
    """A real limit of the system on the size of a file is NoSpace, with a way out."""
    code = (
        "import resource, sys; from fieldslab.packer import pack;"
        "from fieldslab.schemas.errors import NoSpace\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))\n"
        "try: pack(sys.argv[1], sys.argv[2], shard_size=10**9)\n"
        "except NoSpace as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, source, out],  # its bytecode would be cut off, too
        env=PYTHON,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "allows. A smaller shard_size makes smaller files." in done.stdout, done.stderr
    assert listing(out.parent) == []


def test_old_slab_that_cannot_be_removed(
    source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the old slab cannot be removed, the message says that the new one is in place."""
    pack_shards(batches(table(1)), out)
    monkeypatch.setattr(replaced, "remove_path", _refuse_old)
    with pytest.raises(OutputError, match=r"new slab is in its place.*Remove it yourself"):
        pack_shards(source, out, force=True)
    assert np.load(out / "shard-00000" / "00-x.values.npy")[0] == table()["x"][0].as_py()


def _refuse_old(path: Path) -> None:
    if (path / MANIFEST).exists():
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    remove_path(path)


@contextlib.contextmanager
def unprivileged(mode: int) -> Iterator[Path]:
    """A folder of this mode, which binds this process even when it is run by root."""
    outer = Path(tempfile.mkdtemp())
    outer.chmod(0o755)
    folder = outer / "folder"
    folder.mkdir()
    folder.chmod(mode)
    root = os.geteuid() == 0
    try:
        if root:
            os.seteuid(65534)
        yield folder
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(outer)


@pytest.mark.parametrize("mode", [0o555, 0])
def test_folder_without_the_right_to_write(mode: int) -> None:
    """A folder that may not be written to, or not be entered, is told with the system's reason."""
    with unprivileged(mode) as folder, pytest.raises(OutputError, match="Permission") as caught:
        pack(table(), folder / "x.slab")
    assert type(caught.value) is OutputDenied


@pytest.mark.parametrize("name", ["file/x.slab", "x" * 300])
def test_impossible_paths(name: str, tmp_path: Path) -> None:
    """A path that cannot be made is an OutputError."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match=r"File exists|too long"):
        pack(table(), tmp_path / name)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("s3://bucket/x.slab", AccessDenied),
        ("gs://bucket/x.slab", AccessDenied),
        ("ftp://host/x.slab", UsageError),
    ],
)
def test_urls(
    url: str, error: type[FieldslabError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written here for a URL, least of all a folder that is named like its scheme."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error):
        pack(table(), url)
    assert not list(tmp_path.iterdir())


def test_folders_above_are_made(tmp_path: Path) -> None:
    """Missing folders above the output are created."""
    assert pack(table(), tmp_path / "a" / "b" / "x.slab").path.is_dir()


# What is there already


def test_nothing_is_replaced_without_force(source: Path, out: Path) -> None:
    """A slab, a file, a directory or a link in the place of the output is left alone."""
    pack_shards(batches(table(1)), out)
    before = content(out)
    with pytest.raises(OutputExists, match="force=True replaces a slab"):
        pack_shards(source, out)
    assert content(out) == before
    assert listing(out.parent) == ["x.slab"]


def make_web_app(out: Path) -> None:
    """A directory that has a manifest.json, but of another kind."""
    out.mkdir()
    (out / MANIFEST).write_text('{"name": "my app", "start_url": "/"}')


def make_slab_with_notes(out: Path) -> None:
    """A slab in which somebody keeps a file."""
    pack(table(), out)
    (out / "notes.txt").write_text("precious")


def make_half_a_slab(out: Path) -> None:
    """A slab without its manifest."""
    pack(table(), out)
    (out / MANIFEST).unlink()


def make_link(out: Path) -> None:
    """A link to a slab."""
    pack(table(), out.parent.parent / "real.slab")
    out.symlink_to("../real.slab")


def make_directory_manifest(out: Path) -> None:
    """A directory in which manifest.json is a directory."""
    (out / MANIFEST / "deep").mkdir(parents=True)


@pytest.mark.parametrize("force", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        Path.touch,
        make_web_app,
        make_slab_with_notes,
        make_half_a_slab,
        make_link,
        make_directory_manifest,
        lambda out: out.symlink_to("nowhere"),
    ],
)
def test_force_replaces_nothing_but_slabs(
    make: Callable[[Path], None], force: bool, source: Path, out: Path
) -> None:
    """Whatever is no slab, or more than one, is never removed, forced or not."""
    make(out)
    before = tree(out.parent.parent)
    with pytest.raises(OutputExists):
        pack_shards(source, out, force=force)
    assert tree(out.parent.parent) == before


def test_force_replaces_a_damaged_slab(source: Path, out: Path) -> None:
    """A slab whose manifest is damaged further on can be packed again in its place."""
    pack_shards(source, out)
    expected = content(out)
    os.truncate(out / MANIFEST, 200)
    pack_shards(source, out, force=True)
    assert content(out) == expected


def test_force_ignores_the_litter_of_file_managers(source: Path, out: Path) -> None:
    """What a file manager leaves in a slab does not protect it."""
    pack_shards(batches(table(1)), out)
    (out / ".DS_Store").write_bytes(b"")
    assert pack_shards(source, out, force=True).manifest.rows == ROWS
    assert not (out / ".DS_Store").exists()


def test_partial_that_is_not_ours(source: Path, out: Path) -> None:
    """A directory that only happens to be called NAME.partial is left alone."""
    left = get_partial_path(out)
    left.mkdir()
    (left / "thesis.tex").write_text("precious")
    before = tree(out.parent)
    with pytest.raises(OutputExists, match="not left by a packer"):
        pack_shards(source, out)
    assert tree(out.parent) == before
    (left / "thesis.tex").rename(left / "slab")
    with pytest.raises(OutputExists, match="not left by a packer"):
        pack_shards(source, out)
    assert (left / "slab").read_text() == "precious"


def test_partial_that_is_no_directory(source: Path, out: Path) -> None:
    """A file or a link called NAME.partial is left alone, and so is what the link leads to."""
    left = get_partial_path(out)
    left.write_text("precious")
    with pytest.raises(OutputExists, match="in the way"):
        pack_shards(source, out)
    assert left.read_text() == "precious"
    left.unlink()
    (out.parent / "other").mkdir()
    left.symlink_to("other")
    with pytest.raises(OutputExists, match="in the way"):
        pack_shards(source, out)
    assert listing(out.parent) == ["other", "x.slab.partial"]
