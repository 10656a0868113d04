"""Files that are cut, written or replaced while a slab is read: named errors, and no SIGBUS."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.forking import run_python
from tests.slabs import write_slab

from fieldslab.packer import pack
from fieldslab.reader import Loader, open_slab
from fieldslab.schemas.errors import SlabChanged

PROGRAM = Path(__file__).parents[1] / "changing.py"
ROWS = 20_000


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What became of each case of `tests/changing.py`, by its name."""
    folder = tmp_path_factory.mktemp("changing")
    values = pa.array(np.repeat(np.arange(ROWS, dtype=np.float32), 64))
    table = pa.table(
        {
            "x": pa.FixedSizeListArray.from_arrays(values, 64),
            "id": np.arange(ROWS),
            "s": ["text"] * ROWS,
            "list": [[[1], [2, 3]]] * ROWS,
        }
    )
    for name in ("changing.slab", "other.slab"):
        pack(table, folder / name)
    lines = run_python(PROGRAM, folder / "changing.slab").splitlines()
    shutil.rmtree(folder)
    return dict(line.split(": ", 1) for line in lines)


@pytest.mark.parametrize(
    "case",
    ["gather", "rows", "addresses", "threads", "loader", "workers", "process", "traced"],
)
def test_a_cut_file_is_an_error(outcomes: dict[str, str], case: str) -> None:
    """Pages that are lost after their first touch are SlabChanged, in threads and processes."""
    assert outcomes[case].startswith("1 ")
    # The new process may come to a block for the first time, and asks before it touches that.
    expected = ("SlabChanged", "wrong size") if case == "process" else ("SlabChanged",)
    assert any(words in outcomes[case] for words in expected)
    assert "Fatal" not in outcomes[case]


@pytest.mark.parametrize(
    "case",
    [
        "overwritten",
        "punched",
        "overwritten in an epoch",
    ],
)
def test_a_written_file_is_told_within_the_epoch(outcomes: dict[str, str], case: str) -> None:
    """What raises no signal is told by size, inode and times, by the end of the epoch."""
    assert "SlabChanged" in outcomes[case]
    assert "written or replaced" in outcomes[case]


@pytest.mark.parametrize(
    "case", ["lengths", "addresses of texts", "where", "pandas", "column", "nested row"]
)
def test_what_is_computed_from_a_lost_page_is_an_error(outcomes: dict[str, str], case: str) -> None:
    """No length, selection, copy or row is made of zeros in the place of a page."""
    assert "SlabChanged" in outcomes[case]
    assert "cut while it was read" in outcomes[case]


def test_single_rows_tell_of_written_files(outcomes: dict[str, str]) -> None:
    """Who reads rows one by one is told within a second, too."""
    assert "SlabChanged" in outcomes["row after a second"]


def test_files_of_rows_are_watched(outcomes: dict[str, str]) -> None:
    """A mapped list of rows that is cut or written is an error until nobody holds it."""
    assert "ValueError" in outcomes["file of rows, cut"]
    assert "changing.rows" not in outcomes["file of rows, cut"]
    assert "copy.rows: the file was" in outcomes["file of rows, cut"]
    assert "copy.rows: the file was written" in outcomes["file of rows, written"]
    assert "copy.npy: the file was" in outcomes["order by a file"]


def test_a_new_name_changes_nothing(outcomes: dict[str, str]) -> None:
    """Linked or replaced, the mapped file is what it was; bytes changed in secret are found."""
    assert outcomes["linked"].startswith("0")
    assert outcomes["replaced"].startswith("0")
    assert "DamagedArray" in outcomes["changed in secret"]


def test_faults_of_others_end_the_process(outcomes: dict[str, str]) -> None:
    """SIGBUS that is not ours does what it did: it kills, faulthandler prints, handlers run."""
    for case in ("own map", "sent"):
        assert outcomes[case] == "SIGBUS "
        assert outcomes[f"{case}, traced"].startswith("SIGBUS Fatal Python error: Bus error")
    assert outcomes["handled"] == "0 handled"


def test_two_versions_guard_side_by_side(outcomes: dict[str, str]) -> None:
    """Each handler has its own maps, and hands on what is neither's."""
    assert outcomes["two versions"].startswith("SIGBUS ")
    assert "changing.slab" not in outcomes["two versions"]
    assert "00-x.values.npy" in outcomes["two versions"]


def test_a_removed_slab_is_read_on(tmp_path: Path) -> None:
    """Files that are deleted stay as they are for who has mapped them."""
    slab = open_slab(write_slab(tmp_path / "a.slab", {"x": np.arange(100)}))
    before = slab.gather(range(100))["x"]
    shutil.rmtree(tmp_path / "a.slab")
    for batch in Loader(slab, 100, prefetch=0):
        assert np.array_equal(np.sort(batch["x"]), before)


def test_a_file_that_is_mapped_again_must_be_the_same(tmp_path: Path) -> None:
    """What was verified is not trusted in another file of this name."""
    slab = open_slab(write_slab(tmp_path / "a.slab", {"x": np.arange(100)}))
    slab.gather([0])
    array = slab.storage.load_field("x").values
    array.unmap([0])
    file = tmp_path / "a.slab" / "shard-00000" / "00-x.values.npy"
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content)
    with pytest.raises(SlabChanged, match="written or replaced"):
        slab.gather([0])


def test_the_guard_can_be_turned_off(tmp_path: Path) -> None:
    """FIELDSLAB_SIGBUS_GUARD=0 leaves the handler of the process alone."""
    path = write_slab(tmp_path / "a.slab", {"x": np.arange(100)})
    code = (
        "import ctypes, os, signal\n"
        "import fieldslab.schemas.sigbus as sigbus\n"
        "sigbus.guard = guard = type(sigbus.guard)()\n"
        "guard.arm()\n"
        "print(guard._ours)"
    )
    assert run_python("-c", code, path, FIELDSLAB_SIGBUS_GUARD="0") == "None\n"
    assert os.environ.get("FIELDSLAB_SIGBUS_GUARD") is None
