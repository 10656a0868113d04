"""Small files in the layouts that robot learning and offline reinforcement learning use.

- robomimic: https://robomimic.github.io/docs/datasets/overview.html, "Dataset Structure".
- ALOHA: `record_sim_episodes.py` of https://github.com/tonyzhaozh/act; a file for each episode.
- Minari: https://minari.farama.org/content/dataset_standards/; observations have one step more.
- D4RL: https://github.com/Farama-Foundation/D4RL, "Using D4RL"; episodes are not groups.
"""

from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np


def write_robomimic(path: Path, lengths: Sequence[int], names: Sequence[str] = ()) -> Path:
    """Write demonstrations below `data`, with filter keys below `mask`."""
    rng = np.random.default_rng(0)
    names = names or [f"demo_{index}" for index in range(len(lengths))]
    with h5py.File(path, "w") as file:
        file.create_group("data").attrs.update(total=sum(lengths), env_args='{"env_name": "Lift"}')
        for index, (name, rows) in enumerate(zip(names, lengths, strict=True)):
            demo = file.create_group(f"data/{name}")
            demo.attrs.update(num_samples=rows, model_file="<mujoco/>", scale=np.float32(index))
            demo["actions"] = rng.normal(size=(rows, 7))
            demo["dones"] = np.arange(rows) == rows - 1
            demo["obs/eef_pos"] = rng.normal(size=(rows, 3)).astype("f4")
            demo.create_dataset(
                "obs/agentview_image",
                data=rng.integers(0, 255, (rows, 4, 5, 3), "u1"),
                chunks=(1, 4, 5, 3),
                compression="gzip",
            )
        file["mask/train"] = np.array([name.encode() for name in names[::2]])
    return path


def write_aloha(folder: Path, lengths: Sequence[int]) -> Path:
    """Write a folder with a file for each episode."""
    folder.mkdir()
    for index, rows in enumerate(lengths):
        with h5py.File(folder / f"episode_{index}.hdf5", "w") as file:
            file.attrs.update(sim=True, seed=index)
            file["action"] = np.full((rows, 14), index, "f4")
            file["observations/qpos"] = np.arange(rows * 14.0).reshape(rows, 14)
            file["observations/images/cam_high"] = np.full((rows, 4, 6, 3), index, "u1")
    return folder


def write_minari(path: Path, lengths: Sequence[int]) -> Path:
    """Write episodes whose observations and infos have one step more than their actions."""
    with h5py.File(path, "w") as file:
        file.attrs.update(total_episodes=len(lengths), total_steps=sum(lengths))
        for index, rows in enumerate(lengths):
            episode = file.create_group(f"episode_{index}")
            episode.attrs.update(id=index, total_steps=rows, seed=7)
            episode["observations/achieved_goal"] = np.arange(rows + 1.0)
            episode["observations/observation"] = np.full((rows + 1, 3), index)
            episode["infos/qpos"] = np.full((rows + 1, 2), index)
            episode["actions"] = np.full((rows, 2), index, "f4")
            for name in ("rewards", "terminations", "truncations"):
                episode[name] = np.arange(rows) == rows - 1
    return path


def write_d4rl(path: Path, rows: int) -> Path:
    """Write one table of steps, with constants below `metadata`."""
    with h5py.File(path, "w") as file:
        for name, values in {
            "observations": np.arange(rows * 11.0, dtype="f4").reshape(rows, 11),
            "actions": np.ones((rows, 3), "f4"),
            "rewards": np.ones(rows, "f4"),
            "terminals": np.zeros(rows, bool),
            "timeouts": np.arange(rows) % 5 == 4,
            "infos/qpos": np.ones((rows, 6)),
            "metadata/algorithm": "SAC",
            "metadata/policy/fc0/bias": np.ones(256, "f4"),
        }.items():
            file[name] = values
    return path
