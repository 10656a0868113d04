"""Checks that the lists inside the lists of nested fields have as many elements as their rows."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from fieldslab.packer.check.findings import Problem
from fieldslab.packer.check.threads import MapInThreads
from fieldslab.schemas.access import Folder
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.fields import Field
from fieldslab.schemas.inner_lists import find_inner_lists

ROWS = 2048
"""Rows that are checked at a time."""


def check_inner_lists(folder: Folder, field: Field, run: MapInThreads) -> Iterator[Problem]:
    """Check a nested field of a shard whose arrays are intact; threads share the rows.

    Of a compressed field, `lengths` has the elements of each row.
    """
    for problems in run(partial(_check_rows, folder, field), range(0, folder.rows, ROWS)):
        yield from problems


def _check_rows(folder: Folder, field: Field, start: int) -> list[Problem]:
    stop = min(start + ROWS, folder.rows)
    ends = folder.get_required_array(field, "lists.offsets").read(start, stop + 1)
    lists = ends.astype(np.int64)
    if field.compression is None:
        elements = folder.get_required_array(field, "offsets").read(start, stop + 1)
        elements = elements.astype(np.int64)
    else:
        counts = folder.get_required_array(field, "lengths").read(start, stop)
        elements = np.concatenate([[0], np.cumsum(counts.astype(np.int64))])
    first = int(lists[0])
    array = folder.get_required_array(field, "lists.values")
    lengths = array.read(first, int(lists[-1]))
    inner = find_inner_lists(lengths, lists - first, elements - elements[0])
    if (wrong := inner.wrong_row) is None:
        return []
    number = folder.first_row + start + wrong
    some = lengths[lists[wrong] - first : lists[wrong + 1] - first]
    return [
        Problem(
            problem="lists inside a list do not have as many elements as their row",
            file=str(array.path),
            field=field.name,
            rows=(number, number),
            offset=HEADER + 4 * int(lists[wrong]),
            expected=f"{elements[wrong + 1] - elements[wrong]}",
            found=f"{some.astype(np.int64).sum()}",
        )
    ]
