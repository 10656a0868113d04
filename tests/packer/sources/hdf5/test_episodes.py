"""Episodes in HDF5: groups that repeat a layout, and folders of one file an episode."""

import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.naming import case
from tests.packer.packing import PYTHON
from tests.packer.readback import Readback
from tests.packer.sources.hdf5.layouts import (
    write_aloha,
    write_d4rl,
    write_minari,
    write_robomimic,
)

from fieldslab.packer import pack, repack, verify
from fieldslab.packer.cli import run
from fieldslab.packer.source import find_source
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import SourceInconsistent, UsageError

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
    (pattern,) = re.findall(r'settings={"episodes": "([^"]*)"}', caught.value.hint)
    pack(path, tmp_path / "slab", settings={"episodes": pattern})
    assert open_slab(tmp_path / "slab").episodes
    chosen = re.findall(r'fields=\["([^"]*)"\]', caught.value.hint)[0]
    assert chosen == f"data/{sorted(names)[0]}/*"
    pack(path, tmp_path / "slab", fields=chosen, force=True)
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


LENGTHS = [3, 5, 2, 4, 1, 6, 2, 3, 4, 2, 7, 5]
DEMOS = {"episodes": "data/demo_*"}


def expected_rows(path: Path, groups: list[str], place: str) -> np.ndarray:
    """A dataset of all groups, one behind the other."""
    with h5py.File(path) as file:
        return np.concatenate([file[group][place][:] for group in groups])


def ranges(lengths: list[int]) -> list[range]:
    """The rows of episodes that follow each other."""
    ends = np.cumsum(lengths).tolist()
    return [range(end - rows, end) for end, rows in zip(ends, lengths, strict=True)]


def test_robomimic(tmp_path: Path) -> None:
    """Every demonstration is packed, `demo_2` before `demo_10`, with its number, steps and name."""
    path = write_robomimic(tmp_path / "low_dim.hdf5", LENGTHS)
    packed = pack(path, tmp_path / "slab", settings=DEMOS | {"episode_attrs": "scale,model_file"})
    groups = [f"data/demo_{index}" for index in range(len(LENGTHS))]
    slab = open_slab(tmp_path / "slab")
    batch = slab.gather(range(len(slab)))
    for place in ("actions", "dones", "obs/eef_pos", "obs/agentview_image"):
        assert np.array_equal(batch[place], expected_rows(path, groups, place)), place
    numbers = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    assert np.array_equal(batch["episode"], numbers)
    assert np.array_equal(batch["scale"], numbers.astype("f4"))
    assert batch["step"].tolist() == [step for rows in LENGTHS for step in range(rows)]
    assert list(slab.categories("episode_name")) == [f"demo_{n}" for n in range(12)]
    assert list(slab.categories("model_file")) == ["<mujoco/>"]
    assert list(slab.episodes) == ranges(LENGTHS)
    warnings = " ".join(packed.warnings)
    assert "mask/train" in warnings
    assert "num_samples" in warnings
    assert packed.manifest.attributes["data/"]["env_args"] == '{"env_name": "Lift"}'
    assert verify(tmp_path / "slab", against=path).ok
    (tmp_path / "part").mkdir()
    write_robomimic(tmp_path / "part" / "other.hdf5", LENGTHS[:3])
    write_robomimic(tmp_path / "part" / "second.hdf5", LENGTHS[:2])
    pack(tmp_path / "part", tmp_path / "slab", settings=DEMOS, force=True)
    names = open_slab(tmp_path / "slab").categories("episode_name")
    assert list(names) == [*(f"other/demo_{n}" for n in range(3)), "second/demo_0", "second/demo_1"]


def test_files_as_episodes(tmp_path: Path) -> None:
    """With `files`, each file is an episode, in the order of their numbers."""
    folder = write_aloha(tmp_path / "aloha", LENGTHS)
    proposed = " ".join(pack(folder, tmp_path / "joined").warnings)
    assert "12 files are named as episodes: the option `episodes`" in proposed
    settings = {"episodes": "files", "episode_attrs": ["seed"]}
    packed = pack(folder, tmp_path / "slab", settings=settings, shard_size=1)
    assert len(packed.manifest.shards) == len(LENGTHS)
    slab = open_slab(tmp_path / "slab")
    batch = slab.gather(range(len(slab)))
    assert np.array_equal(batch["action"][:, 0], batch["episode"])
    assert np.array_equal(batch["seed"], batch["episode"])
    assert list(slab.categories("episode_name")[9:11]) == ["episode_9", "episode_10"]
    assert list(slab.episodes) == ranges(LENGTHS)


def test_one_step_more(tmp_path: Path) -> None:
    """Observations with one step more are named, with the option that drops it, and says so."""
    path = write_minari(tmp_path / "main_data.hdf5", LENGTHS)
    settings = {"episodes": "episode_*"}
    with pytest.raises(SourceInconsistent, match="observations/observation: int64 \\[4, 3\\]") as e:
        pack(path, tmp_path / "slab", settings=settings)
    assert "episode_0" in e.value.problem
    assert 'settings={"drop_extra_step": True}' in str(e.value.hint)
    packed = pack(path, tmp_path / "slab", settings=settings | {"drop_extra_step": True})
    assert packed.manifest.rows == sum(LENGTHS)
    goals = Readback(tmp_path / "slab").values("observations/achieved_goal")
    assert goals.tolist() == [float(step) for rows in LENGTHS for step in range(rows)]
    assert any("infos/qpos: left out, the last row of 12 of 12" in each for each in packed.warnings)
    with h5py.File(path, "a") as file:
        file["episode_3/reset"] = np.zeros(2)
    with pytest.raises(SourceInconsistent, match=r"episode_3: reset: float64 .* instead of"):
        pack(path, tmp_path / "other", settings=settings | {"drop_extra_step": True})


def test_steps_in_one_table(tmp_path: Path) -> None:
    """A file of D4RL is one table; its constants are named, and left out on request."""
    path = write_d4rl(tmp_path / "hopper.hdf5", 20)
    with pytest.raises(SourceInconsistent, match="metadata/algorithm"):
        pack(path, tmp_path / "slab")
    packed = pack(path, tmp_path / "slab", exclude="metadata/*")
    assert packed.manifest.rows == 20
    assert not open_slab(tmp_path / "slab").episodes
    settings = {"episodes": "ends:terminals,timeouts"}
    with h5py.File(path, "a") as file:  # timeouts: rows 4, 9, 14, 19
        file["terminals"][11] = True
    other = write_d4rl(tmp_path / "walker.hdf5", 7)
    options: dict[str, Any] = {"exclude": "metadata/*", "settings": settings, "force": True}
    pack([path, other], tmp_path / "slab", **options)
    slab = open_slab(tmp_path / "slab")
    lengths = [5, 5, 2, 3, 5, 5, 2]
    assert list(slab.episodes) == ranges(lengths)
    assert slab["episode"][:].tolist() == np.repeat(np.arange(7), lengths).tolist()
    assert slab["step"][:].tolist() == [step for rows in lengths for step in range(rows)]
    pack([path, other], tmp_path / "slab", rows="7:22", **options)
    cut = open_slab(tmp_path / "slab")
    assert cut["episode"][:].tolist() == slab["episode"][7:22].tolist()
    assert cut.episodes.lengths.tolist() == [3, 2, 3, 5, 2]
    for ends in ("nothing", "observations", "metadata/algorithm"):
        with case(ends), pytest.raises(UsageError, match=f"field {ends}"):
            find_source(str(path), None, {"episodes": f"ends:{ends}"})
    with pytest.raises(UsageError, match="is for episodes that are groups or files"):
        find_source(str(path), None, settings | {"episode_attrs": "x"})


def test_episodes_that_differ(tmp_path: Path) -> None:
    """Episodes with other datasets, types or shapes are all named, with what differs."""
    path = write_robomimic(tmp_path / "a.h5", LENGTHS)
    with h5py.File(path, "a") as file:
        del file["data/demo_3/dones"]
        del file["data/demo_7/obs/eef_pos"]
        file["data/demo_7/obs/eef_pos"] = np.zeros((LENGTHS[7], 3))
    with pytest.raises(SourceInconsistent, match="differ in 2 of 12 episodes") as e:
        pack(path, tmp_path / "slab", settings=DEMOS)
    assert "data/demo_3: dones: nothing instead of bool []" in e.value.problem
    assert "data/demo_7: obs/eef_pos: float64 [3] instead of float32 [3]" in e.value.problem
    pack(path, tmp_path / "slab", settings=DEMOS, exclude="dones,obs/eef_pos")
    fewer = {"episodes": "data/demo_[12]"}
    assert len(Readback(tmp_path / "slab").fields) == 5
    assert pack(path, tmp_path / "slab", settings=fewer, force=True).manifest.rows == 7


def test_wrong_options(tmp_path: Path) -> None:
    """Options that fit nothing are named."""
    path = write_robomimic(tmp_path / "a.h5", LENGTHS)
    for settings, text in {
        ("episodes", "demo_*"): "no group with datasets matches",
        ("episodes", ""): "neither a pattern",
        ("episodes", 3): "wrong type",
        ("episode_attrs", "x"): "needs",
        ("drop_extra_step", True): "needs",
    }.items():
        with case(settings), pytest.raises(UsageError, match=text):
            pack(path, tmp_path / "slab", settings=dict([settings]))
    with h5py.File(path, "a") as file:
        del file["data/demo_4"].attrs["scale"]
        file["data/demo_5"].attrs["num_samples"] = 1.5
        file["data/demo_6/step"] = np.zeros(LENGTHS[6])
    for name, text in {
        "scale": "1 of 12 episodes have no",
        "num_samples": "differs in type",
    }.items():
        with case(name), pytest.raises(SourceInconsistent, match=text):
            pack(path, tmp_path / "slab", settings=DEMOS | {"episode_attrs": name})
    source = pickle.loads(pickle.dumps(find_source(str(path), None, DEMOS)))
    assert source.schema.names[-4:] == ["step", "episode", "step#2", "episode_name"]
    assert any("the data has a field step: " in text for text in source.warnings)


def test_episodes_of_slabs(tmp_path: Path) -> None:
    """`slab.episodes` follows the rows: cut by `rows`, joined in unions, empty where unknown."""
    path = write_robomimic(tmp_path / "a.h5", LENGTHS)
    a, b = tmp_path / "a.slab", tmp_path / "b.slab"
    pack(path, a, settings=DEMOS, shard_size=1)
    pack(path, b, settings=DEMOS, rows="4:12")

    def lengths(slab: Path) -> Any:
        return open_slab(slab).episodes.lengths.tolist()

    assert lengths(b) == [4, 2, 2]
    joined = open_slab([b, a])
    assert list(joined.episodes) == ranges([4, 2, 2, *LENGTHS])
    out = tmp_path / "out.slab"
    repack(a, out, fields="actions", shard_size="1G")
    assert lengths(out) == LENGTHS
    pack(open_slab(a), out, force=True)
    assert lengths(out) == LENGTHS
    for options in ({"shuffle": 0}, {"drop_rows": [3]}, {"where": "step > 0"}):
        with case(options):
            repack(a, out, force=True, **options)
            assert lengths(out) == []
    pack(path, out, settings=DEMOS, shuffle=1, force=True)
    assert lengths(out) == []
    pack(open_slab(a)[3:], out, force=True)
    assert lengths(out) == []
    slab = open_slab(a)
    assert not slab[1:].episodes
    assert not slab.select(range(len(slab))[::-1]).episodes
    assert not (open_slab(out) + slab).episodes
    assert slab.episodes[-1] == range(39, 44)
    assert slab.episodes[:2] == ranges(LENGTHS[:2])


def test_episodes_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run and `info` say how many episodes there are."""
    path = write_robomimic(tmp_path / "a.h5", LENGTHS)
    options = ["--episodes", "data/demo_*", "--episode-attrs", "scale"]
    assert run(["pack", str(path), "--dry-run", *options]) == 0
    assert "44 rows in 12 episodes" in capsys.readouterr().out
    assert run(["pack", str(path), "-o", str(tmp_path / "slab"), *options]) == 0
    assert run(["info", str(tmp_path / "slab")]) == 0
    assert "episodes 12, of 1 to 7 rows" in capsys.readouterr().out
