"""Nested fields in batches: lists of lists, of text and of bytes, damaged ones, and tensors."""

import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.nesting import MASK, make_nested_table, read_rows, to_python
from tests.slabs import array_path, poke, redigest
from torch.utils.data import DataLoader

from fieldslab.packer import pack
from fieldslab.reader import Loader, Near, Ragged, Shuffled, Slab, Text, Windows, open_slab
from fieldslab.reader.torch import Jagged, SlabDataset, collate
from fieldslab.schemas.errors import DamagedArray, FieldslabError, UsageError

ROWS = 64
NAMES = ["texts", "texts or null", "blobs", "lists", "lists or null", "boxes.points"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A slab of nested fields in one shard."""
    path = tmp_path_factory.mktemp("nested") / "x.slab"
    pack(make_nested_table(ROWS, seed=3), path, nulls=MASK)
    return path


@pytest.fixture(scope="module")
def slab(path: Path) -> Slab:
    """The same, open."""
    return open_slab(path)


@pytest.fixture
def broken(tmp_path: Path) -> Callable[..., Path]:
    """Makes a slab whose lists lie, with right digests."""

    def make(role: Any, numbers: list[int], dtype: str, place: int) -> Path:
        path = tmp_path / f"{role}{numbers}.slab"
        pack({"a": [["a", "b"], ["c", "d"], ["ef"]]}, path)
        poke(array_path(path, "a", role), np.array(numbers, dtype), offset=place)
        redigest(path)
        return path

    return make


def test_rows_are_lists(slab: Slab) -> None:
    """`slab[i]` has a list for each row, None for nulls; a column's slices are those of a batch."""
    expected = read_rows(slab, range(ROWS))
    for row in (0, 7, 40):
        value = slab[row]
        assert {name: to_python(value[name]) for name in NAMES} == {
            name: expected[name][row] for name in NAMES
        }
        assert slab["texts"][row] == expected["texts"][row]
    assert slab["texts"][5:9].tolist() == expected["texts"][5:9]
    assert slab[10:20].gather([0])["texts"].tolist() == expected["texts"][10:11]


@pytest.mark.parametrize("name", ["texts", "lists"])
def test_runs_are_not_found_by_lists_in_lists(slab: Slab, name: str) -> None:
    """Rows with one value cannot be told there: an error, and no wrong runs."""
    with pytest.raises(UsageError, match=f"runs.*field {name}"):
        slab.find_runs(name)
    with pytest.raises(UsageError, match=f"runs.*field {name}"):
        Loader(slab, 4, Windows(2, within=name))


def test_batches_hold_lists_in_lists(slab: Slab) -> None:
    """A batch has `Ragged` of `Text` or `Ragged`, whose parts share memory and may be cut."""
    batch = slab.gather([9, 3, 9, 60])
    texts, lists = batch["texts"], batch["lists"]
    assert (type(texts), type(texts.values), type(lists.values)) == (Ragged, Text, Ragged)
    assert isinstance(texts[1], Text)
    assert texts[0].tolist() == texts[2].tolist()
    assert lists[1:3].tolist() == lists.tolist()[1:3]
    assert np.shares_memory(lists[3].values, lists.values.values)
    assert lists.nbytes == lists.values.values.nbytes
    assert "Text" in repr(batch)
    assert "of Ragged" in repr(lists)
    assert pickle.loads(pickle.dumps(texts)).tolist() == texts.tolist()
    nulls = batch["lists or null"]
    assert (nulls.values.valid is None) == all(row is not None for row in nulls.values)
    padded = lists.values.to_padded(3)
    assert padded.shape == (len(lists.values), 3)
    with pytest.raises(UsageError, match=r"values\.to_padded"):
        lists.to_padded()


def test_out_is_filled_again(slab: Slab) -> None:
    """Memory of a batch is used again for others, larger and smaller."""
    buffers = slab.buffers(ROWS, NAMES)
    for rows in ([3], list(range(ROWS)), [], [60, 2]):
        batch = slab.gather(rows, out=buffers)
        for name in NAMES:
            assert batch[name].tolist() == slab.gather(rows, [name])[name].tolist()


@pytest.mark.parametrize(
    ("role", "numbers", "dtype", "place"),
    [
        ("lists.values", [2**30], "<i4", 0),
        ("lists.values", [0], "<i4", 4),
        ("lists.values", [-2, 4], "<i4", 0),
        ("lists.values", [-(2**31)], "<i4", 4),
        ("lists.offsets", [2**40], "<u8", 8),
        ("lists.offsets", [5], "<u8", 8),
        ("lists.offsets", [1], "<u8", 8),
    ],
)
def test_lies_are_named(
    broken: Callable[..., Path], role: str, numbers: list[int], dtype: str, place: int
) -> None:
    """Lengths that do not add up, and offsets out of order, are errors with their file and row."""
    slab = open_slab(broken(role, numbers, dtype, place))
    for read in (
        lambda: slab.gather([1, 0]),
        lambda: [slab[row] for row in range(3)],
        slab.to_arrow,
        lambda: slab["a"][0:2],
    ):
        with pytest.raises(DamagedArray) as caught:
            read()
        assert caught.value.context["field"] == "a"
        assert "row" in caught.value.context
    assert slab.gather([2])["a"].tolist() == [["ef"]]


def test_damaged_rows_are_filled_or_left_out(broken: Callable[..., Path]) -> None:
    """With `on_damage`, rows whose lists lie have none, or are not there."""
    path = broken("lists.values", [9], "<i4", 4)
    filled = open_slab(path, on_damage="fill", max_damaged=1.0).gather([1, 0, 2])
    assert filled["a"].tolist() == [["c", "d"], [], ["ef"]]
    assert [failure.row for failure in filled.failures] == [0]
    left = open_slab(path, on_damage="skip", max_damaged=1.0).gather([1, 0, 2])
    assert left["a"].tolist() == [["c", "d"], ["ef"]]


def test_text_in_lists_is_checked(broken: Callable[..., Path]) -> None:
    """Lists that cut a character apart are an error where they are read."""
    path = broken("values", [0xC3, 0xA9], "u1", 0)  # é, cut in two
    with pytest.raises(DamagedArray, match="not UTF-8"):
        open_slab(path)[0]
    with pytest.raises(DamagedArray, match="not UTF-8"):
        open_slab(path).gather([0])["a"].tolist()


def test_loaders_give_the_same(slab: Slab) -> None:
    """Small batches cut from larger gathers, in threads and in another process, are the rows."""
    for options in ({}, {"isolate": True}):
        loader = Loader(slab, 5, Shuffled(0), fields=NAMES, **options)  # type: ignore[arg-type]
        count = 0
        for batch in loader:
            expected = slab.gather(batch.rows, NAMES)
            for name in NAMES:
                assert batch[name].tolist() == expected[name].tolist()
            count += len(batch.rows)
        assert count == ROWS


def test_tensors(slab: Slab) -> None:
    """Lists of numbers are `Jagged` of `Jagged`; text and bytes stay as in a batch."""
    names = ["texts", "lists", "boxes.points"]
    whole = slab.gather(range(ROWS), names)
    for loader in (
        Loader(slab, 16, Near(), fields=names, output="torch"),
        DataLoader(SlabDataset(slab, names), batch_size=16, collate_fn=collate),
    ):
        for batch in loader:
            rows = batch.rows.tolist()
            lists = batch["lists"]
            assert isinstance(lists, Jagged)
            assert isinstance(lists.values, Jagged)
            ends, cuts = lists.values.offsets.tolist(), lists.offsets.tolist()
            flat = lists.values.values.tolist()
            inner = [flat[a:b] for a, b in pairwise(ends)]
            told = [inner[a:b] for a, b in pairwise(cuts)]
            assert told == [whole["lists"].tolist()[row] for row in rows]
            assert batch["texts"].tolist() == [whole["texts"].tolist()[row] for row in rows]
            assert lists.values.nested().size(0) == len(inner)
            with pytest.raises(UsageError, match=r"values\.nested"):
                lists.nested()
            moved = batch.to("cpu")
            assert torch.equal(moved["lists"].values.values, lists.values.values)
    with pytest.raises(UsageError, match="lists or null"):
        next(iter(Loader(slab, ROWS, fields=["lists or null"], output="torch")))


def test_windows_and_splits(slab: Slab) -> None:
    """Windows of rows have their lists, one window behind the other; equal rows split alike."""
    for batch in Loader(slab, 4, Windows(3), fields=["texts"]):
        rows = np.concatenate([np.arange(row, row + 3) for row in batch.rows])
        assert batch["texts"].tolist() == slab.gather(rows)["texts"].tolist()
    parts = slab.split({"a": 0.5, "b": 0.5}, by="lists")
    seen = [{str(row) for row in part["lists"][:].tolist()} for part in parts.values()]
    assert not seen[0] & seen[1]
    assert sum(map(len, parts.values())) == ROWS


def test_what_needs_plain_elements_says_so(slab: Slab) -> None:
    """A cast, elements as windows, and a condition name the field; so do transforms of numbers."""
    for call in (
        lambda: slab.cast({"lists": "float32"}),
        lambda: slab.where("texts == 'a'"),
        lambda: Loader(slab, 4, Windows(3, of="texts")),
    ):
        with pytest.raises(FieldslabError, match=r"texts|lists"):
            call()
