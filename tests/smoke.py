"""Try an installed fieldslab, away from its checkout: pack, open, gather, verify.

Run as a program: ``python -I smoke.py``. Prints ``smoke: ok`` or fails with a traceback.
"""

import subprocess
import sysconfig
import tempfile
from importlib.metadata import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fieldslab.reader
from fieldslab.packer import pack
from fieldslab.reader import open_slab

ROWS = 1000


def check_install() -> None:
    """Check that the wheel puts `fieldslab` and no other name into site-packages."""
    site = Path(sysconfig.get_path("purelib"))
    loaded = Path(str(fieldslab.reader.__file__)).resolve()
    assert loaded.is_relative_to(site.resolve()), f"imported from {loaded}, not from {site}"
    tops = {path.parts[0] for path in files("fieldslab") or [] if path.parts[0] != ".."}
    tops = {top for top in tops if not top.endswith(".dist-info")}
    assert tops == {"fieldslab"}, f"the wheel installs {sorted(tops)}"


def write_source(path: Path) -> pa.Table:
    """Write a Parquet file of several row groups: scalars, text and ragged lists."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(0, 9, ROWS)
    table = pa.table(
        {
            "label": pa.array(rng.integers(0, 2**62, ROWS), pa.int64()),
            "weight": pa.array(rng.random(ROWS), pa.float32()),
            "caption": pa.array([f"row {i}, größe {lengths[i]}" for i in range(ROWS)]),
            "tokens": pa.array(
                [rng.integers(0, 1000, n).tolist() for n in lengths], pa.list_(pa.int32())
            ),
        }
    )
    pq.write_table(table, path, row_group_size=300)
    return table


def check_gather(slab_path: Path, table: pa.Table) -> None:
    """Check one shuffled batch of every row against what was written."""
    slab = open_slab(slab_path)
    assert len(slab) == ROWS
    rows = np.random.default_rng(8).permutation(ROWS)
    batch = slab.gather(rows)
    wanted = table.take(rows).to_pydict()
    assert batch["label"].tolist() == wanted["label"]
    assert batch["weight"].tolist() == wanted["weight"]
    tokens = batch["tokens"]
    assert [tokens[i].tolist() for i in range(ROWS)] == wanted["tokens"]
    first = slab[int(rows[0])]
    assert first["caption"] == wanted["caption"][0]


def main() -> None:
    """Run every check in a temporary directory."""
    check_install()
    with tempfile.TemporaryDirectory() as name:
        source, slab_path = Path(name) / "rows.parquet", Path(name) / "rows.slab"
        table = write_source(source)
        pack(source, slab_path)
        check_gather(slab_path, table)
        command = Path(sysconfig.get_path("scripts")) / "fieldslab"
        subprocess.run([command, "verify", slab_path], check=True)
    print("smoke: ok")


if __name__ == "__main__":
    main()
