"""Read slabs: open one, look at rows, gather random batches at the speed of memory."""

from fieldslab.reader.batch import Batch, Binary, Ragged, Text
from fieldslab.reader.blocked import Blocked
from fieldslab.reader.bylength import ByLength
from fieldslab.reader.column import Column
from fieldslab.reader.order import Order, Sequential, Shuffled, Strided, Subset, Weighted
from fieldslab.reader.slab import Slab, open_slab

__all__ = [
    "Batch",
    "Binary",
    "Blocked",
    "ByLength",
    "Column",
    "Order",
    "Ragged",
    "Sequential",
    "Shuffled",
    "Slab",
    "Strided",
    "Subset",
    "Text",
    "Weighted",
    "open_slab",
]
