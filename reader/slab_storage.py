"""An open slab's manifest and mapped arrays, shared by every view and column of it."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from threading import RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fieldslab.reader import forks
from fieldslab.reader.batch import make_unknown_field_error
from fieldslab.reader.buffers import Pool
from fieldslab.reader.conversion import cast_field, check_cast
from fieldslab.reader.member_rows import MemberRows
from fieldslab.reader.quarantine import Quarantine
from fieldslab.reader.rows import ShardDirectory
from fieldslab.reader.stored.changes import Changes
from fieldslab.reader.stored.evictions import Evictions
from fieldslab.reader.stored.field import StoredField
from fieldslab.reader.stored.marks import SharedMarks
from fieldslab.reader.stored.mirrors import Mirrors
from fieldslab.reader.stored.shards import Shards
from fieldslab.reader.views import View
from fieldslab.schemas.access import Folder
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.unions.members import Members
from fieldslab.schemas.unions.open_members import join_members, open_plain, to_plain

if TYPE_CHECKING:
    from fieldslab.reader.addresses import RowFinder
    from fieldslab.reader.copying import RowLocations
    from fieldslab.reader.gather import GatheredFields

_Result = TypeVar("_Result")


class Storage:
    """What is behind a slab. Nothing but the manifest is read before a field is first used."""

    def __init__(self, slabs: Members, verify: bool, quarantine: Quarantine | None = None) -> None:
        """`quarantine` is what `make_quarantine` made."""
        self.slabs = slabs
        self.quarantine = quarantine
        self.dtypes: Mapping[str, str] = {}
        self.manifest = manifest = slabs.manifest
        remote = any(files.mirror is not None for files in slabs.files)
        self.verify = verify = verify or remote  # what comes over a network is
        self.fields: Mapping[str, Field] = MappingProxyType(
            {field.name: field for field in manifest.fields}
        )
        self.directory = ShardDirectory(manifest.counts.rows)
        # Each process must see for itself what was evicted from a mirror.
        marks = SharedMarks(manifest, private=remote) if verify else None
        self.mirrors = Mirrors(slabs) if remote else None
        self._shards = Shards(slabs, self.directory.starts, marks, self.mirrors)
        self.pool = Pool()
        self._lock = RLock()
        self._stored: dict[str, StoredField] = {}
        self.changes = Changes(slabs.files, self._stored)
        self.evictions: Evictions | None = None
        if self.mirrors is not None:
            self.evictions = Evictions(self.mirrors, self._stored)
        forks.register_for_forks(self)

    @property
    def path(self) -> Path:
        """The slab's directory, absolute; another slab may stand there by now."""
        return self.slabs.path

    @cached_property
    def members(self) -> MemberRows:
        """The rows that each of the slabs has."""
        return MemberRows(self.slabs.names, [files.manifest.rows for files in self.slabs.files])

    def load_field(self, name: str) -> StoredField:
        """Load a field with its arrays, which are mapped shard by shard as rows are touched.

        Raises UnknownField, or what `StoredField` raises for damaged files.
        """
        stored = self._stored.get(name)
        if stored is not None:
            return stored
        self.check_field_name(name)
        with self._lock:
            if name not in self._stored:
                self._stored[name] = StoredField(self.fields[name], self._shards)
            return self._stored[name]

    def read(
        self, names: Sequence[str], shards: np.ndarray | Sequence[int], read: Callable[[], _Result]
    ) -> _Result:
        """Return what `read` returns, which copies from fields in some shards.

        What is evicted from a mirror meanwhile is read again.
        """
        evictions = self.evictions
        if evictions is None:
            return self.changes.read(read)
        fields = [self.load_field(name) for name in names]
        return self.changes.read(lambda: evictions.read(fields, np.asarray(shards, np.int64), read))

    def cast(self, dtypes: Any) -> "Storage":
        """Return the same with values in other dtypes: see `Slab.cast`."""
        return CastStorage(self, dtypes)

    def join(self, other: "Storage") -> "Storage":
        """Join both into one. Raises UsageError where they do not fit together."""
        verify = self.verify or other.verify
        quarantine = self.quarantine or other.quarantine
        return Storage(
            join_members(self.slabs, other.slabs), verify, quarantine and quarantine.renew()
        )

    # The kernels import numba, which takes half a second: the first gather pays for it.

    @cached_property
    def locate_rows(self) -> Callable[[View, np.ndarray], "RowLocations"]:
        """locate_rows(view, rows): see `gather.locate_rows`."""
        from fieldslab.reader.gather import locate_rows

        return partial(locate_rows, self.directory, self.pool)

    @cached_property
    def gather(self) -> Callable[..., "GatheredFields"]:
        """`gather.gather_fields` with the memory pool of this slab as its first argument."""
        from fieldslab.reader.gather import gather_fields

        return partial(gather_fields, self.pool)

    @cached_property
    def row_finder(self) -> "RowFinder":
        """Finds rows of single fields in memory."""
        from fieldslab.reader.addresses import RowFinder

        return RowFinder(self.directory, self.pool, self.load_field, self.evictions, self.changes)

    @property
    def cache_limit(self) -> int | None:
        """Bytes that mirrors may take; None for a local slab, or without a limit."""
        return None if self.mirrors is None else self.mirrors.limit

    def get_folder(self, shard: int) -> Folder:
        """Return the folder of a shard."""
        return self._shards.get_folder(shard)

    def check_field_name(self, name: str) -> None:
        """Raise UnknownField if there is no field of this name."""
        if name not in self.fields:
            raise make_unknown_field_error(name, self.fields)

    def __reduce__(self) -> tuple[Any, ...]:
        policy = (
            None if self.quarantine is None else (self.quarantine.policy, self.quarantine.limit)
        )
        return reopen_storage, (to_plain(self.slabs), self.verify, policy)

    def after_fork(self) -> None:
        """Replace the lock in a forked child; the maps are as good there."""
        self._lock = RLock()
        if self.mirrors is not None:
            self.mirrors.after_fork()


class CastStorage(Storage):
    """A storage whose fields are converted as they are handed out; all else is another's."""

    def __init__(self, storage: Storage, dtypes: Any) -> None:
        if not isinstance(dtypes, Mapping):
            hint = 'Write slab.cast({"x": "float16"}).'
            raise UsageError("`dtypes` must map field names to dtypes", found=dtypes, hint=hint)
        for name in dtypes:
            storage.check_field_name(name)
        self._uncast = storage
        self._cast: dict[str, StoredField] = {}
        self.slabs, self.manifest, self.verify = storage.slabs, storage.manifest, storage.verify
        self.directory = storage.directory
        self.pool, self.mirrors = storage.pool, storage.mirrors
        self.evictions, self.changes = storage.evictions, storage.changes
        self.quarantine, self._shards = storage.quarantine, storage._shards
        self.dtypes = check_cast(dtypes, storage.fields)
        for name in self.dtypes:
            if name in storage.slabs.codes:
                raise UsageError(
                    "class names differ from slab to slab: codes are not cast", field=name
                )
        cast = {
            name: cast_field(storage.fields[name], dtype) for name, dtype in self.dtypes.items()
        }
        self.fields = MappingProxyType({**storage.fields, **cast})

    def load_field(self, name: str) -> StoredField:
        """See `Storage`."""
        stored = self._cast.get(name)
        if stored is not None:
            return stored
        stored = self._uncast.load_field(name)
        if name in self.dtypes:  # threads may make it twice: the arrays are the same
            stored = self._cast[name] = stored.cast(self.dtypes[name])
        return stored

    def __reduce__(self) -> tuple[Any, ...]:
        return CastStorage, (self._uncast, dict(self.dtypes))

    def cast(self, dtypes: Any) -> Storage:
        """See `Storage`; what was cast before is cast anew from what is stored."""
        return CastStorage(self._uncast, {**self.dtypes, **dtypes})


def reopen_storage(
    places: tuple[Any, ...], verify: bool, policy: tuple[str, float] | None = None
) -> Storage:
    """Open again what was pickled. Raises what `open_slab` raises, and SlabReplaced."""
    return Storage(open_plain(*places), verify, None if policy is None else Quarantine(*policy))
