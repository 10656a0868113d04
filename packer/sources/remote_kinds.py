"""Kinds of sources in stores that are told by more than a suffix: Zarr, and tables with a log."""

from fieldslab.packer.sources.path_lookup import NoFiles
from fieldslab.packer.sources.remote_lookup import RemotePath
from fieldslab.packer.sources.versioned.table_logs import find_remote_log
from fieldslab.packer.sources.zarr.find_trees import find_remote_trees, is_zarr

KINDS_OF_TABLES = ("delta", "lance")
"""Names of sources whose tables are read from stores."""


def find_special_kind(remote: RemotePath) -> str | None:
    """Find the name of the sources that read a folder or an archive; None for all else.

    Raises what stores raise.
    """
    if remote.key.lower().endswith(".zip"):
        return "zarr" if _holds_zarr(remote) else None
    if remote.has_magic:
        return None
    if is_zarr(remote):
        return "zarr"
    log = find_remote_log(remote)
    return None if log is None or log.name not in KINDS_OF_TABLES else log.name


def find_kind_of_folders(remote: RemotePath) -> str | None:
    """Find the name of the sources that read the folders that a glob matches.

    Raises what stores raise.
    """
    return "zarr" if remote.has_magic and _holds_zarr(remote) else None


def _holds_zarr(remote: RemotePath) -> bool:
    try:
        return bool(find_remote_trees(remote))
    except NoFiles:
        return False
