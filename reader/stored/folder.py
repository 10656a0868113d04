"""One folder of arrays, a shard or `tables`: its files, mapped, and what they must digest to."""

import os
from pathlib import Path

import numpy as np

from fieldslab.schemas.arrays import map_array
from fieldslab.schemas.errors import DamagedArray, DamagedManifest, FieldslabError
from fieldslab.schemas.fields import Field, Role
from fieldslab.schemas.folder import load_digests
from fieldslab.schemas.layout import ArrayFile


class Folder:
    """A folder of arrays.

    Attributes
    ----------
    path
        Where it is.
    first_row, rows
        Which rows of the slab it holds, for messages.
    """

    def __init__(
        self, path: Path, files: list[ArrayFile], root: str, first_row: int = 0, rows: int = 0
    ) -> None:
        self.path = path
        self.first_row = first_row
        self.rows = rows
        self._files = files
        self._by_role = {(file.field.stem, file.role): file for file in files}
        self._root = root
        self._tables: list[np.ndarray] = []

    def file(self, field: Field, role: Role) -> ArrayFile | None:
        """One array of a field; None where this folder does without, as `valid` without nulls."""
        return self._by_role.get((field.stem, role))

    def map(self, file: ArrayFile) -> np.ndarray:
        """Map one array read-only: shape and dtype are those of `file`.

        Raises
        ------
        DamagedArray
            The file is not there, or its size or header is not what the manifest says.
        DamagedManifest
            The shape is beyond what an array can have.
        FieldslabError
            The system refuses another map.
        """
        if os.path.islink(self.path):
            raise DamagedArray("links are not followed", file=self.path, field=file.field.name)
        path = self.path / file.name
        try:
            return map_array(path, file.dtype, file.shape, file.field.name)
        except ValueError as error:
            raise DamagedManifest(
                "no array can have this shape", file=path, field=file.field.name, found=file.shape
            ) from error
        except OSError as error:
            raise FieldslabError(
                f"cannot be mapped: {error.strerror}",
                file=path,
                field=file.field.name,
                hint="The limit is vm.max_map_count on Linux: read fewer fields, or pack with a "
                "larger --shard-size.",
            ) from error

    def digests(self, file: ArrayFile) -> np.ndarray:
        """What the blocks of a file must digest to, uint64[blocks]; always in the same place.

        Raises DamagedArray for a wrong table.
        """
        if not self._tables:
            self._tables.append(load_digests(self.path, self._files, self._root))
        # Threads may each load it: the first to come stays, since kernels know its address.
        return self._tables[0][file.first_block : file.first_block + file.blocks]
