"""Whose objects lie at the place of a slab in a store, and who publishes it."""

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from fieldslab.schemas.errors import ObjectNotFound, OutputDenied, OutputError, OutputExists
from fieldslab.schemas.manifest import MANIFEST, Manifest
from fieldslab.schemas.stores.slab_objects import read_manifest
from fieldslab.schemas.stores.store import Store

MARKER = ".copying.json"
"""Object that says which slab is copied or packed to a store, until its manifest is there."""


def check_writable(store: Store) -> None:
    """Raise OutputDenied for a store that can only be read."""
    if not store.can_write:
        raise OutputDenied(
            "web servers and the Hugging Face Hub can only be read",
            file=store.url,
            hint="Write to a bucket or a directory.",
        )


def take_place(store: Store, owner: Mapping[str, Any], keys: Collection[str]) -> bool:
    """Leave the marker of an owner in a store that holds these keys, or find that it is there.

    Returns False where somebody has published a slab meanwhile: look again.

    Raises
    ------
    OutputExists
        There is something of somebody else.
    OutputError
        The store replaces objects that it was told not to replace, or cannot write.
    """
    if keys and MARKER not in keys:
        raise OutputExists(
            "holds other objects, and no slab",
            file=store.url,
            found=", ".join(sorted(keys)[:3]),
            hint="Choose another destination, or delete them first.",
        )
    marker = json.dumps(owner).encode()
    with suppress(OutputExists):
        store.write(MARKER, marker, if_absent=True)
        # Some stores do not know `If-None-Match`, and pass over it.
        store.write(MARKER, marker, if_absent=True)
        store.delete(MARKER)
        raise OutputError(
            "the store has no conditional writes: two programs could write one slab at once",
            file=store.url,
            hint="Pack or copy to a directory, and from there to the store by its own tools.",
        )
    try:
        found_marker = bytes(store.read(MARKER))
    except ObjectNotFound:
        return False
    if found_marker != marker:
        raise OutputExists(
            "another slab is being copied or packed there, or that was cut off",
            file=store.locate(MARKER),
            hint="Choose another destination, or delete what is there first. A slab that was begun "
            "with other options or versions of libraries counts as another one.",
        )
    return True


def publish_manifest(store: Store, encoded: bytes, content: str) -> None:
    """Write a manifest if nobody else has; the same slab of somebody else is as good.

    `content` is the id of the slab. Raises OutputExists for another slab.
    """
    try:
        store.write(MANIFEST, encoded, if_absent=True)
    except OutputExists:
        published = find_manifest(store)
        if published is None or published.id != content:
            raise


def find_manifest(store: Store) -> Manifest | None:
    """Read the manifest of the slab in a store; None where there is none.

    Raises DamagedManifest and UnsupportedVersion, and what stores raise.
    """
    try:
        return read_manifest(store)[0]
    except ObjectNotFound:
        return None
