"""What MATLAB, netCDF and NeXus say about datasets in attributes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
from h5py import h5a

from fieldslab.packer.sources.hdf5.elements import Element, TypeRefusal
from fieldslab.packer.sources.hdf5.types import HDF5Column

MATLAB_CLASS = "MATLAB_class"
MATLAB_HIDDEN = ("#refs#", "#subsystem#")
"""Groups at the root in which MATLAB keeps what cells and objects refer to."""
DIMENSIONS = "dimensions"
"""The attribute of a field that names the axes of its dataset, that of rows first."""

_NUMBERS = (
    "double",
    "single",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
_LOGICAL = Element("flag", np.dtype("u1"), pa.uint8(), "logical of MATLAB", hint="bool")
_MATLAB_PROBLEMS = {
    "char": "text of MATLAB, stored as numbers of UTF-16 units",
    "cell": "a cell array of MATLAB, which refers to values of any type",
    "struct": "an array of structs of MATLAB, which refers to their values",
}
_PHANTOM = "This is a netCDF dimension but not a netCDF variable"


def read_text_attribute(item: Any, name: str) -> str | None:
    """Read a text attribute; None where there is none."""
    try:
        if not h5a.exists(item.id, name.encode()):  # ten times as fast as `get`
            return None
        value = item.attrs.get(name)
    except (OSError, RuntimeError, TypeError, ValueError, KeyError):
        return None
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else None


def convert_matlab_columns(
    dataset: h5py.Dataset, columns: tuple[HDF5Column, ...]
) -> tuple[HDF5Column, ...] | TypeRefusal:
    """Convert the columns of a dataset of MATLAB, or say why it cannot be packed."""
    kind = read_text_attribute(dataset, MATLAB_CLASS)
    if kind is None:
        return columns
    if "MATLAB_empty" in dataset.attrs:
        return TypeRefusal(f"an empty {kind} of MATLAB")
    if kind == "logical" and columns[0].element.dtype == np.uint8:
        return tuple(replace(column, element=_LOGICAL) for column in columns)
    if kind in _NUMBERS:
        return columns
    return TypeRefusal(_MATLAB_PROBLEMS.get(kind, f"a {kind} of MATLAB"))


def is_matlab_vector(dataset: h5py.Dataset) -> bool:
    """Return whether this is a column of N numbers, which MATLAB stores as 1 x N."""
    shape = dataset.shape
    return shape is not None and len(shape) == 2 and shape[0] == 1 and MATLAB_CLASS in dataset.attrs


def is_phantom(dataset: h5py.Dataset) -> bool:
    """Return whether this stands for the length of a dimension of netCDF, without values."""
    return (read_text_attribute(dataset, "NAME") or "").startswith(_PHANTOM)


def read_dimensions(dataset: h5py.Dataset) -> list[str]:
    """Read the names of the axes by their dimension scales, "" for those without; [] for none."""
    if "DIMENSION_LIST" not in dataset.attrs:
        return []
    try:
        scales = [axis[0].name if len(axis) else "" for axis in dataset.dims]
    except (OSError, RuntimeError, TypeError, ValueError, KeyError):
        return []
    return [str(name or "").rpartition("/")[2] for name in scales]


def read_signal_axes(attributes: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    """Read which dataset of a NeXus group is plotted, and the names of its axes."""
    signal, axes = attributes.get("signal"), attributes.get("axes")
    axes = axes.split(":") if isinstance(axes, str) else axes
    if attributes.get("NX_class") != "NXdata" or not isinstance(signal, str):
        return None
    if not isinstance(axes, list) or not all(isinstance(name, str) for name in axes):
        return None
    return signal, axes


def put_rows_first(values: Sequence[Any], axis: int) -> tuple[Any, ...]:
    """Put what belongs to the axis of rows in front."""
    return (values[axis], *(value for index, value in enumerate(values) if index != axis))
