"""CSV and JSON lines: types from samples, and no value that is lost or changed on the way."""

import datetime
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.naming import case
from tests.packer.packing import content
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.packer.source import find_source
from fieldslab.packer.sources.text import records
from fieldslab.schemas.errors import FieldslabError, SourceUnreadable, UsageError


def write(path: Path, *lines: str | bytes) -> Path:
    """A file of lines."""
    text = b"".join(line.encode() if isinstance(line, str) else line for line in lines)
    path.write_bytes(text)
    return path


def infer(path: Path) -> dict[str, str]:
    """The types of columns."""
    return {field.name: str(field.type) for field in find_source(path).schema}


def test_types_of_csv(tmp_path: Path) -> None:
    """A type is inferred where it gives back each value as it was written; else it is text."""
    columns: dict[str, tuple[Sequence[str], str]] = {
        "int": (["1", "-2", "9223372036854775807"], "int64"),
        "zip": (["02134", "10001", "7"], "string"),
        "plus": (["+1", "2", "3"], "string"),
        "id": (["12345678901234567890", "1", "2"], "string"),
        "float": (["1.5", "nan", "-inf"], "double"),
        "scientific": (["1e5", "2", "-0.0"], "double"),
        "coded": (["1.5", "007", "2"], "string"),
        "bool": (["true", "False", "TRUE"], "bool"),
        "date": (["2024-02-29", "1969-12-31", "2000-01-01"], "date32[day]"),
        "time": (["2024-01-01 10:00:00", "2024-01-01T10:00:00.25", "2000-01-01"], "timestamp[us]"),
        "zone": (["2024-01-01T10:00:00Z"] * 3, "timestamp[us, tz=UTC]"),
        "text": (["a", "1", ""], "string"),
        "none": (["", "", ""], "string"),
        "gaps": (["1", "", "NA"], "int64"),
    }
    rows = zip(*(values for values, _ in columns.values()), strict=True)
    path = write(tmp_path / "a.csv", ",".join(columns), *("\n" + ",".join(row) for row in rows))
    assert infer(path) == {name: kind for name, (_, kind) in columns.items()}
    pack(path, tmp_path / "slab", nulls={"gaps": "mask"})
    back = Readback(tmp_path / "slab")
    assert back.column("zip") == ["02134", "10001", "7"]
    assert back.column("gaps") == [np.int64(1), None, None]
    assert back.values("date").tolist() == [
        (datetime.date(*day) - datetime.date(1970, 1, 1)).days
        for day in ((2024, 2, 29), (1969, 12, 31), (2000, 1, 1))
    ]
    for name in ("int", "float", "scientific"):
        native = pc.read_csv(path)[name].to_numpy()
        if name != "float":  # pyarrow takes "nan" for a null
            assert back.values(name).tobytes() == native.tobytes()


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types are inferred from few rows."""
    monkeypatch.setattr("fieldslab.packer.sources.text.text_source.SAMPLE_BYTES", 1000)


@pytest.mark.usefixtures("small_sample")
def test_a_value_that_does_not_fit(cli: Any, tmp_path: Path) -> None:
    """Behind the sample, a value that would change is an error with its line and a cast."""
    filler = [f'{row},"two\nlines"\n' for row in range(300)]
    cases = [
        ("2.5", "n=f8"),
        ("x", "n=text"),
        ("007", "n=text"),
        ("9223372036854775808", "n=text"),
        ("NaN", "n=f8"),
    ]
    for bad, cast in cases:
        with case(bad):
            lines = ["n,s\n", *filler, "\n", f"{bad},end\n", "1,end\n"]
            path = write(tmp_path / "a.csv", *lines)
            done = cli("pack", path, "-o", tmp_path / "slab")
            assert f"a.csv line {2 * len(filler) + 3}" in done.err
            for words in ("field n", "expected int64", f"found {bad}", f"--cast {cast}"):
                assert words in done.err
            pack(path, tmp_path / "cast", cast=[cast], fields="n", force=True)
            assert str(Readback(tmp_path / "cast").column("n")[-2]) in (bad, bad.lower())


@pytest.mark.usefixtures("small_sample")
def test_lines_of_json(cli: Any, tmp_path: Path) -> None:
    """Types of JSON lines, nested ones too; what does not fit is named with its line."""
    rows: list[dict[str, Any]] = [
        {"i": 1, "f": 1, "s": "é\n", "l": [1, 2], "d": {"a": 1, "b c": [0.5]}, "o": [{"x": 1}]},
        {"i": -(2**63), "f": 2.5, "s": "", "l": [], "d": {"a": 2, "b c": []}, "o": []},
    ] * 50
    path = write(tmp_path / "a.jsonl", *(json.dumps(row) + "\n" for row in rows))
    assert infer(path) == {
        "i": "int64",
        "f": "double",
        "s": "string",
        "l": "list<item: int64>",
        "d": "struct<a: int64, b c: list<item: double>>",
        "o": "extension<arrow.json>",
    }
    pack(path, tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert [value.tolist() for value in back.column("l")] == [row["l"] for row in rows]
    assert [value.tolist() for value in back.column("d.b c")] == [row["d"]["b c"] for row in rows]
    assert back.column("o") == [json.dumps(row["o"]) for row in rows]
    for text, words in (
        ('{"i": 1.5}', ["field i", "found 1.5", "--cast i=f8"]),
        ('{"i": "1"}', ["field i", "expected int64", "--cast i=json"]),
        ('{"i": 1, "d": {"a": 1, "z": 1}}', ["field d", "--cast d=json"]),
        ('{"new": {}}', ["field new", "no such column", "--cast new=json"]),
        ('{"i": 1', ["damaged JSON lines"]),
        ('{"s": "\udcff"}', ["damaged JSON lines"]),
        ("[1]", ["damaged JSON lines"]),
    ):
        with case(text):
            line = text.encode(errors="surrogateescape") + b"\n"
            write(tmp_path / "b.jsonl", *(json.dumps(row) + "\n" for row in rows), "\n", line)
            done = cli("pack", tmp_path / "b.jsonl", "-o", tmp_path / "b", "--nulls", "*=mask")
            assert f"b.jsonl line {len(rows) + 2}" in done.err
            for word in words:
                assert word in done.err


def test_casts_of_json(tmp_path: Path) -> None:
    """Keys of several types are refused, or kept as JSON text; casts add keys behind the sample."""
    path = write(tmp_path / "a.jsonl", '{"m": 1}\n{"m": "x"}\n{"m": null, "k": 2}\n')
    with pytest.raises(FieldslabError, match="several types"):
        pack(path, tmp_path / "slab")
    pack(path, tmp_path / "slab", cast={"m": "json", "k": "i2", "later": "f4"}, nulls={"*": "mask"})
    back = Readback(tmp_path / "slab")
    assert back.column("m") == ["1", '"x"', None]
    assert back.column("k") == [None, None, np.int16(2)]
    assert back.column("later") == [None] * 3


def test_forms_of_csv(tmp_path: Path) -> None:
    """Delimiters, marks, line ends, blank lines, and files without names or a last line end."""
    expected = {"a": ["x", "y,z"], "b": [1, 2]}
    cases: list[tuple[str, bytes, dict[str, Any]]] = [
        ("a.csv", b'a,b\nx,1\n"y,z",2\n', {}),
        ("a.csv", b'\xef\xbb\xbf"a",b\r\nx,1\r\n\r\n"y,z",2', {}),
        ("a.tsv", b"a\tb\nx\t1\ny,z\t2\n\n", {}),
        ("a.csv", b"\na;b\nx;1\ny,z;2\n", {"delimiter": ";"}),
        ("a.txt", b'a,b\nx,1\n"y,z",2\n', {"from": "csv"}),
    ]
    for name, text, options in cases:
        with case(name, text):
            path = write(tmp_path / name, text)
            kind = options.pop("from", None)
            pack(path, tmp_path / "slab", settings=options, from_=kind, force=True)
            back = Readback(tmp_path / "slab")
            assert {key: back.column(key) for key in ("a", "b")} == expected
    pack(write(tmp_path / "n.csv", "x,1\n"), tmp_path / "n", settings={"header": False})
    assert Readback(tmp_path / "n").column("f0") == ["x"]
    pack(write(tmp_path / "e.csv", "x,y\n"), tmp_path / "e")
    assert Readback(tmp_path / "e").rows == 0


def test_what_is_refused(tmp_path: Path) -> None:
    """Damaged lines, open quotes, other encodings and empty files are named, with their line."""
    cases: list[tuple[bytes, str]] = [
        (b"a,b\n1,2\n3\n", "line 3"),
        (b'a,b\n1,2\n3,"x\n4,5\n', "line 3.*not closed"),
        (b"a,b\n1,2\n\xff\xfe,2\n", "damaged"),
        (b"", "empty"),
    ]
    for text, words in cases:
        path = write(tmp_path / "a.csv", text)
        with case(text), pytest.raises(SourceUnreadable) as caught:
            pack(path, tmp_path / "slab")
        assert re.search(words, str(caught.value), re.DOTALL)
        assert str(path) in caught.value.context["file"]
    with pytest.raises(UsageError, match="must be one character"):
        pack(path, tmp_path / "slab", settings={"delimiter": "ab"})


VALUES = st.text(st.sampled_from('a",\n\r x'), max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=12),
    size=st.integers(1, 40),
    raw=st.text(st.sampled_from('a",\n'), max_size=60),
)
def test_ends_of_records(rows: list[tuple[str, str]], size: int, raw: str) -> None:
    """Records end where a parser says, wherever text is cut into blocks, even if quotes are odd."""
    texts = []
    for row in rows:
        quoted = ['"' + value.replace('"', '""') + '"' for value in row]
        texts.append(",".join(quoted) + "\n")
    find_ends = records.make_quoted_finder(",")
    assert (
        find_ends("".join(texts).encode()).tolist()
        == np.cumsum([len(text) for text in texts]).tolist()
    )
    whole = find_ends(raw.encode()).tolist()
    stream = pa.BufferReader((raw + "\n" * (not raw.endswith("\n"))).encode())
    try:
        blocks = list(records.read_blocks(stream, find_ends, 1, None, size))
    except records.UnendedRecord:
        return
    assert b"".join(block.data for block in blocks).decode().startswith(raw)
    starts = np.cumsum([0, *(len(block.data) for block in blocks)]).tolist()
    ends = [
        int(end) + start for block, start in zip(blocks, starts, strict=False) for end in block.ends
    ]
    assert ends[: len(whole)] == whole


def test_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a file is cut into blocks and units, the slab is the same, and so are its lines."""
    lines = [f'{row},"{"x" * (row % 50)}\n{row}"\n' for row in range(5000)]
    path = write(tmp_path / "a.csv", "n,s\n", *lines)
    expected = content(pack(path, tmp_path / "one").path)
    monkeypatch.setattr("fieldslab.packer.sources.text.text_source.UNIT_BYTES", 5000)
    monkeypatch.setattr(records.read_blocks, "__defaults__", (3000,))
    source = find_source(path)
    assert len(source.units) > 10
    assert sum(unit.rows or 0 for unit in source.units) == len(lines)
    assert content(pack(path, tmp_path / "many").path) == expected
