"""Sources in parts: each opens the files that it reads, and the slab is that of one process."""

import os
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.jpegs import encode, photograph
from tests.packer.packing import listing

from fieldslab.packer import PackResult, pack
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import parse_part
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.schemas.errors import SourceUnreadable


def pack_both(source: Path, out: Path, **options: Any) -> tuple[PackResult, PackResult]:
    """Pack in three parts, and in one process."""
    plan = source.with_suffix(".plan")
    write_plan_file([source], out, plan, cast(PackOptions, options))
    shards = [pack_part(plan, parse_part(f"{part}/3")).shards for part in (3, 1, 2)]
    assert sum(map(bool, shards)) > 1
    finished = finish_parts(plan)
    assert listing(out.parent) == ["x.slab"]
    return finished, pack(source, source.with_suffix(".slab"), **options)


def test_a_part_reads_the_footers_of_its_own_files(tmp_path: Path, out: Path) -> None:
    """A damaged footer harms no part but the one that reads the file, and does so by name."""
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in range(6):
        table = pa.table({"x": np.arange(100) + number, "n": [None, 1.5] * 50})
        pq.write_table(table, folder / f"{number}.parquet")
    options: dict[str, Any] = {"shard_size": 1000, "nulls": {"n": "mask"}}
    expected = pack(folder, tmp_path / "expected.slab", **options).manifest
    plan, victim = tmp_path / "rows.plan", folder / "1.parquet"
    write_plan_file([folder], out, plan, cast(PackOptions, options))
    content, info = victim.read_bytes(), victim.stat()

    def rewrite(data: bytes) -> None:
        victim.write_bytes(data)
        os.utime(victim, ns=(info.st_atime_ns, info.st_mtime_ns))

    rewrite(content[:-100] + b"?" * 96 + content[-4:])
    for number in (1, 3, 4, 5, 6):
        assert pack_part(plan, parse_part(f"{number}/6")).shards == 1
    with pytest.raises(SourceUnreadable, match=r"1\.parquet: damaged"):
        pack_part(plan, parse_part("2/6"))
    rewrite(content)
    assert pack_part(plan, parse_part("2/6")).shards == 1
    assert finish_parts(plan).manifest.id == expected.id


def test_hdf5(tmp_path: Path, out: Path) -> None:
    """HDF5 files, chunked and compressed, with strings of any length, and settings."""
    folder, rng = tmp_path / "rows", np.random.default_rng(0)
    folder.mkdir()
    for number in range(3):
        with h5py.File(folder / f"{number}.h5", "w") as file:
            file["x"] = rng.random((50, 3))
            file.create_dataset("n", data=np.arange(50), chunks=(10,), compression="gzip")
            file["text"] = [f"text {row}" * (row % 4) for row in range(50)]
            file.attrs["valid"] = 40
    settings = {"rows_attr": "valid"}
    finished, expected = pack_both(folder, out, shard_size=300, settings=settings)
    assert (finished.manifest.id, finished.manifest.rows) == (expected.manifest.id, 120)


def test_one_bad_file_of_a_thousand(tmp_path: Path, out: Path) -> None:
    """A damaged image is left out by whatever part meets it, and told in the end."""
    folder = tmp_path / "photos"
    folder.mkdir()
    photos = [encode(photograph(24 + number, 30, number)) for number in range(4)]
    for number in range(1000):
        photo = photos[number % 4]
        (folder / f"{number:04}.jpg").write_bytes(photo if number != 617 else photo[:200])
    finished, expected = pack_both(folder, out, on_error="skip", shard_size="100K")
    assert (finished.manifest.id, finished.manifest.rows) == (expected.manifest.id, 999)
    assert finished.left_out == expected.left_out
    assert finished.manifest.made.warnings == expected.manifest.made.warnings
    assert finished.left_out[0].file == str(folder / "0617.jpg")
