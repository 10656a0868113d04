"""`fieldslab advise`, as the program finds it by its entry point."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.jpegs import encode, photograph
from tests.slabs import write_slab

from fieldslab.packer import pack
from fieldslab.packer.cli import run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A slab of two fields."""
    columns = {"x": np.zeros((200, 1000)), "y": np.zeros(200)}
    return write_slab(tmp_path / "a.slab", columns)


def test_command_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Options mean what they mean for `advise`; text for people, JSON for programs."""
    command = ["advise", str(path), "--fields=x", "--batch-size=8", "--step-ms=5", "--memory=1M"]
    assert run(command) == 0
    told = capsys.readouterr().out
    assert "data wait" in told
    assert "Loader(slab, 8, " in told
    assert run([*command, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["batch_bytes"], document["step_ms"]) == (64_000, 5)
    assert document["memory_bytes"] <= 2**20


def test_images_are_read_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That images were not decoded is said, where there are some."""
    images = [encode(photograph(20, 30, index)) for index in range(16)]
    path = pack(pa.table({"a": images, "n": range(16)}), tmp_path / "a.slab").path
    assert run(["advise", str(path), "--batch-size=4"]) == 0
    assert "a: read, but not decoded" in capsys.readouterr().err
    assert run(["advise", str(path), "--batch-size=4", "--fields=n"]) == 0
    assert capsys.readouterr().err == ""


def test_images_are_decoded_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --crop, batches are of pixels; where no field holds images, that is a mistake."""
    images = [encode(photograph(20, 30, index)) for index in range(16)]
    path = pack(pa.table({"a": images, "n": range(16)}), tmp_path / "a.slab").path
    command = ["advise", str(path), "--batch-size=4", "--crop=8"]
    assert run(command) == 0
    told = capsys.readouterr()
    assert "Loader(slab, 4, decode=decode, " in told.out
    assert told.err == ""
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["decoded"] == ["a"]
    assert run([*command, "--fields=n"]) == 2
    assert "no field of them" in capsys.readouterr().err


def test_mistakes_are_named(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A field that is not there, a size that is none and a missing slab have their exit codes."""
    assert run(["advise", str(path), "--fields=z"]) == 2
    assert run(["advise", str(path), "--memory=much"]) == 2
    assert run(["advise", str(path.parent / "b.slab")]) == 3
    assert "Traceback" not in capsys.readouterr().err
