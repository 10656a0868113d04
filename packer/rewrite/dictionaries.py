"""Dictionaries of compressed fields, which are trained on rows and hold pieces of their values.

So they are trained again where rows are left out, or where slabs that become one have others.
"""

from itertools import pairwise

import numpy as np

from fieldslab.packer.check.stored import StoredSlab
from fieldslab.packer.convert.compress import (
    SAMPLE_BYTES,
    SAMPLE_ROWS,
    Compressors,
    train_compressor,
)
from fieldslab.packer.convert.fieldplan import ConvertedRows
from fieldslab.packer.options import DEFAULT_LEVEL, MAX_LEVEL
from fieldslab.packer.rewrite.runs import count_rows, group_runs
from fieldslab.schemas.fields import Field

_PIECE = 1024
"""Rows that are read at a time."""


def train_compressors(slab: StoredSlab, fields: list[Field], runs: np.ndarray) -> Compressors:
    """Train compressors for the fields that cannot keep their frames: by name of field.

    They learn from the first rows in `runs`. Raises what `StoredSlab.read` raises.
    """
    if count_rows(runs) == slab.manifest.rows and _have_same_tables(slab):
        return {}
    return {
        field.name: train_compressor(
            field, _find_level(slab, field), _read_first(slab, field, runs)
        )
        for field in fields
        if _has_dictionary(slab, field)
    }


def _have_same_tables(slab: StoredSlab) -> bool:
    manifests = [files.manifest for files in slab.members.files]
    return all(
        first.tables == second.tables and first.fields == second.fields
        for first, second in pairwise(manifests)
    )


def _has_dictionary(slab: StoredSlab, field: Field) -> bool:
    """Whether any of the slabs has a dictionary for this field."""
    members = slab.members
    parts = (members.get_field(member, field.name) for member in range(len(members.files)))
    return any(part and part.compression and part.compression.dictionary for part in parts)


def _find_level(slab: StoredSlab, field: Field) -> int:
    levels = slab.members.files[0].manifest.made.options.get("compress")
    level = levels.get(field.name) if isinstance(levels, dict) else None
    return level if isinstance(level, int) and 1 <= level <= MAX_LEVEL else DEFAULT_LEVEL


def _read_first(slab: StoredSlab, field: Field, runs: np.ndarray) -> list[ConvertedRows]:
    """Read as many of the first rows as a packer learns from."""
    sample: list[ConvertedRows] = []
    rows = size = 0
    for group in group_runs(runs, 0, _PIECE):
        for first, end in group.tolist():
            values, lengths, *_ = slab.read(field, first, end)
            sample.append(ConvertedRows(values, lengths))
            rows, size = rows + end - first, size + values.nbytes
        if rows >= SAMPLE_ROWS or size >= SAMPLE_BYTES:
            break
    return sample
