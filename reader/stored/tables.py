"""What serves a whole field and stands in the folder `tables`."""

import numpy as np

from fieldslab.reader.batch import Text
from fieldslab.reader.stored.array import StoredArray
from fieldslab.reader.stored.folder import Folder
from fieldslab.schemas.errors import DamagedArray
from fieldslab.schemas.fields import Field


def load_categories(field: Field, tables: Folder, verify: bool) -> Text:
    """Names of a categorical field that are too long for the manifest. Raises DamagedArray."""
    offsets = StoredArray(field, "categories.offsets", np.dtype("<u8"), [tables], verify)
    values = StoredArray(field, "categories.values", np.dtype("u1"), [tables], verify)
    ends, text = _whole(offsets), _whole(values)
    if ends[0] != 0 or ends[-1] != len(text) or (ends[:-1] > ends[1:]).any():
        raise DamagedArray(
            "offsets of the category table are damaged",
            file=offsets.path(0),
            field=field.name,
            expected=f"rising numbers from 0 to {len(text)}",
            hint="Restore the file from a copy, or pack the slab again.",
        )
    return Text(text, ends.astype(np.int64), field.name)


def load_dictionary(field: Field, tables: Folder, verify: bool) -> bytes:
    """The trained dictionary of a compressed field. Raises DamagedArray."""
    return _whole(StoredArray(field, "dictionary", np.dtype("u1"), [tables], verify)).tobytes()


def _whole(array: StoredArray) -> np.ndarray:
    array.verify_items(0, 0, len(array[0]))
    return array[0]
