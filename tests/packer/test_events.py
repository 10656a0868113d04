"""What programs are told while a command runs, and Python programs by warnings and log."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.commandline import ENVIRONMENT, PROGRAM

from fieldslab.packer import FieldslabWarning, pack

ALL_NULL = "y: all 3 rows are null"


@pytest.fixture
def nulls(tmp_path: Path) -> Path:
    """Three rows of which a field is null throughout, which is worth a warning."""
    path = tmp_path / "nulls.parquet"
    pq.write_table(pa.table({"x": [1, 2, 3], "y": pa.nulls(3, pa.int32())}), path)
    return path


def events(text: str) -> list[dict[str, Any]]:
    """The events that were written, all of which have a name."""
    lines = [json.loads(line) for line in text.splitlines()]
    assert all(isinstance(line["event"], str) for line in lines)
    return lines


@pytest.mark.parametrize("spelled", [["--progress", "json"], ["--progress=json"]])
def test_events_are_json_lines(cli: Any, nulls: Path, tmp_path: Path, spelled: list[str]) -> None:
    """Pack and verify tell start, finish, warnings and the exit code on stderr, line by line."""
    out = tmp_path / "a.slab"
    done = cli("pack", nulls, "-o", out, "--nulls", "y=mask", "--verify", *spelled)
    assert done.code == 0
    packing, packed, warning, verifying, verified, end = events(done.err)
    assert packing == {
        "event": "start",
        "task": "packing",
        "path": str(out),
        "total": 3,
        "unit": "rows",
    }
    assert (packed["event"], packed["rows"], packed["path"]) == ("finish", 3, str(out))
    assert packed["bytes"] > 0
    assert packed["seconds"] >= 0
    assert warning == {"event": "warning", "text": ALL_NULL}
    assert (verifying["task"], verifying["unit"]) == ("verifying", "bytes")
    assert (verified["event"], verified["bytes"]) == ("finish", verifying["total"])
    assert verified["rows"] == 3
    assert end == {"event": "end", "code": 0}
    assert done.out.splitlines()[-1].startswith("OK: ")


def test_errors_are_events(cli: Any, slab: Path, tmp_path: Path) -> None:
    """An error is an event with its members, before the exit code; `--json` has it on stdout."""
    done = cli("pack", tmp_path / "no.parquet", "-o", tmp_path / "b.slab", "--progress", "json")
    error, end = events(done.err)
    assert (error["event"], error["file"]) == ("error", str(tmp_path / "no.parquet"))
    assert error["hint"] == "Check the path."
    assert end == {"event": "end", "code": 3}
    done = cli("verify", slab, "--fields", "z", "--progress", "json", "--json")
    assert [event["event"] for event in events(done.err)] == ["start", "end"]
    assert done.json["error"] == "UnknownField"
    done = cli("verify", slab, "--progress", "csv")
    assert (done.code, "'csv' is not one of" in done.err) == (2, True)


def test_progress_is_told_now_and_then(slab: Path) -> None:
    """A long task tells what it has done so far; each line is whole at once."""
    code = (
        "import sys, time\n"
        "from fieldslab.packer.commands import events\n"
        "events.enable_events(True)\n"
        "with events.track_progress('packing', 'a', 9, 'rows') as move:\n"
        "    for _ in range(3):\n"
        "        time.sleep(events.SECONDS / 2)\n"
        "        move(3, 24)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    lines = events(done.stderr)
    assert {line["event"] for line in lines} == {"start", "progress", "finish"}
    assert lines[1]["rows"] in (3, 6, 9)
    assert (lines[-1]["rows"], lines[-1]["bytes"]) == (9, 72)


def test_nothing_is_told_where_it_is_not_wanted(cli: Any, slab: Path) -> None:
    """Without `--progress json` stderr has no events, also after a run with them."""
    assert events(cli("verify", slab, "--progress", "json").err)
    assert cli("verify", slab).err == ""
    assert cli("verify", slab, "--progress", "none").err == ""


def test_python_is_warned_once(
    nulls: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`pack` warns its caller by a category of ours; the logger has the same at level INFO."""
    caplog.set_level(logging.INFO, logger="fieldslab")
    with pytest.warns(FieldslabWarning, match="all 3 rows are null") as caught:
        packed = pack(nulls, tmp_path / "a.slab", nulls={"y": "mask"})
    assert [(str(warning.message), warning.filename) for warning in caught] == [
        (ALL_NULL, __file__)
    ]
    assert packed.warnings == (ALL_NULL,)
    assert "1 warning" in repr(packed)
    records = [record for record in caplog.records if record.name == "fieldslab"]
    assert {record.levelno for record in records} == {logging.INFO}
    assert [record.getMessage() for record in records][-1] == f"warning: {ALL_NULL}"


def test_the_program_says_a_warning_once(nulls: Path, tmp_path: Path) -> None:
    """The command line has its own words on stderr, and no Python warning beside them."""
    command = [*PROGRAM, "pack", str(nulls), "-o", str(tmp_path / "a.slab"), "--nulls", "y=mask"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stderr == f"warning: {ALL_NULL}\n"
