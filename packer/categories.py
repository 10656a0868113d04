"""The categories of a field, in order of first appearance over the whole source."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class CategoryIndex:
    """Turns dictionary arrays, each with a dictionary of its own, into codes of one list."""

    def __init__(self, categories: list[str] | None = None) -> None:
        """Start from categories that are known already."""
        self.values = pa.array(categories or [], pa.large_string())

    def codes(self, array: pa.Array) -> np.ndarray:
        """int32[len] codes of a dictionary array without null rows; new categories are added."""
        self.add(array.dictionary)
        mapping = self._find(array.dictionary)
        indices = array.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        return mapping[indices]

    def add(self, dictionary: pa.Array) -> None:
        """Append the values that are not yet known."""
        values = dictionary.cast(pa.large_string()).drop_null()
        known = pc.is_in(values, value_set=self.values)
        new = values.filter(pc.invert(known)).unique()
        if len(new):
            self.values = pa.concat_arrays([self.values, new])

    def _find(self, dictionary: pa.Array) -> np.ndarray:
        """int32 code of each dictionary value; -1 for a null, which no valid row refers to."""
        found = pc.index_in(dictionary.cast(pa.large_string()), value_set=self.values)
        if dictionary.null_count:
            found = pc.if_else(dictionary.is_valid(), found, pa.scalar(-1, pa.int32()))
        return found.fill_null(-1).to_numpy(zero_copy_only=False)


Categories = dict[str, CategoryIndex]
"""The categories of each categorical field, by field name."""
