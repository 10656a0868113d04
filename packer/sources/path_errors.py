"""The error for a path or URL at which there is nothing that can be packed."""

import os

from fieldslab.packer.sources.path_lookup import check_readable, find_matches
from fieldslab.schemas.errors import SourceNotFound, SourceUnreadable
from fieldslab.schemas.manifest import MANIFEST
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.urls import hide_credentials, is_url, restore_url


def make_path_error(path: str) -> SourceUnreadable:
    """Make the error for a path that no source accepts. Raises SourceUnreadable if it is closed."""
    check_readable(path)
    if os.path.isfile(os.path.join(path, MANIFEST)):
        return SourceUnreadable(
            "is a slab already",
            file=path,
            hint="Pack its source instead; `fieldslab info` shows it.",
        )
    if is_url(path):
        return SourceNotFound(
            "there is nothing at this URL that fieldslab can pack",
            file=hide_credentials(restore_url(path)),
            expected="Parquet, Arrow IPC, ORC, CSV, JSON lines, numpy, WebDataset or image files, "
            "a folder of them, or Zarr",
            hint=f"Check the URL; {mark_option('from_')} names the kind of source.",
        )
    if not os.path.exists(path) and not any(map(os.path.exists, find_matches(path))):
        hint = "Check the path."
        return SourceNotFound("no such file or directory", file=path, hint=hint)
    return SourceUnreadable(
        "there is nothing at this path that fieldslab can pack",
        file=path,
        expected="Parquet, Arrow IPC, CSV, JSON lines, HDF5, numpy or image files, WebDataset "
        "tars, a directory of them, Zarr, or a LitData stream",
        hint=f"Check the path; {mark_option('from_')} names the kind of source. From Python, "
        "`pack` also takes what Arrow can read: a table, a dataset, a stream of record batches.",
    )
