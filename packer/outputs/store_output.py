"""A slab that is packed to a store: shards go there as they are finished, the manifest last.

While `s3://bucket/NAME` is packed, there are

    NAME/shard-00003/...                    shards where they belong
    NAME/.copying.json                      which plan they are of
    NAME.partial/PLAN/records/00003.json    a record of each shard that is there, verified

A store renames nothing and locks nothing. So whatever is written may be written twice: the bytes of
a shard follow from plan and versions alone. The marker keeps other plans away, records name the
versions of the objects that were verified, and the manifest is written only where there is none.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace as replace_struct

from fieldslab.packer.commands.text_format import format_size
from fieldslab.packer.outputs.ownership import (
    MARKER,
    check_writable,
    find_manifest,
    publish_manifest,
    take_place,
)
from fieldslab.packer.outputs.scratch import find_scratch, open_scratch_folder
from fieldslab.packer.outputs.slab_output import SlabBuilder, SlabOutput
from fieldslab.packer.outputs.store_attempts import (
    RECORDS,
    BackgroundUploads,
    StoreAttempts,
    describe_scratch,
    make_scratch_error,
)
from fieldslab.packer.outputs.uploads import get_version, upload_folder
from fieldslab.packer.slabsize import count_bytes
from fieldslab.packer.write.engines.engine import Engine
from fieldslab.packer.write.space import ShardBytes, measure_free_bytes
from fieldslab.packer.write.writers import FinishedShard, ShardRecord
from fieldslab.schemas import layout
from fieldslab.schemas.errors import (
    FieldslabError,
    ObjectNotFound,
    OutputError,
    OutputExists,
    UsageError,
)
from fieldslab.schemas.manifest import MANIFEST, Manifest, encode_manifest
from fieldslab.schemas.notices import LOG
from fieldslab.schemas.optiontext import mark_option, render_for_python
from fieldslab.schemas.stores.slab_objects import join_key, open_slab_anywhere
from fieldslab.schemas.stores.store import ObjectInfo, Store
from fieldslab.schemas.stores.store_place import StorePlace
from fieldslab.schemas.urls import UrlPath, hide_credentials

_REQUESTS = 16
"""Small objects that are read or deleted at a time."""


class StoreOutput(SlabOutput):
    """A folder of a bucket."""

    directory = None

    def __init__(
        self, url: str, storage_options: Mapping[str, Any] | None, scratch: object
    ) -> None:
        """`url` and `storage_options` are for `open_store`. Raises UsageError and OutputDenied."""
        parts = urlsplit(url)
        if parts.query or parts.password or not parts.path.strip("/"):
            raise UsageError(
                "not the URL of a folder in a bucket",
                file=hide_credentials(url),
                expected="s3://bucket/train.slab, without credentials or a query",
                hint="Put credentials into the environment, or in Python into "
                f"{mark_option('storage_options')}.",
            )
        self.place = StorePlace(url.rstrip("/"), storage_options)
        self.scratch = scratch
        self.path = UrlPath(self.place.url)

    def check(self, *, force: bool) -> None:
        """Raise OutputExists where a slab is that no earlier run left, UsageError for `force`."""
        if force:
            raise UsageError(
                f"{mark_option('force', True)} is for directories: a store cannot replace a slab "
                "at once, and its readers would see parts of both",
                file=self.path,
                hint="Choose another URL, or delete that slab first.",
            )
        store = self.place.store
        check_writable(store)
        with name_missing_bucket(store):
            next(store.list_keys(), None)
            if has_object(store, MANIFEST) and not has_object(store, MARKER):
                partial = self.place.join(".partial").open()
                if next(partial.list_keys(), None) is None:
                    raise make_exists_error(store)

    def build(
        self, plan: str, versions: Mapping[str, str], *, force: bool = False, resumable: bool = True
    ) -> "StoreBuilder":
        """Build a slab in the store; `force` is refused by `check`."""
        return StoreBuilder(self, plan, versions, resumable=resumable)

    def count_bytes(self) -> int:
        """Count the bytes of all files, by the manifest."""
        with open_slab_anywhere(self.place.url, storage_options=self.place.storage_options) as slab:
            return count_bytes(slab)

    def describe_space(self, shard: ShardBytes) -> str:
        """Describe what scratch is for; raises what `find_scratch` raises."""
        return describe_scratch(find_scratch(self.scratch), shard)


class StoreBuilder(SlabBuilder):
    """Builds a slab in a store. Other processes may build the same one at the same time."""

    attempts: StoreAttempts
    set_aside = None

    def __init__(
        self,
        output: StoreOutput,
        plan: str,
        versions: Mapping[str, str],
        *,
        resumable: bool = True,
        parts: int = 1,
    ) -> None:
        """Build the slab of a plan; see `SlabOutput.build`. `parts` says how many parts pack it."""
        self.out = output.path
        self.finished = {}
        self.dropped = 0
        self.completed = None
        self._place = output.place
        self._partial_place = output.place.join(f".partial/{plan[:16]}")
        self._scratch = output.scratch
        self._plan = plan
        self._versions = dict(versions)
        self._resumable = resumable
        # What cannot be resumed is a slab of its own each time.
        run = {} if resumable else {"run": secrets.token_hex(8)}
        self._owner = {"packing": plan, "versions": self._versions, **run}
        unknown = ShardBytes(0, None)
        self.attempts = StoreAttempts(
            self._place, self._partial_place, output.scratch, unknown, parts
        )
        self._folders: dict[str, dict[str, str]] = {}
        self._listed: dict[str, ObjectInfo] | None = None
        self._found: dict[int, FinishedShard] | None = None
        self._published = False

    def __enter__(self) -> "StoreBuilder":
        """Leave the marker, or find that of an earlier run, and its shards.

        Raises
        ------
        OutputExists
            A slab is there, or something else is.
        OutputError, AccessDenied, RemoteUnreadable
            The store cannot be read or written.
        """
        store = self._place.store
        check_writable(store)
        with name_missing_bucket(store):
            manifest = find_manifest(store)
            if manifest is not None:
                if not self._resumable or not self._is_left_by_killed_run(manifest):
                    raise make_exists_error(store)
                self.completed = manifest
                return self
            if not take_place(store, self._owner, self._list_objects()):
                self._listed = None
                return self.__enter__()
        if self._resumable:
            self.finished = {index: shard.record for index, shard in self.find_finished().items()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Keep finished shards; remove all of this plan where there are none, or a slab is."""
        with suppress(FieldslabError):  # what was packed is not lost, but for Ctrl-C
            self.end_uploads(wait=isinstance(error, Exception))
        with suppress(FieldslabError):
            if self.completed is not None:
                self.remove()
            elif not self._published and not (self._resumable and self._has_records()):
                self._abandon()

    def prepare(self, shard: ShardBytes, engine: Engine) -> str | None:
        """Compare what shards take with the scratch space; see `SlabBuilder.prepare`.

        Where there is room for two, one process packs a shard while it uploads the one before.
        """
        self.attempts = replace(self.attempts, shard=shard)
        if not engine.in_process:
            self._place.refuse_secrets()
        if not engine.on_machine:
            return None  # each machine looks at its own disk
        scratch = find_scratch(self._scratch)
        LOG.info("%s", render_for_python(describe_scratch(scratch, shard)))
        free = measure_free_bytes(scratch)
        if shard.certain * engine.jobs > free:
            raise make_scratch_error(scratch, shard.certain * engine.jobs, free)
        if engine.in_process and 2 * (shard.about or shard.certain) <= free:
            self.attempts = replace(self.attempts, uploads=BackgroundUploads())
        if shard.about is None or shard.about * engine.jobs <= free:
            return None
        return (
            f"shards take about {format_size(shard.about * engine.jobs)} in {scratch} before they "
            f"are uploaded, by the source's metadata, and {format_size(free)} are free"
        )

    def accept_shard(self, record: ShardRecord) -> None:
        """Note a shard that is uploaded and recorded, or will be."""
        self.finished[record.index] = record
        self._listed = self._found = None

    def add_folder(self, name: str, write: Callable[[Path], None]) -> None:
        """Have a folder written in scratch, and upload it."""
        with open_scratch_folder(find_scratch(self._scratch)) as folder:
            write(folder)
            versions = upload_folder(self._place.store, name, folder)
        self._folders[name] = versions
        if self._listed is not None:
            for file, version in versions.items():
                self._listed[join_key(name, file)] = ObjectInfo(join_key(name, file), 0, version)

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest, unless somebody else has published the same slab meanwhile.

        Raises OutputExists for another slab, OutputError where an object is not as it was verified.
        """
        self.end_uploads(wait=True)
        store = self._place.store
        if len(self.finished) < len(manifest.shards):
            raise make_changed_error(store.url)
        folders = {name_folder(record): record.objects for record in self.finished.values()}
        for name, objects in (folders | self._folders).items():
            for file, version in objects.items():
                if not self._is_there(join_key(name, file), version, self._list_objects()):
                    raise make_changed_error(store.locate(join_key(name, file)))
        publish_manifest(store, encode_manifest(manifest), manifest.id)
        self._published = True
        try:
            self.remove()
        except FieldslabError as error:
            raise OutputError(
                f"the slab is in its place, but this cannot be removed: {error.problem}",
                file=error.context.get("file"),
                hint="Remove it yourself.",
            ) from error

    def end_uploads(self, *, wait: bool) -> None:
        """Wait for the upload that is running, or cancel it. Raises what it raises."""
        if (uploads := self.attempts.uploads) is None:
            return
        try:
            if wait:
                uploads.wait()
        finally:
            uploads.close()
            self.attempts = replace(self.attempts, uploads=None)
        for record in uploads.pop_finished():
            index = record.index
            self.finished[index] = replace_struct(self.finished[index], objects=record.objects)

    def remove(self) -> None:
        """Remove what only serves to build the slab: the marker last, which tells whose it is."""
        self._delete(
            self._partial_place.store, (info.key for info in self._partial_place.store.list_keys())
        )
        self._place.store.delete(MARKER)

    def find_finished(self) -> dict[int, FinishedShard]:
        """Find the shards that are finished, by whatever process, by index.

        What is found is kept until this process writes a shard: of a large slab, it takes a request
        for each shard, and for each thousand of objects.
        """
        if self._found is None:
            self._found = self._find_finished(self._list_objects())
        return dict(self._found)

    def _list_objects(self) -> dict[str, ObjectInfo]:
        """List the objects of the slab, unless that is known."""
        if self._listed is None:
            self._listed = {info.key: info for info in self._place.store.list_keys()}
        return self._listed

    def _has_records(self) -> bool:
        return next(self._partial_place.store.list_keys(RECORDS), None) is not None

    def _is_left_by_killed_run(self, manifest: Manifest) -> bool:
        """Whether a run of this plan was killed after it had published this manifest."""
        if manifest.made.plan != self._plan:
            return False
        left = next(self._partial_place.store.list_keys(), None)
        return left is not None or has_object(self._place.store, MARKER)

    def _find_finished(self, listed: Mapping[str, ObjectInfo]) -> dict[int, FinishedShard]:
        partial = self._partial_place.store

        def read(info: ObjectInfo) -> FinishedShard | None:
            with suppress(ObjectNotFound, msgspec.DecodeError):
                shard = msgspec.json.decode(partial.read(info.key), type=FinishedShard)
                return shard if self._is_whole(shard.record, listed) else None
            return None

        with ThreadPoolExecutor(_REQUESTS) as threads:
            shards = threads.map(read, partial.list_keys(RECORDS))
            return {shard.record.index: shard for shard in shards if shard is not None}

    def _is_whole(self, record: ShardRecord, listed: Mapping[str, ObjectInfo]) -> bool:
        """Whether these versions wrote a shard, and its objects are those of its record."""
        name = name_folder(record)
        return record.versions == self._versions and all(
            self._is_there(join_key(name, file), version, listed)
            for file, version in record.objects.items()
        )

    def _is_there(self, key: str, version: str, listed: Mapping[str, ObjectInfo]) -> bool:
        if key not in listed:
            return False
        if get_version(listed[key]) == version:
            return True
        with suppress(ObjectNotFound):  # some stores write versions in another way in lists
            return get_version(self._place.store.get_info(key)) == version
        return False

    def _abandon(self) -> None:
        """Remove everything of a slab that has no finished shard."""
        if find_manifest(self._place.store) is None:
            self._listed = None
            keys = (key for key in self._list_objects() if key not in (MARKER, MANIFEST))
            self._delete(self._place.store, keys)
            self.remove()

    def _delete(self, store: Store, keys: Iterable[str]) -> None:
        with ThreadPoolExecutor(_REQUESTS) as threads:
            for _ in threads.map(store.delete, keys):
                pass


def name_folder(record: ShardRecord) -> str:
    """Return the name of the folder of a shard."""
    return layout.name_shard(record.index)


@contextmanager
def name_missing_bucket(store: Store) -> Iterator[None]:
    """Turn an ObjectNotFound for a whole store into an OutputError."""
    try:
        yield
    except ObjectNotFound as error:
        raise OutputError(
            f"there is no such bucket: {error.problem}",
            file=store.url,
            hint="Create the bucket, or check the URL and the endpoint.",
        ) from error


def make_exists_error(store: Store) -> OutputExists:
    """Make the error for a slab that is there already."""
    return OutputExists(
        "exists already",
        file=store.url,
        hint="A slab at a URL is not replaced: choose another output, or delete it first.",
    )


def make_changed_error(place: str) -> OutputError:
    """Make the error for an object that is not as it was when it was uploaded."""
    return OutputError(
        "this is not as it was uploaded: another program writes here",
        file=place,
        hint="Run the same command again.",
    )


def has_object(store: Store, key: str) -> bool:
    """Return True if a store has an object of this key."""
    with suppress(ObjectNotFound):
        store.get_info(key)
        return True
    return False
