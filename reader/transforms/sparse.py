"""Rows of sparse matrices: as dense arrays, and as matrices of scipy and torch."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fieldslab.reader.batch import Batch, Values, make_unknown_field_error
from fieldslab.reader.buffers import Allocator
from fieldslab.reader.transforms.transform import FRESH, Transform, convert_dtype
from fieldslab.reader.var_len import Ragged
from fieldslab.schemas.errors import DamagedArray, MissingLibrary, UsageError
from fieldslab.schemas.fields import SPARSE_ATTRIBUTE, Field

if TYPE_CHECKING:
    import scipy.sparse  # type: ignore[import-untyped,unused-ignore]
    import torch


class SparseRows(NamedTuple):
    """Rows of a sparse matrix in CSR: those of a batch, whose memory they share.

    Row i has `values[offsets[i]:offsets[i + 1]]` in the columns `indices[...]` of the same places.

    Attributes
    ----------
    values, indices
        (elements,), arrays or tensors.
    offsets
        int64[rows + 1].
    columns
        Columns of the matrix.
    """

    values: Any
    indices: Any
    offsets: Any
    columns: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.offsets) - 1, self.columns

    def to_scipy(self) -> "scipy.sparse.csr_array":
        """Return them as a matrix of scipy, without a copy of values. Raises MissingLibrary."""
        try:
            from scipy.sparse import csr_array
        except ImportError as error:
            raise MissingLibrary("`to_scipy` needs scipy", hint="pip install scipy") from error
        arrays = [np.asarray(each) for each in (self.values, self.indices, self.offsets)]
        return csr_array(tuple(arrays), shape=self.shape)

    def to_torch(self) -> "torch.Tensor":
        """Return them as a tensor of layout `torch.sparse_csr`. Raises MissingLibrary."""
        try:
            import torch
        except ImportError as error:
            raise MissingLibrary("`to_torch` needs torch", hint="pip install torch") from error
        offsets, indices, values = map(torch.as_tensor, (self.offsets, self.indices, self.values))
        return torch.sparse_csr_tensor(
            offsets, indices.to(torch.int64), values, self.shape, check_invariants=False
        )


def view_sparse(
    batch: Mapping[str, Any],
    field: str,
    fields: Mapping[str, Field] | None = None,
    *,
    columns: int | None = None,
) -> SparseRows:
    """View the rows of a sparse matrix in a batch of arrays or tensors.

    Matrices come from AnnData, and from structs or columns of two lists, as in Parquet.

    Parameters
    ----------
    field
        Name of the matrix: the batch has `FIELD.indices` and `FIELD.values`.
    fields
        `slab.fields`, which know how many columns a matrix of AnnData has.
    columns
        How many columns it has, where the slab does not say it.

    Raises UnknownField, UsageError where the fields are no sparse matrix or the number of columns
    is unknown, and DamagedArray for a row with more indices than values, or fewer.
    """
    indices, values = _get_pair(batch, field)
    count = _count(field, fields or {}) if columns is None else columns
    return SparseRows(values.values, indices.values, indices.offsets, count)


class Dense(Transform):
    """The rows of a sparse matrix as dense arrays (rows, columns).

    `Dense("X")` makes the field X of `X.indices` and `X.values`. Values of the same place are
    added up, as scipy does.

    Parameters
    ----------
    field
        Name of the matrix.
    columns
        How many columns it has. Default: what the slab says, once a `Loader` has this transform.
    dtype
        Dtype of the result. Default: that of the values.
    """

    def __init__(self, field: str, columns: int | None = None, dtype: Any = None) -> None:
        self.field = field
        self.columns = columns
        self.dtype = None if dtype is None else convert_dtype(dtype)
        self._columns = columns

    def __call__(self, batch: Batch, memory: Allocator = FRESH) -> dict[str, Values]:
        """See `Transform`. Raises DamagedArray for unequal lists, or an index too high."""
        if self._columns is None:
            raise UsageError("Dense: give `columns`, or use it in a Loader", field=self.field)
        indices, values = _get_pair(batch, self.field)
        if not isinstance(indices, Ragged) or not isinstance(values, Ragged):
            raise UsageError("Dense: not a sparse matrix", field=self.field)
        places, lengths = indices.values, indices.lengths
        if len(places) and not 0 <= int(places.min()) <= int(places.max()) < self._columns:
            raise DamagedArray(
                "an index lies outside of the matrix",
                field=self.field,
                expected=f"0..{self._columns - 1}",
                found=f"{places.min()}..{places.max()}",
            )
        dtype = self.dtype or values.values.dtype
        out = memory.allocate_array(self.field, (len(lengths), self._columns), dtype)
        out.fill(0)
        firsts = np.arange(len(lengths), dtype=np.int64) * self._columns
        np.add.at(
            out.reshape(-1),
            np.repeat(firsts, lengths) + places.astype(np.int64),
            values.values.astype(dtype, copy=False),
        )
        return {self.field: out}

    def check(self, fields: dict[str, Field | None]) -> None:
        """See `Transform`."""
        for name in _name_members(self.field):
            if name not in fields:
                raise make_unknown_field_error(name, fields)
            field = fields[name]
            if field is not None and (field.kind != "ragged" or field.shape):
                raise UsageError("Dense: not a sparse matrix", field=name, found=field.describe())
        self._columns = self.columns or _count(self.field, fields)
        fields[self.field] = None


def _name_members(field: str) -> tuple[str, str]:
    return f"{field}.indices", f"{field}.values"


def _get_pair(batch: Mapping[str, Any], field: str) -> tuple[Any, Any]:
    """Get the indices and values of a matrix, as many of each in every row."""
    for name in _name_members(field):
        if name not in batch:
            raise make_unknown_field_error(name, batch)
    indices, values = (batch[name] for name in _name_members(field))
    if not all(hasattr(each, "offsets") for each in (indices, values)):
        raise UsageError("not a sparse matrix: indices and values are lists", field=field)
    if bool((indices.offsets != values.offsets).any()):
        counts = [np.diff(each.offsets.tolist()) for each in (indices, values)]
        place = int(np.argmax(counts[0] != counts[1]))
        rows = getattr(batch, "rows", None)
        raise DamagedArray(
            "indices and values differ in number",
            field=field,
            row=place if rows is None else int(rows[place]),
            expected=f"{counts[0][place]} values, one for each index",
            found=int(counts[1][place]),
            hint="Leave the row out, or correct the source and pack it again.",
        )
    return indices, values


def _count(field: str, fields: Mapping[str, Field | None]) -> int:
    """Count the columns of a sparse matrix by what the slab says of its fields."""
    stored = fields.get(f"{field}.indices")
    sparse = None if stored is None else stored.attributes.get(SPARSE_ATTRIBUTE)
    columns = sparse.get("columns") if isinstance(sparse, dict) else None
    if type(columns) is not int or columns < 0:
        hint = "Write how many: Dense(field, columns=n), view_sparse(..., columns=n)."
        raise UsageError("the slab does not say how many columns this has", field=field, hint=hint)
    return columns
