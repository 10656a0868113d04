"""Read slabs: open one, look at rows, gather random batches at the speed of memory."""

from fieldslab.reader.batch import Batch, Failure
from fieldslab.reader.column import Column
from fieldslab.reader.image_values import Pictures, Views
from fieldslab.reader.images.normalize import Normalize
from fieldslab.reader.images.steps import (
    CenterCrop,
    Decode,
    ImageSteps,
    MultiCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
)
from fieldslab.reader.loading.loader import Loader
from fieldslab.reader.loading.stats import Stats
from fieldslab.reader.open_slab import open_slab
from fieldslab.reader.orders.balanced import Balanced
from fieldslab.reader.orders.blocked import Blocked
from fieldslab.reader.orders.bylength import ByLength
from fieldslab.reader.orders.grouped import Grouped
from fieldslab.reader.orders.mixed import Mixed
from fieldslab.reader.orders.near import Near
from fieldslab.reader.orders.order import Order, Sequential, Shuffled, Strided, Subset
from fieldslab.reader.orders.tokenbudget import TokenBudget
from fieldslab.reader.orders.weighted import Weighted
from fieldslab.reader.orders.windows import Windows
from fieldslab.reader.runs import Runs
from fieldslab.reader.slab import Slab
from fieldslab.reader.transforms.pad_shift import Pad, Shift
from fieldslab.reader.transforms.sparse import Dense, SparseRows, view_sparse
from fieldslab.reader.transforms.standardize import Standardize
from fieldslab.reader.transforms.transform import Cast, Lambda, Transform
from fieldslab.reader.transforms.triangle import UpperTriangle
from fieldslab.reader.var_len import Binary, Ragged, Text, VarLenValues
from fieldslab.schemas.renamed import refuse_renamed_name
from fieldslab.schemas.version import get_installed_version

__all__ = [
    "Balanced",
    "Batch",
    "Binary",
    "Blocked",
    "ByLength",
    "Cast",
    "CenterCrop",
    "Column",
    "Decode",
    "Dense",
    "Failure",
    "Grouped",
    "ImageSteps",
    "Lambda",
    "Loader",
    "Mixed",
    "MultiCrop",
    "Near",
    "Normalize",
    "Order",
    "Pad",
    "Pictures",
    "Ragged",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "Runs",
    "Sequential",
    "Shift",
    "Shuffled",
    "Slab",
    "SparseRows",
    "Standardize",
    "Stats",
    "Strided",
    "Subset",
    "Text",
    "TokenBudget",
    "Transform",
    "UpperTriangle",
    "VarLenValues",
    "Views",
    "Weighted",
    "Windows",
    "open_slab",
    "view_sparse",
]


def __getattr__(name: str) -> str:
    """`__version__`, looked up when it is asked for."""
    if name == "__version__":
        return get_installed_version()
    refuse_renamed_name(__name__, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
