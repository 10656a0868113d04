"""The VALUE of `--nulls COLUMN=VALUE`, in the form in which its field stores it."""

import json
import uuid
from datetime import time
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.convert.casts import cast_elements
from fieldslab.packer.convert.misfit import Misfit
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field, Logical
from fieldslab.schemas.optiontext import mark_option

KEPT = ("error", "mask")
"""What `--nulls` may say beside a value."""

Filler = np.ndarray | np.generic | str
"""Numbers that broadcast over a row; text for text, binary, image and categorical fields."""


def parse_filler(field: Field, text: str, column: str, asked_by: str = "nulls") -> Filler | None:
    """Parse the value that replaces a null, or pads; None for 'error' and 'mask'.

    Raises UsageError where the value does not fit the field.
    """
    if text in KEPT:
        return None
    if field.kind not in ("fixed", "ragged"):
        if field.logical is not None and field.logical.type == "json" and not _is_json(text):
            raise _make_misfit_error(asked_by, field, text, column, "it is not JSON")
        return text
    try:
        return _parse_number(field, text)
    except UsageError:
        raise
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise _make_misfit_error(asked_by, field, text, column, str(error)) from error


def _parse_number(field: Field, text: str) -> np.ndarray | np.generic:
    logical = field.logical or Logical("enum")
    if logical.type == "uuid":
        return np.frombuffer(uuid.UUID(text).bytes, np.uint8)
    if logical.type == "bytes":
        data = np.frombuffer(text.encode(), np.uint8)
        if len(data) != field.shape[-1]:
            raise Misfit(f"{len(data)} bytes, not {field.shape[-1]}")
        return data
    if field.dtype.startswith("complex"):
        return np.dtype(field.dtype).type(complex(text))
    value = pa.array([text])
    if logical.type == "bfloat16":
        return cast_elements(value, "bfloat16")[0]
    if not text.lstrip("-").isdigit():
        if logical.type in ("timestamp", "date"):
            value = value.cast(_find_temporal_type(logical))
        elif logical.type == "time":
            kind = pa.time32 if field.dtype == "int32" else pa.time64
            value = pa.array([time.fromisoformat(text)], kind(logical.unit))
    return cast_elements(value, field.dtype)[0]


def _find_temporal_type(logical: Logical) -> Any:
    if logical.type == "timestamp":
        return pa.timestamp(logical.unit, logical.timezone)
    return pa.date32() if logical.unit == "D" else pa.date64()


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=lambda name: float(f"{name} is not JSON"))
    except (ValueError, RecursionError):
        return False
    return True


def _make_misfit_error(
    asked_by: str, field: Field, text: str, column: str, reason: str
) -> UsageError:
    stored: str = field.dtype if field.kind in ("fixed", "ragged") else field.kind
    if field.logical is not None:
        stored = f"{field.logical.type} ({stored})"
    return UsageError(
        f"{mark_option(asked_by)}: the value does not fit the column: {reason.rstrip('.')}",
        field=column,
        expected=stored,
        found=text,
    )
