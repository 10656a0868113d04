"""What an installer and a type checker see of the project."""

import os
from importlib.metadata import distribution, entry_points
from pathlib import Path

import pytest

import fieldslab.schemas

ROOT = Path(__file__).parents[1]
FOLDERS = ("packer", "reader", "schemas", "bench")


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
