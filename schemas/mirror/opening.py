"""Opening a slab through a mirror."""

import json
import os
from contextlib import suppress
from pathlib import Path

from fieldslab.schemas.errors import (
    DamagedManifest,
    ObjectNotFound,
    SlabNotFound,
)
from fieldslab.schemas.files import read_bytes
from fieldslab.schemas.folder import check_content, open_slab_files
from fieldslab.schemas.manifest import MANIFEST, Manifest, decode_manifest
from fieldslab.schemas.mirror.cache import CacheDirectory
from fieldslab.schemas.mirror.channel import Channel, Origin
from fieldslab.schemas.mirror.mirror import ATTEMPTS, Mirror
from fieldslab.schemas.mirror.mirrored_files import MirroredFiles
from fieldslab.schemas.mirror.names import PLACE, SIDE, name_cache_errors, refuse_link
from fieldslab.schemas.urls import hide_credentials


def open_mirror(origin: Origin, content: str | None = None) -> MirroredFiles:
    """Open a slab through its mirror; with `content`, its `id`, from the mirror alone if it can be.

    Raises what `open_place` raises, and SlabReplaced where the slab has another `id`.
    """
    cache = CacheDirectory(Path(origin.cache), shared=origin.shared, temporary=origin.temporary)
    channel = Channel(origin.place, origin.options)
    manifest, data = _load_known_manifest(origin, content) or _read_manifest(origin, channel)
    if content is not None:
        check_content(manifest, content, hide_credentials(origin.place))
    _keep_manifest(origin, manifest, data)
    return MirroredFiles(Mirror(origin, manifest, channel, cache), len(data))


def _load_known_manifest(origin: Origin, content: str | None) -> tuple[Manifest, bytes] | None:
    if content is not None:
        with suppress(OSError, DamagedManifest):
            data = (Path(origin.cache) / (content + SIDE) / MANIFEST).read_bytes()
            manifest = decode_manifest(data)
            if manifest.id == content:
                return manifest, data
    return None


def _read_manifest(origin: Origin, channel: Channel) -> tuple[Manifest, bytes]:
    """Read the manifest of a slab: from a server again if it is damaged, as on its way."""
    name = hide_credentials(origin.place).rstrip("/") + "/" + MANIFEST
    attempts = 1 if os.path.isabs(origin.place) else ATTEMPTS
    while True:
        data = _read_bytes(origin, channel)
        try:
            return decode_manifest(data, name), data
        except DamagedManifest:
            attempts -= 1
            if not attempts:
                raise


def _read_bytes(origin: Origin, channel: Channel) -> bytes:
    if os.path.isabs(origin.place):  # a directory needs no helper, and says best what is wrong
        with (
            open_slab_files(origin.place) as files,
            files.open_folder() as folder,
            folder.open_file(MANIFEST, DamagedManifest) as (fd, size),
        ):
            return bytes(read_bytes(fd, size, 0, folder.path / MANIFEST))
    try:
        return channel.read_manifest()
    except ObjectNotFound as error:
        raise SlabNotFound(
            "there is no manifest.json",
            file=hide_credentials(origin.place),
            hint="Check the URL: a slab is the folder that holds manifest.json.",
        ) from error


def _keep_manifest(origin: Origin, manifest: Manifest, data: bytes) -> None:
    """Write the manifest into the cache, beside the mirror."""
    side = Path(origin.cache) / (manifest.id + SIDE)
    path = side / MANIFEST
    refuse_link(side)
    with name_cache_errors(path):
        side.mkdir(exist_ok=True)
        place = json.dumps({"place": hide_credentials(origin.place)}).encode()
        for name, content in ((MANIFEST, data), (PLACE, place)):
            _write_whole(side / name, content)


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file, whole at any moment, unless it has this content."""
    with suppress(FileNotFoundError):
        if path.read_bytes() == content:
            return
    unfinished = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
    unfinished.write_bytes(content)
    unfinished.replace(path)
