"""Whether datasets can be read as they are stored, and which of their rows were never written."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby

import h5py

from fieldslab.packer.sources.hdf5.dataset_storage import check_filters, describe_unwritten
from fieldslab.packer.sources.hdf5.hdf5_files import name_hdf5_errors
from fieldslab.packer.sources.hdf5.parts import Key, Part
from fieldslab.packer.sources.hdf5.read import OpenFiles
from fieldslab.packer.sources.hdf5.scan import Dataset

_MOST_WARNINGS = 10


def check_storage(parts: Sequence[Part], keys: Sequence[Key], rows_attr: str | None) -> list[str]:
    """Return warnings of rows that were never written.

    Raises SourceUnsupported for filters that are not installed.
    """
    warnings: list[str] = []
    for path, same_file in groupby(parts, key=lambda part: part.path):
        with closing(OpenFiles(path)) as opened:
            for part in same_file:
                warnings += _check_part(part, opened, keys, rows_attr)
                opened.close_datasets()
    if len(warnings) > _MOST_WARNINGS:
        more = f"and {len(warnings) - _MOST_WARNINGS} more datasets were not written whole"
        warnings = [*warnings[:_MOST_WARNINGS], more]
    return warnings


def _check_members(group: h5py.Group, dataset: Dataset) -> None:
    """Raise SourceUnsupported where a filter of a dataset of an encoded group is missing."""
    with name_hdf5_errors(dataset.file, dataset.name):
        for member in group.values():
            if isinstance(member, h5py.Dataset):
                check_filters(member.id, dataset)


def _check_part(
    part: Part, opened: OpenFiles, keys: Sequence[Key], rows_attr: str | None
) -> Iterator[str]:
    rows = part.count_rows(keys, rows_attr)
    for dataset_columns in part.group_columns(keys):
        if dataset_columns.dataset.encoding is not None:
            _check_members(opened.get_group(dataset_columns.dataset), dataset_columns.dataset)
            continue
        with name_hdf5_errors(dataset_columns.dataset.file, dataset_columns.dataset.name):
            dataset = opened.get_dataset(dataset_columns.dataset)
            check_filters(dataset, dataset_columns.dataset)
            if (text := describe_unwritten(dataset, dataset_columns.dataset, rows)) is not None:
                yield text
