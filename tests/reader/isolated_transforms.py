"""Transforms for loaders with `isolate=True`: in a module that the loader's process can import."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np


def jitter(batch: Any, rng: Any) -> dict[str, Any]:
    """Draw by row."""
    return {"drawn": rng.uniform(0.5, 1.5), "row": batch["row"] * 2}


def add_views(batch: Any) -> dict[str, Any]:
    """Fields in every layout: not of the pool, permuted, strided, reversed, read-only, objects."""
    wide = np.asarray(batch["wide"])
    cube = wide.reshape(len(wide), 90, 100)
    constant = wide + 1
    constant.flags.writeable = False
    return {
        "fresh": wide * 2,
        "permuted": (cube + 0).transpose(0, 2, 1),
        "fortran": np.asfortranarray(wide),
        "part": wide[:, 10:],
        "reversed": wide[:, ::-1],
        "constant": constant,
        "names": np.array([str(row) for row in batch["row"]], object),
    }


def double(batch: Any) -> dict[str, Any]:
    """A function of tensors: float, bfloat16 and permuted."""
    import torch

    wide = batch["wide"]
    assert isinstance(wide, torch.Tensor)
    return {
        "half": wide.to(torch.bfloat16),
        "turned": wide.reshape(len(wide), 90, 100).permute(2, 0, 1),
        "twice": wide * 2,
    }


class CustomError(Exception):
    """An error that cannot be made from what it says."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def fail_at_fifty(batch: Any) -> dict[str, Any]:
    """Raise a plain error."""
    if 50 in batch.rows:
        raise ZeroDivisionError("row fifty")
    return {}


def fail_unpicklably(batch: Any) -> dict[str, Any]:
    """Raise an error that cannot be pickled."""
    raise CustomError(1, 2)


def return_function(batch: Any) -> dict[str, Any]:
    """Return what cannot be pickled."""
    return {"function": lambda: None}


def linger(batch: Any) -> dict[str, Any]:
    """Take long."""
    time.sleep(60)
    return {}


class TellProcess:
    """Leaves the process's id in a folder, as the name of a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, batch: Any) -> dict[str, Any]:
        """Say where it runs."""
        (self.folder / str(os.getpid())).touch()
        return {}
