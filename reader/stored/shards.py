"""The shards of an open slab, as its arrays need them."""

from functools import cached_property
from weakref import WeakValueDictionary

import numpy as np

from fieldslab.reader.stored.marks import SharedMarks
from fieldslab.reader.stored.mirrors import Mirrors
from fieldslab.schemas.access import Folder
from fieldslab.schemas.fields import Role
from fieldslab.schemas.layout import count_shard_items
from fieldslab.schemas.unions.members import Members


class Shards:
    """The shards of an open slab: the data of its arrays there, and their reader.

    Attributes
    ----------
    members
        The slabs that have them.
    first_rows
        The slab's row that each shard begins with: int64[shards], or one more.
    marks
        Memory for the marks of all arrays; None where nothing is verified.
    mirrors
        Bring blocks of slabs that lie elsewhere; None where there are none.
    """

    def __init__(
        self,
        members: Members,
        first_rows: np.ndarray,
        marks: SharedMarks | None,
        mirrors: Mirrors | None,
    ) -> None:
        self.members = members
        self.first_rows = first_rows
        self.marks = marks
        self.mirrors = mirrors
        self._folders: WeakValueDictionary[int, Folder] = WeakValueDictionary()
        self._tables: dict[int, Folder | None] = {}

    @cached_property
    def items(self) -> dict[tuple[str, Role], np.ndarray]:
        """Items of each array in every shard: see `layout.count_shard_items`."""
        return count_shard_items(self.members.manifest)

    def get_folder(self, shard: int) -> Folder:
        """Return the folder of a shard: the same object while it is referenced."""
        folder = self._folders.get(shard)
        if folder is None:
            folder = self.members.find_folder(shard, int(self.first_rows[shard]))
            self._folders[shard] = folder
        return folder

    def load_tables(self, member: int) -> Folder | None:
        """Return the folder `tables` of a slab, or None, with digests. Raises DamagedArray."""
        if member not in self._tables:
            tables = self.members.find_tables(member)
            if tables is not None and self.marks is not None:
                tables.load_digests()
            self._tables[member] = tables
        return self._tables[member]
