"""Lists of the objects in each image, as Arrow has them."""

import numpy as np
import pyarrow as pa


def make_lists(counts: np.ndarray, values: np.ndarray) -> pa.LargeListArray:
    """Make a list for each row of `values`, one behind the other.

    Parameters
    ----------
    counts
        int64[rows]: number of items of each row.
    values
        (items, ...) of any dtype: further axes are those of each item.
    """
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    array = pa.array(np.ascontiguousarray(values).reshape(-1))
    for length in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, length)
    return pa.LargeListArray.from_arrays(pa.array(offsets), array)
