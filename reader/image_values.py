"""Decoded images that are not one array: of different sizes, or in several views."""

from collections.abc import Iterator
from typing import SupportsIndex

import numpy as np

from fieldslab.reader.rows import check_index


class Pictures:
    """Pictures at their own sizes, one behind the other: what `Decode()` gives.

    `pictures[7]` is uint8 (height, width, 3).

    Attributes
    ----------
    values
        All pixels: uint8[bytes].
    offsets
        Where pictures begin and end in `values`, from 0: int64[pictures + 1].
    sizes
        Height and width of each: int64[pictures, 2]; 0, 0 where the size is unknown because the
        picture is null or was not decoded.
    """

    def __init__(self, values: np.ndarray, sizes: np.ndarray) -> None:
        self.values = values
        self.sizes = sizes
        self.offsets = np.concatenate([[0], np.cumsum(3 * sizes.prod(axis=1))])

    @property
    def nbytes(self) -> int:
        """Bytes of all pixels."""
        return int(self.offsets[-1])

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, row: SupportsIndex) -> np.ndarray:
        """One picture, as a view. Raises RowOutOfRange."""
        row = check_index(row, len(self))
        pixels = self.values[self.offsets[row] : self.offsets[row + 1]]
        return pixels.reshape(*self.sizes[row], 3)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[row] for row in range(len(self)))

    def tolist(self) -> list[np.ndarray]:
        """Return all pictures."""
        return list(self)

    def __repr__(self) -> str:
        return f"Pictures({len(self)} pictures, uint8[height, width, 3])"


class Views(tuple[np.ndarray, ...]):
    """Views of several sizes: an array (rows, views, ...) for each size, in the order of views."""

    __slots__ = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return sum(array.nbytes for array in self)

    def tolist(self) -> list[np.ndarray]:
        """Return the arrays."""
        return list(self)
