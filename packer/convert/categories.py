"""The categories of a field, in order of first appearance over the whole source."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fieldslab.packer.convert.dense import decode_layout
from fieldslab.packer.convert.misfit import Misfit


class CategoryIndex:
    """Turns dictionary arrays, each with a dictionary of its own, into codes of one list."""

    def __init__(self, categories: list[str] | None = None) -> None:
        """Start from categories that are known already."""
        self.values = pa.array(categories or [], pa.large_string())
        self._last: tuple[pa.Array, np.ndarray] | None = None

    def encode(self, array: pa.Array, *, ordered: bool = False) -> np.ndarray:
        """Encode an array of text without nulls as codes, int32[len]; add new categories.

        Raises
        ------
        Misfit
            The order of the categories counts (`ordered`), and this dictionary has another.
        pa.ArrowInvalid
            A category is not UTF-8.
        """
        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        indices = array.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        mapping = self._encode_dictionary(array.dictionary)
        if ordered and (np.diff(mapping[mapping >= 0]) < 0).any():
            raise Misfit("the ordered categories come in another order than in earlier rows")
        return mapping[indices]

    def _encode_dictionary(self, dictionary: pa.Array) -> np.ndarray:
        """int32 code of each value of a dictionary; -1 for nulls, which no row refers to."""
        if self._last is not None and self._last[0].equals(dictionary):
            return self._last[1]
        texts = decode_layout(dictionary).cast(pa.large_string())
        texts.validate(full=True)
        self.add(texts.drop_null())
        codes = pc.index_in(texts, value_set=self.values)
        if texts.null_count:
            codes = pc.if_else(texts.is_valid(), codes, pa.scalar(-1, pa.int32()))
        mapping = codes.to_numpy(zero_copy_only=False)
        self._last = dictionary, mapping
        return mapping

    def add(self, texts: pa.Array) -> None:
        """Add the texts that are new; large_string without nulls."""
        new = texts.filter(pc.invert(pc.is_in(texts, value_set=self.values))).unique()
        if len(new):
            self.values = pa.concat_arrays([self.values, new])


Categories = dict[str, CategoryIndex]
"""The categories of each categorical field, by field name."""
