"""Memory does not depend on the size of what is packed: it is streamed, not collected."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from deltalake import write_deltalake
from tests.naming import case

MB = 2**20
ROWS, GROUP = 16 * MB, MB  # 128 MB of a column of numbers
_SCRIPT = """
import json, sys
import duckdb, polars, pyarrow.dataset as datasets
from fieldslab.packer.source import find_source

folder, parquet = sys.argv[1], sys.argv[1] + "/a.parquet"
sources = {
    "dataset": lambda: datasets.dataset(parquet),
    "lazy frame": lambda: polars.scan_parquet(parquet),
    "relation": lambda: duckdb.connect().sql(f"from '{parquet}'"),
    **{name: lambda name=name: f"{folder}/{name}" for name in
       ("a.npy", "a.npz", "a.zarr", "a.delta", "a.lance")},
}

def read_status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) * 1024

peaks = {}
for name, make in sources.items():
    source = find_source(make())
    rows = sum(b.num_rows for b in source.read(source.units[0], [0], 1 << 22))  # warms up
    source = find_source(make())
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = read_status("VmRSS")
    rows = sum(b.num_rows for unit in source.units for b in source.read(unit, [0], 1 << 22))
    peaks[name] = rows, read_status("VmHWM") - before
json.dump(peaks, sys.stdout)
"""


def test_large_sources_are_streamed(tmp_path: Path) -> None:
    """Of 128 MB, three quarters are never held at a time, as a process of its own measures."""
    zeros = pa.array(np.zeros(ROWS))
    table = pa.table({"x": zeros})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=GROUP)
    lance.write_dataset(table, tmp_path / "a.lance", max_rows_per_file=GROUP)
    for start in range(0, ROWS, 8 * GROUP):
        write_deltalake(tmp_path / "a.delta", table.slice(start, 8 * GROUP), mode="append")
    save: Any = np.savez_compressed
    save(tmp_path / "a.npz", x=np.zeros(ROWS))
    with open(tmp_path / "a.npy", "wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (ROWS,)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 8 * ROWS)
    zarr.create_array(tmp_path / "a.zarr", data=np.zeros(ROWS), chunks=(GROUP,))
    environment = {"PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, (rows, peak) in json.loads(done.stdout).items():
        with case(name):
            assert rows == ROWS
            assert peak < 96 * MB
