"""The output that a path or URL names."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fieldslab.packer.outputs.commit import Staging
from fieldslab.packer.outputs.directory_check import check_output
from fieldslab.packer.outputs.slab_output import SlabOutput
from fieldslab.packer.outputs.store_output import StoreOutput
from fieldslab.packer.write.result import count_bytes
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.folder import check_slab_path
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.slab_objects import is_remote
from fieldslab.schemas.urls import restore_url


class DirectoryOutput(SlabOutput):
    """A directory: the slab is built beside it, and put in its place by one rename."""

    def __init__(self, path: Path) -> None:
        self.path = self.directory = path

    def check(self, *, force: bool) -> None:
        """Raise OutputExists where a pack would destroy something; see `SlabOutput.check`."""
        check_output(self.path, force=force)

    def build(
        self, plan: str, versions: Mapping[str, str], *, force: bool = False, resumable: bool = True
    ) -> Staging:
        """Build a slab beside the directory."""
        return Staging(self.path, plan, versions, force=force, resumable=resumable)

    def count_bytes(self) -> int:
        """Count the bytes of all files."""
        return count_bytes(self.path)


def refuse_idle_options(storage_options: Mapping[str, Any] | None, *places: object) -> None:
    """Raise UsageError for `storage_options` where no place, or place in a list, is a URL."""
    items = [item for place in places for item in (place if isinstance(place, list) else [place])]
    if storage_options and not any(map(is_remote, items)):
        raise UsageError(
            f"{mark_option('storage_options')} are for URLs, and neither the source nor the output "
            "is one",
            found=", ".join(storage_options),
        )


def find_output(
    out: object,
    storage_options: Mapping[str, Any] | None = None,
    scratch: str | os.PathLike[str] | None = None,
) -> SlabOutput:
    """Find the output that a caller names.

    Parameters
    ----------
    out
        A path, or the URL of a folder in a bucket.
    storage_options
        For URLs: see `fieldslab.schemas.stores.store.open_store`.
    scratch
        For URLs: the directory in which shards are packed before they are uploaded.

    Raises
    ------
    UsageError
        No slab can be at such a place, or `scratch` does not go with it.
    """
    if is_remote(out):
        return StoreOutput(restore_url(out), storage_options, scratch)
    if scratch is not None:
        raise UsageError(
            f"{mark_option('scratch')} is for outputs at a URL: to a directory, shards are packed "
            "beside it",
            file=out,
        )
    return DirectoryOutput(check_slab_path(out))
