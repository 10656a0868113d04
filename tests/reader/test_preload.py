"""`Slab.preload`: what it brings into memory, and what it refuses."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.reader.conftest import Example
from tests.slabs import array_path, lie_about, write_slab

from fieldslab.reader import Slab, open_slab
from fieldslab.reader.loading import paging
from fieldslab.reader.stored.array import StoredArray
from fieldslab.schemas.arrays import HEADER, make_array_header
from fieldslab.schemas.errors import DamagedArray, UnknownField, UsageError
from fieldslab.schemas.mapping import get_address

ROWS, ITEMS = 1200, 16 * 1024
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A folder whose pages the system can drop, as it cannot those of /dev/shm."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        yield Path(name)


def write(tmp_path: Path, shards: Sequence[int] = (500, 1, 699)) -> Path:
    """A slab with two wide fields."""
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(0, 255, (ROWS, ITEMS), np.uint8) for name in ("one", "other")}
    return write_slab(tmp_path / "data.slab", columns, shards)


def drop(path: Path) -> None:
    """Have the system forget a slab's pages; tmpfs keeps them."""
    for file in path.rglob("*.npy"):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def find_resident_rows(slab: Slab, name: str) -> np.ndarray:
    """Which rows of a field of fixed size are in memory: bool[rows]."""
    values: StoredArray = slab.storage.load_field(name).values
    results = []
    for shard in range(len(values.items)):
        array = values[shard]
        begins = get_address(array) + np.arange(len(array)) * values.item_bytes
        ends = begins + values.item_bytes
        results += [
            paging.are_resident(begins[row : row + 1], ends[row : row + 1], PAGE)
            for row in range(len(array))
        ]
    return np.array(results)


def test_rows_of_chosen_fields_are_in_memory_afterwards(disk_path: Path) -> None:
    """All pages of the view and of the fields are there, and the bytes are those of the rows."""
    path = write(disk_path)
    drop(path)
    slab = open_slab(path)
    steps: list[int] = []
    first, last = 300, 900
    size = slab[first:last].preload(["other"], progress=steps.append)
    assert size == sum(steps) == (last - first) * ITEMS
    assert find_resident_rows(slab, "other")[first:last].all()
    assert slab.preload() == 2 * ROWS * ITEMS
    for name in ("one", "other"):
        assert find_resident_rows(slab, name).all()


def test_pages_come_from_the_disk(disk_path: Path) -> None:
    """What is preloaded was not in memory before, and other fields stay where they are."""
    path = write(disk_path)
    drop(path)
    slab = open_slab(path)
    dropped = not any(find_resident_rows(slab, name).any() for name in ("one", "other"))
    slab.preload(["one"])
    assert find_resident_rows(slab, "one").all()
    if dropped:  # the file system is one that can
        assert not find_resident_rows(slab, "other").any()


def test_every_kind_of_field_can_be_preloaded(example: Example) -> None:
    """Offsets, validity, sizes and views in any direction: no more bytes than the whole slab."""
    slab = open_slab(example.path)
    whole = slab.preload()
    stored = sum(file.stat().st_size for file in example.path.rglob("shard-*/*.npy"))
    assert 0 < whole < stored
    assert slab[::-1].preload() == whole
    assert slab[:0].preload() == slab.preload([]) == 0
    parts = [slab[start : start + 100].preload() for start in range(0, len(slab), 100)]
    assert sum(parts) >= whole
    with pytest.raises(UnknownField):
        slab.preload(["nothing"])


def test_data_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """The error says how much there is and how much is needed; nothing is read."""
    path = write_slab(tmp_path / "large.slab", {"x": np.zeros((2, 1), np.uint8), "y": np.arange(2)})
    row_bytes = PAGE * os.sysconf("SC_PHYS_PAGES")
    lie_about(path, "x", shape=(row_bytes,))
    file = array_path(path, "x")
    file.write_bytes(make_array_header(np.dtype("u1"), (2, row_bytes)))
    os.truncate(file, HEADER + 2 * row_bytes)  # of which the disk keeps nothing but the header
    slab = open_slab(path)
    steps: list[int] = []
    with pytest.raises(UsageError, match="does not fit in memory") as caught:
        slab.preload(["x"], progress=steps.append)
    assert caught.value.context["found"] == f"{2 * row_bytes:,} bytes"
    assert not steps
    assert slab.preload(["y"]) == 16


def test_a_file_that_was_cut_off_is_an_error(tmp_path: Path) -> None:
    """Reading ends with DamagedArray that names the file, not with the end of the process."""
    path = write(tmp_path)
    slab = open_slab(path, verify=False)
    slab.gather([0])
    [file] = path.glob("shard-00002/*one.values.npy")
    os.truncate(file, 8192)
    with pytest.raises(DamagedArray, match=file.name):
        slab.preload(["one"])


def run_program(program: str, path: Path) -> str:
    """Run Python code with the slab's path as its argument; what it printed."""
    run = [sys.executable, "-c", program, str(path)]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout


def test_locked_data_is_locked(tmp_path: Path) -> None:
    """The system counts the data of `lock=True` as locked."""
    program = """
import sys
from fieldslab.reader import open_slab
slab = open_slab(sys.argv[1])
print(slab[:10].preload(["one"], lock=True))
print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith("VmLck")])
"""
    size, *locked = map(int, run_program(program, write(tmp_path)).split())
    assert size == 10 * ITEMS
    assert all(1024 * kib >= size for kib in locked)


def test_a_limit_of_locked_memory_is_named(tmp_path: Path) -> None:
    """Beyond the limit the error says what it is, and names `ulimit -l`; root has none."""
    program = """
import os, resource, sys
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import UsageError
slab = open_slab(sys.argv[1])
slab.preload(["one"])  # all is imported, wherever another user may not read
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
if os.getuid() == 0:
    os.setuid(65534)
try:
    slab.preload(["one"], lock=True)
except UsageError as error:
    print(error)
"""
    text = run_program(program, write(tmp_path))
    assert "memory cannot be locked" in text
    assert "65,536 bytes" in text
    assert "ulimit -l" in text
