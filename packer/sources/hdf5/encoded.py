"""Groups of AnnData that stand for one column or matrix: what they are, and their rows.

https://anndata.readthedocs.io/en/stable/fileformat-prose.html describes them.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import h5py
import numpy as np
import pyarrow as pa

from fieldslab.packer.sources.hdf5.arrow_columns import make_array
from fieldslab.packer.sources.hdf5.conventions import read_text_attribute
from fieldslab.packer.sources.hdf5.elements import (
    Element,
    TypeRefusal,
    TypeRules,
    UnsupportedType,
    describe_element,
)
from fieldslab.packer.sources.hdf5.types import HDF5Column
from fieldslab.packer.sources.nested_arrays import make_from_lengths
from fieldslab.schemas.fields import SPARSE_ATTRIBUTE
from fieldslab.schemas.optiontext import mark_option

Encoding = Literal["csr_matrix", "csc_matrix", "categorical", "nullable"]
NOT_ROWS = ("obsp", "uns", "var", "varm", "varp", "raw/var", "raw/varm")
"""Groups of AnnData that are not about the rows of `X`, or whose columns are rows."""

_BLOCK = 1 << 22
_OLD = TypeRefusal(
    "as anndata before 0.8 wrote it",
    "Write the file anew: anndata.read_h5ad(OLD).write_h5ad(NEW); or leave it out: "
    f"{mark_option('exclude', ['{}'])}.",
)


class EncodedGroup(NamedTuple):
    """A group that stands for columns of `rows` rows; see `Dataset`."""

    encoding: Encoding
    rows: int
    columns: tuple[HDF5Column, ...]
    attributes: dict[str, Any]
    row_bytes: int


class BadEncoding(ValueError):
    """A group that contradicts itself; `row` counts from the first that was read."""

    def __init__(self, problem: str, row: int | None = None, found: Any = None) -> None:
        super().__init__(problem)
        self.problem, self.row, self.found = problem, row, found


def describe_group(group: h5py.Group, rules: TypeRules) -> EncodedGroup | TypeRefusal | None:
    """Describe a group that is encoded as AnnData does; None for all others."""
    kind = read_text_attribute(group, "encoding-type") or ""
    if "h5sparse_format" in group.attrs or (group.name or "").endswith("/__categories"):
        return _OLD
    if kind == "awkward-array":
        return TypeRefusal("an awkward array, whose rows have no fixed type")
    describe: dict[str, Callable[[h5py.Group, TypeRules], EncodedGroup]] = {
        "csr_matrix": _describe_sparse,
        "csc_matrix": _describe_sparse,
        "categorical": _describe_categorical,
        "nullable-integer": _describe_nullable,
        "nullable-boolean": _describe_nullable,
        "nullable-string-array": _describe_nullable,
    }
    if kind not in describe:
        return None
    try:
        return describe[kind](group, rules)
    except UnsupportedType as refused:
        return refused.refusal
    except (KeyError, ValueError, TypeError) as error:
        return TypeRefusal(f"a damaged {kind}: {error}")


def _describe_sparse(group: h5py.Group, rules: TypeRules) -> EncodedGroup:
    kind: Any = read_text_attribute(group, "encoding-type")
    rows, columns = map(int, group.attrs["shape"])
    data, indices, ends = group["data"], group["indices"], group["indptr"]
    major = rows if kind == "csr_matrix" else columns
    if len(ends) != major + 1 or len(data) != len(indices) or data.ndim != 1:
        raise ValueError(f"{len(ends)} ends of {len(indices)} indices and {len(data)} values")
    members = []
    for member, dataset in ((b"indices", indices), (b"values", data)):
        element = describe_element(dataset.id.get_type(), rules)
        if element.form not in ("number", "flag"):
            raise ValueError(f"{element.why} as {member.decode()}")
        items = len(indices) / max(rows, 1)
        lists = replace(element, form="lists", type=pa.large_list(element.type), base=element.dtype)
        lists = replace(lists, why=f"{element.why} of a sparse matrix of {columns:,} columns")
        members.append(HDF5Column((member,), lists, items=items))
    row_bytes = sum(column.count_row_bytes(()) for column in members)
    attributes = {SPARSE_ATTRIBUTE: {"columns": columns}}
    return EncodedGroup(kind, rows, tuple(members), attributes, int(row_bytes) + 1)


def _describe_categorical(group: h5py.Group, rules: TypeRules) -> EncodedGroup:
    codes, categories = group["codes"], group["categories"]
    element = describe_element(categories.id.get_type(), rules)
    type_, why = element.type, f"categories of {element.why}"
    ordered = bool(group.attrs.get("ordered", False))
    if element.form in ("text", "texts"):
        type_ = pa.dictionary(pa.int32(), pa.large_string(), ordered)
    item = codes.dtype.itemsize
    column = HDF5Column((), replace(element, type=type_, why=why), items=1.0)
    attributes = {"ordered": True} if ordered else {}
    return EncodedGroup("categorical", len(codes), (column,), attributes, item)


def _describe_nullable(group: h5py.Group, rules: TypeRules) -> EncodedGroup:
    values, mask = group["values"], group["mask"]
    element = describe_element(values.id.get_type(), rules)
    if len(values) != len(mask):
        raise ValueError(f"{len(values)} values and {len(mask)} of its mask")
    column = HDF5Column((), replace(element, why=f"{element.why}, or null"), items=1.0)
    return EncodedGroup("nullable", len(values), (column,), {}, values.dtype.itemsize + 1)


def compute_var_digest(file: h5py.Group) -> str | None:
    """Compute a digest of the names of AnnData's variables, which columns of X stand for."""
    try:
        names = file["var"][file["var"].attrs["_index"]].asstr()[:]
    except (OSError, RuntimeError, KeyError, TypeError, AttributeError, ValueError):
        return None
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


@dataclass
class SparseWindow:
    """The rows `first` to `last` of a sparse matrix: row i is `[offsets[i] : offsets[i + 1]]`."""

    first: int
    last: int
    offsets: np.ndarray
    indices: np.ndarray
    values: np.ndarray


def read_sparse_rows(group: h5py.Group, columns: int, first: int, last: int) -> SparseWindow:
    """Read rows of a matrix in CSR. Raises BadEncoding."""
    ends = group["indptr"][first : last + 1].astype(np.int64)
    steps = np.diff(ends)
    if len(steps) and (steps.min() < 0 or ends[0] < 0 or ends[-1] > len(group["indices"])):
        row = int(np.argmax(steps < 0)) if steps.min() < 0 else 0
        raise BadEncoding("`indptr` does not ascend within the indices", row, int(ends[row]))
    start, stop = (int(ends[0]), int(ends[-1])) if len(ends) else (0, 0)
    indices = group["indices"][start:stop]
    window = SparseWindow(first, last, ends - start, indices, group["data"][start:stop])
    _check_indices(indices, columns, window.offsets)
    return window


def convert_sparse_columns(group: h5py.Group, first: int, last: int) -> SparseWindow:
    """Read rows of a matrix in CSC: all of it is read, and only these rows are kept.

    Raises BadEncoding.
    """
    ends = group["indptr"][:].astype(np.int64)
    rows_total = int(group.attrs["shape"][0])
    if ends[0] != 0 or np.diff(ends).min(initial=0) < 0 or ends[-1] != len(group["indices"]):
        raise BadEncoding("`indptr` does not ascend within the indices")
    pieces = list(_choose_entries(group, ends, rows_total, first, last))
    rows = np.concatenate([np.empty(0, np.int64), *(each[0] for each in pieces)])
    columns = np.concatenate([np.empty(0, group["indices"].dtype), *(each[1] for each in pieces)])
    values = np.concatenate([np.empty(0, group["data"].dtype), *(each[2] for each in pieces)])
    pieces.clear()
    order = np.argsort(rows, kind="stable")  # so that columns ascend within each row
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=last - first))])
    return SparseWindow(first, last, offsets, columns[order], values[order])


def _choose_entries(
    group: h5py.Group, ends: np.ndarray, rows_total: int, first: int, last: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield row from `first`, column and value of entries of these rows, column by column."""
    for start in range(0, int(ends[-1]), _BLOCK):
        stop = min(start + _BLOCK, int(ends[-1]))
        rows = group["indices"][start:stop]
        _check_indices(rows, rows_total)
        low, high = np.searchsorted(ends, [start, stop - 1], side="right") - 1
        counts = np.diff(np.clip(ends[low : high + 2], start, stop))
        columns = np.repeat(np.arange(low, high + 1), counts)
        inside = (rows >= first) & (rows < last)
        values = group["data"][start:stop][inside]
        yield (
            rows[inside].astype(np.int32 if last - first < 2**31 else np.int64) - first,
            columns[inside].astype(rows.dtype),
            values,
        )


def _check_indices(indices: np.ndarray, count: int, offsets: np.ndarray | None = None) -> None:
    """Raise BadEncoding for an index outside of the matrix."""
    if len(indices) and (indices.min() < 0 or indices.max() >= count):
        entry = int(np.argmax((indices < 0) | (indices >= count)))
        row = None if offsets is None else int(np.searchsorted(offsets, entry, side="right")) - 1
        raise BadEncoding("an index lies outside of the matrix", row, int(indices[entry]))


def make_sparse_array(column: HDF5Column, window: SparseWindow, start: int, stop: int) -> pa.Array:
    """Make the rows `start` to `stop` of one of the columns of a sparse matrix."""
    edges = window.offsets[start - window.first : stop - window.first + 1]
    values = window.indices if column.member == (b"indices",) else window.values
    values = values[edges[0] : edges[-1]]
    if values.dtype.kind == "b":
        values = values.view(np.uint8)
    stored = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return make_from_lengths(column.element.type, stored, np.diff(edges))


def read_categories(group: h5py.Group, element: Element) -> pa.Array:
    """Read the categories of a column."""
    if element.form in ("text", "texts"):
        return pa.array(group["categories"].asstr()[:], pa.large_string())
    return _make_plain(element, group["categories"][:])


def make_categorical_array(element: Element, codes: np.ndarray, categories: pa.Array) -> pa.Array:
    """Make a column of categories; codes below 0 are nulls. Raises BadEncoding."""
    codes = codes.astype(np.int64)
    wrong = (codes < -1) | (codes >= len(categories))
    if wrong.any():
        row = int(wrong.argmax())
        raise BadEncoding("a code has no category", row, int(codes[row]))
    indices = pa.array(codes, pa.int32(), mask=codes < 0)
    if not pa.types.is_dictionary(element.type):
        return categories.take(indices)
    return pa.DictionaryArray.from_arrays(indices, categories, ordered=element.type.ordered)


def make_nullable_array(element: Element, values: np.ndarray, mask: np.ndarray) -> pa.Array:
    """Make a column with nulls where the mask is True."""
    if element.form in ("text", "texts"):
        return pa.array(values, pa.large_string(), mask=mask)
    return (
        _make_plain(element, values)
        .filter(pa.array(~mask))
        .take(pa.array(np.cumsum(~mask) - 1, mask=mask))
    )


def _make_plain(element: Element, values: np.ndarray) -> pa.Array:
    values = values.view(np.uint8) if values.dtype.kind == "b" else values
    return make_array(HDF5Column((), element), values, ())
