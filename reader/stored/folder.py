"""One folder of arrays, a shard or `tables`: its files, mapped, and what they must digest to."""

from pathlib import Path

import numpy as np

from fieldslab.schemas.arrays import map_array
from fieldslab.schemas.errors import DamagedManifest
from fieldslab.schemas.fields import Field, Role
from fieldslab.schemas.folder import SlabFiles, load_digests
from fieldslab.schemas.layout import ArrayFile


class Folder:
    """A folder of arrays.

    Attributes
    ----------
    first_row, rows
        Which rows of the slab it holds, for messages.
    """

    def __init__(
        self,
        slab: SlabFiles,
        name: str,
        files: list[ArrayFile],
        root: str,
        first_row: int = 0,
        rows: int = 0,
    ) -> None:
        self._slab = slab
        self._name = name
        self.first_row = first_row
        self.rows = rows
        self._files = files
        self._by_role = {(file.field.stem, file.role): file for file in files}
        self._root = root
        self._tables: list[np.ndarray] = []

    @property
    def path(self) -> Path:
        """Where it was when the slab was opened, for messages."""
        return self._slab.path / self._name

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
        SlabReplaced, NotASlab, Unreadable
            The slab was packed again since; a link is in the way; the disk fails.
        FieldslabError
            The system refuses another map.
        """
        try:
            with self._slab.folder(self._name) as folder:
                return map_array(folder, file.name, file.dtype, file.shape, file.field.name)
        except ValueError as error:
            raise DamagedManifest(
                "no array can have this shape",
                file=self.path / file.name,
                field=file.field.name,
                found=file.shape,
            ) from error

    def digests(self, file: ArrayFile) -> np.ndarray:
        """What the blocks of a file must digest to, uint64[blocks]; always in the same place.

        Raises DamagedArray for a wrong table, and what `map` raises.
        """
        if not self._tables:
            with self._slab.folder(self._name) as folder:
                self._tables.append(load_digests(folder, self._files, self._root))
        # Threads may each load it: the first to come stays, since kernels know its address.
        return self._tables[0][file.first_block : file.first_block + file.blocks]
