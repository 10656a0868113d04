"""Arrays opened by zarr, some rows of them, and where their chunks lie.

Only this module and `file_store` import zarr.
"""

import os
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from lzma import LZMAError
from typing import Any
from zipfile import BadZipFile

import numpy as np

from fieldslab.packer.sources.array_types import BYTES
from fieldslab.packer.sources.batches import make_damage_error
from fieldslab.packer.sources.zarr.hierarchy import Hierarchy, Node
from fieldslab.packer.sources.zarr.trees import KeyedTree, check_blosc_size
from fieldslab.schemas.errors import FieldslabError, SourceNeedsLibrary, SourceUnreadable

_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    BadZipFile,
    LZMAError,
    zlib.error,
)
"""What codecs raise on damaged chunks."""


class OpenedArray:
    """An array of a hierarchy, opened by zarr."""

    def __init__(self, hierarchy: Hierarchy, node: Node) -> None:
        """Open it. Raises SourceUnreadable, and SourceNeedsLibrary without zarr."""
        self.where = os.path.join(hierarchy.path, node.path)
        tree = hierarchy.tree
        self._folder = None if tree.folder is None else self.where
        self._blosc = node.ends_with_blosc
        with self._name_errors("metadata"), _require_zarr():
            import zarr
            from zarr.storage import LocalStore

            from fieldslab.packer.sources.zarr.file_store import FileStore

            store: Any
            if isinstance(tree, KeyedTree):
                store = FileStore(tree, check_blosc=self._blosc)
            else:
                store = LocalStore(tree.path, read_only=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about dtypes that are not in the standard
                version: Any = node.version
                self._array: Any = zarr.open_array(
                    store, path=node.path, mode="r", zarr_format=version
                )
        self.shape = tuple(map(int, self._array.shape))
        self.dtype = BYTES if node.holds_bytes else np.dtype(self._array.dtype)
        stored = self._array.shards or self._array.chunks
        self.chunks = tuple(int(length) for length in self._array.chunks)
        self._stored = tuple(int(length) for length in stored)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Read some rows. Raises SourceUnreadable, which names the chunk that is damaged."""
        if self._blosc and self._folder is not None:
            self._check_sizes(start, stop)
        try:
            return np.asarray(self._array[start:stop])
        except FieldslabError:
            raise
        except _ERRORS:
            for place in self._list_places(start, stop):
                slices = tuple(
                    slice(number * length, (number + 1) * length)
                    for number, length in zip(place, self._stored, strict=True)
                )
                with self._name_errors(self._get_key(place)):
                    self._array[slices]
            with self._name_errors(f"rows {start}-{stop - 1}"):
                raise
            raise

    def _check_sizes(self, start: int, stop: int) -> None:
        """Raise for a chunk whose size is not that of its header."""
        for path, info in self.list_chunks(start, stop):
            if info is None:
                continue
            with self._name_errors(os.path.relpath(path, self.where)), open(path, "rb") as file:
                check_blosc_size(file.read(16), info.st_size)

    def list_chunks(self, start: int, stop: int) -> Iterator[tuple[str, os.stat_result | None]]:
        """List the files of the chunks of some rows, None for those that are not there."""
        if self._folder is None:
            return
        for place in self._list_places(start, stop):
            path = os.path.join(self._folder, self._get_key(place))
            try:
                yield path, os.stat(path)
            except OSError:
                yield path, None

    def sample_value_bytes(self) -> int | None:
        """Return the mean length of values of any length, of some chunks; None for others."""
        if self.dtype.kind not in "OT" or not self.shape or not self.shape[0]:
            return None
        rows, chunk = self.shape[0], self.chunks[0]
        means = [1]
        for start in sorted({0, rows // 2 // chunk * chunk, (rows - 1) // chunk * chunk}):
            try:
                values = self.read(start, min(start + chunk, rows)).reshape(-1).tolist()
            except SourceUnreadable:
                continue  # whoever packs the array learns of it
            total = sum(len(value) if isinstance(value, str | bytes) else 0 for value in values)
            means.append(total // max(len(values), 1))
        return max(means)

    def count_missing(self) -> tuple[int, int]:
        """Count the chunks that are not stored, and all of them."""
        return self._array.nchunks - self._array.nchunks_initialized, self._array.nchunks

    def _get_key(self, place: Sequence[int]) -> str:
        return str(self._array.metadata.encode_chunk_key(tuple(place)))

    def _list_places(self, start: int, stop: int) -> Iterator[tuple[int, ...]]:
        first, *others = self._stored
        counts = [
            range(-(-size // length)) for size, length in zip(self.shape[1:], others, strict=True)
        ]
        yield from product(range(start // first, -(-stop // first)), *counts)

    @contextmanager
    def _name_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except FieldslabError:
            raise
        except _ERRORS as error:
            raise make_damage_error(error, f"Zarr, {what}", self.where) from error


@contextmanager
def _require_zarr() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise SourceNeedsLibrary(
            f"Zarr needs the library zarr: {error}", hint="pip install 'zarr>=3.0'"
        ) from error
