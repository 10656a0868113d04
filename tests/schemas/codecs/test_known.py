"""What `fieldslab info --decoders` tells."""

import json
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.turbojpegs import library_of

from fieldslab.packer.cli import run
from fieldslab.schemas.codecs.known import known_decoders


def test_libraries_are_named_with_version_and_place(capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON: every decoder, whether it is here, and which library it takes."""
    assert run(["info", "--decoders", "--json"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert list(found)[:5] == ["planes", "roi", "turbojpeg", "pillow", "nvimagecodec"]
    assert found["turbojpeg"]["path"] == library_of("3").path
    assert found["pillow"]["version"] == version("pillow")
    assert found["planes"]["here"] is True
    assert all(Path(one["path"]).exists() for one in found.values() if one["path"])


def test_what_is_missing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """As text: a line for each, and below it what it costs and what to install."""
    assert run(["info", "--decoders"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["decoder", "here", "takes", "library"]
    for one in known_decoders():
        assert any(line.startswith(f"{one.name} ") for line in lines)
        assert not one.note or any(line.endswith(f"{one.note}.") for line in lines)
        assert not one.install or any(line.endswith(one.install) for line in lines)
        assert one.here or one.install


def test_info_needs_a_slab_or_decoders(capsys: pytest.CaptureFixture[str]) -> None:
    """Without either, it says what is missing."""
    assert run(["info"]) == 2
    assert "missing argument 'SLAB'" in capsys.readouterr().err
