"""Opening a slab; its rows and views."""

import os
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reader.conftest import ROWS, Example
from tests.slabs import categorical, write_slab

from fieldslab.reader import Column, Loader, Slab, open_slab
from fieldslab.reader.grain import grain_batches
from fieldslab.reader.torch import SlabDataset
from fieldslab.schemas.errors import (
    DamagedManifest,
    IncompleteSlab,
    NotASlab,
    RowOutOfRange,
    UnknownField,
    UsageError,
)
from fieldslab.schemas.manifest import MANIFEST


def test_every_row_is_what_was_written(slab: Slab, example: Example) -> None:
    """`slab[i]` has the value of every field, in every shard."""
    for row in range(ROWS):
        actual = slab[row]
        assert list(actual) == list(example.columns)
        for name, value in actual.items():
            wanted = example.value(name, row)
            assert type(value) is type(wanted)
            assert np.array_equal(value, wanted)


def test_rows_share_no_memory(slab: Slab) -> None:
    """Arrays of a row are the caller's own, and writing to them changes nothing else."""
    row = slab[5]
    row["box"][:] = 0
    row["tokens"][:] = 0
    assert slab[5]["box"].any()
    assert slab[5]["tokens"].any()


def test_rows_count_from_either_end(slab: Slab) -> None:
    """Negative rows count from the end; numpy integers do as well."""
    assert slab[-1]["label"] == ROWS - 1
    assert slab[-ROWS]["label"] == 0
    assert slab[np.int16(7)]["label"] == 7


@pytest.mark.parametrize("row", [ROWS, -ROWS - 1, 2**70])
def test_a_row_out_of_range_is_an_index_error(slab: Slab, row: int) -> None:
    """A row that is not there is RowOutOfRange, an IndexError, with the row and the bounds."""
    with pytest.raises(RowOutOfRange, match=f"found {row}") as caught:
        slab[row]
    assert isinstance(caught.value, IndexError)


@pytest.mark.parametrize("key", [1.5, None, [1, 2], np.array([1, 2]), (1, 2), b"label"])
def test_other_keys_are_usage_errors(slab: Slab, key: Any) -> None:
    """Only an integer, a slice or a name selects something."""
    with pytest.raises(UsageError):
        slab[key]


def test_unknown_fields_are_named(slab: Slab) -> None:
    """A wrong name is UnknownField, a KeyError, which tells the right ones."""
    with pytest.raises(UnknownField, match="'label', 'box'") as caught:
        slab["lable"]
    assert isinstance(caught.value, KeyError)
    with pytest.raises(UnknownField):
        slab.gather([0], ["label", "nothing"])


def test_a_slab_iterates_over_its_rows(slab: Slab) -> None:
    """Iteration yields every row once, and ends."""
    assert [row["label"] for row in slab[290:]] == list(range(290, 300))


@pytest.mark.parametrize(
    "cut",
    [
        slice(None),
        slice(5, 9),
        slice(-10, None),
        slice(None, None, -1),
        slice(200, 3, -7),
        slice(9, 5),
        slice(0, 10**30, 13),
    ],
)
def test_views_see_what_a_list_would(slab: Slab, cut: slice) -> None:
    """A slice of a slab has the rows that a slice of a list has, by row, column and batch."""
    wanted = list(range(ROWS))[cut]
    view = slab[cut]
    assert len(view) == len(wanted)
    assert [row["label"] for row in view] == wanted
    assert view.gather(range(len(view)))["label"].tolist() == wanted
    assert view["label"][:].tolist() == wanted
    assert view["caption"][:].tolist() == slab.gather(wanted)["caption"].tolist()


def test_a_view_of_a_view(slab: Slab) -> None:
    """Views nest, negative rows count from the view's end, and bounds are the view's."""
    view = slab[10:100:3][::-2][2:]
    wanted = list(range(10, 100, 3))[::-2][2:]
    assert view.gather([0, -1])["label"].tolist() == [wanted[0], wanted[-1]]
    assert view[-1]["label"] == wanted[-1]
    with pytest.raises(RowOutOfRange):
        view.gather([len(wanted)])


def test_categories(slab: Slab) -> None:
    """Names come from the manifest or from the table, in the order of their codes."""
    assert list(slab.categories("colour")) == ["red", "", "größe"]
    assert slab.categories("place")[4] == "category 4 é"
    with pytest.raises(UsageError):
        slab.categories("label")
    with pytest.raises(UnknownField):
        slab.categories("nothing")


def test_fields_keep_their_order(slab: Slab, example: Example) -> None:
    """`fields` maps names to what the manifest says, in the order of the manifest."""
    assert list(slab.fields) == list(example.columns)
    assert slab.fields["box"].shape == (2, 3)


def test_repr_tells_rows_and_fields(slab: Slab) -> None:
    """A slab shows where it is, how many rows it has, and each field."""
    text = repr(slab)
    assert "300 rows in 4 shards" in text
    assert "box: float32[2, 3]" in text
    assert "score: int64, or null" in text
    assert "90 of 300 rows" in repr(slab[10:100])


def test_an_empty_slab(tmp_path: Path) -> None:
    """No rows and no shards make a slab that opens, gathers nothing and has no row 0."""
    columns = {
        "x": np.empty((0, 3), "f2"),
        "t": [],
        "c": categorical([], ["a"]),
    }
    slab = open_slab(write_slab(tmp_path / "empty.slab", columns))
    assert len(slab) == 0
    assert list(slab) == []
    batch = slab.gather([])
    assert batch["x"].shape == (0, 3)
    assert batch["t"].tolist() == []
    assert slab["x"][:].dtype == np.float16
    with pytest.raises(RowOutOfRange):
        slab[0]
    with pytest.raises(RowOutOfRange):
        slab.gather([0])


def test_opening_reads_the_manifest_only(example: Example, tmp_path: Path) -> None:
    """A slab opens without any of its arrays; a missing one is noticed when it is used."""
    path = tmp_path / "bare.slab"
    path.mkdir()
    (path / MANIFEST).write_bytes((example.path / MANIFEST).read_bytes())
    assert len(open_slab(path)) == ROWS


def test_what_is_no_slab(tmp_path: Path, example: Example) -> None:
    """A missing path, a file, a folder, an unfinished and a damaged slab are told apart."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "cut.slab.partial").mkdir()
    damaged = tmp_path / "damaged.slab"
    damaged.mkdir()
    (damaged / MANIFEST).write_bytes((example.path / MANIFEST).read_bytes()[:-30])
    for name, error in {
        "missing": NotASlab,
        "file": NotASlab,
        "folder": NotASlab,
        "cut.slab": IncompleteSlab,
        "damaged.slab": DamagedManifest,
    }.items():
        with pytest.raises(error, match=name):
            open_slab(tmp_path / name)


def test_a_slab_pickles_as_its_path(slab: Slab) -> None:
    """A view opens again where it is unpickled, whatever the working directory is there."""
    view = pickle.loads(pickle.dumps(slab[100:200:2]))
    assert view.path == slab.path
    assert len(pickle.dumps(slab)) < 1000
    assert view.gather([-1, 0])["label"].tolist() == [198, 100]


def test_a_relative_path_survives_a_change_of_folder(
    example: Example, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A slab opened by a relative path is still found after chdir, and in other processes."""
    monkeypatch.chdir(example.path.parent)
    slab = open_slab(example.path.name)
    data = pickle.dumps(slab)
    monkeypatch.chdir(tmp_path)
    assert slab[3]["label"] == 3
    assert pickle.loads(data)[3]["label"] == 3


def test_a_slab_packed_anew_is_not_the_one_pickled(tmp_path: Path) -> None:
    """Unpickling after the slab was replaced by another is refused: rows would mean others."""
    path = write_slab(tmp_path / "a.slab", {"x": np.arange(10)})
    data = pickle.dumps(open_slab(path))
    os.rename(path, tmp_path / "old.slab")
    write_slab(path, {"x": np.arange(11)})
    with pytest.raises(NotASlab, match="another `id`"):
        pickle.loads(data)


def test_without_digests(example: Example) -> None:
    """`verify=False` reads the same values, and survives pickling."""
    slab = pickle.loads(pickle.dumps(open_slab(example.path, verify=False)))
    assert slab.gather([299, 8])["label"].tolist() == [299, 8]
    assert slab.storage.load_field("label").values.marks is None


def test_reading_rows_does_not_import_numba(example: Example, tmp_path: Path) -> None:
    """Only a gather compiles: importing, opening, rows and column slices do without numba."""
    code = (
        "import sys; from fieldslab.reader import open_slab; "
        f"slab = open_slab({str(example.path)!r}); slab[3]; slab['label'][2:5]; "
        "assert 'numba' not in sys.modules; slab.gather([1], ['label']); "
        "assert 'numba' in sys.modules"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NUMBA_CACHE_DIR": str(tmp_path),  # nothing is compiled yet
    }
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_columns_come_by_name(slab: Slab) -> None:
    """`slab[name]` is a Column of that field."""
    assert isinstance(slab["label"], Column)
    assert len(slab[5:9]["label"]) == 4


def test_lengths_are_those_of_the_rows(slab: Slab, example: Example) -> None:
    """Elements and bytes of rows of variable length; rows of fixed size are refused."""
    rows = [299, 0, 7, 7]
    for name in ("tokens", "points", "blob", "photo"):
        assert slab.lengths(rows, name).tolist() == [
            len(row_values) for row_values in example.values(name, rows)
        ]
        assert slab[5:].lengths([2], name).tolist() == [len(example.value(name, 7))]
    texts = example.values("caption", rows)
    assert slab.lengths(rows, "caption").tolist() == [len(text.encode()) for text in texts]
    with pytest.raises(UsageError, match="fixed size"):
        slab.lengths(rows, "label")


TAKE_A_SLAB = [SlabDataset, partial(Loader, batch_size=2), partial(grain_batches, batch_size=2)]


@pytest.mark.parametrize("use", TAKE_A_SLAB)
def test_a_path_is_not_a_slab(example: Example, use: Any) -> None:
    """What takes a slab says so where it is given a path, and what to write."""
    with pytest.raises(UsageError, match=r"Give open_slab\(path\)"):
        use(example.path)


@pytest.mark.parametrize("wrong", [None, 3, [3]])
def test_a_slab_is_opened_by_its_path(wrong: Any) -> None:
    """Anything but a path is named, not a TypeError of the system's."""
    with pytest.raises(UsageError, match="by its path"):
        open_slab(wrong)
