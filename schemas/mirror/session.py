"""A slab that the helper process fetches, and its mirror."""

from pathlib import Path

import numpy as np

from fieldslab.schemas.errors import DamagedManifest, SlabChanged
from fieldslab.schemas.manifest import decode_manifest
from fieldslab.schemas.mirror.blockmap import BlockMap
from fieldslab.schemas.mirror.cache import CacheDirectory
from fieldslab.schemas.mirror.fetching import Fetcher
from fieldslab.schemas.mirror.finishing import publish_manifest
from fieldslab.schemas.mirror.messages import Attach, Fetch
from fieldslab.schemas.mirror.remote_slab import RemoteSlab
from fieldslab.schemas.mirror.room import MirrorFiles, Room
from fieldslab.schemas.stores.slab_objects import read_manifest
from fieldslab.schemas.stores.store import Store


class Session:
    """A slab that is read, as long as somebody does.

    Attributes
    ----------
    changed
        Whether blocks were asked for since `finish`.
    """

    def __init__(self, store: Store, content: bytes, request: Attach) -> None:
        """Open the mirror; `content` is the manifest as it came.

        Raises SlabChanged where it is of another slab, what a cache directory raises, and where
        the manifest is damaged, what `read_manifest` raises.
        """
        try:
            manifest = decode_manifest(content)
        except DamagedManifest:
            manifest, _ = read_manifest(store)
        if manifest.id != request.content:
            raise SlabChanged(
                "another slab is there since it was opened",
                file=store.url,
                expected=request.content,
                found=manifest.id,
                hint="Open it again.",
            )
        self.changed = False
        self._slab = RemoteSlab(store, manifest)
        self._cache = CacheDirectory(
            Path(request.cache), shared=request.shared, temporary=request.temporary
        )
        self._files = MirrorFiles(self._cache.path, manifest.id, BlockMap(manifest))
        self._room = Room(self._cache, request.limit)

    def start(self) -> None:
        """Get ready to fetch; for the event loop's thread."""
        self.fetcher = Fetcher(self._slab, self._files, self._room)

    async def fetch(self, request: Fetch) -> None:
        """Fetch what a request asks for. Raises what `Fetcher.fetch` raises."""
        ranges = np.frombuffer(request.ranges, np.int64).reshape(-1, 2)
        runs = [(start, stop) for start, stop in ranges.tolist()]
        self.changed = True
        await self.fetcher.fetch(runs, request.demand, request.again, request.share)

    def finish(self) -> None:
        """Make a slab of the mirror if it is whole."""
        self.changed = False
        publish_manifest(self._cache, self._files)

    @property
    def temporary(self) -> bool:
        """Whether the cache is deleted after its last user."""
        return self._cache.temporary

    def close(self, patience: float = 0.0) -> None:
        """Let go of everything; see `CacheDirectory.close`."""
        self.fetcher.close()
        self._room.close()
        self._files.close()
        self._cache.close(patience)
