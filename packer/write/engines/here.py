"""Shards one after the other, in this process."""

from collections.abc import Generator, Sequence
from typing import TypeVar

from fieldslab.packer.pack_options import Progress
from fieldslab.packer.write.engines.engine import Engine, Task, Work

_Record = TypeVar("_Record")


class InProcessEngine(Engine):
    """Runs tasks in this process, one at a time whatever `jobs` is."""

    name = "here"
    in_process = on_machine = True

    @classmethod
    def choose_jobs(cls) -> int:
        """Run one task at a time."""
        return 1

    def run(
        self, work: Work[_Record], tasks: Sequence[Task], progress: Progress
    ) -> Generator[_Record, None, None]:
        """Run every task, in order."""
        for task in tasks:
            yield work.write(task, progress)
