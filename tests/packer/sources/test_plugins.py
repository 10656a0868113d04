"""Sources of other packages."""

from pathlib import Path
from typing import Any

import pytest
from tests.installed import install
from tests.packer.readback import Readback

from fieldslab.packer import pack, verify
from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import SourceUnreadable, UsageError

LINES = '''
import os
import pyarrow as pa
from fieldslab.packer.source import Source, Unit

class Lines(Source):
    """Text files; a line is a row."""

    name = "lines"
    rereadable = True

    def __init__(self, paths, *, skip=0, tolerant=False):
        self.settings = {"skip": skip} if skip else {}
        self.tolerant = tolerant
        self.skip = skip
        self.schema = pa.schema([("line", pa.string())])
        self.units = [Unit(path, len(self.lines(path)), 100, path, file=path) for path in paths]

    @staticmethod
    def accepts(paths):
        return paths[0].endswith(".lines")

    def lines(self, path):
        with open(path) as file:
            return file.read().splitlines()[self.skip:]

    def read(self, unit, columns, batch_bytes):
        yield pa.record_batch([pa.array(self.lines(unit.key))], schema=self.schema)

    def fingerprint(self):
        return [{"path": unit.key, "bytes": os.path.getsize(unit.key)} for unit in self.units]
'''
OLD = """
class Old:
    name = "old"
    rereadable = False
    accepts = staticmethod(lambda paths: paths[0].endswith(".old"))
    def __init__(self, paths): pass
"""
ENTRIES = """
[fieldslab.sources]
lines = toysources:Lines
old = toysources_old:Old
torn = toysources_torn:Torn
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with a source that works, one without a base class, and one that is broken."""
    (tmp_path / "site").mkdir()
    modules = {"toysources": LINES, "toysources_old": OLD, "toysources_torn": "1 / 0"}
    monkeypatch.syspath_prepend(install(tmp_path / "site", "toysources", modules, ENTRIES))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two files of lines."""
    paths = [tmp_path / "a.lines", tmp_path / "b.lines"]
    paths[0].write_text("one\ntwo\nthree\n")
    paths[1].write_text("four\nfive\n")
    return paths


def test_two_methods_make_a_source(tmp_path: Path, files: list[Path]) -> None:
    """A class that defines what it must is packed, in processes too, and compared."""
    packed = pack(files, tmp_path / "slab", jobs=2, shard_size=1)
    assert len(packed.manifest.shards) == 2
    assert Readback(tmp_path / "slab").column("line") == ["one", "two", "three", "four", "five"]
    assert packed.manifest.made.options["from"] == "lines"
    assert verify(tmp_path / "slab", against=files).ok


def test_settings_are_keywords_of_the_constructor(tmp_path: Path, files: list[Path]) -> None:
    """They reach the source and the manifest, by which a comparison knows them; others do not."""
    pack(files, tmp_path / "slab", from_="lines", settings={"skip": 2})
    assert Readback(tmp_path / "slab").column("line") == ["three"]
    assert verify(tmp_path / "slab", against=files).ok
    for setting in ("skp", "tolerant"):  # the latter is told by `on_error`
        with pytest.raises(UsageError, match="lines sources have no such setting") as caught:
            find_source(files, settings={setting: True})
        assert caught.value.context["expected"] == "skip"
    tolerant: list[Any] = [find_source(files, tolerant=wanted) for wanted in (False, True)]
    assert [source.tolerant for source in tolerant] == [False, True]


def test_a_class_without_the_base_is_told_what_to_do(files: list[Path]) -> None:
    """What merely has the methods of a source is refused by name, with the class to derive from."""
    with pytest.raises(UsageError, match=r"'old' cannot be loaded.*packer\.source\.Source"):
        find_source(files, "old")


def test_broken_ones_are_in_nobodys_way(tmp_path: Path, files: list[Path]) -> None:
    """They are named where no source accepts a path, or where they are asked for."""
    assert find_source(files).name == "lines"
    (tmp_path / "x.old").write_text("")
    with pytest.raises(
        SourceUnreadable, match="there is nothing at this path that fieldslab can pack"
    ) as caught:
        find_source(tmp_path / "x.old")
    assert "The source 'old' cannot be loaded: TypeError" in str(caught.value.hint)
    assert "The source 'torn' cannot be loaded: ZeroDivisionError" in str(caught.value.hint)
    with pytest.raises(UsageError, match="'torn' cannot be loaded: ZeroDivisionError"):
        find_source(files, "torn")


def test_unknown_sources(files: list[Path]) -> None:
    """A name that is not there is told with those that are."""
    with pytest.raises(UsageError, match=r"no such source 'line'.*Did you mean 'lines'"):
        find_source(files, "line")
