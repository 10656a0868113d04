"""Reads rows of datasets; files stay open between windows, and so do their chunk caches."""

import os
from contextlib import ExitStack
from typing import NamedTuple

import h5py
import numpy as np
import pyarrow as pa
from h5py import h5d, h5s, h5t

from fieldslab.packer.sources.hdf5.arrow_columns import make_array
from fieldslab.packer.sources.hdf5.dataset_storage import open_dataset
from fieldslab.packer.sources.hdf5.encoded import (
    BadEncoding,
    SparseWindow,
    convert_sparse_columns,
    make_categorical_array,
    make_nullable_array,
    make_sparse_array,
    read_categories,
    read_sparse_rows,
)
from fieldslab.packer.sources.hdf5.hdf5_files import name_hdf5_errors, open_file
from fieldslab.packer.sources.hdf5.scan import Dataset
from fieldslab.packer.sources.hdf5.types import HDF5Column, Member, make_layout
from fieldslab.packer.sources.nested_arrays import BadValue
from fieldslab.schemas.errors import SourceInconsistent
from fieldslab.schemas.fields import SPARSE_ATTRIBUTE

_Layout = tuple[h5t.TypeID, np.dtype]


class DatasetColumns(NamedTuple):
    """A dataset, and which of its columns are read."""

    dataset: Dataset
    columns: tuple[HDF5Column, ...]


class OpenFiles:
    """What is open, in this process, of the file `path` of a source and files that it links to."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._process = os.getpid()
        self._files: dict[str, h5py.File] = {}
        self._datasets: dict[tuple[str, bytes], h5d.DatasetID] = {}
        self._categories: dict[tuple[str, bytes], pa.Array] = {}
        self._sparse: dict[tuple[str, bytes], SparseWindow] = {}
        self.window: tuple[int, int] | None = None
        """Rows that are read one batch after the other."""
        self._layouts: dict[tuple[str, bytes, tuple[Member, ...]], _Layout] = {}
        self._stack = ExitStack()

    @property
    def usable(self) -> bool:
        """Whether these were opened in this process: the library does not survive a fork."""
        return self._process == os.getpid()

    def get_dataset(self, dataset: Dataset) -> h5d.DatasetID:
        """Return the open dataset. Raises SourceUnreadable."""
        key = dataset.file, dataset.place
        if key not in self._datasets:
            file = self._get_file(dataset)
            with name_hdf5_errors(dataset.file, dataset.name):
                self._datasets[key] = open_dataset(file, dataset)
        return self._datasets[key]

    def get_group(self, dataset: Dataset) -> h5py.Group:
        """Return the open group that stands for a dataset."""
        return self._get_file(dataset)[dataset.place]

    def read_sparse(self, dataset: Dataset, start: int, stop: int) -> SparseWindow:
        """Read rows of a sparse matrix; those of CSC are converted a window at a time."""
        group, columns = self.get_group(dataset), dataset.attributes[SPARSE_ATTRIBUTE]["columns"]
        if dataset.encoding == "csr_matrix":
            return read_sparse_rows(group, columns, start, stop)
        key = dataset.file, dataset.place
        window = self._sparse.get(key)
        if window is None or not window.first <= start <= stop <= window.last:
            first, last = self.window or (start, stop)
            self._sparse.pop(key, None)
            window = self._sparse[key] = convert_sparse_columns(
                group, min(first, start), max(last, stop)
            )
        return window

    def read_categories(self, dataset: Dataset) -> pa.Array:
        """Read the categories of a column, once."""
        key = dataset.file, dataset.place
        if key not in self._categories:
            element = dataset.columns[0].element
            self._categories[key] = read_categories(self.get_group(dataset), element)
        return self._categories[key]

    def _get_file(self, dataset: Dataset) -> h5py.File:
        if dataset.file not in self._files:
            self._files[dataset.file] = self._stack.enter_context(open_file(dataset.file))
        return self._files[dataset.file]

    def find_layout(self, dataset_columns: DatasetColumns) -> _Layout:
        """Find the type to read these columns in, and the dtype that it fills."""
        members = tuple(column.member for column in dataset_columns.columns)
        key = dataset_columns.dataset.file, dataset_columns.dataset.place, members
        if key not in self._layouts:
            kind = self.get_dataset(dataset_columns.dataset).get_type()
            self._layouts[key] = make_layout(kind, members)
        return self._layouts[key]

    def close_datasets(self) -> None:
        """Close all datasets, and free their chunk caches."""
        self._datasets.clear()
        self._layouts.clear()
        self._categories.clear()
        self._sparse.clear()

    def close(self) -> None:
        """Close everything."""
        self.close_datasets()
        self._files.clear()
        self._stack.close()


def read_columns(
    opened: OpenFiles, dataset_columns: DatasetColumns, start: int, stop: int
) -> list[pa.Array]:
    """Read the rows `start` to `stop` of columns of one dataset.

    Raises
    ------
    SourceUnreadable
        The file is damaged.
    SourceInconsistent
        A value that its type does not admit.
    """
    dataset = dataset_columns.dataset
    rows = f"{start}..{stop - 1}"
    with name_hdf5_errors(dataset.file, dataset.name, rows):
        try:
            if dataset.encoding is not None:
                return _read_encoded(opened, dataset_columns, start, stop)
            read = _read_values(opened, dataset_columns, start, stop)
            return [
                make_array(column, read, dataset.row_shape) for column in dataset_columns.columns
            ]
        except BadEncoding as error:
            raise SourceInconsistent(
                error.problem,
                file=dataset.file,
                field=dataset.name,
                row=None if error.row is None else start + error.row,
                found=error.found,
                hint="Write or download the file again.",
            ) from error
        except BadValue as error:
            raise SourceInconsistent(
                error.problem,
                file=dataset.file,
                field=dataset.name,
                row=start + error.row,
                expected="0 or 1",
                found=error.found,
            ) from error


def _read_values(
    opened: OpenFiles, dataset_columns: DatasetColumns, start: int, stop: int
) -> np.ndarray:
    dataset, source = dataset_columns.dataset, opened.get_dataset(dataset_columns.dataset)
    kind, dtype = opened.find_layout(dataset_columns)
    place = source.get_space()
    shape, first = list(place.shape), [0] * len(place.shape)
    shape[dataset.axis], first[dataset.axis] = stop - start, start
    values = np.empty(shape, dtype)
    if values.size:
        place.select_hyperslab(tuple(first), tuple(shape))
        source.read(h5s.create_simple(tuple(shape)), place, values, kind)
    return np.ascontiguousarray(np.moveaxis(values, dataset.axis, 0)) if dataset.axis else values


def _read_encoded(
    opened: OpenFiles, dataset_columns: DatasetColumns, start: int, stop: int
) -> list[pa.Array]:
    """Read rows of a group that stands for a dataset. Raises BadEncoding."""
    dataset = dataset_columns.dataset
    if dataset.encoding in ("csr_matrix", "csc_matrix"):
        window = opened.read_sparse(dataset, start, stop)
        return [
            make_sparse_array(column, window, start, stop) for column in dataset_columns.columns
        ]
    group, element = opened.get_group(dataset), dataset_columns.columns[0].element
    if dataset.encoding == "categorical":
        categories = opened.read_categories(dataset)
        return [make_categorical_array(element, group["codes"][start:stop], categories)]
    values = group["values"]
    values = values.asstr() if element.form in ("text", "texts") else values
    return [make_nullable_array(element, values[start:stop], group["mask"][start:stop])]
