"""Read slabs: open one, look at rows, gather random batches at the speed of memory."""

from fieldslab.reader.batch import Batch, Binary, Failure, Packed, Ragged, Text
from fieldslab.reader.blocked import Blocked
from fieldslab.reader.bylength import ByLength
from fieldslab.reader.column import Column
from fieldslab.reader.images.pictures import Pictures, Views
from fieldslab.reader.images.steps import (
    CenterCrop,
    Decode,
    Images,
    MultiCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
)
from fieldslab.reader.loader import Loader
from fieldslab.reader.normalize import Normalize
from fieldslab.reader.order import Order, Sequential, Shuffled, Strided, Subset, Weighted
from fieldslab.reader.sequences import Pad, Shift
from fieldslab.reader.slab import Slab, open_slab
from fieldslab.reader.stats import Stats
from fieldslab.reader.transforms import Cast, Lambda, Transform
from fieldslab.reader.triangle import UpperTriangle

__all__ = [
    "Batch",
    "Binary",
    "Blocked",
    "ByLength",
    "Cast",
    "CenterCrop",
    "Column",
    "Decode",
    "Failure",
    "Images",
    "Lambda",
    "Loader",
    "MultiCrop",
    "Normalize",
    "Order",
    "Packed",
    "Pad",
    "Pictures",
    "Ragged",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "Sequential",
    "Shift",
    "Shuffled",
    "Slab",
    "Stats",
    "Strided",
    "Subset",
    "Text",
    "Transform",
    "UpperTriangle",
    "Views",
    "Weighted",
    "open_slab",
]
