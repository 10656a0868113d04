"""Where slabs lie: the abstract class `Store`, and the lookup by place."""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeAlias

from fieldslab.schemas.errors import OutputChanged, UsageError
from fieldslab.schemas.registry import Registry
from fieldslab.schemas.urls import get_scheme, hide_credentials, is_url, restore_url

Place: TypeAlias = str | os.PathLike[str]
"""A directory, or a URL such as `s3://bucket/train.slab`."""

Data: TypeAlias = bytes | bytearray | memoryview

PART = 16 << 20
"""Bytes of a part of a large object: S3 takes 10,000 parts, so an object of 160 GB."""


class ObjectInfo(NamedTuple):
    """What a store says of an object without reading it.

    `version` changes when the object is replaced: an ETag, or the time and size of a file. It is
    None where the store has no such thing.
    """

    key: str
    size: int
    version: str | None


class Store(ABC):
    """A place that keeps objects by key: a directory, a bucket, a web server.

    `open_store` calls `cls(place, storage_options)`; that sends nothing yet. Keys are paths below
    the place, such as `shard-00000/digests.npy`; `check_key` refuses any other. Methods may be
    called by several threads at a time.

    What fails for a while, as when a server is busy or a connection breaks, is tried again with
    growing pauses before it becomes an error. Errors name the object by its URL, and where a
    server answered also its status and the number of attempts, in `FieldslabError.context`. No
    credential appears in an error, in `repr`, or in `url`. A store cannot be pickled.

    A class must define all that is abstract. Other packages register theirs under the entry point
    `fieldslab.stores`, by the scheme of its URLs, which is also the attribute `name`.
    """

    name: ClassVar[str] = ""
    """The scheme of its URLs, of a store that comes with another package."""
    can_write: ClassVar[bool] = True
    """Whether objects can be written and deleted; web servers are for reading."""
    can_list: ClassVar[bool] = True
    """Whether `list_keys` can be called; web servers have no lists."""
    url: str
    """The place, for messages: without credentials."""

    def __init__(self, place: Place, storage_options: Mapping[str, Any] | None = None) -> None:
        """`storage_options` are for the library that the store uses, and may hold credentials."""
        self.url = hide_credentials(os.fspath(place)).rstrip("/")

    @abstractmethod
    def read(self, key: str, start: int = 0, stop: int | None = None) -> memoryview:
        """Read bytes `start` to `stop` of an object, or to its end: all of them, or an error.

        Raises
        ------
        ObjectNotFound
            There is no such object.
        Unreadable, RemoteUnreadable
            The disk, the network or the server fails, or the object ends before `stop`.
        SlabDenied, AccessDenied
            No permission: of the file system, or of a server, also where credentials expired.
        """

    def read_with_info(self, key: str, start: int, stop: int) -> tuple[memoryview, ObjectInfo]:
        """Read bytes as `read` does, along with size and version of the object they come from."""
        return self.read(key, start, stop), self.get_info(key)

    def read_small(self, key: str, most: int) -> memoryview | None:
        """Read all of an object as `read` does; None where it has more than `most` bytes."""
        size = self.get_info(key).size
        return self.read(key, 0, size) if size <= most else None

    async def read_range(self, key: str, start: int, stop: int) -> memoryview:
        """Read as `read` does, for an event loop: many ranges at a time."""
        return await asyncio.to_thread(self.read, key, start, stop)

    @abstractmethod
    def get_info(self, key: str) -> ObjectInfo:
        """Return size and version of an object; raises what `read` raises."""

    @abstractmethod
    def list_keys(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """List all objects, or those in the folder `prefix` and below it, in any order.

        Raises what `read` raises, but nothing where there is no such folder.
        """

    def list_folder(self, folder: str = "") -> tuple[list[ObjectInfo], list[str]]:
        """List the objects directly in a folder, and the names of the folders in it, in any order.

        Raises what `read` raises; both lists are empty where there is no such folder.
        """
        objects: list[ObjectInfo] = []
        folders: dict[str, None] = {}
        for info in self.list_keys(folder):
            name, slash, _ = info.key[len(folder) + 1 if folder else 0 :].partition("/")
            if slash:
                folders[name] = None
            else:
                objects.append(info)
        return objects, list(folders)

    @abstractmethod
    def write(
        self, key: str, data: Data | Path | Iterable[Data], *, if_absent: bool = False
    ) -> None:
        """Write an object atomically: no reader ever sees a part of it.

        `data` is the content, a file that holds it, or pieces of it in turn; if an iterable
        raises, nothing is written. With `if_absent`, an object that is there is never replaced,
        whoever else writes at the same moment; such an object should be small.

        Raises
        ------
        OutputExists
            `if_absent`, and there is one already.
        OutputDenied
            No permission.
        NoSpace
            The device is full.
        OutputError
            It cannot be written for another reason.
        """

    def replace(self, key: str, data: Data, expected: Data) -> None:
        """Write an object that is there, if its content is still `expected`; both are small.

        Raises
        ------
        OutputChanged
            Its content is another, or becomes so at this moment, or it is gone.
        UsageError
            The store has no such operation.
        OutputDenied, NoSpace, OutputError
            It cannot be written.
        """
        raise UsageError("the store cannot replace objects safely", file=self.locate(key))

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete an object, if there is one; raises what `write` raises."""

    def locate(self, key: str) -> str:
        """Return the URL or path of an object, for messages."""
        return f"{self.url}/{key}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a store may hold credentials, and is not pickled: open it again")


def make_changed_error(place: object) -> OutputChanged:
    """Make the error for an object that another writer changed."""
    return OutputChanged(
        "another writer changed it meanwhile: nothing was written",
        file=place,
        hint="Run the command again.",
    )


def check_key(key: str) -> str:
    """Return the key. Raises UsageError if it leads elsewhere: `..`, `/x`, `a//b`, a backslash."""
    parts = key.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in key or not key.isprintable():
        raise UsageError("not a key of an object in a store", found=repr(key))
    return key


_REMOTE = "fieldslab.schemas.stores.remote:RemoteStore"
_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "http", "https")

STORES = Registry(
    "kind of store",
    "fieldslab.stores",
    {
        "file": "fieldslab.schemas.stores.directory:DirectoryStore",
        **dict.fromkeys(_SCHEMES, _REMOTE),
        "hf": "fieldslab.schemas.stores.hub:HubStore",
    },
    base=Store,
)
"""Stores by the scheme of their URLs."""


def open_store(place: Place, storage_options: Mapping[str, Any] | None = None) -> Store:
    """Open the store at a place, a directory or a URL; nothing is read or sent yet.

    Parameters
    ----------
    storage_options
        For obstore, which reads buckets and web servers: keys of its configuration, such as
        `region` or `endpoint`, and `client_options`, `retry_config`, `credential_provider`. For
        the Hugging Face Hub: `endpoint`, `token`, `retry_config`.

    Raises
    ------
    UsageError
        No store has URLs of this scheme, or its library does not know an option.
    MissingLibrary
        The store needs a library that is not here.
    """
    text = os.fspath(place)
    scheme = get_scheme(text) if is_url(text) and not os.path.exists(text) else "file"
    store: type[Store] = STORES.load(scheme)
    return store(restore_url(text), storage_options)
