"""Rows of a slab as arrays of Arrow."""

import numpy as np
import pyarrow as pa

from fieldslab.packer.check.stored import StoredSlab
from fieldslab.schemas.arrow_arrays import ArrowMaker
from fieldslab.schemas.fields import Field


def read_column(slab: StoredSlab, field: Field, maker: ArrowMaker, rows: range) -> pa.Array:
    """Read some rows of a field. Raises what `StoredSlab.read` and `ArrowMaker.convert` raise."""
    stored = slab.read(field, rows.start, rows.stop)
    offsets = None
    if stored.lengths is not None:
        offsets = np.concatenate([[0], np.cumsum(stored.lengths)])
    return maker.convert(stored.values, offsets, stored.valid)
