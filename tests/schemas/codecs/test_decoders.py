"""What `fieldslab info --decoders` tells."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.turbojpegs import library_of

from fieldslab.packer.cli import run
from fieldslab.packer.commands.info import format_decoders
from fieldslab.schemas.codecs.decoders import DECODERS, GPU_INSTALL, DecoderInfo, describe_decoders
from fieldslab.schemas.codecs.turbolibrary import INSTALL


def test_libraries_are_named_with_version_and_place(capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON: every decoder, whether it is here, and which library it takes."""
    assert run(["info", "--decoders", "--json"]) == 0
    decoders = {decoder["name"]: decoder for decoder in json.loads(capsys.readouterr().out)}
    assert list(decoders)[:5] == ["planes", "roi", "turbojpeg", "pillow", "nvimagecodec"]
    assert decoders["turbojpeg"]["path"] == library_of("3").path
    assert decoders["pillow"]["version"] == version("pillow")
    assert decoders["planes"]["here"] is True
    assert all(Path(decoder["path"]).exists() for decoder in decoders.values() if decoder["path"])


def test_all_that_can_be_asked_for_are_known() -> None:
    """The reader finds by these names what the packer tells of."""
    assert [decoder.name for decoder in describe_decoders()] == [
        DECODERS.load(name).name for name in DECODERS
    ]


def test_what_is_missing_is_said() -> None:
    """As text: a line for each, and below it what it costs and what to install."""
    missing = DecoderInfo(
        "x", "pictures", False, "libx", None, None, "it costs", "Install it: get x."
    )
    assert list(format_decoders([missing], None)) == [
        "x  no   pictures",
        "        libx was not found",
        "        it costs.",
        "        Install it: get x.",
    ]


def test_each_has_a_line_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    """All are listed, with their libraries; whatever is not here comes with what to do."""
    assert run(["info", "--decoders"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for decoder in describe_decoders():
        assert any(line.startswith(f"{decoder.name} ") for line in lines)
        assert decoder.here or decoder.install
    assert all(
        len(line) <= 70 for line in format_decoders(describe_decoders(), 70) if "/" not in line
    )


def test_info_needs_a_slab_or_decoders(capsys: pytest.CaptureFixture[str]) -> None:
    """Without either, it says what is missing."""
    assert run(["info"]) == 2
    assert "missing argument 'SLAB'" in capsys.readouterr().err


WITHOUT = """
from fieldslab.schemas.codecs import turbolibrary
turbolibrary._list_candidates = lambda: iter(())
from fieldslab.reader.decoders import lookup
from fieldslab.schemas.codecs.decoders import describe_decoders
from fieldslab.schemas.errors import MissingLibrary
print([decoder.name for decoder in lookup.list_candidates("auto")])
print([one.install for one in describe_decoders() if not one.here])
print(lookup.suggest_install(1))
try:
    lookup.load_decoder("turbojpeg")
except MissingLibrary as error:
    print(error)
"""


def test_without_a_turbojpeg_library() -> None:
    """All else works; asked for by name, and by `info`, it says what to install."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(__file__).parents[3] / ".ns")},
    )
    names, installs, hint, error = done.stdout.splitlines()
    assert names == "['planes', 'roi', 'pillow']"
    assert installs == repr([INSTALL])
    assert hint == "Install a decoder: " + INSTALL.removeprefix("Install it: ")
    assert error == f"no TurboJPEG library was found. {INSTALL}"


def test_what_was_never_run_is_said() -> None:
    """Whoever has a GPU learns that nobody decoded there so far, and of both versions of CUDA."""
    (codec,) = [decoder for decoder in describe_decoders() if decoder.name == "nvimagecodec"]
    assert "on the processor" in codec.note
    assert "so far" in codec.note
    assert "cu12" in GPU_INSTALL
    assert "cu13" in GPU_INSTALL
