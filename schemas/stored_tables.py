"""What fields have in the folder `tables`: categories and dictionaries."""

import numpy as np

from fieldslab.schemas.access import Folder
from fieldslab.schemas.errors import DamagedArray
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


def check_codes(codes: np.ndarray, categories: int, field: str) -> None:
    """Check codes, any integers, before categories are looked up by them; -1 is that of nulls.

    Raises DamagedArray for one that has no category: digests may be right, yet the values are not.
    """
    wrong = (codes < -1) | (codes >= categories)
    if wrong.any():
        raise DamagedArray(
            "a code has no category",
            field=field,
            expected=f"-1..{categories - 1}",
            found=int(codes[wrong.argmax()]),
            hint="`fieldslab verify` names the file and the row.",
        )
