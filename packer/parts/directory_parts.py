"""The shared directory in which the parts of one plan build a slab, each without asking the others.

While parts of a plan for `NAME` are packed there is `NAME.parts/PLAN`, and in it

    slab/            what will be `NAME`
    records/         one file for each finished shard
    categories/      one file for each task whose categories are known
    tokens/          one file for each task whose tokens are counted, where texts are joined
    attempts/RUN/    a folder for each attempt at a shard of one run of a part

No part holds a lock: network file systems may have none. Whatever becomes visible does so by one
rename, and may be made twice: the bytes of a shard follow from plan and versions alone, so it does
not matter whose attempt is kept.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from fieldslab.packer.outputs.commit import is_whole
from fieldslab.packer.outputs.directory_check import check_output
from fieldslab.packer.parts.part_folder import PartFolder
from fieldslab.packer.write.attempts import DirectoryAttempts, make_attempt_folder
from fieldslab.packer.write.directories import remove_path
from fieldslab.packer.write.result import count_bytes
from fieldslab.packer.write.writers import FinishedShard, ShardRecord
from fieldslab.schemas import layout
from fieldslab.schemas.errors import FieldslabError
from fieldslab.schemas.files import sync_directory
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.manifest import MANIFEST, Manifest, encode_manifest
from fieldslab.schemas.write_errors import name_write_errors

_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)


class DirectoryPartFolder(PartFolder):
    """`NAME.parts/PLAN`, as one run of a part or of `finish` uses it."""

    attempts: DirectoryAttempts

    def __init__(self, out: Path, fingerprint: str) -> None:
        """Use the folder of the plan with this fingerprint; nothing is made yet."""
        self.out = out
        self.folder = out.with_name(out.name + ".parts") / fingerprint[:16]
        self.slab = self.folder / "slab"
        self.attempts = DirectoryAttempts(self.folder / "attempts" / secrets.token_hex(4))
        self.records = self.folder / "records"
        self._fingerprint = fingerprint

    def __enter__(self) -> "DirectoryPartFolder":
        """Make what is not there yet. Raises OutputError."""
        with name_write_errors(self.folder):
            for folder in (self.slab, self.attempts.folder, self.records):
                folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the attempts of this run. A worker that outlives it cannot write to them then."""
        with contextlib.suppress(OSError):
            attempts = self.attempts.folder
            abandoned = attempts.rename(attempts.with_suffix(".gone"))
            remove_path(abandoned)

    def check(self) -> None:
        """Raise OutputExists where something is in the place of the slab."""
        check_output(self.out, force=False)

    def count_bytes(self) -> int:
        """Count the bytes of all files of the slab that is there."""
        return count_bytes(self.out)

    def load_published(self) -> Manifest | None:
        """Load the manifest of the finished slab; None where it is not this plan's, or not there.

        It is complete, even where the run that published it was killed right after.
        """
        with contextlib.suppress(FieldslabError):
            manifest = load_manifest(self.out)
            if manifest.made.plan == self._fingerprint:
                return manifest
        return None

    def find_finished(self) -> dict[int, FinishedShard]:
        """Find the shards that are finished, by whatever part, by index."""
        return {
            index: shard
            for index, shard in self.read_records().items()
            if is_whole(self.slab / layout.name_shard(index), shard.record)
        }

    def read_records(self) -> dict[int, FinishedShard]:
        """Read the records of shards; see `PartFolder`."""
        shards = {}
        names: list[str] = []
        # Another run of `finish` may have removed it.
        with name_write_errors(self.records), contextlib.suppress(FileNotFoundError):
            names = sorted(name for name in os.listdir(self.records) if name.endswith(".json"))
        for path in map(self.records.joinpath, names):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                shard = msgspec.json.decode(path.read_bytes(), type=FinishedShard)
                shards[shard.record.index] = shard
        return shards

    def open_first_pass(self) -> "DirectoryPartFolder":
        """Open `first-pass.parts` in this folder; its slab becomes `first-pass`."""
        return DirectoryPartFolder(self.folder / "first-pass", self._fingerprint)

    def accept_shard(self, record: ShardRecord, parts: int) -> None:
        """Make a finished attempt part of the slab, then record it."""
        name = layout.name_shard(record.index)
        self._move(
            self.attempts.folder / record.attempt, name, lambda place: is_whole(place, record)
        )
        shard = FinishedShard(record, parts)
        self.write_file(f"records/{record.index:05}.json", msgspec.json.encode(shard))

    def add_folder(self, name: str, write: Callable[[Path], None]) -> None:
        """Have a folder without rows written, and move it into the slab; keep one that is alike."""
        folder = make_attempt_folder(self.attempts.folder, name)
        write(folder)

        def is_alike(place: Path) -> bool:
            first, second = ((path / layout.DIGESTS).read_bytes() for path in (folder, place))
            return first == second

        self._move(folder, name, is_alike)

    def read_file(self, name: str) -> bytes | None:
        """Read what a part wrote; None where none has, or it cannot be read."""
        with contextlib.suppress(OSError):
            return (self.folder / name).read_bytes()
        return None

    def write_file(self, name: str, content: bytes) -> None:
        """Write a file below the folder in one go: it is visible only when it is complete."""
        path = self.folder / name
        fresh = self.attempts.folder / f"{path.name}.{secrets.token_hex(4)}"
        with name_write_errors(path):
            path.parent.mkdir(exist_ok=True)
            with open(fresh, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(path)
            sync_directory(path.parent)

    def publish(self, manifest: Manifest) -> None:
        """Write the manifest and put the slab in its place.

        Raises OutputExists where something has come to stand there, and OutputError where another
        run of `finish` was quicker.
        """
        self.write_file(f"slab/{MANIFEST}", encode_manifest(manifest))
        self.check()
        with name_write_errors(self.out):
            self.slab.rename(self.out)
            sync_directory(self.out.parent)

    def remove(self) -> None:
        """Remove the folder of a slab that is in its place."""
        with name_write_errors(self.folder):
            for _ in range(10):  # another run may be at work in it
                with contextlib.suppress(OSError):
                    remove_path(self.folder)
                    break
            with contextlib.suppress(OSError):
                self.folder.parent.rmdir()  # where no other plan has a folder in it

    def _move(self, folder: Path, name: str, is_right: Callable[[Path], bool]) -> None:
        place = self.slab / name
        with name_write_errors(place):
            sync_directory(folder)
            for _ in range(3):
                try:
                    folder.rename(place)
                    break
                except OSError as error:
                    if error.errno not in _TAKEN:
                        raise
                if is_right(place):  # another process was faster
                    remove_path(folder)
                    break
                with contextlib.suppress(OSError):
                    place.rename(self.attempts.folder / f"{name}-{secrets.token_hex(4)}.wrong")
            sync_directory(self.slab)
