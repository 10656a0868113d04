"""What a dataset reads from other files: virtual datasets and external raw storage.

The library reads parts whose file is missing as fill values, without a word; so every file is
looked for before anything is read.
"""

import os
from math import prod
from typing import Any

import h5py
from h5py import h5d, h5s

from fieldslab.packer.sources.hdf5.elements import TypeRefusal
from fieldslab.packer.sources.hdf5.hdf5_files import open_file
from fieldslab.schemas.errors import SourceUnreadable
from fieldslab.schemas.optiontext import mark_option

_MOST_DEPTH = 8
_PREFIXES = ("HDF5_VDS_PREFIX", "HDF5_EXTFILE_PREFIX")

NOT_ADMITTED = (
    f"{mark_option('external', True)} admits it where every file is there; "
    f"{mark_option('exclude', ['{}'])} leaves it out."
)


class OutsideDataMissing(Exception):
    """Something outside is missing, or not as large as it should be."""


def find_outside_files(
    dataset: h5py.Dataset, path: str, external: bool
) -> tuple[str, ...] | TypeRefusal:
    """Find the other files that a dataset of the file `path` reads, or why it is refused."""
    if dataset.id.get_create_plist().get_layout() == h5d.VIRTUAL:
        what = "a virtual dataset reads other datasets and files"
    elif dataset.id.get_create_plist().get_external_count():
        what = "external raw storage reads any file of this machine"
    else:
        return ()
    if not external:
        return TypeRefusal(what, NOT_ADMITTED)
    files: set[str] = set()
    try:
        _collect_files(dataset, path, files, _MOST_DEPTH)
    except OutsideDataMissing as error:
        hint = f"Restore the file; {mark_option('exclude', ['{}'])} leaves the column out."
        return TypeRefusal(str(error), hint)
    return tuple(sorted(files - {path}))


def resolve_path(path: str, name: str) -> str:
    """Return the file that `name` stands for in the file `path`: beside it, unless absolute."""
    return os.path.join(os.path.dirname(path), name)


def _collect_files(dataset: h5py.Dataset, path: str, files: set[str], depth: int) -> None:
    """Collect the files below a dataset. Raises OutsideDataMissing."""
    for variable in _PREFIXES:
        if os.environ.get(variable):
            raise OutsideDataMissing(
                f"{variable} is set, so HDF5 could read other files than those that were checked"
            )
    if not depth:
        raise OutsideDataMissing("virtual datasets are nested too deeply")
    properties = dataset.id.get_create_plist()
    if properties.get_layout() == h5d.VIRTUAL:
        _collect_virtual_files(dataset, path, files, depth)
    total = 0
    for number in range(properties.get_external_count()):
        name, offset, size = properties.get_external(number)
        file = resolve_path(path, os.fsdecode(name))
        needed = dataset.nbytes - total if size == h5s.UNLIMITED else size
        if not os.path.isfile(file):
            raise OutsideDataMissing(f"its raw file {file} is missing")
        if os.path.getsize(file) < offset + needed:
            raise OutsideDataMissing(f"its raw file {file} is shorter than {offset + needed} bytes")
        total += needed
        files.add(file)
    if properties.get_external_count() and total < dataset.nbytes:
        raise OutsideDataMissing(f"its raw files hold {total} bytes instead of {dataset.nbytes}")


def _collect_virtual_files(dataset: h5py.Dataset, path: str, files: set[str], depth: int) -> None:
    covered = 0
    for part in dataset.virtual_sources():
        if "%" in (part.file_name + part.dset_name).replace("%%", ""):
            raise OutsideDataMissing(
                "its source files are numbered by a pattern, which cannot be checked"
            )
        points = part.vspace.get_select_npoints()
        if not 0 <= points <= prod(dataset.shape):
            raise OutsideDataMissing("its parts have no fixed size")
        file = (
            path if part.file_name == "." else resolve_path(path, part.file_name.replace("%%", "%"))
        )
        _collect_part_files(part, points, file, files, depth)
        covered += points
    if covered < prod(dataset.shape):
        raise OutsideDataMissing(f"its parts cover {covered} of {prod(dataset.shape)} elements")


def _collect_part_files(part: Any, points: int, file: str, files: set[str], depth: int) -> None:
    """Look for the dataset behind a part of a virtual one, and at its extent."""
    if not os.path.isfile(file):
        raise OutsideDataMissing(f"its source file {file} is missing")
    files.add(file)
    name = part.dset_name.replace("%%", "%")
    try:
        with open_file(file) as opened:
            source = opened.get(name)
            if not isinstance(source, h5py.Dataset):
                raise OutsideDataMissing(f"its source file {file} has no dataset {name}")
            if part.src_space.get_select_type() == h5s.SEL_ALL:
                fits = prod(source.shape) >= points
            else:
                last = part.src_space.get_select_bounds()[1]
                fits = len(last) == len(source.shape) and all(
                    bound < length for bound, length in zip(last, source.shape, strict=True)
                )
            if not fits:
                raise OutsideDataMissing(
                    f"{name} in {file} is too small: its shape is {source.shape}"
                )
            _collect_files(source, file, files, depth - 1)
    except SourceUnreadable as error:
        raise OutsideDataMissing(
            f"its source file {file} cannot be read: {error.problem}"
        ) from error
