"""What an installer and a type checker see of the project."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from importlib.metadata import distribution, entry_points
from pathlib import Path
from zipfile import ZipFile

import pytest

import fieldslab.schemas

ROOT = Path(__file__).parents[1]
FOLDERS = ("packer", "reader", "schemas", "bench")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LARGEST_WHEEL = 1_450_000
"""Bytes; pictures and results of benchmarks do not travel in it."""


def test_version_is_known_once_installed() -> None:
    """The installed metadata carries a version and the licence."""
    metadata = distribution("fieldslab").metadata
    assert metadata["Version"].split(".")[0].isdigit()
    assert metadata["License-Expression"] == "Apache-2.0"


def test_command_is_installed() -> None:
    """The command `fieldslab` points at something that can be called."""
    (script,) = entry_points(group="console_scripts", name="fieldslab")
    assert script.value == "fieldslab.packer.cli:main"
    assert callable(script.load())


def test_fieldslab_is_a_namespace() -> None:
    """`fieldslab` has no module of its own, so that its folders can be installed apart."""
    assert getattr(fieldslab, "__file__", None) is None
    assert fieldslab.schemas.__file__ is not None


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_is_a_typed_package(folder: str) -> None:
    """Every folder is a package that tells type checkers to read it."""
    assert (ROOT / folder / "__init__.py").is_file()
    assert (ROOT / folder / "py.typed").is_file()


@pytest.mark.parametrize("folder", FOLDERS)
def test_namespace_link_is_relative(folder: str) -> None:
    """The link in .ns works in any clone: relative, and ending at the real folder."""
    link = ROOT / ".ns" / "fieldslab" / folder
    assert os.readlink(link) == f"../../{folder}"
    assert link.resolve() == (ROOT / folder).resolve()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of this checkout and the wheel that is built from it; in `direct` one without.

    No machine code is compiled, even where `make dist-test` is to compile some.
    """
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", str(ROOT), "--outdir"]
    plain = {name: text for name, text in os.environ.items() if name != "FIELDSLAB_MACHINE_CODE"}
    for arguments in ([str(folder)], [str(folder / "direct"), "-w"]):
        subprocess.run([*build, *arguments], env=plain, check=True, capture_output=True)
    return folder


def tracked(folder: Path) -> set[str]:
    """What git tracks in a checkout; of an unpacked sdist, what it would not ignore there."""
    command, files = ["git"], ["ls-files", "-z"]
    if not (ROOT / ".git").exists():
        subprocess.run(["git", "init", "-q", "--bare", str(folder)], check=True)
        command += [f"--git-dir={folder}", "--work-tree=."]
        files += ["--others", "--exclude-standard"]
    done = subprocess.run([*command, *files], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(done.stdout.split("\0")) - {"", "PKG-INFO"}


def test_the_sdist_is_the_checkout(built: Path, tmp_path: Path) -> None:
    """The sdist has all that git tracks and nothing else, links as links, programs as programs."""
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as sdist:
        entries = {entry.name.partition("/")[2]: entry for entry in sdist.getmembers()}
    assert entries.keys() - {"PKG-INFO"} == tracked(tmp_path / "git")
    for folder in FOLDERS:
        link = entries[f".ns/fieldslab/{folder}"]
        assert link.issym()
        assert link.linkname == f"../../{folder}"
    assert entries[".ci/run"].mode & 0o100


def test_the_wheel_is_small_and_has_every_module(built: Path) -> None:
    """The wheel holds every module of the checkout and none of its results, in 1.45 MB."""
    (wheel,) = built.glob("*.whl")
    assert wheel.stat().st_size < LARGEST_WHEEL
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for folder in FOLDERS:
        for module in (ROOT / folder).rglob("*.py"):
            assert f"fieldslab/{module.relative_to(ROOT).as_posix()}" in names
    assert {"fieldslab/bench/report/page.html", "fieldslab/__main__.py"} <= names
    assert not [name for name in names if name.endswith(".png")]
    with ZipFile(built / "direct" / wheel.name) as archive:
        assert set(archive.namelist()) == names


def told_to_install() -> list[tuple[str, str]]:
    """What each `pip install` of documents and messages names, with the file that says so."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    for folder in FOLDERS:
        files += [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.md")]
    return [
        (str(file.relative_to(ROOT)), words)
        for file in files
        for words in re.findall(r"pip install ((?:'[^']+'|[\w.-]+)(?: '[^']+')*)", file.read_text())
    ]


def test_what_is_told_to_be_installed_can_be(tmp_path: Path) -> None:
    """fieldslab is installed from a checkout or a repository, with extras that it has.

    Messages name libraries instead, which works however fieldslab came here, with the versions that
    it asks for.
    """
    extras = PROJECT["optional-dependencies"]
    known = {requirement.partition(";")[0] for extra in extras.values() for requirement in extra}
    told = told_to_install()
    assert {file for file, _ in told} >= {"README.md", "reader/decoders/pillow.py"}
    for file, words in told:
        for word in re.findall(r"'([^']+)'|(\S+)", words):
            requirement = word[0] or word[1]
            asked = re.search(r"^(?:\.|fieldslab)\[(.+)\]( @ git\+\w+)?$", requirement)
            if asked:
                assert file.endswith(".md"), f"{file}: messages name libraries, not {requirement}"
                assert requirement.startswith(".") or asked[2], f"{file}: {requirement} is nowhere"
                assert set(asked[1].split(",")) <= extras.keys(), f"{file}: {requirement}"
            elif word[0]:
                assert requirement in known, f"{file}: {requirement}"
            else:
                assert not requirement.startswith("fieldslab"), f"{file}: {requirement} is nowhere"


def test_the_first_screen_says_how_to_begin() -> None:
    """README begins with what works in a fresh checkout, and says where fieldslab is not yet."""
    screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:20])
    for words in ("git clone", "make demo", "make test", "pip install .", "package index yet"):
        assert words in screen
