"""Compiled kernels are kept between processes, and never taken for others."""

import os
import zipfile
from pathlib import Path

import pytest
from tests.forking import run_python

from fieldslab.schemas import kernelcache

_PART = """
from fieldslab.schemas.jit import inlined
STEP = 1

@inlined
def following(value):
    return value + STEP
"""
_LOOP = """
from fieldslab.probe.part import following
from fieldslab.schemas.jit import kernel

@kernel("int64(int64)")
def twice(value):
    return following(following(value))
"""
_RUN = """
import sys
sys.path.insert(0, sys.argv[1])
# Python takes its own bytecode of a file edited twice in one second for the new one.
sys.dont_write_bytecode = True
from fieldslab.schemas import kernelcache
kernelcache.NEWEST = 2
from fieldslab.probe.loop import twice
compiled = twice.load()
print(twice(0), "compiled" if compiled else "kept")
"""


class Probe:
    """A kernel of a package of its own beside fieldslab, with a cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.root = folder / "root"
        self.package = self.root / "fieldslab" / "probe"
        self.package.mkdir(parents=True)
        self.cache.mkdir()
        (self.package / "loop.py").write_text(_LOOP)
        self.part = self.package / "part.py"
        self.part.write_text(_PART)

    @property
    def kernels(self) -> list[Path]:
        """The files of the kernel that are kept."""
        return list(self.cache.glob("fieldslab-kernels/*.kernel"))

    def run(self, root: Path | None = None) -> str:
        """What the kernel computes in a fresh process, and whether it was compiled there."""
        printed = run_python("-c", _RUN, root or self.root, NUMBA_CACHE_DIR=str(self.cache))
        return printed.strip()


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    """The kernel and its part, not compiled yet."""
    return Probe(tmp_path)


def test_an_edited_part_is_compiled_anew(probe: Probe) -> None:
    """A kernel follows its inlined parts and their constants, and is kept for each version."""
    assert probe.run() == "2 compiled"
    probe.part.write_text(_PART.replace("value + STEP", "value + STEP + 3"))
    assert probe.run() == "8 compiled"
    probe.part.write_text(_PART)
    assert probe.run() == "2 kept"
    probe.part.write_text(_PART.replace("STEP = 1", "STEP = 5"))
    assert probe.run() == "10 compiled"
    assert len(probe.kernels) == 2  # the newest ones: more are not kept


def test_packages_in_archives_are_kept(probe: Probe, tmp_path: Path) -> None:
    """A kernel that is imported from a zip file is compiled once, too."""
    archive = tmp_path / "probe.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for folder in ("fieldslab/", "fieldslab/probe/"):
            file.writestr(folder, "")
        for module in probe.package.iterdir():
            file.write(module, f"fieldslab/probe/{module.name}")
    assert [probe.run(archive) for _ in range(2)] == ["2 compiled", "2 kept"]


def test_a_damaged_file_is_compiled_anew(probe: Probe) -> None:
    """What was cut off on the disk is no machine code; the next process has it whole again."""
    probe.run()
    (kernel,) = probe.kernels
    os.truncate(kernel, kernel.stat().st_size - 1)
    assert [probe.run() for _ in range(2)] == ["2 compiled", "2 kept"]


def _folder(monkeypatch: pytest.MonkeyPatch, **variables: object) -> Path | None:
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(variables.get(name, "")))
    return kernelcache.find_cache_folder.__wrapped__()


def test_the_working_directory_keeps_no_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative directory is passed over, wherever it comes from: kernels run."""
    monkeypatch.chdir(tmp_path)
    for path in ("", ".", "cache"):
        named = {"NUMBA_CACHE_DIR": path, "XDG_CACHE_HOME": path, "HOME": path or "."}
        assert _folder(monkeypatch, **named) is None
    assert list(tmp_path.iterdir()) == []


def test_others_write_no_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that others may write to is passed over, and the next place is taken."""
    shared, own = tmp_path / "shared", tmp_path / "own"
    (shared / "fieldslab-kernels").mkdir(parents=True)
    (shared / "fieldslab-kernels").chmod(0o770)
    actual = _folder(monkeypatch, NUMBA_CACHE_DIR=shared, XDG_CACHE_HOME=own)
    assert actual == own / "fieldslab-kernels"
    assert actual.stat().st_mode & 0o777 == 0o700
