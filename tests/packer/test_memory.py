"""Memory stays bounded, whatever row groups hold and hide."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.readback import Readback

from fieldslab.packer.convert.dense import estimate_decoded_bytes
from fieldslab.packer.source import find_source
from fieldslab.packer.sources.parquet import row_groups

MB = 2**20
RANDOM = np.random.default_rng(9)


def _repeated(path: Path) -> None:
    """The same long text in every row: a few kB that stand for 300 MB."""
    codes = np.zeros(300, np.int32)
    pq.write_table(pa.table({"a": words(codes, ["x" * MB])}), path)


def _suddenly_long(path: Path) -> None:
    """Short texts, and then long ones from the same dictionary."""
    codes = np.repeat([0, 1], [30_000, 200]).astype(np.int32)
    pq.write_table(pa.table({"a": words(codes, ["a", "x" * MB])}), path)


def _front_coded(path: Path) -> None:
    """Long texts that share their beginnings."""
    texts = ["a"] * 5000 + ["x" * MB] * 200
    pq.write_table(
        pa.table({"a": texts}),
        path,
        use_dictionary=False,
        column_encoding={"a": "DELTA_BYTE_ARRAY"},
    )


def _long_lists(path: Path) -> None:
    """Empty lists, and then lists of many zeros."""
    lengths = np.repeat([0, MB // 8], [5000, 100])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    lists = pa.LargeListArray.from_arrays(offsets, np.zeros(offsets[-1], np.int64))
    pq.write_table(pa.table({"a": lists}), path)


def _blobs(path: Path) -> None:
    """One row group of bytes that do not compress, in pages of a usual size."""
    blobs = [RANDOM.bytes(100_000) for _ in range(600)]
    pq.write_table(pa.table({"a": blobs}), path, use_dictionary=False, write_batch_size=8)


def words(codes: np.ndarray, texts: list[str]) -> pa.Array:
    """Texts by number, each of them stored in full."""
    return pa.DictionaryArray.from_arrays(codes, texts).dictionary_decode()


FILES: dict[str, Callable[[Path], None]] = {
    "repeated": _repeated,
    "suddenly long": _suddenly_long,
    "front coded": _front_coded,
    "long lists": _long_lists,
    "blobs": _blobs,
}


@pytest.mark.parametrize("name", FILES)
def test_batches_are_near_the_wanted_size(tmp_path: Path, name: str) -> None:
    """No batch is many times larger than asked for, however misleading the footer is."""
    FILES[name](tmp_path / "a.parquet")
    source = find_source(tmp_path / "a.parquet")
    total, largest, count = 0, 0, 0
    for batch in source.read(source.units[0], [0], 4 * MB):
        largest = max(largest, estimate_decoded_bytes(batch.column(0)))
        total += batch.num_rows
        count += 1
    assert total == sum(unit.rows or 0 for unit in source.units)
    assert largest < 72 * MB
    assert count < 2 * 300


def test_wide_row_groups_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More columns than memory holds pages of are read one part after the other, rows in step."""
    columns: dict[str, np.ndarray] = {f"n{index}": RANDOM.random(20_000) for index in range(80)}
    columns["t"] = np.array([f"row {index}" * (index % 5) for index in range(20_000)])
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", compression="none")
    source = find_source(tmp_path / "a.parquet")
    peaks = []
    for pages in (2**30, MB):
        monkeypatch.setattr(row_groups, "MOST_PAGE_BYTES", pages)
        before, most, rows = pa.total_allocated_bytes(), 0, 0
        for batch in source.read(source.units[0], list(range(81)), MB):
            most = max(most, pa.total_allocated_bytes() - before)
            for name in ("n0", "n40", "n79", "t"):
                expected = columns[name][rows : rows + batch.num_rows].tolist()
                assert batch.column(list(columns).index(name)).to_pylist() == expected
            rows += batch.num_rows
        assert rows == 20_000
        peaks.append(most)
    assert peaks[1] < peaks[0] / 3


PROGRAM = """
import sys, threading, time
import psutil
from fieldslab.packer import pack

def size():
    try:
        with open("/proc/self/status") as file:
            return 1024 * next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))
    except FileNotFoundError:
        return psutil.Process().memory_info().rss

def watch():
    global peak
    while not done:
        peak = max(peak, size())
        time.sleep(0.002)

start = peak = size()
done = False
thread = threading.Thread(target=watch)
thread.start()
pack(sys.argv[1], sys.argv[2])
done = True
thread.join()
print(peak - start)
"""


def test_peak_of_a_pack(tmp_path: Path) -> None:
    """Packing 600 MB from one row group takes a fraction of that."""
    codes = np.zeros(600, np.int32)
    pq.write_table(pa.table({"a": words(codes, ["x" * MB])}), tmp_path / "a.parquet")
    child = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "a.parquet"), str(tmp_path / "slab")],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path)},
    )
    assert Readback(tmp_path / "slab").rows == 600
    assert int(child.stdout) < 400 * MB
