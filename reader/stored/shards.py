"""The shards of an open slab, as its arrays need them."""

from functools import cached_property
from weakref import WeakValueDictionary

import numpy as np

from fieldslab.reader.stored.marks import SharedMarks
from fieldslab.schemas.access import Folder, find_shard_folder
from fieldslab.schemas.fields import Role
from fieldslab.schemas.folder import SlabFiles
from fieldslab.schemas.layout import count_shard_items


class Shards:
    """The shards of an open slab: the data of its arrays there, and their reader.

    Attributes
    ----------
    first_rows
        The slab's row that each shard begins with: int64[shards], or one more.
    marks
        Memory for the marks of all arrays; None where nothing is verified.
    mirror
        Brings blocks of a slab that lies elsewhere; None for others.
    """

    def __init__(self, files: SlabFiles, first_rows: np.ndarray, marks: SharedMarks | None) -> None:
        self.first_rows = first_rows
        self.marks = marks
        self.mirror = files.mirror
        self._files = files
        self._folders: WeakValueDictionary[int, Folder] = WeakValueDictionary()

    @cached_property
    def items(self) -> dict[tuple[str, Role], np.ndarray]:
        """Items of each array in every shard: see `layout.count_shard_items`."""
        return count_shard_items(self._files.manifest)

    def get_folder(self, shard: int) -> Folder:
        """Return the folder of a shard: the same object while it is referenced."""
        folder = self._folders.get(shard)
        if folder is None:
            first_row = int(self.first_rows[shard])
            folder = find_shard_folder(self._files, shard, first_row, mapped=True)
            self._folders[shard] = folder
        return folder
