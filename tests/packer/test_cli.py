"""The command line as its users meet it: output, streams, exit codes, signals."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.commandline import ENVIRONMENT, on_terminal, start
from tests.slabs import array_path, flip

from fieldslab.packer import verify
from fieldslab.schemas.folder import load_manifest

OPTIONS = {
    "pack": "--from --fields --exclude --rename --cast --tensor --image --stack --nulls --rows "
    "--limit --shard-size --force --dry-run --verify --json --jobs --compress --quiet --output",
    "verify": "--quick --sample --against --from --fields --max-errors --json --quiet",
    "info": "--decoders --json",
    "head": "-n --rows --json",
}


def test_help_is_quick_and_complete() -> None:
    """`--help` names every command and exit code, and loads neither pyarrow nor numpy."""
    code = (
        "import sys; from fieldslab.packer.cli import run; code = run(['--help']);"
        "print(*{'pyarrow', 'numba', 'numpy', 'h5py'} & set(sys.modules), file=sys.stderr);"
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == ""
    for word in (*OPTIONS, "--version", "130  interrupted"):
        assert word in done.stdout


@pytest.mark.parametrize("command", OPTIONS)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_of_a_command_fits_and_explains(
    cli: Any, monkeypatch: pytest.MonkeyPatch, command: str, width: int
) -> None:
    """Each command says what it does, explains every option, and gives an example."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    done = cli(command, "--help")
    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[0].startswith(f"Usage: fieldslab {command} [OPTIONS] ")
    prose = lines[: lines.index("Examples:")]
    assert max(map(len, prose)) <= width
    for option in OPTIONS[command].split():
        spelled = re.compile(rf"  (-\w, )?{option}( \S+)?(  +\S.*)?")
        (index,) = (number for number, line in enumerate(prose) if spelled.fullmatch(line))
        assert spelled.fullmatch(prose[index])[3] or prose[index + 1].startswith(" " * 8)  # type: ignore[index]


def test_help_has_colours_on_a_terminal_alone(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Titles and options stand out on a terminal; NO_COLOR, pipes and files get plain text."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = on_terminal("pack", "--help", stream="stdout")
    assert "\x1b[1mUsage:\x1b[0m fieldslab pack" in coloured
    assert "\x1b[36m-o, --output OUT\x1b[0m " in coloured
    plain = cli("pack", "--help").out
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain
    monkeypatch.setitem(ENVIRONMENT, "NO_COLOR", "1")
    assert on_terminal("pack", "--help", stream="stdout") == plain


def test_version_and_bare_call(cli: Any) -> None:
    """`--version` prints one line; no command at all prints the help and is wrong usage."""
    assert cli("--version").out.startswith("fieldslab ")
    done = cli()
    assert done.code == 2
    assert done.out.startswith("Usage: fieldslab COMMAND")


def test_pack_says_what_it_did(cli: Any, parquet: Path, tmp_path: Path) -> None:
    """The summary names fields, kinds, reasons, rows and bytes; nothing is on stderr."""
    done = cli("pack", parquet, "-o", tmp_path / "a.slab", "--nulls", "y=0", "--verify")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert [line.split()[:2] for line in lines[:4]] == [
        ["field", "kind"],
        ["text", "text"],
        ["x", "fixed"],
        ["y", "fixed"],
    ]
    assert lines[5].startswith(f"{tmp_path / 'a.slab'}: 20 rows, ")
    assert lines[6].startswith(f"OK: {tmp_path / 'a.slab'}: 20 rows, 3 fields, ")


def test_pack_as_json(cli: Any, parquet: Path, tmp_path: Path) -> None:
    """`--json` gives one object, with what was verified in it."""
    path = tmp_path / "a.slab"
    done = cli("pack", parquet, "-o", path, "--nulls", "*=mask", "--verify", "--json")
    manifest = load_manifest(path)
    assert done.json["id"] == manifest.id
    assert (done.json["rows"], done.json["shards"]) == (20, 1)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    assert done.json["bytes"] == size
    assert [field["name"] for field in done.json["fields"]] == ["text", "x", "y"]
    assert done.json["verify"]["ok"]


def test_pack_passes_every_option_on(cli: Any, parquet: Path, tmp_path: Path) -> None:
    """Each option of `pack` reaches the packer, spelled as the help says."""
    path = tmp_path / "a.slab"
    pq.write_table(
        pa.table(
            {
                "raw": [bytes(24)] * 6,
                "hex": ["00" * 8] * 6,
                "shape": ["(2, 1)"] * 6,
                "x_0": np.arange(6, dtype=np.float32),
                "x_1": np.arange(6, dtype=np.float32),
                "old": np.arange(6),
                "no": np.arange(6),
                "no2": np.arange(6),
                "picture": [b"not an image"] * 6,
                "n": [None, 1, 2, 3, 4, 5],
                "t": ["a b"] * 6,
            }
        ),
        tmp_path / "b.parquet",
    )
    done = cli(
        "pack",
        tmp_path / "b.parquet",
        "-o",
        path,
        "--from",
        "parquet",
        "--exclude",
        "no,no2",
        "--rename",
        "old=new",
        "--cast",
        "old=i2",
        "--tensor",
        "raw=f4[3,2]",
        "--tensor",
        "hex=f4,shape_from=shape",
        "--image",
        "picture",
        "--stack",
        "x=x_*",
        "--nulls",
        "n=7",
        "--rows",
        "1:6",
        "--limit",
        4,
        "--shard-size",
        "1M",
        "--jobs",
        1,
        "--compress",
        "t=9",
        "--json",
    )
    assert done.code == 0, done.err
    fields = {field["name"]: field for field in done.json["fields"]}
    assert done.json["rows"] == 4
    assert set(fields) == {"raw", "hex", "shape", "x", "new", "picture", "n", "t"}
    shapes = {name: (field["dtype"], field["shape"]) for name, field in fields.items()}
    assert shapes["raw"] == ("float32", [3, 2])
    assert shapes["hex"] == ("float32", [2, 1])
    assert shapes["x"] == ("float32", [2])
    assert shapes["new"] == ("int16", [])
    assert fields["picture"]["kind"] == "image"
    assert fields["t"]["compression"]["codec"] == "zstd"
    assert done.json["warnings"]
    only = cli("pack", parquet, "--fields", "x", "--fields", "te*", "--dry-run", "--json")
    assert [field["name"] for field in only.json["fields"]] == ["text", "x"]


def test_warnings_go_to_stderr(cli: Any, tmp_path: Path) -> None:
    """What the user should know is said even if nothing else is to be said."""
    pq.write_table(pa.table({"p": [b"no image"]}), tmp_path / "a.parquet")
    done = cli("pack", tmp_path / "a.parquet", "-o", tmp_path / "a.slab", "--image", "p", "-q")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("warning: p: 1 of 1 values have no ")


def test_dry_run_writes_nothing(cli: Any, parquet: Path, tmp_path: Path) -> None:
    """The plan names every field, why, and how much there is; no output is needed or made."""
    done = cli("pack", parquet, "--dry-run", "--nulls", "y=mask")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()[:4]] == ["field", "text", "x", "y"]
    assert done.out.splitlines()[-1].startswith("20 rows, 3 fields, about ")
    done = cli("pack", parquet, "-o", tmp_path / "a.slab", "--dry-run", "--nulls", "y=5", "--json")
    assert (done.json["rows"], done.json["shards"]) == (20, 1)
    assert [field["nulls"] for field in done.json["fields"]] == ["error", "error", "5"]
    assert list(tmp_path.iterdir()) == []


def test_an_option_of_a_similar_name_is_suggested(cli: Any) -> None:
    """A slip of the keys is recognised; nothing is suggested that has but dashes in common."""
    assert "Did you mean --shuffle?" in cli("pack", "x.parquet", "--shufle", "0").err
    unknown = cli("verify", "x.slab", "--where", "y > 2")
    assert (unknown.code, "Did you mean" in unknown.err) == (2, False)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["pack"], 2, "missing argument 'SRC...'"),
        (["pack", "{parquet}"], 2, "no output given"),
        (["pack", "{parquet}", "-o", "{new}", "--nope"], 2, "no such option: --nope"),
        (["pack", "{parquet}", "-o", "{new}", "--limit", "many"], 2, "--limit"),
        (["pack", "{parquet}", "-o", "{new}", "--limit", "-1"], 2, "must not be negative"),
        (["pack", "{parquet}", "-o", "{new}", "--limit", "0", "--rows", "x"], 2, "--rows"),
        (["pack", "{parquet}", "-o", "{new}", "--rows", "x"], 2, "--rows: must have the form A:B"),
        (["pack", "{parquet}", "-o", "{new}", "--fields", "z"], 2, "no such column"),
        (["pack", "{parquet}", "-o", "{new}", "--from", "nope"], 2, "no such source"),
        (["pack", "{new}", "-o", "{new}"], 3, "no such file"),
        (["pack", "{text}", "-o", "{new}"], 3, "or image files"),
        (["pack", "{slab}", "-o", "{new}"], 3, "is a slab already"),
        (["pack", "", "-o", "{new}"], 2, "an empty path"),
        (["pack", "{parquet}", "-o", "{new}", "--from", "hdf5"], 3, "is not an HDF5 file"),
        (["pack", "{parquet}", "-o", "{new}", "--block", "5"], 2, "no such setting"),
        (["pack", "{parquet}", "-o", "{new}"], 4, "2 nulls (field y)"),
        (["pack", "{parquet}", "-o", "{slab}", "--nulls", "y=0"], 5, "exists already"),
        (["pack", "{parquet}", "-o", "{text}/a", "--nulls", "y=0"], 5, "cannot be written"),
        (["pack", "{parquet}", "-o", "{text}", "--nulls", "y=0", "--force"], 5, "is not a slab"),
        (["pack", "{parquet}", "-o", "{new}", "--rows", "0:3", "--rows=4:9"], 2, "given twice"),
        (["pack", "{parquet}", "-o", "{new}", "--output", "{new}"], 2, "-o: given twice"),
        (
            ["pack", "{parquet}", "-o", "{new}", "--jpeg-index", "rows", "--no-jpeg-index"],
            2,
            "contradict each other",
        ),
        (["verify"], 2, "missing argument 'SLAB...'"),
        (["verify", "{slab}", "--quick", "--sample", "5%"], 2, "--quick"),
        (["verify", "{slab}", "--sample", "lots"], 2, "--sample"),
        (["verify", "{slab}", "--fields", "z"], 2, "no such field"),
        (["verify", "{slab}", "--against", "{new}"], 3, "no such file"),
        (["info", "{new}"], 3, "does not exist"),
        (["info", "{text}"], 3, "is a file, not a slab"),
        (["head", "{slab}", "--rows", "20"], 2, "no such row"),
        (["head", "{slab}", "--rows", "one"], 2, "not row numbers"),
        (["head", "{slab}", "-n", "1", "--rows", "1"], 2, "use either -n or --rows, not both"),
        (["haed", "{slab}"], 2, "no such command 'haed'"),
        (["union", "x.slabs"], 2, "'ACTION'. Choose from: add, remove, list, verify"),
    ],
)
def test_mistakes_have_their_exit_code(
    cli: Any, parquet: Path, slab: Path, tmp_path: Path, arguments: list[str], code: int, text: str
) -> None:
    """A mistake is said in a line that begins with `error:`, or as one JSON object."""
    (tmp_path / "notes.txt").write_text("no slab")
    names = {
        "parquet": parquet,
        "slab": slab,
        "new": tmp_path / "new",
        "text": tmp_path / "notes.txt",
    }
    filled = [argument.format(**names) for argument in arguments]
    done = cli(*filled)
    assert done.code == code
    assert done.err.startswith("error: ")
    assert text in done.err.splitlines()[0]
    assert "Traceback" not in done.err
    assert done.out == ""
    done = cli(*filled, "--json")
    assert done.code == code
    assert done.err == ""
    assert text in f"{done.json['problem']} (field {done.json.get('field')}) {done.json}"
    assert not (tmp_path / "new").exists()


def test_errors_wrap_on_a_terminal(slab: Path) -> None:
    """On a terminal an error is filled to its width, and its hint stands below."""
    lines = on_terminal("head", slab, "--rows", "123456789", columns=40).splitlines()
    assert lines[0].startswith("error: --rows: no such row")
    assert max(map(len, lines)) <= 40
    assert lines[-1] == "  The slab has 20 rows."


def test_verify_prints_problems_then_the_verdict(cli: Any, slab: Path) -> None:
    """One line a problem, then OK or FAILED; the exit code tells as well."""
    done = cli("verify", slab)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"OK: {slab}: 20 rows, 3 fields, ")
    assert cli("verify", slab, "-q") == (0, "", "")
    flip(array_path(slab, "x", shard=1))
    flip(array_path(slab, "y", shard=3))
    done = cli("verify", slab)
    lines = done.out.splitlines()
    assert done.code == 1
    assert len(lines) == 3
    assert lines[0].startswith("x rows 5..9: ")
    assert lines[2].startswith(f"FAILED: 2 problems in {slab}; ")
    assert len(cli("verify", slab, "-q").out.splitlines()) == 3
    assert cli("verify", slab, "--fields", "text").code == 0
    assert len(cli("verify", slab, "--max-errors", 1).out.splitlines()) == 2
    report = cli("verify", slab, "--json").json
    assert (report["ok"], report["problem_count"]) == (False, 2)
    assert report["problems"][0]["rows"] == [5, 9]


def test_verify_of_several_slabs(cli: Any, slab: Path, tmp_path: Path) -> None:
    """Each slab has its line, and the highest exit code counts."""
    nothing = tmp_path / "nothing.slab"
    done = cli("verify", slab, nothing, slab)
    assert done.code == 3
    assert [line.split()[0] for line in done.out.splitlines()] == ["OK:", "FAILED:", "OK:"]
    hint = "Check the path, or pack the slab first."
    assert done.out.splitlines()[1] == f"FAILED: {nothing}: does not exist. {hint}"
    assert done.err == ""
    flip(array_path(slab, "x"))
    done = cli("verify", slab, slab, "--json")
    assert done.code == 1
    assert [json.loads(line)["ok"] for line in done.out.splitlines()] == [False, False]
    done = cli("verify", slab, tmp_path / "no.slab", "--json")
    reports = [json.loads(line) for line in done.out.splitlines()]
    assert [(report["path"], report["ok"]) for report in reports] == [
        (str(slab), False),
        (str(tmp_path / "no.slab"), False),
    ]
    assert reports[1]["error"] == "SlabNotFound"
    assert cli("verify", slab, slab, "--against", "x").code == 2


def test_verify_against_the_source(cli: Any, slab: Path, parquet: Path, tmp_path: Path) -> None:
    """The source is compared; several files are given by repeating the option."""
    assert cli("verify", slab, "--against", parquet).code == 0
    table = pq.read_table(parquet)
    pq.write_table(table.slice(0, 9), tmp_path / "1.parquet")
    pq.write_table(table.slice(9), tmp_path / "2.parquet")
    parts = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    assert cli("verify", slab, "--against", parts[0], "--against", parts[1]).code == 0
    done = cli("verify", slab, "--against", parts[1], "--against", parts[0])
    assert done.code == 1
    assert "text rows 0..19: " in done.out
    assert "expected" in done.out


def test_head_shows_rows(cli: Any, slab: Path) -> None:
    """The first rows, or those asked for; as JSON, one object a line."""
    lines = cli("head", slab).out.splitlines()
    assert [line.split()[0] for line in lines[2::3]] == ["x"] * 5
    assert lines[1].split() == ["0", "text", '"row', '0"']
    assert cli("head", slab, "-n", 0).out.split() == ["row", "field", "value"]
    rows = [
        json.loads(line) for line in cli("head", slab, "--rows", "3,-1", "--json").out.splitlines()
    ]
    assert rows == [
        {"row": 3, "values": {"text": "row 3", "x": 3, "y": None}},
        {"row": 19, "values": {"text": "row 19", "x": 19, "y": 19}},
    ]
    assert len(cli("head", slab, "-n", 100, "--json").out.splitlines()) == 20


def test_head_refuses_a_damaged_block(cli: Any, slab: Path) -> None:
    """A byte that is not what pack wrote is never shown."""
    flip(array_path(slab, "x", shard=1))
    assert cli("head", slab, "-n", 5).code == 0
    done = cli("head", slab, "--rows", 5)
    assert done.code == 1
    assert "does not match its digest" in done.err


def test_info_tells_origin_and_fields(cli: Any, slab: Path, parquet: Path) -> None:
    """Rows, bytes, id, time, source, options, shards and fields, as text and as JSON."""
    out = cli("info", slab).out
    actual = cli("info", slab, "--json").json
    assert f"from    parquet: {parquet}, " in out
    assert "shards  4, of 5 rows" in out
    assert actual["made"]["sources"][0]["path"] == str(parquet)
    assert [field["nulls"] for field in actual["fields"]] == [0, 0, 2]
    assert len(actual["shards"]) == 4


def test_a_closed_pipe_is_quiet(slab: Path) -> None:
    """`fieldslab head | head -1` ends without a word on stderr."""
    process = start("head", slab, "-n", 20, "--json", bufsize=0)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(60) in (0, 128 + signal.SIGPIPE)
    process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_pack_goes_on_where_it_was(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM leave finished shards and nothing else; a rerun takes them over."""
    rows, groups = 3000, 300
    pq.write_table(pa.table({"x": np.arange(rows)}), tmp_path / "a.parquet", row_group_size=10)
    arguments = ["pack", tmp_path / "a.parquet", "-o", tmp_path / "a.slab", "--shard-size", 1]
    partial = tmp_path / "a.slab.partial"
    process = start(*arguments)
    deadline = time.monotonic() + 60
    while not (partial / "slab" / "shard-00002").exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.startswith("interrupted: ")
    assert f"finished shards kept in {partial}; run the same command again" in err
    left = {entry.name for entry in (partial / "slab").iterdir()}
    assert left == {f"shard-{index:05d}" for index in range(len(left))}
    again = start(*arguments, "--json")
    out, err = again.communicate(timeout=60)
    assert (again.returncode, err) == (0, "")
    assert json.loads(out)["reused_shards"] == len(left)
    assert json.loads(out)["shards"] == groups
    assert verify(tmp_path / "a.slab", against=tmp_path / "a.parquet").ok
    assert not partial.exists()


def test_progress_is_for_terminals(slab: Path, parquet: Path, tmp_path: Path) -> None:
    """A terminal sees a bar on stderr, a pipe nothing, and -q hides it."""
    pack = ("pack", parquet, "-o", tmp_path / "b.slab", "--exclude", "y", "--force")
    assert "packing" in on_terminal(*pack)
    assert "packing" not in on_terminal(*pack, "-q")
    assert "verifying" in on_terminal("verify", slab)
    process = start(*pack)
    assert process.communicate(timeout=60)[1] == ""


def test_every_refused_column_is_said(cli: Any, tmp_path: Path) -> None:
    """A dry run, too, tells all refused columns: a line each with its hint, or one JSON object."""
    path = tmp_path / "a.parquet"
    deep = pa.array([[[["k"]]]])
    pq.write_table(pa.table({f"m{index:02d}": deep for index in range(25)}), path)
    done = cli("pack", path, "--dry-run")
    assert done.code == 4
    lines = done.err.splitlines()
    assert [line[:6] for line in lines[::2]] == ["error:"] * 21
    assert "field m07" in lines[14]
    assert "--cast m07=json" in lines[15]
    assert lines[-1] == "error: ... and 5 more like these"
    assert len(cli("pack", path, "--dry-run", "--json").json["others"]) == 24
