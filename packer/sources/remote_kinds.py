"""Kinds of sources in stores that are told by more than a suffix: Zarr, and tables with a log."""

from fieldslab.packer.sources.path_lookup import NoFiles
from fieldslab.packer.sources.remote_lookup import RemotePath
from fieldslab.packer.sources.zarr.find_trees import find_remote_trees, is_zarr


def find_special_kind(remote: RemotePath) -> str | None:
    """Find the name of the sources that read a folder or an archive; None for all else.

    Raises what stores raise.
    """
    if remote.key.lower().endswith(".zip"):
        return "zarr" if _holds_zarr(remote) else None
    if remote.has_magic:
        return None
    return "zarr" if is_zarr(remote) else None


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
