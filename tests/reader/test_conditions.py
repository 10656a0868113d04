"""Conditions as text: fields with any name, times, and what is said of those that do not fit."""

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.naming import case

from fieldslab.packer import pack
from fieldslab.reader import Slab, open_slab
from fieldslab.schemas.errors import UsageError

START = datetime.datetime(2026, 11, 20)
TIMES = [START + datetime.timedelta(hours=hour) for hour in range(100)]
ROWS = len(TIMES)


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Times of every kind, and fields whose names need care."""
    table = pa.table(
        {
            "row": np.arange(ROWS),
            "meta": [{"weight": row % 7, "from": {"id": row}} for row in range(ROWS)],
            "obs/joint": np.arange(ROWS) / 10,
            "user id": [f"u{row % 3}" for row in range(ROWS)],
            "naive": pa.array(TIMES, pa.timestamp("ms")),
            "utc": pa.array(TIMES, pa.timestamp("us", "UTC")),
            "berlin": pa.array(TIMES, pa.timestamp("s", "Europe/Berlin")),
            "day": pa.array([time.date() for time in TIMES], pa.date32()),
            "clock": pa.array([time.time() for time in TIMES], pa.time64("us")),
            "took": pa.array(np.arange(ROWS), pa.duration("s")),
        }
    )
    path = tmp_path_factory.mktemp("slabs") / "x.slab"
    pack(table, path)
    return open_slab(path)


def test_fields_of_any_name_are_compared(slab: Slab) -> None:
    """Members of structs are written with their dots, and all other names as field("...")."""
    rows = np.arange(ROWS)
    for condition, expected in (
        ("meta.weight == 3", rows % 7 == 3),
        ("meta.weight in [1, 2] and row > 50", np.isin(rows % 7, [1, 2]) & (rows > 50)),
        ("field('meta.weight') < 2", rows % 7 < 2),
        ("field('meta.from.id') == 5", rows == 5),
        ('field("obs/joint") > 5', rows > 50),
        ("field('user id') == 'u2'", rows % 3 == 2),
    ):
        with case(condition):
            assert np.array_equal(slab.where(condition)["row"][:], rows[expected])


def test_times_are_compared_with_text(slab: Slab) -> None:
    """A time is text in ISO 8601, in UTC without a zone of its own."""
    rows = np.arange(ROWS)
    for condition, expected in (
        ("naive >= '2026-11-22'", rows >= 48),
        ("'2026-11-21T06:00' <= naive < '2026-11-21 08:00:00.000'", (rows >= 30) & (rows < 32)),
        ("naive in ['2026-11-20', '2026-11-20T03:00']", np.isin(rows, [0, 3])),
        ("utc == '2026-11-20T05:00'", rows == 5),
        ("utc == '2026-11-20T05:00Z'", rows == 5),
        ("utc == '2026-11-20T05:00+02:00'", rows == 3),
        ("utc not in ['2026-11-20', '2026-11-20T01:00Z']", rows >= 2),
        ("berlin == '2026-11-20T05:00'", rows == 5),
        ("berlin == '2026-11-20T05:00+01:00'", rows == 4),
        ("day == '2026-11-21'", (rows >= 24) & (rows < 48)),
        ("clock < '01:30' and not day > '2026-11-20'", rows < 2),
        ("naive == field('naive')", rows >= 0),
    ):
        with case(condition):
            assert np.array_equal(slab.where(condition)["row"][:], rows[expected])


def test_a_condition_that_does_not_fit_says_how_to_write_it(slab: Slab) -> None:
    """Names with other signs, text without quotes, single `=`, and values of another type."""
    for wrong, match in (
        ("obs/joint > 5", r'\'obs\', which is no field.*Write it as field\("obs/joint"\)'),
        ("user id == 'u1'", r"not a condition.*field\(\"any name\"\)"),
        ("field('user id') = 'u1'", "not a condition.*Compare with =="),
        ("meta.wieght == 3", r"'meta.wieght', which is no field.*Did you mean 'meta.weight'"),
        ("row == zzz", r"'zzz', which is no field.*Text is written in quotes"),
        ("row == '5'", r"cannot be evaluated.*numbers as they are, text in quotes"),
        ("naive > 5", r"cannot be evaluated.*times as text in ISO 8601"),
        ("naive > 'yesterday'", r"not a time.*field naive.*ISO 8601.*yesterday"),
        ("day > '2026-11-20T05:00'", r"not a time.*field day.*2026-11-20T05:00"),
        ("clock in ['25:00']", r"not a time.*field clock.*25:00"),
        ("took > '5s'", "cannot be evaluated"),
    ):
        with case(wrong), pytest.raises(UsageError, match=match):
            slab.where(wrong)


def test_a_name_with_dots_is_never_executed(slab: Slab, tmp_path: Path) -> None:
    """Attributes are names of fields, not of Python, whatever they are called on."""
    for wrong in ("row.__class__ == 3", "[1].x == 2", "field('row').x == 3", "'a'.x == 3"):
        with case(wrong), pytest.raises(UsageError):
            slab.where(wrong)
