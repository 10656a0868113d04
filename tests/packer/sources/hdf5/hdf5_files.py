"""What tests of HDF5 share: files with columns, and packs of them."""

from pathlib import Path
from typing import Any

import h5py
import pytest
from tests.packer.readback import Readback

from fieldslab.packer import pack
from fieldslab.schemas.errors import (
    FieldslabError,
)


def write(path: Path, **columns: Any) -> Path:
    """A file with these datasets; `a__b` stands for `a/b`."""
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            file[name.replace("__", "/")] = values
    return path


def packed(source: Any, out: Path, **options: Any) -> Readback:
    """Pack, read back with numpy alone."""
    pack(source, out, force=True, **options)
    return Readback(out)


def error_of(source: Any, out: Path, **options: Any) -> FieldslabError:
    """The error of a pack, which leaves no slab behind."""
    with pytest.raises(FieldslabError) as caught:
        pack(source, out, **options)
    assert not out.exists()
    return caught.value


def numbers(slab: Readback, name: str) -> list[Any]:
    """A column as Python numbers."""
    return [row.tolist() for row in slab.column(name)]
