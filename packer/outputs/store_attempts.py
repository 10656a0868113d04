"""Shards for a store: packed in scratch, uploaded, verified and recorded, on whatever machine."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

import msgspec
from msgspec.structs import replace

from fieldslab.packer.commands.text_format import format_size
from fieldslab.packer.outputs.scratch import find_scratch, open_scratch_folder
from fieldslab.packer.outputs.uploads import upload_folder
from fieldslab.packer.write.attempts import Attempts
from fieldslab.packer.write.space import ShardBytes, measure_free_bytes
from fieldslab.packer.write.writers import FinishedShard, ShardRecord
from fieldslab.schemas.errors import NoSpace
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.store_place import StorePlace

RECORDS = "records"


class BackgroundUploads:
    """Uploads one shard in a thread while the next one is packed."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "fieldslab-upload-shard")
        self._running: Future[ShardRecord] | None = None
        self._cancelled = Event()
        self._finished: list[ShardRecord] = []

    def begin(self, upload: Callable[[Event], ShardRecord], scratch: ExitStack) -> None:
        """Begin an upload; `scratch` is closed behind it. None may be running."""

        def run() -> ShardRecord:
            with scratch:
                return upload(self._cancelled)

        self._running = self._thread.submit(run)

    def wait(self) -> None:
        """Wait for the upload that is running. Raises what it raises."""
        running, self._running = self._running, None
        if running is not None:
            self._finished.append(running.result())

    def pop_finished(self) -> list[ShardRecord]:
        """Return the records of uploads that were waited for, each once."""
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        """Cancel the upload that is running."""
        self._cancelled.set()
        self._thread.shutdown()


@dataclass(frozen=True)
class StoreAttempts(Attempts):
    """Attempts at shards of a slab in a store.

    Attributes
    ----------
    slab, partial
        Where shards go, and records of them.
    scratch
        The directory that shards are packed in, as the user gave it.
    shard
        Bytes of the largest shard.
    parts
        Of how many parts the one that packs is.
    uploads
        What uploads shards while others are packed, in one process. Records are then returned
        before their shards are uploaded, and without `objects`.
    """

    slab: StorePlace
    partial: StorePlace
    scratch: object
    shard: ShardBytes
    parts: int = 1
    uploads: BackgroundUploads | None = None

    def write(self, name: str, write: Callable[[Path], ShardRecord]) -> ShardRecord:
        """Have a shard written in scratch and upload it; the record comes last.

        A shard without rows is not part of a slab, and stays here.
        """
        scratch = find_scratch(self.scratch)
        if (free := measure_free_bytes(scratch)) < self.shard.certain:
            raise make_scratch_error(scratch, self.shard.certain, free)
        try:
            with ExitStack() as stack:
                folder = stack.enter_context(open_scratch_folder(scratch))
                record = write(folder)
                if not record.rows:
                    return record
                upload = partial(self._upload, record, name, folder)
                if self.uploads is None:
                    return upload(Event())
                self.uploads.wait()
                self.uploads.begin(upload, stack.pop_all())
                return record
        except NoSpace as error:
            error.add_hint(describe_scratch(scratch, self.shard))
            raise

    def _upload(
        self, record: ShardRecord, name: str, folder: Path, cancelled: Event
    ) -> ShardRecord:
        record = replace(record, objects=upload_folder(self.slab.store, name, folder, cancelled))
        content = msgspec.json.encode(FinishedShard(record, self.parts))
        self.partial.store.write(name_record(record.index), content)
        return record


def name_record(index: int) -> str:
    """Return the key of the record of a shard."""
    return f"{RECORDS}/{index:05}.json"


def describe_scratch(scratch: Path, shard: ShardBytes) -> str:
    """Describe what scratch is for, and how much of it a job takes."""
    size = "" if shard.about is None else f" of about {format_size(shard.about)}"
    return (
        f"Each job packs a shard{size} in {scratch} before it is uploaded; "
        f"{mark_option('scratch')} names another directory."
    )


def make_scratch_error(scratch: Path, needed: int, free: int) -> NoSpace:
    """Make the error for too little scratch space."""
    return NoSpace(
        "not enough space for shards that are to be uploaded: nothing was written",
        file=scratch,
        expected=f"at least {format_size(needed)}",
        found=f"{format_size(free)} free",
        hint=f"Free some space, name another directory by {mark_option('scratch')}, pack fewer "
        f"shards at a time by {mark_option('jobs')}, or smaller ones by "
        f"{mark_option('shard_size')}.",
    )
