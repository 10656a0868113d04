"""Decompression of the rows of one field, whose dictionaries may differ from slab to slab."""

from collections.abc import Iterator

import numpy as np

from fieldslab.reader.stored.shards import Shards
from fieldslab.schemas.fields import Field
from fieldslab.schemas.frames import FrameReader
from fieldslab.schemas.stored_tables import load_dictionary


class FieldFrames:
    """Decompresses the rows of one field; any number of threads may use it at once."""

    def __init__(self, field: Field, shards: Shards) -> None:
        """Load no dictionary yet."""
        self._field = field
        self._shards = shards
        members, numbers = shards.members, []
        self._first_members: dict[tuple[str, str] | None, int] = {}
        for index, files in enumerate(members.files):
            part, key = members.get_field(index, field.name), None
            if part is not None and part.compression is not None and part.compression.dictionary:
                key = files.manifest.tables or "", part.stem
            numbers.append(self._first_members.setdefault(key, index))
        self._numbers = np.repeat(np.array(numbers), np.diff(members.first_shards))
        self._readers: dict[int, FrameReader] = {}

    def compute_sizes(self, offsets: np.ndarray, counts: np.ndarray | None) -> np.ndarray:
        """Compute the decompressed size of each row: see `FrameReader.compute_sizes`."""
        reader = FrameReader(self._field.name)
        return reader.compute_sizes(offsets, counts, self._field.item_bytes)

    def decompress(
        self,
        frames: np.ndarray,
        offsets: np.ndarray,
        sizes: np.ndarray,
        out: np.ndarray,
        shards: np.ndarray,
    ) -> None:
        """Decompress rows in shards, int64[rows]: see `FrameReader.decompress`."""
        for number, rows in self._split(shards):
            self._load_reader(number).decompress(frames, offsets, sizes, out, rows)

    def read_row(self, frame: np.ndarray, counts: np.ndarray | None, shard: int) -> np.ndarray:
        """Decompress one frame: (elements, *shape), or (1, *shape) if `counts` is None."""
        reader = self._load_reader(int(self._numbers[shard]))
        return reader.read_values(frame, np.array([0, len(frame)]), counts, self._field)

    def _split(self, shards: np.ndarray) -> Iterator[tuple[int, np.ndarray | None]]:
        """Split rows by dictionary; None stands for all of them."""
        if len(self._first_members) == 1:
            yield 0, None
            return
        numbers = self._numbers[shards]
        for number in np.unique(numbers).tolist():
            yield number, np.flatnonzero(numbers == number)

    def _load_reader(self, member: int) -> FrameReader:
        """Load the dictionary of the first slab that has it, once. Raises DamagedArray."""
        if member not in self._readers:
            part, dictionary = self._shards.members.get_field(member, self._field.name), None
            if part is not None and part.list_arrays_in_tables():
                dictionary = load_dictionary(part, self._shards.load_tables(member))
            self._readers[member] = FrameReader(self._field.name, dictionary)
        return self._readers[member]
