"""Sources other than Parquet in parts: the slab is that of one process."""

from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
from tests.jpegs import encode, photograph
from tests.packer.packing import listing

from fieldslab.packer import PackResult, pack
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import parse_part
from fieldslab.packer.parts.plan_file import write_plan_file


def pack_both(source: Path, out: Path, **options: Any) -> tuple[PackResult, PackResult]:
    """Pack in three parts, and in one process."""
    plan = source.with_suffix(".plan")
    write_plan_file([source], out, plan, cast(PackOptions, options))
    shards = [pack_part(plan, parse_part(f"{part}/3")).shards for part in (3, 1, 2)]
    assert sum(map(bool, shards)) > 1
    finished = finish_parts(plan)
    assert listing(out.parent) == ["x.slab"]
    return finished, pack(source, source.with_suffix(".slab"), **options)


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
