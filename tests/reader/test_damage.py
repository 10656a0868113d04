"""Hostile and damaged slabs: always a named error, never a crash or a wrong byte.

Digests are made to agree with what is damaged, or are off: memory safety must not rest on them.
"""

import os
import pickle
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.naming import case
from tests.reader.conftest import ROWS, SHARDS, make_columns
from tests.slabs import array_path, categorical, lie, lie_about, poke, ragged, redigest, write_slab

from fieldslab.reader import Slab, open_slab
from fieldslab.reader.stored import changes
from fieldslab.schemas import layout
from fieldslab.schemas.arrays import HEADER, make_array_header
from fieldslab.schemas.errors import (
    Damaged,
    DamagedArray,
    DamagedManifest,
    FieldslabError,
    NotASlab,
)
from fieldslab.schemas.fields import Role
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.mapping import populate_pages

WORDS = ["alpha", "", "gamma", "delta", "epsilon"]
SIZE = sum(map(len, WORDS))

READS: dict[str, Callable[[Slab, int], Any]] = {
    "row": lambda slab, row: slab[row],
    "slice": lambda slab, row: slab["t"][row : row + 1],
    "all": lambda slab, row: slab["t"][:],
    "gather": lambda slab, row: slab.gather([row, row]),
    "addresses": lambda slab, row: slab.addresses([row], "t"),
}


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A small slab of text, in one shard."""
    return write_slab(tmp_path / "t.slab", {"t": WORDS})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A slab with every kind of field."""
    return write_slab(tmp_path / "all.slab", make_columns(), SHARDS)


def use(path: Path, verify: bool) -> None:
    """Read everything there is, in every way."""
    slab = open_slab(path, verify=verify)
    for row in range(0, len(slab), 7):
        slab[row]
    for name in slab.fields:
        slab[name][:]
        slab.addresses(range(len(slab)), name)
    slab.gather(range(len(slab)))


@pytest.mark.parametrize(
    "pair",
    [
        (7, 6),
        (SIZE, SIZE + 1),
        (0, SIZE + 1),
        (SIZE + 1, SIZE + 1),
        (0, 2**40),
        (0, 2**63 - 1),
        (2**63, 2**63),
        (2**63, 2**63 + 4),
        (2**64 - 1, 3),
        (3, 2**64 - 1),
        (2**64 - 8, 2**64 - 1),
    ],
)
def test_hostile_offsets(words: Path, pair: tuple[int, int]) -> None:
    """Offsets that fall, leave the values or pass 2^63 raise DamagedArray with what was found."""
    file = array_path(words, "t", "offsets")
    poke(file, np.array(pair, np.uint64), 8 * 2)
    redigest(words)
    for read, verify in product(READS, [True, False]):
        slab = open_slab(words, verify=verify)
        with case(read, verify):
            with pytest.raises(DamagedArray, match="offsets") as caught:
                READS[read](slab, 2)
            context = caught.value.context
            if context["row"] == 2:
                assert context["found"] == f"{pair[0]}, {pair[1]}"
                assert context["offset"] == HEADER + 16
            assert context["file"] == file
            assert context["field"] == "t"


@given(offsets=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 30), min_size=6, max_size=6))
def test_any_offsets(tmp_path_factory: pytest.TempPathFactory, offsets: list[int]) -> None:
    """Whatever the offsets say, a row is what they frame within the values, or DamagedArray."""
    path = write_slab(tmp_path_factory.mktemp("any") / "t.slab", {"t": WORDS})
    poke(array_path(path, "t", "offsets"), np.array(offsets, np.uint64))
    slab = open_slab(path, verify=False)
    whole = "".join(WORDS)
    for row in range(5):
        start, stop = offsets[row], offsets[row + 1]
        if start <= stop <= SIZE:
            assert slab[row]["t"] == slab.gather([row])["t"][0] == whole[start:stop]
            continue
        for read in READS.values():
            with pytest.raises(DamagedArray):
                read(slab, row)
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("verify", [True, False])
def test_rows_without_bytes_of_giant_length(tmp_path: Path, verify: bool) -> None:
    """Elements of no bytes may be as many as the manifest says; their sum never wraps around."""
    path = write_slab(tmp_path / "x.slab", {"x": ragged([np.empty((9, 0))] * 2, "float64", (0,))})
    poke(array_path(path, "x", "offsets"), np.array([0, 2**48, 2**48], np.uint64))
    file = array_path(path, "x")
    file.write_bytes(make_array_header(np.dtype("f8"), (2**48, 0)))
    shard = msgspec.structs.replace(load_manifest(path).shards[0], elements=(2**48,))
    lie(path, shards=(shard,))
    redigest(path)
    slab = open_slab(path, verify=verify)
    assert slab.gather([0, 1, 0])["x"].lengths.tolist() == [2**48, 0, 2**48]
    assert slab[0]["x"].shape == (2**48, 0)
    with pytest.raises(FieldslabError):
        slab.gather(np.zeros(2**16, np.int64))


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("label", "values"),
        ("caption", "values"),
        ("caption", "offsets"),
        ("photo", "size"),
        ("photo", "points.values"),
        ("photo", "points.offsets"),
        ("photo", "codec"),
        ("score", "valid"),
    ],
)
def test_truncated_files(path: Path, name: str, role: Role) -> None:
    """A file of any other size is refused by its size, before it is mapped."""
    file = array_path(path, name, role, 2)
    size = file.stat().st_size
    for cut in sorted([0, 1, HEADER - 1, HEADER, size - 1], reverse=True):
        os.truncate(file, cut)
        for verify in (True, False):
            slab = open_slab(path, verify=verify)
            with case(cut, verify):
                with pytest.raises(DamagedArray, match="wrong size") as caught:
                    slab.storage.load_field(name).arrays[role][2]
                assert caught.value.context["file"] == file
                assert slab.gather([297], ["flag"])["flag"].tolist() == [True]


def test_files_cut_off_while_they_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing from a file since it was opened is an error when it is asked for."""
    monkeypatch.setattr(changes, "SECONDS", 3600.0)
    path = write_slab(tmp_path / "x.slab", {"x": np.arange(40_000)})
    slab = open_slab(path)
    first = slab["x"][:1]  # reads the first block
    if populate_pages(first.ctypes.data, first.nbytes):  # the system can tell
        os.truncate(array_path(path, "x"), HEADER + 100_000)
        with pytest.raises(DamagedArray, match="wrong size"):
            slab.gather([39_999])
    assert first.tolist() == [0]


@pytest.mark.parametrize("verify", [True, False])
def test_longer_files(path: Path, verify: bool) -> None:
    """A byte too many is as wrong as one too few."""
    with array_path(path, "label").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DamagedArray, match="wrong size"):
        open_slab(path, verify=verify)["label"][0]


def test_wrong_headers(path: Path) -> None:
    """A header that is not the one of dtype and shape is refused with the differing byte."""
    for shape, dtype in (((7,), "<u8"), ((7,), ">i8"), ((7, 1), "<i8")):
        with array_path(path, "label").open("r+b") as file:
            file.write(make_array_header(np.dtype(dtype), shape))
        with pytest.raises(DamagedArray, match="wrong header") as caught:
            open_slab(path).gather([0])
        assert caught.value.context["offset"] > 0


def test_missing_files_and_folders(path: Path) -> None:
    """What is not there is named: an array, a digest table, a shard, the tables."""
    slab = open_slab(path)
    (path / layout.name_shard(3) / layout.DIGESTS).unlink()
    with pytest.raises(DamagedArray, match=r"digests\.npy: cannot be opened"):
        slab.gather([299])
    array_path(path, "label", "values", 1).unlink()
    with pytest.raises(DamagedArray, match=r"00-label.*No such file"):
        open_slab(path).gather([0, 7])
    shutil.rmtree(path / layout.name_shard(2))
    with pytest.raises(DamagedArray, match=r"shard-00002.*No such file"):
        open_slab(path)["flag"][100]
    assert open_slab(path)["label"][0] == slab["label"][0], "other shards are as good as before"
    shutil.rmtree(path / layout.TABLES)
    with pytest.raises(DamagedArray, match="tables"):
        slab.categories("place")


def test_links_are_not_followed(path: Path, tmp_path: Path) -> None:
    """Neither an array nor a shard may be a link, wherever it leads, unless links are followed."""
    file = array_path(path, "label", "values", 1)
    moved = tmp_path / "moved.npy"
    file.rename(moved)
    file.symlink_to(moved)
    with pytest.raises(NotASlab, match="links in a slab are not followed"):
        open_slab(path)["label"][7]
    folder = path / layout.name_shard(3)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotASlab, match=r"links in a slab are not followed.*cp -RL"):
        open_slab(path)["flag"][299]
    followed = open_slab(path, follow_links=True)
    assert followed.gather([297], ["flag"])["flag"].tolist() == [True]
    assert pickle.loads(pickle.dumps(followed))["label"][0] == followed["label"][0]


def test_things_that_are_no_files(path: Path) -> None:
    """A folder or a pipe in the place of an array is refused, and nothing waits for a writer."""
    file = array_path(path, "label")
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(DamagedArray, match="not a regular file"):
        open_slab(path)["label"][0]
    file.unlink()
    file.mkdir()
    with pytest.raises(DamagedArray, match="not a regular file"):
        open_slab(path)["label"][0]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("label", {"dtype": "int32"}),
        ("label", {"dtype": "uint64"}),
        ("label", {"dtype": "complex128"}),
        ("label", {"shape": (2,)}),
        ("label", {"shape": (0,)}),
        ("label", {"kind": "ragged"}),
        ("box", {"shape": (3, 2)}),
        ("box", {"shape": (2, 2**45)}),
        ("box", {"nullable": True}),
        ("tokens", {"dtype": "int64"}),
        ("tokens", {"shape": (2,)}),
        ("tokens", {"kind": "fixed"}),
        ("points", {"shape": ()}),
        ("caption", {"kind": "ragged", "dtype": "uint16"}),
        ("score", {"nullable": False}),
        ("caption", {"stem": "00-label"}),
        ("caption", {"stem": "03-other"}),
    ],
)
def test_lies_about_a_field(path: Path, name: str, changes: dict[str, Any]) -> None:
    """A sealed manifest that lies about dtype, shape or kind is caught at the files."""
    try:
        lie_about(path, name, **changes)
    except ValueError:
        return  # no manifest can say that
    for verify in (True, False):
        with case(verify), pytest.raises(Damaged):
            use(path, verify)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("by", [-1, 1, 2**40])
def test_lies_about_rows_and_elements(path: Path, by: int, verify: bool) -> None:
    """Counts of rows and elements that are not those of the files are caught at their sizes."""
    manifest = load_manifest(path)
    first, *others = manifest.shards
    more_rows = msgspec.structs.replace(first, rows=first.rows + by)
    lie(path, rows=ROWS + by, shards=(more_rows, *others))
    with pytest.raises(DamagedArray, match="wrong size"):
        use(path, verify)
    elements = tuple(count + by for count in first.elements)
    lie(path, rows=ROWS, shards=(msgspec.structs.replace(first, elements=elements), *others))
    with pytest.raises(DamagedArray, match="wrong size"):
        use(path, verify)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    "shape", [(0, 2**48, 2**48), (2**48, 2**48, 2**48, 0), (0, *[2**48] * 25), (2**40, 0)]
)
def test_giant_shapes_without_bytes(tmp_path: Path, shape: tuple[int, ...], verify: bool) -> None:
    """Shapes that no array can have, hidden behind a 0, are refused by name."""
    path = write_slab(tmp_path / "x.slab", {"x": np.empty((3, 0))})
    array_path(path, "x").write_bytes(make_array_header(np.dtype("f8"), (3, *shape)))
    try:
        lie_about(path, "x", shape=shape)
    except ValueError:
        return  # no manifest can say that
    with pytest.raises(DamagedManifest):
        use(path, verify)


@pytest.mark.parametrize("code", [3, -1, 2**31 - 1, -(2**31)])
def test_codes_without_a_category(tmp_path: Path, code: int) -> None:
    """A code that names nothing is DamagedArray in a row; a batch has codes as they are."""
    for table in (False, True):
        column = categorical([0, 1, 2], ["a", "b", "c"], table=table)
        path = write_slab(tmp_path / f"{table}.slab", {"c": column})
        poke(array_path(path, "c"), np.array([code], np.int32), 4)
        redigest(path)
        slab = open_slab(path)
        with pytest.raises(DamagedArray, match=f"found {code}") as caught:
            slab[1]
        assert caught.value.context["row"] == 1
        assert slab.gather([1])["c"].tolist() == [code]


@pytest.mark.parametrize(
    "ends", [[1, 1, 2, 3], [0, 2, 1, 3], [0, 1, 2, 2], [0, 1, 2, 2**64 - 1], [0, 2**63, 2**63, 3]]
)
@pytest.mark.parametrize("verify", [True, False])
def test_hostile_category_tables(tmp_path: Path, ends: list[int], verify: bool) -> None:
    """Offsets of a category table are checked as a whole before one name is read."""
    column = categorical([0, 1, 2], ["a", "b", "c"], table=True)
    path = write_slab(tmp_path / "x.slab", {"c": column})
    poke(array_path(path, "c", "categories.offsets", None), np.array(ends, np.uint64))
    redigest(path)
    slab = open_slab(path, verify=verify)
    with pytest.raises(DamagedArray, match="category table"):
        slab.categories("c")
    with pytest.raises(DamagedArray, match="category table"):
        slab[0]


def test_text_that_is_not_utf8(words: Path) -> None:
    """Text that was damaged before it was digested is DamagedArray when a str is asked for."""
    poke(array_path(words, "t"), b"\xff", 6)
    redigest(words)
    slab = open_slab(words)
    with pytest.raises(DamagedArray, match="UTF-8") as caught:
        slab[2]
    assert caught.value.context["row"] == 2
    batch = slab.gather([0, 2])
    assert batch["t"][0] == "alpha"
    with pytest.raises(DamagedArray, match="UTF-8"):
        batch["t"][1]


def test_a_mask_of_other_bytes_than_0_and_1(tmp_path: Path) -> None:
    """Validity bytes beyond 1 count as valid and break nothing."""
    columns = {name: values for name, values in make_columns().items() if name == "score"}
    path = write_slab(tmp_path / "x.slab", columns)
    poke(array_path(path, "score", "valid"), b"\x02\xff")
    slab = open_slab(path, verify=False)
    assert slab[0]["score"] == 0
    assert slab[1]["score"] == 1
    assert slab.gather([0, 1, 4]).valid["score"].astype(int).tolist() == [1, 1, 0]
