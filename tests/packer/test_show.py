"""What the commands show: values in few words, tables that fit, nothing that fools a terminal."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len
from tests.slabs import Column, categorical, flip, images, ragged, write_slab
from tests.slabs import array_path as path_of

from fieldslab.packer.check.stored import StoredSlab
from fieldslab.packer.commands.fieldtext import format_type
from fieldslab.packer.commands.slabs import format_info, format_rows, info_to_json, rows_to_json
from fieldslab.packer.commands.text_format import (
    escape_controls,
    format_count,
    format_duration,
    format_rate,
    format_size,
    format_table,
    truncate_text,
)
from fieldslab.schemas.errors import DamagedArray, RowOutOfRange
from fieldslab.schemas.fields import Logical
from fieldslab.schemas.folder import load_manifest, open_slab_files

JPEG = b"\xff\xd8\xff\xc0\x00\x0b\x08" + bytes([1, 119, 1, 244]) + bytes(61_180)


def _ticks(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _logical(values: Any, logical: Logical) -> Column:
    values = np.asarray(values)
    return Column(values, "fixed", values.dtype.name, values.shape[1:], logical=logical)


SHOWN: dict[str, tuple[Any, str, Any]] = {
    "bool": (np.array([True]), "true", True),
    "int": (np.array([-(2**62)]), "-4611686018427387904", -(2**62)),
    "uint": (np.array([2**64 - 1], np.uint64), "18446744073709551615", 2**64 - 1),
    "half": (np.array([0.1], np.float16), "0.1", 0.1),
    "float": (np.array([0.1], np.float32), "0.1", 0.1),
    "double": (np.array([1 / 3]), "0.3333333333333333", 1 / 3),
    "nan": (np.array([np.nan]), "NaN", "NaN"),
    "infinity": (np.array([-np.inf], np.float32), "-Infinity", "-Infinity"),
    "complex": (np.array([1 + 2j], np.complex64), "(1+2j)", "(1+2j)"),
    "vector": (np.array([[0.5, 1.5]], np.float32), "2 values: 0.5, 1.5", [0.5, 1.5]),
    "matrix": (np.array([[[1, 2], [3, 4]]]), "2x2 values: 1, 2, 3, 4", [[1, 2], [3, 4]]),
    "empty": (np.empty((1, 0, 3), np.int8), "no values", []),
    "list": (ragged([[7, 8]], "int32"), "2 values: 7, 8", [7, 8]),
    "pairs": (ragged([[[7, 8]]], "int32", (2,)), "1x2 values: 7, 8", [[7, 8]]),
    "nothing": (ragged([[]], "int32"), "no values", []),
    "text": (["größe"], '"größe"', "größe"),
    "control": (["a\x1b[31m\n\u202eb"], r'"a\u001b[31m\n\u202eb"', "a\x1b[31m\n\u202eb"),
    "bytes": ([b"\x00\xff"], "2 B: 00 ff", {"bytes": 2}),
    "null": (Column(_ticks(0), "fixed", "int64", valid=np.array([False])), "null", None),
    "image": (
        images([JPEG], np.array([[375, 500]])),
        "image/jpeg 375x500, 61.2 kB",
        {"codec": "jpeg", "height": 375, "width": 500, "bytes": len(JPEG)},
    ),
    "no image": (
        images([b"x"], np.array([[0, 0]])),
        "no JPEG, PNG or WebP, 1 B",
        {"codec": None, "height": 0, "width": 0, "bytes": 1},
    ),
    "category": (categorical([1], ["Rome", "Oslo"]), "Oslo", "Oslo"),
    "table": (categorical([1], ["Rome", "Oslo"], table=True), "Oslo", "Oslo"),
    "label": (_logical(_ticks(1), Logical("class_label", names=("cat", "dog"))), "dog", "dog"),
    "no label": (_logical(_ticks(-1), Logical("class_label", names=("cat",))), "-1", -1),
    "enum": (
        _logical(_ticks(20), Logical("enum", names=("on", "off"), codes=(10, 20))),
        "off",
        "off",
    ),
    "timestamp": (
        _logical(_ticks(1_500_000), Logical("timestamp", unit="us")),
        "1970-01-01T00:00:01.500000",
        "1970-01-01T00:00:01.500000",
    ),
    "zone": (
        _logical(_ticks(86_400), Logical("timestamp", unit="s", timezone="Europe/Berlin")),
        "1970-01-02T00:00:00Z",
        "1970-01-02T00:00:00Z",
    ),
    "no time": (_logical(_ticks(-(2**63)), Logical("timestamp", unit="ns")), "NaT", "NaT"),
    "date": (
        _logical(np.array([-1], np.int32), Logical("date", unit="D")),
        "1969-12-31",
        "1969-12-31",
    ),
    "date64": (
        _logical(_ticks(86_400_000), Logical("date", unit="ms")),
        "1970-01-02",
        "1970-01-02",
    ),
    "time": (
        _logical(_ticks(3_723_000_004), Logical("time", unit="us")),
        "01:02:03.000004",
        "01:02:03.000004",
    ),
    "duration": (_logical(_ticks(-2500), Logical("duration", unit="ms")), "-PT2.500S", "-PT2.500S"),
    "bfloat16": (
        _logical(np.array([0x3FC0], np.uint16), Logical("bfloat16")),
        "1.5",
        1.5,
    ),
    "uuid": (
        _logical(np.arange(16, dtype=np.uint8)[None], Logical("uuid")),
        "00010203-0405-0607-0809-0a0b0c0d0e0f",
        "00010203-0405-0607-0809-0a0b0c0d0e0f",
    ),
    "fixed bytes": (
        _logical(np.array([[1, 254]], np.uint8), Logical("bytes")),
        "01fe",
        "01fe",
    ),
    "times": (
        _logical(_ticks(0, 1)[None], Logical("date", unit="ms")),
        "2 values: 1970-01-01, 1970-01-01",
        ["1970-01-01", "1970-01-01"],
    ),
    "lie": (
        _logical(np.array([1.5]), Logical("class_label", names=("cat",))),
        "1.5",
        1.5,
    ),
    "short uuid": (_logical(np.array([[1]], np.uint8), Logical("uuid")), "01", "01"),
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> StoredSlab:
    """One row with a field for each case."""
    columns = {name: column for name, (column, _, _) in SHOWN.items()}
    return StoredSlab(
        open_slab_files(write_slab(tmp_path_factory.mktemp("show") / "a.slab", columns))
    )


def test_values_are_shown_as_what_they_stand_for(shown: StoredSlab) -> None:
    """Each kind and logical type has its text and its JSON, which is strict JSON."""
    lines = {line[5:16].strip(): line[18:] for line in format_rows(shown, [0], None)}
    (row,) = rows_to_json(shown, [0])
    values = json.loads(json.dumps(row, allow_nan=False))["values"]
    assert len(values) == len(SHOWN)
    for name, (_, text, value) in SHOWN.items():
        assert lines[name] == text, name
        assert values[name] == value, name


@pytest.mark.parametrize("width", [40, 80, 120])
def test_rows_fit_the_terminal(tmp_path: Path, width: int) -> None:
    """Long texts, arrays and names are cut to the width, also where characters are wide."""
    columns: dict[str, Any] = {
        "name " * 20: np.arange(2),
        "text": ["word " * 1000, "漢字" * 1000],
        "list": ragged([range(100_000), []], "int32"),
        "bytes": [b"x" * 1000, b""],
        "big": np.zeros((2, 300, 300), np.float32),
    }
    slab = StoredSlab(open_slab_files(write_slab(tmp_path / "a.slab", columns)))
    lines = list(format_rows(slab, [0, 1], width))
    assert max(cell_len(line) for line in lines) <= width
    long = [line for line in lines if "word" in line or "漢" in line or "100000 values" in line]
    assert len(long) == 3
    assert all(line.endswith("…") for line in long)


def test_head_reads_rows_of_any_shard_and_order(tmp_path: Path) -> None:
    """Rows come in the order asked for, whichever shards hold them."""
    path = write_slab(tmp_path / "a.slab", {"x": np.arange(9) * 10}, (2, 3, 4))
    slab = StoredSlab(open_slab_files(path))
    rows = [8, 0, 2, 2, 4]
    assert [row["values"]["x"] for row in rows_to_json(slab, rows)] == [80, 0, 20, 20, 40]
    assert [line.split()[0] for line in format_rows(slab, rows, 80)] == ["row", *map(str, rows)]
    with pytest.raises(RowOutOfRange):
        slab.read(slab.manifest.fields[0], 8, 10)


def test_head_never_shows_a_wrong_byte(tmp_path: Path) -> None:
    """A damaged block is an error, and other blocks are shown all the same."""
    path = write_slab(tmp_path / "a.slab", {"x": np.arange(30_000)})
    flip(path_of(path, "x"), 8 * 20_000)
    slab = StoredSlab(open_slab_files(path))
    assert next(iter(rows_to_json(slab, [5])))["values"]["x"] == 5
    with pytest.raises(DamagedArray, match="does not match its digest"):
        list(rows_to_json(slab, [20_000]))


def test_info_says_what_is_there(shown: StoredSlab) -> None:
    """Text and JSON name every field, with its bytes and nulls, and the total is that on disk."""
    text = "\n".join(format_info(shown.members.files[0], None))
    actual = info_to_json(shown.members.files[0])
    on_disk = sum(file.stat().st_size for file in shown.path.rglob("*") if file.is_file())
    assert actual["bytes"] == on_disk
    assert actual["id"] == shown.manifest.id
    assert actual["id"] in text
    actual = json.loads(json.dumps(actual, allow_nan=False))
    by_name = {field["name"]: field for field in actual["fields"]}
    assert set(by_name) == set(SHOWN)
    assert all(name in text for name in SHOWN)
    assert by_name["null"]["nulls"] == 1
    assert by_name["image"]["bytes"] == len(JPEG) + 16 + 8


def test_info_wraps_reasons_below_themselves(shown: StoredSlab) -> None:
    """On a narrow terminal no line of the table is longer than the terminal is wide."""
    lines = list(format_table(["field", "why"], [["a", "because " * 30]], 50))
    assert max(map(len, lines)) <= 50
    assert all(line.startswith(" " * 7) for line in lines[2:])
    assert list(format_table(["a", "n"], [["x", "y"], ["long", "z"]], None, right="a")) == [
        "   a  n",
        "   x  y",
        "long  z",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("vector", "float32[2]"),
        ("matrix", "int64[2,2]"),
        ("list", "int32[*]"),
        ("pairs", "int32[*,2]"),
        ("text", ""),
        ("image", "jpeg"),
        ("category", "2 categories"),
        ("table", "2 categories"),
        ("label", "int64, 2 names"),
        ("zone", "timestamp[s, Europe/Berlin]"),
        ("date", "date"),
        ("time", "time[us]"),
        ("bfloat16", "bfloat16"),
        ("uuid", "uuid"),
        ("times", "date[2]"),
    ],
)
def test_types_are_spelled_in_short(shown: StoredSlab, name: str, text: str) -> None:
    """A type is a dtype with a shape, `*` where rows differ, or what the numbers stand for."""
    (field,) = (field for field in load_manifest(shown.path).fields if field.name == name)
    assert format_type(field) == text


def test_numbers_are_for_people() -> None:
    """Sizes in decimal units, counts with their noun, times with their unit."""
    sizes = [0, 999, 1000, 61_170, 999_949, 999_950, 1.3e9, 10**18]
    assert [format_size(number) for number in sizes] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "61.2 kB",
        "999.9 kB",
        "1.0 MB",
        "1.3 GB",
        "1000.0 PB",
    ]
    assert (format_count(1, "row"), format_count(12_000, "row")) == ("1 row", "12,000 rows")
    assert (format_duration(0.123), format_duration(12.3)) == ("0.12 s", "12.3 s")
    assert format_rate(10**9, 2) == "500.0 MB/s"
    assert escape_controls("a\tb\x9b\ud800") == r"a\tb\x9b\ud800"
    assert [truncate_text("漢字漢字", width) for width in (8, 7, 6, 3)] == [
        "漢字漢字",
        "漢字漢…",
        "漢字…",
        "漢…",
    ]
