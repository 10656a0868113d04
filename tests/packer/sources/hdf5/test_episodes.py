"""Episodes in HDF5: groups that repeat a layout, and folders of one file an episode."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.packing import PYTHON, ROOT
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.schemas.errors import SourceInconsistent

ROWS = 50


def demos(path: Path, names: list[str], rows: Callable[[int], int] = lambda at: ROWS) -> Path:
    """A file of demonstrations, as robomimic writes them."""
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for index, name in enumerate(names):
            group = file.create_group(f"data/{name}")
            group["actions"] = rng.normal(size=(rows(index), 7))
            group["obs/joints"] = rng.normal(size=(rows(index), 2, 3)).astype("f4")
            group["rewards"] = np.full(rows(index), index)
    return path


@pytest.mark.parametrize("lengths", ["equal", "different"])
@pytest.mark.parametrize(
    "names", [["demo_0", "demo_1"], ["0", "12", "7"], [f"run {name}" for name in "abcdefgh"]]
)
def test_groups_that_repeat(tmp_path: Path, names: list[str], lengths: str) -> None:
    """Groups of one layout are no columns: refused, however long, with the way to pack one."""
    path = demos(tmp_path / "a.h5", names, lambda index: ROWS + index * (lengths != "equal"))
    with pytest.raises(SourceInconsistent, match=f"{len(names)} groups") as caught:
        pack(path, tmp_path / "slab")
    assert caught.value.context["file"] == str(path)
    assert not (tmp_path / "slab").exists()
    assert caught.value.hint is not None
    chosen = re.findall(r'fields=\["([^"]*)"\]', caught.value.hint)[0]
    assert chosen == f"data/{sorted(names)[0]}/*"
    pack(path, tmp_path / "slab", fields=chosen)
    back = Readback(tmp_path / "slab")
    assert [name.rpartition("/")[2] for name in back.fields] == ["actions", "joints", "rewards"]
    assert back.rows >= ROWS


def test_all_as_columns_where_asked_for(tmp_path: Path) -> None:
    """`--fields` packs such groups as columns all the same, as for cameras side by side."""
    path = demos(tmp_path / "a.h5", ["camera_0", "camera_1"])
    pack(path, tmp_path / "slab", fields="*")
    assert len(Readback(tmp_path / "slab").fields) == 6
    pack(path, tmp_path / "slab", exclude="data/camera_1/*", force=True)
    assert len(Readback(tmp_path / "slab").fields) == 3


def test_groups_of_other_layouts_are_columns(tmp_path: Path) -> None:
    """Groups with other names, types or shapes in them are columns of one table, as they were."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("muon", "electron", "jet"):
            file[f"{name}/pt"] = np.arange(5.0)
        file["layer_1/x"], file["layer_2/x"] = np.zeros((5, 2)), np.zeros((5, 3))
        file["part_1/x"], file["part_2/y"] = np.zeros(5), np.zeros(5)
    assert len(pack(tmp_path / "a.h5", tmp_path / "slab").manifest.fields) == 7


def test_the_script_for_all(tmp_path: Path) -> None:
    """The script in SOURCES.md packs every demonstration, in the order of their numbers."""
    names = [f"demo_{index}" for index in range(11)]
    demos(tmp_path / "demos.hdf5", names, lambda index: 5 + index)
    text = (ROOT / "packer" / "SOURCES.md").read_text()
    (script,) = re.findall("```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "run.py").write_text(script)
    subprocess.run([sys.executable, "run.py"], cwd=tmp_path, env=PYTHON, check=True)
    back = Readback(tmp_path / "demos.slab")
    numbers = [index for index in range(11) for _ in range(5 + index)]
    assert back.values("episode").tolist() == numbers
    assert back.values("rewards").tolist() == numbers
    with h5py.File(tmp_path / "demos.hdf5") as file:
        for place in ("actions", "obs/joints"):
            parts = [file[f"data/{name}/{place}"][:] for name in names]
            assert np.array_equal(back.values(place), np.concatenate(parts))


def test_one_file_an_episode(tmp_path: Path) -> None:
    """The manifest says which rows came from which file, and `info` shows it; ids stay."""
    (tmp_path / "aloha").mkdir()
    lengths = [3, 5, 2, 4, 1, 6, 2]
    for index, rows in enumerate(lengths):
        with h5py.File(tmp_path / "aloha" / f"episode_{index}.hdf5", "w") as file:
            file["action"] = np.full((rows, 14), index, "f4")
    packed = pack(tmp_path / "aloha", tmp_path / "slab", shard_size=1)
    ends = np.cumsum(lengths).tolist()
    actual = [
        (Path(source["path"]).name, source["rows"]) for source in packed.manifest.made.sources
    ]
    expected = [
        (f"episode_{index}.hdf5", [end - rows, end])
        for index, (rows, end) in enumerate(zip(lengths, ends, strict=True))
    ]
    assert actual == expected
    slab = Readback(tmp_path / "slab")
    for index, (_, (start, stop)) in enumerate(actual):
        assert (slab.values("action")[start:stop] == index).all()
    command = [
        sys.executable,
        "-c",
        "from fieldslab.packer.cli import main; main()",
        "info",
        str(tmp_path / "slab"),
    ]
    run = subprocess.run(command, env=PYTHON, check=True, capture_output=True, text=True)
    assert f"rows    0..2 from {tmp_path}/aloha/episode_0.hdf5" in run.stdout
    assert f"        3..7 from {tmp_path}/aloha/episode_1.hdf5" in run.stdout
    assert "and 2 more: --json lists them" in run.stdout
    listed = json.loads(subprocess.check_output([*command, "--json"], env=PYTHON))
    assert [source["rows"] for source in listed["made"]["sources"]] == [
        rows for _, rows in expected
    ]


def test_rows_of_files_that_come_twice_or_in_part(tmp_path: Path) -> None:
    """A file given twice has its rows twice; `--rows` counts from the first row that is packed."""
    for name, rows in (("a", [0, 1, 2]), ("b", [3, 4])):
        pq.write_table(pa.table({"x": rows}), tmp_path / f"{name}.parquet", row_group_size=2)
    a, b = (str(tmp_path / f"{name}.parquet") for name in "ab")

    def listed(sources: list[str], **options: str) -> list[tuple[str, list[int] | None]]:
        provenance = pack(sources, tmp_path / "slab", force=True, **options).manifest.made  # type: ignore[arg-type]
        return [(source["path"], source.get("rows")) for source in provenance.sources]

    assert listed([a, b, a]) == [(a, [0, 3]), (b, [3, 5]), (a, [5, 8])]
    assert listed([a, b], rows="2:4") == [(a, [0, 1]), (b, [1, 2])]
    assert listed([a, b], rows="3:") == [(a, None), (b, [0, 2])]
