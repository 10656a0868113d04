"""Attributes of an HDF5 object as values that JSON can hold. Nothing is ever unpickled."""

import base64
import json
import math
from typing import Any

import h5py
import numpy as np
from h5py import h5a

MOST_BYTES = 16 * 1024
"""An attribute whose JSON is longer is left out, and its type kept in its place."""

_REFERENCES = ("DIMENSION_LIST", "REFERENCE_LIST")
"""Lists of references, in types that are no references themselves."""


def read_attributes(item: Any) -> dict[str, Any]:
    """Read the attributes of a file, group or dataset, JSON-ready.

    Text stays text and numbers stay numbers; NaN and infinities become "NaN", "Infinity" and
    "-Infinity", complex numbers [real, imaginary], bytes that are no UTF-8 {"base64": ...}.
    References are left out: they mean nothing outside the file. Where a value is too long or
    cannot be read, {"left_out": why} stands in its place.
    """
    attributes: dict[str, Any] = {}
    for name in item.attrs if h5a.get_num_attrs(item.id) else ():
        try:
            kind = item.attrs.get_id(name).dtype
            if h5py.check_ref_dtype(kind) is not None or name in _REFERENCES:
                continue
            value = item.attrs[name]
            # An item of an array takes two bytes of JSON, or more.
            is_long = isinstance(value, np.ndarray) and 2 * value.size > MOST_BYTES
            value = None if is_long else make_json_ready(value)
        except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
            value, is_long = {"left_out": f"cannot be read: {error}"}, False
        if is_long or len(json.dumps(value)) > MOST_BYTES:
            shape = item.attrs.get_id(name).shape
            value = {"left_out": f"{kind}{list(shape or ())}"}
        attributes[clean_text(name)] = value
    return attributes


def clean_text(text: str) -> str:
    """Replace what UTF-8 cannot hold."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def make_json_ready(value: Any) -> Any:
    """Convert a value from h5py to JSON-ready values."""
    if isinstance(value, h5py.Empty):
        return None
    if isinstance(value, np.ndarray):
        return [make_json_ready(item) for item in value]
    if isinstance(value, np.void):
        if value.dtype.names is not None:
            return {clean_text(name): make_json_ready(value[name]) for name in value.dtype.names}
        return {"base64": base64.b64encode(value.tobytes()).decode()}
    if isinstance(value, bytes):
        return _decode_text(value)
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return str(value)
    if isinstance(value, np.generic):
        return (
            make_json_ready(value.item())
            if not isinstance(value.item(), np.generic)
            else str(value)
        )
    if isinstance(value, complex):
        return [make_json_ready(value.real), make_json_ready(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(type(value).__name__)


def _decode_text(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
