"""The abstract classes of an output: its place, the slab that is built, attempts at shards."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from fieldslab.packer.write.attempts import Attempts
from fieldslab.packer.write.engines.engine import Engine
from fieldslab.packer.write.space import ShardBytes
from fieldslab.packer.write.writers import ShardRecord
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.manifest import Manifest
from fieldslab.schemas.optiontext import mark_option


class SlabBuilder(ABC):
    """Builds a slab from shards, for a `with` block: it appears whole, or not at all.

    Attributes
    ----------
    finished
        The shards that are finished: those of an earlier run of the same plan, and those accepted.
    dropped
        Number of shards of an earlier run that cannot be used.
    completed
        The manifest, where an earlier run was cut off after it had published the slab.
    set_aside
        Where the old slab lies once it is replaced, if somebody reads it.
    attempts
        What writes the shards.
    """

    attempts: Attempts
    finished: dict[int, ShardRecord]
    dropped: int
    completed: Manifest | None
    set_aside: Path | None

    @abstractmethod
    def __enter__(self) -> "SlabBuilder":
        """Take the place, and take over what an earlier run has finished. Raises OutputError."""

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Leave nothing but finished shards, which a rerun takes over."""

    def prepare(self, shard: ShardBytes, engine: Engine) -> str | None:
        """Check that an engine can write shards of this size; call it before `attempts`.

        Returns a warning where that is not certain. Raises NoSpace where it is certain that there
        is too little space, UsageError where tasks of the engine cannot write here.
        """
        return None

    @abstractmethod
    def accept_shard(self, record: ShardRecord) -> None:
        """Make a shard that was written by `attempts` part of the slab, durably."""

    @abstractmethod
    def add_folder(self, name: str, write: Callable[[Path], None]) -> None:
        """Have `write` write a folder that holds no rows, and make it part of the slab."""

    @abstractmethod
    def publish(self, manifest: Manifest) -> None:
        """Write the manifest, last of all: then there is a slab. Raises OutputExists."""


class SlabOutput(ABC):
    """A place that a slab is packed to.

    Attributes
    ----------
    path
        The place, for messages.
    directory
        The directory that becomes the slab, beside which others may be built; None at a URL.
    """

    path: Path
    directory: Path | None

    @abstractmethod
    def check(self, *, force: bool) -> None:
        """Raise OutputExists where a pack would destroy something, UsageError in a slab.

        `force` allows to replace a slab, where the place can do that at once.
        """

    @abstractmethod
    def build(
        self, plan: str, versions: Mapping[str, str], *, force: bool = False, resumable: bool = True
    ) -> SlabBuilder:
        """Build the slab of the plan with this fingerprint, by these versions of libraries.

        What is not `resumable`, such as a stream, takes over no shards of an earlier run.
        """

    def describe_space(self, shard: ShardBytes) -> str | None:
        """Describe the space that packing takes elsewhere, for the user; None if it takes none."""
        return None

    @abstractmethod
    def count_bytes(self) -> int:
        """Count the bytes of all files of the slab that is there."""


def make_shuffle_error(output: SlabOutput) -> UsageError:
    """Make the error for a shuffle that needs another slab, beside one at a URL."""
    return UsageError(
        f"{mark_option('shuffle')} needs a directory for temporary files beside the output, and "
        "this is a URL",
        file=output.path,
        hint="Pack to a directory, and run `fieldslab copy` from there.",
    )
