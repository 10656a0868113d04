"""A slab's folder: what is opened, and what every other path is told."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.slabs import flip, write_slab

from fieldslab.schemas import layout
from fieldslab.schemas.access import find_shard_folder
from fieldslab.schemas.errors import (
    DamagedArray,
    DamagedManifest,
    FieldslabError,
    IncompleteSlab,
    NotASlab,
    SlabNotFound,
    Unreadable,
    UnsupportedVersion,
)
from fieldslab.schemas.files import read_status
from fieldslab.schemas.folder import (
    JOURNAL,
    get_partial_path,
    load_manifest,
    open_slab_files,
)
from fieldslab.schemas.manifest import MANIFEST


@pytest.fixture
def slab(tmp_path: Path) -> Path:
    """A small slab."""
    return write_slab(tmp_path / "x.slab", {"x": np.arange(5), "s": ["a", "", "bc", "d", "e"]})


def refuse(path: Path, cls: type[FieldslabError], words: str) -> None:
    """Check that loading fails with exactly this class, and a message that says what to do."""
    with pytest.raises(cls) as caught:
        load_manifest(path)
    assert type(caught.value) is cls
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_slab_is_loaded_from_any_spelling_of_its_path(
    slab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absolute, relative, with a slash, through a link to the slab, and as `.`: all the same."""
    manifest = load_manifest(slab)
    assert manifest.rows == 5
    (slab.parent / "link").symlink_to("x.slab")
    monkeypatch.chdir(slab)
    for path in (str(slab), f"{slab}/", ".", "../x.slab", "../link"):
        assert load_manifest(path) == manifest


def test_nothing_there(tmp_path: Path) -> None:
    """A path that does not exist: check it, or pack first."""
    refuse(
        tmp_path / "no.slab", SlabNotFound, "does not exist. Check the path, or pack the slab first"
    )
    refuse(tmp_path / "no" / "no.slab", SlabNotFound, "does not exist")
    refuse(tmp_path / ("x" * 250), SlabNotFound, "does not exist")  # NAME.partial is too long


def test_some_other_directory(tmp_path: Path) -> None:
    """A directory of something else: give the one that was packed."""
    refuse(tmp_path, SlabNotFound, "Give the directory that `fieldslab pack -o` wrote")


def test_a_file(slab: Path) -> None:
    """A file, even one out of a slab, is no slab."""
    refuse(
        slab / "shard-00000" / "00-x.values.npy", SlabNotFound, "is a file, not a slab directory"
    )


def test_packing_was_cut_off(tmp_path: Path) -> None:
    """Where a packer left a partial slab, the message says how to go on."""
    get_partial_path(tmp_path / "x.slab").mkdir()
    words = "packing was cut off. Run the same `fieldslab pack` command again"
    refuse(tmp_path / "x.slab", IncompleteSlab, words)


@pytest.mark.parametrize("left", [JOURNAL, "shard-00000/00-x.values.npy"])
def test_half_a_slab(left: str, tmp_path: Path) -> None:
    """A directory with parts of a slab but no manifest was not finished, or not copied whole."""
    path = tmp_path / "x.slab" / left
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    words = "Run the `fieldslab pack` command again, or copy the directory again"
    refuse(tmp_path / "x.slab", IncompleteSlab, words)


def test_newer_version(slab: Path) -> None:
    """A slab of a later format: upgrade."""
    path = slab / MANIFEST
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(UnsupportedVersion, match=r"expected 1, found 2.*Upgrade fieldslab"):
        load_manifest(slab)


def test_unreadable(slab: Path) -> None:
    """A manifest that cannot be opened is told apart from one that is not there."""
    (slab / MANIFEST).unlink()
    name = "n" * 300
    refuse(slab / name, NotASlab, "cannot be read: File name too long")


def test_manifest_must_be_a_regular_file(slab: Path) -> None:
    """A manifest that is a link, a pipe, a directory or empty is refused, without waiting."""
    path = slab / MANIFEST
    path.rename(slab / "moved")
    descriptors = len(os.listdir("/dev/fd"))
    path.symlink_to("moved")
    refuse(slab, NotASlab, "links in a slab are not followed")
    assert load_manifest(slab, follow_links=True).rows == 5
    path.unlink()
    os.mkfifo(path)
    refuse(slab, DamagedManifest, "not a regular file")
    path.unlink()
    path.mkdir()
    refuse(slab, DamagedManifest, "not a regular file")
    path.rmdir()
    path.write_bytes(b"")
    refuse(slab, DamagedManifest, "manifest is empty")
    assert len(os.listdir("/dev/fd")) == descriptors


def load_table(slab: Path) -> np.ndarray:
    """The digest table of the first shard, checked."""
    with open_slab_files(slab) as files:
        return find_shard_folder(files, 0, 0).load_digests()


def test_digest_table(slab: Path) -> None:
    """The table has a digest for every block, and is what the manifest's root says."""
    assert load_table(slab).shape == (3,)
    flip(slab / "shard-00000" / layout.DIGESTS, offset=9)
    with pytest.raises(DamagedArray, match="digest table is damaged"):
        load_table(slab)


def test_folders_that_are_links(slab: Path) -> None:
    """A shard folder that is a link is refused, with what to do, unless links are followed."""
    shutil.move(slab / "shard-00000", slab.parent / "elsewhere")
    (slab / "shard-00000").symlink_to("../elsewhere")
    with pytest.raises(NotASlab, match=r"links in a slab are not followed.*cp -RL"):
        load_table(slab)
    with (
        open_slab_files(slab, follow_links=True) as files,
        files.open_folder(layout.name_shard(0)) as folder,
        folder.open_file(layout.DIGESTS) as (_, size),
    ):
        assert size == 4096 + 3 * 8


def test_a_folder_that_the_system_does_not_describe(tmp_path: Path) -> None:
    """A descriptor that the system refuses to tell of is a named error."""
    fd = os.open(tmp_path, os.O_RDONLY)
    assert read_status(fd, tmp_path).st_ino == tmp_path.stat().st_ino
    os.close(fd)
    with pytest.raises(Unreadable, match="cannot be read"):
        read_status(fd, tmp_path)
