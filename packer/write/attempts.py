"""Attempts at shards: each is written into a new folder, wherever the slab is built."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fieldslab.packer.write.writers import ShardRecord
from fieldslab.schemas.write_errors import name_write_errors


class Attempts(ABC):
    """Has shards written, each attempt in a folder of its own; pickled with the work."""

    @abstractmethod
    def write(self, name: str, write: Callable[[Path], ShardRecord]) -> ShardRecord:
        """Have `write` write a shard into a new empty folder; returns its record.

        The shard `name` is then where the builder of the slab can take it from, whichever machine
        this is. Raises what `write` raises, and OutputError.
        """


@dataclass(frozen=True)
class DirectoryAttempts(Attempts):
    """Attempts in a directory that all machines see."""

    folder: Path

    def write(self, name: str, write: Callable[[Path], ShardRecord]) -> ShardRecord:
        """Have a shard written below the directory, in a folder that its record names."""
        return write(make_attempt_folder(self.folder, name))


def make_attempt_folder(attempts: Path, name: str) -> Path:
    """Make a new empty folder to write a shard (or the tables) in."""
    folder = attempts / f"{name}-{secrets.token_hex(4)}"
    with name_write_errors(folder):
        folder.mkdir()
    return folder
