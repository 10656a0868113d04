"""What sources share: batches cut to a size, and the error for what a library cannot read."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from fieldslab.packer.convert.dense import estimate_decoded_bytes
from fieldslab.schemas.errors import SourceDenied, SourceUnreadable, make_unreadable_source_error

MOST_ROWS = 65_536
"""Rows of a batch at most."""
MOST_TEXT = 500
"""Letters of what a library says, at most."""


def cut_batch(batch: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into some of about so many bytes once decoded, and of at most MOST_ROWS."""
    size = sum(estimate_decoded_bytes(array) for array in batch.columns)
    rows = min(MOST_ROWS, max(1, batch_bytes * batch.num_rows // max(size, 1)))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def describe_exception(error: BaseException) -> str:
    """Return what a library said, in one line that can be followed by a period."""
    text = " ".join(str(error).split()).rstrip(".")
    return text[:MOST_TEXT] or type(error).__name__


def make_damage_error(
    error: BaseException,
    kind: str,
    file: str,
    hint: str = "Write or download the file again.",
    **context: Any,
) -> SourceUnreadable:
    """Make the error for what a library cannot read: which file, and what the library said.

    Raise it from `error`. `kind` is what such files are called; `file` may also have a row group or
    an offset.
    """
    if isinstance(error, PermissionError):
        return SourceDenied("no permission to read it", file=file, **context)
    problem = f"damaged or unreadable {kind}: {describe_exception(error)}"
    return make_unreadable_source_error(error, problem, file=file, hint=hint, **context)
