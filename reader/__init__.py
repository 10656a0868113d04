"""Read slabs: open one, look at rows, gather random batches at the speed of memory."""

from fieldslab.reader.batch import Batch, Binary, Ragged, Text
from fieldslab.reader.column import Column
from fieldslab.reader.slab import Slab, open_slab

__all__ = ["Batch", "Binary", "Column", "Ragged", "Slab", "Text", "open_slab"]
