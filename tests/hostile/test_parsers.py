"""Bytes of strangers are taken or refused by name: a short `make campaign-fuzz`."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hostile import parsers
from tests.hostile.parsers import PARSERS, try_parser
from tests.naming import case

from fieldslab.packer import pack
from fieldslab.schemas.errors import SourceUnreadable

pytestmark = pytest.mark.filterwarnings("ignore")  # what damaged sources are warned of


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=12, derandomize=True)
@given(data=st.data())
def test_changed_bytes_are_taken_or_refused(name: str, data: st.DataObject) -> None:
    """Whatever bytes of an example are others, it is taken, or refused by an error of ours."""
    example = bytearray(PARSERS[name][1]())
    place = st.integers(0, len(example) - 1)
    for offset, byte in data.draw(st.lists(st.tuples(place, st.integers(0, 255)), max_size=4)):
        example[offset] = byte
    try_parser(name, bytes(example[: data.draw(place) + 1]))


def test_examples_are_taken_and_bugs_get_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example is what its parser takes, and an error that is not ours is not caught."""
    for name, (_, make_example) in PARSERS.items():
        with case(name):
            assert try_parser(name, make_example())
    monkeypatch.setitem(parsers.PARSERS, "planted", (lambda data: 1 // len(data), lambda: b""))
    with pytest.raises(ZeroDivisionError):
        try_parser("planted", b"")


@pytest.mark.parametrize("data", [b"a,\xff\n1,2\n", b"a\rb,c\n1,2\n", b'"a\n1,2\n'])
def test_csv_that_begins_with_no_csv_is_refused(tmp_path: Path, data: bytes) -> None:
    """Names of columns that are not UTF-8, or not CSV, are an error with the file."""
    path = tmp_path / "x.csv"
    path.write_bytes(data)
    with pytest.raises(SourceUnreadable, match=r"x\.csv"):
        pack(path, tmp_path / "x.slab")
