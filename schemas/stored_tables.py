"""What fields have in the folder `tables`: categories and dictionaries."""

import numpy as np

from fieldslab.schemas.access import Folder
from fieldslab.schemas.fields import Field


def load_categories(field: Field, tables: Folder) -> tuple[np.ndarray, np.ndarray]:
    """Load a category table: offsets, uint64[categories + 1], and bytes. Raises DamagedArray."""
    offsets = tables.get_required_array(field, "categories.offsets")
    ends, text = offsets.read(), tables.get_required_array(field, "categories.values").read()
    if ends[0] != 0 or ends[-1] != len(text) or (ends[:-1] > ends[1:]).any():
        raise offsets.make_damaged_error(
            "offsets of the category table are damaged",
            expected=f"rising numbers from 0 to {len(text)}",
        )
    return ends, text


def load_dictionary(field: Field, tables: Folder | None) -> bytes | None:
    """Load the dictionary of a compressed field, or None if it has none. Raises DamagedArray."""
    if tables is None or field.compression is None or not field.compression.dictionary:
        return None
    return tables.get_required_array(field, "dictionary").read().tobytes()
