"""Small things that users of the command line rely on."""

import json
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from tests.packer.commandline import ENVIRONMENT, PROGRAM, on_terminal
from tests.slabs import images, write_slab

import fieldslab.packer
import fieldslab.reader
import fieldslab.schemas
from fieldslab.packer import pack, verify
from fieldslab.packer.commands.text_format import format_table, wrap_lines

URL = "s3://bucket/deep//x"


@pytest.mark.parametrize(
    "arguments",
    [
        ["pack", URL + ".parquet", "-o", "new"],
        ["pack", URL + ".h5", "-o", "new", "--from", "hdf5"],
        ["pack", URL, "-o", "new", "--from", "images"],
        ["pack", URL, "-o", "new", "--from", "parquet"],
        ["verify", "{slab}", "--against", URL],
        ["bench", URL],
    ],
)
def test_urls_are_said_as_written(
    cli: Any,
    parquet: Path,
    slab: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    """A URL is no path: every command names it as written, and makes no folder."""
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = cli(*(argument.format(parquet=parquet, slab=slab) for argument in arguments))
    assert done.code in (2, 3, 4)
    assert f"{URL}" in done.err + done.out
    assert sorted(tmp_path.iterdir()) == before


def test_verify_says_once_what_is_no_slab(cli: Any, tmp_path: Path) -> None:
    """What cannot be verified has its verdict on stdout, with what to do, and nothing twice."""
    done = cli("verify", tmp_path / "nope")
    hint = "Check the path, or pack the slab first."
    expected = f"FAILED: {tmp_path / 'nope'}: does not exist. {hint}\n"
    assert done == (3, expected, "")


def test_head_shows_ranges_and_fields(cli: Any, slab: Path, tmp_path: Path) -> None:
    """`--rows` takes ranges as slices, `--fields` names and patterns in the order asked for."""
    done = cli("head", slab, "--rows", "2:4,-1, 0", "--fields", "y,te*", "--json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["row"] for row in rows] == [2, 3, 19, 0]
    assert list(rows[0]["values"]) == ["y", "text"]
    for text, expected in (("18:", [18, 19]), (":2", [0, 1]), ("-1:99", [19]), ("0:-18", [0, 1])):
        done = cli("head", slab, f"--rows={text}", "--json")
        assert [json.loads(line)["row"] for line in done.out.splitlines()] == expected
    for text in ("20:", "3:3", "5:2"):
        assert "no rows in this range" in cli("head", slab, f"--rows={text}").err
    for text in ("1:2:3", "1-3", "a:b", ""):
        assert "not row numbers" in cli("head", slab, f"--rows={text}").err
    assert cli("head", slab, "--fields", "z").code == 2


def test_head_writes_images_of_the_fields_shown(cli: Any, tmp_path: Path) -> None:
    """`--images` writes those of `--fields` alone."""
    column = images([b"one", b"two"], np.zeros((2, 2)))
    path = write_slab(tmp_path / "a.slab", {"a": column, "b": column, "x": np.arange(2)})
    assert cli("head", path, "--fields", "b", "--images", tmp_path / "out").code == 0
    assert len(list((tmp_path / "out").iterdir())) == 2
    assert cli("head", path, "--fields", "x", "--images", tmp_path / "none").code == 2


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_line_is_wider_than_the_terminal(slab: Path, parquet: Path, width: int) -> None:
    """At any width no number is broken: tables become blocks, prose is wrapped between words."""
    for arguments in (
        ["info", slab],
        ["head", slab],
        ["pack", parquet, "--dry-run", "--nulls", "y=mask"],
    ):
        lines = on_terminal(*arguments, columns=width, stream="stdout").splitlines()
        assert len(lines) > 3
        long = [line for line in lines if cell_len(line) > width]
        assert [line for line in long if " " in line.strip()] == []


def test_tables_become_blocks() -> None:
    """A table that does not fit has a block for each row, without its empty cells."""
    head, rows = ("field", "bytes", "why"), [("x" * 30, "1.0 kB", "a reason"), ("y", "", "b")]
    lines = list(format_table(head, rows, 25))
    assert lines == ["x" * 25, "x" * 5, "  bytes  1.0 kB", "  why    a reason", "y", "  why    b"]
    assert list(wrap_lines(["about 12 kB of 1,234 rows"], 20)) == ["about 12 kB of", "  1,234 rows"]


def test_python_knows_the_version() -> None:
    """Each folder has `__version__`; the namespace itself has no module to hold one."""
    for module in (fieldslab.packer, fieldslab.reader, fieldslab.schemas):
        assert module.__version__ == version("fieldslab")
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            module.nothing  # noqa: B018


def test_python_runs_the_program(tmp_path: Path) -> None:
    """`python -m fieldslab` is the program, with its exit codes."""
    command = [sys.executable, "-m", "fieldslab", "info", str(tmp_path / "nope")]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: ")


def test_what_is_returned_is_shown_in_short(parquet: Path, tmp_path: Path) -> None:
    """`pack` and `verify` return what fits a line, however many fields there are."""
    packed = pack(parquet, tmp_path / "a.slab", nulls={"y": "mask"})
    start = f"PackResult({str(tmp_path / 'a.slab')!r}, 20 rows, 3 fields, "
    assert repr(packed).startswith(start)
    assert repr(packed).endswith(" s)")
    assert repr(verify(tmp_path / "a.slab")).startswith("Report(OK: ")


@pytest.mark.parametrize(
    ("redirections", "code", "said"),
    [
        (">&-", 0, ""),
        ("2>&-", 0, "x"),
        (">&- 2>&-", 0, ""),
        ("> /dev/full", 3, "error: No space left on device"),
    ],
)
def test_streams_that_are_closed_or_full(
    slab: Path, redirections: str, code: int, said: str
) -> None:
    """A closed stream is nowhere to write to, and no bug; a full one is an error."""
    program = f"{shlex.join(PROGRAM)} info {shlex.quote(str(slab))} {redirections}"
    done = subprocess.run(
        ["sh", "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
