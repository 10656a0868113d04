"""A slab in a store: what reading it may find out besides bytes."""

import asyncio

from fieldslab.schemas.errors import (
    DamagedArray,
    FieldslabError,
    NotASlab,
    ObjectNotFound,
    SlabChanged,
    Unreadable,
)
from fieldslab.schemas.manifest import Manifest
from fieldslab.schemas.stores.slab_objects import read_manifest
from fieldslab.schemas.stores.store import Store


class RemoteSlab:
    """A slab in a store, as it was when its manifest was read."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self.store = store
        self.manifest = manifest

    def locate(self, key: str) -> str:
        """Return the URL or path of an object, for messages."""
        return self.store.locate(key)

    async def check_size(self, key: str, expected: int) -> None:
        """Raise DamagedArray where an object has another size."""
        info = await asyncio.to_thread(self.store.get_info, key)
        if info.size != expected:
            await self.check_content()
            raise DamagedArray(
                "wrong size",
                file=self.store.locate(key),
                expected=f"{expected} bytes",
                found=f"{info.size} bytes",
            )

    async def read(self, key: str, start: int, stop: int) -> memoryview:
        """Read bytes of an object. Raises SlabChanged if they cannot be read for that reason."""
        try:
            return (
                await self.store.read_range(key, start, stop) if start < stop else memoryview(b"")
            )
        except ObjectNotFound as error:
            await self.check_content()
            raise DamagedArray("is missing", file=self.store.locate(key)) from error
        except (Unreadable, NotASlab):
            await self.check_content()
            raise

    async def check_content(self) -> None:
        """Raise SlabChanged where another slab lies in the store by now."""
        try:
            manifest, _ = await asyncio.to_thread(read_manifest, self.store)
            content = manifest.id
        except ObjectNotFound:
            content = "nothing"
        except FieldslabError:
            return  # what is wrong with the block is said already
        if content != self.manifest.id:
            raise SlabChanged(
                "another slab is there since it was opened",
                file=self.store.url,
                expected=self.manifest.id,
                found=content,
                hint="Open it again.",
            )
