"""Shards one after the other, in this process."""

from collections.abc import Generator, Sequence

from fieldslab.packer.pack_options import Progress
from fieldslab.packer.plan import ShardTask
from fieldslab.packer.write.engines.engine import Engine
from fieldslab.packer.write.stream import ShardWork
from fieldslab.packer.write.writers import ShardRecord


class InProcessEngine(Engine):
    """Runs tasks in this process, one at a time whatever `jobs` is."""

    name = "here"

    def run(
        self, work: ShardWork, tasks: Sequence[ShardTask], progress: Progress
    ) -> Generator[ShardRecord, None, None]:
        """Run every task, in order."""
        for task in tasks:
            yield work.write(task, progress)
