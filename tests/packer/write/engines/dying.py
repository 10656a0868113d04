"""Work that kills the worker that takes it over, before it has read all of it."""

import os
import signal
from dataclasses import dataclass, field
from typing import Any

from fieldslab.packer.pack_options import Progress


class Killer:
    """Kills the process that loads it."""

    def __setstate__(self, state: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def __getstate__(self) -> dict[str, int]:
        return {"some": 1}


@dataclass
class DyingWork:
    """What lies behind the killer is larger than a pipe."""

    killer: Killer = field(default_factory=Killer)
    more: bytes = bytes(2**20)

    def write(self, task: Any, progress: Progress) -> None:
        """Nobody gets here."""


@dataclass
class DyingTask:
    """A task of no shard."""

    number: int
    source: str = "rows.parquet"
