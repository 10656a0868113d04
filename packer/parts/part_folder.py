"""The abstract class of what the parts of one plan share while they build a slab."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from fieldslab.packer.write.attempts import Attempts
from fieldslab.packer.write.engines.engine import Engine
from fieldslab.packer.write.space import ShardBytes
from fieldslab.packer.write.writers import FinishedShard, ShardRecord
from fieldslab.schemas.manifest import Manifest


class PartFolder(ABC):
    """What one run of a part, or of `finish`, shares with all others; for a `with` block.

    No part holds a lock: network file systems and stores have none, or none to rely on. Whatever
    becomes visible does so at once, and may be made twice: the bytes of a shard follow from plan
    and versions alone, so it does not matter whose attempt is kept. Pickled with some work.

    Attributes
    ----------
    out
        The place of the slab, for messages.
    attempts
        What writes shards.
    """

    out: Path
    attempts: Attempts

    @abstractmethod
    def __enter__(self) -> "PartFolder":
        """Make what is not there yet. Raises OutputError."""

    @abstractmethod
    def __exit__(self, *error: object) -> None:
        """Leave what the other runs need."""

    @abstractmethod
    def check(self) -> None:
        """Raise OutputExists where something is in the place of the slab."""

    @abstractmethod
    def count_bytes(self) -> int:
        """Count the bytes of all files of the slab that is there."""

    @abstractmethod
    def load_published(self) -> Manifest | None:
        """Load the manifest of the finished slab; None where it is not this plan's, or not there.

        It is complete, even where the run that published it was killed right after.
        """

    @abstractmethod
    def find_finished(self) -> dict[int, FinishedShard]:
        """Find the shards that are finished, by whatever part, by index."""

    def read_records(self) -> dict[int, FinishedShard]:
        """Read the records of shards, whether these are still where they were put or not."""
        return self.find_finished()

    @abstractmethod
    def open_first_pass(self) -> "PartFolder":
        """Open what parts share in the first pass of a shuffle. Raises UsageError in a store."""

    def prepare(self, shard: ShardBytes, engine: Engine) -> str | None:
        """Check that an engine can write shards of this size: see `SlabBuilder.prepare`."""
        return None

    @abstractmethod
    def accept_shard(self, record: ShardRecord, parts: int) -> None:
        """Make a finished attempt part of the slab, and record it."""

    @abstractmethod
    def add_folder(self, name: str, write: Callable[[Path], None]) -> None:
        """Have `write` write a folder that holds no rows, and make it part of the slab."""

    @abstractmethod
    def read_file(self, name: str) -> bytes | None:
        """Read a file of another run, such as `categories/00003.json`; None if there is none."""

    @abstractmethod
    def write_file(self, name: str, content: bytes) -> None:
        """Write a file for other runs: it is visible only when it is complete."""

    @abstractmethod
    def publish(self, manifest: Manifest) -> None:
        """Write the manifest and put the slab in its place.

        Raises OutputExists where something has come to stand there, and OutputError where another
        run of `finish` was quicker.
        """

    @abstractmethod
    def remove(self) -> None:
        """Remove what only served to build a slab that is in its place."""
