"""Python users are told about `jobs=1`, users of the command line about `--jobs 1`."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fieldslab.packer.check.verify import verify
from fieldslab.packer.cli import run
from fieldslab.packer.commands.scrubbing import scrub_slabs
from fieldslab.packer.definition import read_definition
from fieldslab.packer.pack_source import pack
from fieldslab.packer.parts.packing import pack_part
from fieldslab.packer.repairing.repair import repair
from fieldslab.packer.rewrite.repack import repack
from fieldslab.packer.source_settings import SourceSettings
from fieldslab.packer.unions.concat import concat
from fieldslab.packer.unions.union_changes import add_slabs
from fieldslab.reader import Loader, open_slab
from fieldslab.schemas.errors import FieldslabError, UsageError
from fieldslab.schemas.optiontext import mark_option, render_for_python, render_for_shell

ROOT = Path(__file__).parent.parent
FACES = ("packer/commands/", "packer/cli.py", "bench/")
"""Where the words of the command line are at home; `bench/` has programs of its own."""
TABLE = pa.table({"x": pa.array([1, None, 3], pa.int32()), "t": ["a", "b", "c"]})

SAID: dict[str, tuple[dict[str, Any], list[str], str, str]] = {
    "jobs": (
        {"jobs": 0, "exclude": "x"},
        ["--jobs", "0", "--exclude", "x"],
        "jobs must be at least 1 (found 0)",
        "--jobs must be at least 1 (found 0)",
    ),
    "a pair": (
        {"nulls": "mask"},
        ["--nulls", "mask"],
        'nulls: is not valid (found mask). Write nulls={"NAME": "mask"}.',
        "--nulls: is not valid (found mask)\n  Write --nulls NAME=mask.",
    ),
    "nulls": (
        {},
        [],
        '1 null (field x). Say what to do with them: nulls={"x": "mask"} keeps them with a '
        'validity array, nulls={"x": "VALUE"} replaces them, exclude=["x"] leaves the column out.',
        "1 null (field x)\n  Say what to do with them: --nulls x=mask keeps them with a validity "
        "array, --nulls x=VALUE replaces them, --exclude x leaves the column out.",
    ),
    "a size": (
        {"shard_size": "many"},
        ["--shard-size", "many"],
        "shard_size: must be a size (expected 'a size like 64M or 1G', found many)",
        "--shard-size: must be a size (expected 'a size like 64M or 1G', found many)",
    ),
    "a column": (
        {"fields": "y"},
        ["--fields", "y"],
        "fields: no such column (field y). The columns are: x, t.",
        "--fields: no such column (field y)\n  The columns are: x, t.",
    ),
    "a switch": (
        {"drop_last": True},
        ["--drop-last"],
        "drop_last needs pack_sequences",
        "--drop-last needs --pack-sequences",
    ),
}


@pytest.mark.parametrize(("options", "words", "python", "shell"), SAID.values(), ids=SAID.keys())
def test_both_users_are_told_in_their_words(
    options: dict[str, Any],
    words: list[str],
    python: str,
    shell: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same mistake is explained with arguments of Python, or with those of the shell."""
    pq.write_table(TABLE, tmp_path / "x.parquet")
    with pytest.raises(FieldslabError) as caught:
        pack(tmp_path / "x.parquet", tmp_path / "x.slab", **options)
    assert str(caught.value) == python
    code = run(["pack", str(tmp_path / "x.parquet"), "-o", str(tmp_path / "x.slab"), *words])
    assert code == caught.value.exit_code
    assert capsys.readouterr().err.strip() == f"error: {shell}"


def test_json_names_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` has the words of the command line, and the option as `option`."""
    pq.write_table(TABLE, tmp_path / "x.parquet")
    words = ["-o", str(tmp_path / "x"), "--jobs=0", "--exclude=x", "--json"]
    run(["pack", str(tmp_path / "x.parquet"), *words])
    assert json.loads(capsys.readouterr().out) == {
        "error": "UsageError",
        "problem": "--jobs must be at least 1",
        "found": 0,
        "option": "jobs",
        "hint": None,
    }


def test_verify_speaks_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Verification names its options as the caller does."""
    pack(TABLE.select(["t"]), tmp_path / "x.slab")
    with pytest.raises(UsageError, match=r"^quick=True reads no values"):
        verify(tmp_path / "x.slab", quick=True, sample="5%")
    run(["verify", str(tmp_path / "x.slab"), "--quick", "--sample", "5%"])
    assert "--quick reads no values: it does not go with --sample" in capsys.readouterr().err


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every string of a source file that is no docstring."""
    tree = ast.parse(path.read_text())
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, node.value


def test_only_the_command_line_speaks_of_dashes() -> None:
    """No text outside of the commands names an option as the shell does: `mark_option` marks it."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for room in ("packer", "reader", "schemas")
        for path in sorted((ROOT / room).rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(FACES)
        for line, text in strings(path)
        if re.search(r"(?<![\w-])--[a-z]\w", text)
        and text != "--no-"
        and not text.startswith(("hf download ", " --recursive"))  # of other programs
    ]
    assert wrong == []


def test_every_marked_option_exists() -> None:
    """What messages call an option is one: of a function that users call, or a source."""
    known = {
        *inspect.signature(Loader).parameters,
        *inspect.signature(concat).parameters,
        *inspect.signature(add_slabs).parameters,
        *inspect.signature(pack).parameters,
        *inspect.signature(repack).parameters,
        *inspect.signature(pack_part).parameters,
        *inspect.signature(repair).parameters,
        *inspect.signature(scrub_slabs).parameters,
        *verify.__annotations__,
        *inspect.signature(open_slab).parameters,
        *read_definition(SourceSettings),
    }
    marked = {
        node.args[0].value
        for room in ("packer", "reader", "schemas")
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "mark_option"
        and isinstance(node.args[0], ast.Constant)
    }
    assert len(marked) > 30
    assert marked - known == set()


def test_what_is_stored_has_no_marks(tmp_path: Path) -> None:
    """Reasons and warnings in a manifest are plain text: nobody renders them."""
    packed = pack(TABLE, tmp_path / "x.slab", cast={"x": "f4"}, nulls={"x": "mask"})
    provenance = packed.manifest.made
    for text in (*provenance.reasons.values(), *provenance.warnings):
        assert render_for_python(text) == render_for_shell(text) == text
    assert provenance.reasons["x"] == "cast to float32 of int32"
    assert render_for_python(mark_option("jobs")) != mark_option("jobs")


def test_problems_of_verify_name_options_in_the_words_of_the_reader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `verify --against` finds says `--fields` on the command line, `fields` in Python."""
    pq.write_table(TABLE.drop_columns("x"), tmp_path / "t.parquet")
    slab = tmp_path / "a.slab"
    pack(TABLE, slab, fields=["x", "t"], nulls={"x": "mask"})
    (problem,) = verify(slab, against=tmp_path / "t.parquet", from_="parquet").problems
    assert "was: fields: no such column" in str(problem)
    words = ["verify", str(slab), "--against", str(tmp_path / "t.parquet"), "--from", "parquet"]
    assert run(words) == 1
    assert "was: --fields: no such column" in capsys.readouterr().out
    assert run([*words, "--json"]) == 1
    (actual,) = json.loads(capsys.readouterr().out)["problems"]
    assert actual == {
        "problem": "the source cannot be packed as this slab was: --fields: no such column",
        "field": "x",
    }
