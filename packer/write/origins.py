"""Which rows of a slab came from which file and which episode of its source."""

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from fieldslab.packer.convert.damaged_rows import LeftOutRow
from fieldslab.packer.plan import Plan
from fieldslab.schemas.episodes import find_episode_lengths


def list_sources(plan: Plan, left_out: Sequence[LeftOutRow]) -> list[dict[str, Any]]:
    """Return the source's fingerprint, where files also have `rows`: first row and stop row.

    A file that comes several times has an entry for each time. Streams have no such rows.
    """
    sources = plan.source.fingerprint()
    ranges = _find_row_ranges(plan, sorted(row.row for row in left_out))
    listed = []
    for source in sources:
        rows = ranges.get(source.get("path", ""))
        listed.append(source | {"rows": rows.popleft()} if rows else source)
    by_path = {source.get("path"): source for source in sources}
    for path, rows in ranges.items():
        listed += [by_path[path] | {"rows": row_ranges} for row_ranges in rows if path in by_path]
    return listed


def count_episode_rows(plan: Plan, left_out: Sequence[LeftOutRow]) -> list[int] | None:
    """Count the rows that the slab has of each episode of the source, without those that have none.

    None where the source does not list episodes.
    """
    unit_rows = [unit.rows for unit in plan.source.units]
    if plan.rows is None or None in unit_rows:
        return None
    source_rows = sum(rows or 0 for rows in unit_rows)
    lengths = find_episode_lengths(plan.source.attributes, source_rows)
    if lengths is None:
        return None
    edges = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    edges = np.clip(edges, plan.first_row, plan.first_row + plan.rows)
    edges -= np.searchsorted(np.sort([row.row for row in left_out]), edges)
    counts = np.diff(edges)
    return [int(count) for count in counts[counts > 0]]


def _find_row_ranges(plan: Plan, left_out: list[int]) -> dict[str, deque[list[int]]]:
    """Find the rows of the slab that each file holds, by its path."""
    ranges: dict[str, deque[list[int]]] = defaultdict(deque)
    row, source_row, before = 0, plan.first_row, None
    for span in (span for task in plan.tasks for span in task.spans):
        if span.rows is None or span.unit.file is None:
            return {}
        source_end = source_row + span.rows
        missing = bisect_left(left_out, source_end) - bisect_left(left_out, source_row)
        end = row + span.rows - missing
        if span.unit.file == before:
            ranges[before][-1][1] = end
        else:
            ranges[span.unit.file].append([row, end])
        row, source_row, before = end, source_end, span.unit.file
    return ranges
