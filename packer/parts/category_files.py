"""Categories found by all parts together, through files.

Each part lists the categories of its own shards, then of those that nobody has listed yet. So any
number of parts can start at any time, none waits for another, and together they read the columns of
categories about once.
"""

import contextlib
import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from fieldslab.packer.pack_options import Progress
from fieldslab.packer.parts.part_folder import PartFolder
from fieldslab.packer.plan import Plan, ShardTask
from fieldslab.packer.write.engines.engine import Engine
from fieldslab.packer.write.prepare import (
    CategoryWork,
    SharedData,
    TaskCategories,
    join_shared_data,
    list_categorical_fields,
)
from fieldslab.packer.write.stream import ignore_progress


@dataclass(frozen=True)
class SharedCategoryWork:
    """Lists the categories of a task, unless they are in its file."""

    work: CategoryWork
    folder: PartFolder

    def write(self, task: ShardTask, progress: Progress = ignore_progress) -> TaskCategories:
        """Read the file of a task, or list its categories and write the file."""
        name = f"categories/{task.number:05}.json"
        with contextlib.suppress(msgspec.DecodeError):
            texts = msgspec.json.decode(
                self.folder.read_file(name) or b"", type=dict[str, list[str]]
            )
            values = {name: pa.array(items, pa.large_string()) for name, items in texts.items()}
            return TaskCategories(task.number, values)
        result = self.work.write(task)
        lists = {name: items.to_pylist() for name, items in result.values.items()}
        self.folder.write_file(name, msgspec.json.encode(lists))
        return result


def prepare_together(
    plan: Plan, folder: PartFolder, own: Sequence[ShardTask], engine: Engine
) -> SharedData:
    """Prepare what shards share, along with the other parts; `own` tasks come first."""
    if not list_categorical_fields(plan):
        return join_shared_data(plan, ())
    numbers = {task.number for task in own}
    others = [task for task in plan.tasks if task.number not in numbers]
    random.shuffle(others)  # so that parts that are at the end seldom do the same
    work = SharedCategoryWork(CategoryWork(plan), folder)
    with closing(engine.run(work, [*own, *others], ignore_progress)) as results:
        return join_shared_data(plan, results)
