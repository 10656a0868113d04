"""Which hierarchies of Zarr the user means: folders and zip archives, on disks and in stores."""

import os
from collections.abc import Mapping
from typing import Any

from fieldslab.packer.sources.local_file import LocalFile
from fieldslab.packer.sources.path_lookup import NoFiles, check_readable, find_matches
from fieldslab.packer.sources.remote_file import RemoteFile
from fieldslab.packer.sources.remote_lookup import (
    RemotePath,
    holds_object,
    is_remote_source,
    list_remote_files,
    split_url,
)
from fieldslab.packer.sources.zarr.trees import METADATA, DiskTree, StoreTree, Tree, ZipTree
from fieldslab.schemas.errors import FieldslabError, SourceUnreadable

_ZIP = ".zip"


def find_trees(path: str, storage_options: Mapping[str, Any] | None = None) -> list[Tree]:
    """Find what of a path, a URL or a glob is Zarr, sorted.

    Raises NoFiles where something else is meant, too, and for URLs what stores raise.
    """
    if is_remote_source(path):
        return find_remote_trees(split_url(path, storage_options))
    check_readable(path)
    paths = [path] if os.path.lexists(path) else sorted(find_matches(path))
    trees = []
    for each in paths:
        tree = _open_tree(each)
        if tree is None:
            raise _make_error(each)
        trees.append(tree)
    if not trees:
        raise _make_error(path)
    return trees


def find_remote_trees(remote: RemotePath) -> list[Tree]:
    """Find what of a URL or a glob is Zarr, sorted. Raises NoFiles, and what stores raise."""
    if remote.key.lower().endswith(_ZIP):
        files = list_remote_files(remote, (_ZIP,), "zip")
        trees: list[Tree] = [tree for file in files if (tree := _open_zip(file)) is not None]
    else:
        folders = _find_folders(remote) if remote.has_magic else [remote.root]
        remotes = [remote._replace(key=folder) for folder in folders]
        trees = [StoreTree(each) for each in remotes if remote.has_magic or is_zarr(each)]
    if not trees:
        raise _make_error(remote.place.store.locate(remote.key))
    return trees


def is_zarr(remote: RemotePath) -> bool:
    """Return whether a folder in a store is a group or an array. Raises what stores raise."""
    return remote.place.store.can_list and any(holds_object(remote, name) for name in METADATA)


def _find_folders(remote: RemotePath) -> list[str]:
    """Find the folders that match a glob and have metadata in them."""
    folders = set()
    for name in METADATA:
        try:
            files = list_remote_files(remote._replace(key=f"{remote.key}/{name}"), (), "Zarr")
        except NoFiles:
            continue
        folders |= {file.key.rpartition("/")[0] for file in files}
    return sorted(folders)


def _open_tree(path: str) -> Tree | None:
    if os.path.isdir(path):
        tree = DiskTree(path)
        return tree if any(map(tree.has, METADATA)) else None
    if not path.lower().endswith(_ZIP) or not os.path.isfile(path):
        return None
    return _open_zip(LocalFile.from_path(path))


def _open_zip(file: LocalFile | RemoteFile) -> Tree | None:
    tree = ZipTree(file)
    try:
        return tree if any(map(tree.has, METADATA)) else None
    except SourceUnreadable:
        return None
    except OSError as error:
        if isinstance(error, FieldslabError):  # of a store
            raise
        return None


def _make_error(path: str) -> NoFiles:
    return NoFiles(
        "no Zarr group or array", file=path, expected=f"one of {', '.join(METADATA)} in it"
    )
