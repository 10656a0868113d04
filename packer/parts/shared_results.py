"""What all shards share, found by all parts together, through files.

Categories, and the numbers of tokens in texts that are joined. Each part does the tasks of its own,
then those that nobody has done yet. So any number of parts can start at any time, none waits for
another, and together they read what it takes about once.
"""

import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
import pyarrow as pa

from fieldslab.packer.pack_options import Progress
from fieldslab.packer.parts.part_folder import PartFolder
from fieldslab.packer.plan import Plan
from fieldslab.packer.sources.sequence_source import SequenceSource
from fieldslab.packer.spans import ShardTask
from fieldslab.packer.write.engines.engine import Engine, Work
from fieldslab.packer.write.prepare import (
    CategoryWork,
    SharedData,
    TaskCategories,
    join_shared_data,
    list_categorical_fields,
)
from fieldslab.packer.write.sequence_shards import TextTokens, TokenCountWork, cut_sequences
from fieldslab.packer.write.stream import ignore_progress

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class SharedWork(ABC, Generic[_Result]):
    """Does a task of some work, unless its result is in its file."""

    work: Work[_Result]
    folder: PartFolder

    def write(self, task: ShardTask, progress: Progress = ignore_progress) -> _Result:
        """Read the file of a task, or do the task and write the file."""
        name = self.name_file(task.number)
        with contextlib.suppress(msgspec.DecodeError):
            return self.decode(task.number, self.folder.read_file(name) or b"")
        result = self.work.write(task, ignore_progress)
        self.folder.write_file(name, self.encode(result))
        return result

    @abstractmethod
    def name_file(self, number: int) -> str:
        """Name the file of a task."""

    @abstractmethod
    def encode(self, result: _Result) -> bytes:
        """Encode a result as the content of a file."""

    @abstractmethod
    def decode(self, number: int, content: bytes) -> _Result:
        """Decode the result of the task of this number. Raises msgspec.DecodeError."""


class SharedCategoryWork(SharedWork[TaskCategories]):
    """Lists the categories of a task."""

    def name_file(self, number: int) -> str:
        """Name the file of a task."""
        return f"categories/{number:05}.json"

    def encode(self, result: TaskCategories) -> bytes:
        """Encode a list for each field."""
        return msgspec.json.encode({name: v.to_pylist() for name, v in result.values.items()})

    def decode(self, number: int, content: bytes) -> TaskCategories:
        """Decode the lists."""
        texts = msgspec.json.decode(content, type=dict[str, list[str]])
        return TaskCategories(
            number, {name: pa.array(items, pa.large_string()) for name, items in texts.items()}
        )


class SharedTokenWork(SharedWork[TextTokens]):
    """Counts the tokens of a task's texts."""

    def name_file(self, number: int) -> str:
        """Name the file of a task."""
        return f"tokens/{number:05}.msgpack"

    def encode(self, result: TextTokens) -> bytes:
        """Encode the counts."""
        return msgspec.msgpack.encode(result)

    def decode(self, number: int, content: bytes) -> TextTokens:
        """Decode the counts."""
        return msgspec.msgpack.decode(content, type=TextTokens)


def prepare_together(
    plan: Plan, folder: PartFolder, own_tasks: Sequence[ShardTask], engine: Engine
) -> SharedData:
    """Prepare what shards share, along with the other parts; `own_tasks` come first."""
    if not list_categorical_fields(plan):
        return join_shared_data(plan, ())
    work = SharedCategoryWork(CategoryWork(plan), folder)
    tasks = _put_first(own_tasks, plan.tasks)
    with closing(engine.run(work, tasks, ignore_progress)) as results:
        return join_shared_data(plan, results)


def cut_together(
    plan: Plan, folder: PartFolder, own_tasks: Sequence[ShardTask], engine: Engine
) -> Plan:
    """Cut the rows of texts that are joined into shards, along with the other parts.

    `own_tasks`, which are of the source, come first. A plan without joined texts is returned
    unchanged.
    """
    if not isinstance(plan.source, SequenceSource):
        return plan
    work = SharedTokenWork(TokenCountWork(plan.source), folder)
    tasks = _put_first(own_tasks, plan.source.tasks)
    with closing(engine.run(work, tasks, ignore_progress)) as results:
        for _ in results:  # which come in any order, and may be more than fit into memory
            pass
    return cut_sequences(plan, map(work.write, plan.source.tasks))


def list_uncounted_texts(plan: Plan, folder: PartFolder) -> list[int]:
    """List the tasks whose texts no part has counted the tokens of."""
    if not isinstance(plan.source, SequenceSource):
        return []
    work = SharedTokenWork(TokenCountWork(plan.source), folder)
    numbers = [task.number for task in plan.source.tasks]
    return [number for number in numbers if folder.read_file(work.name_file(number)) is None]


def _put_first(own_tasks: Sequence[ShardTask], tasks: Sequence[ShardTask]) -> list[ShardTask]:
    """Put the tasks of this part first, and the others behind them by chance.

    So parts that are at the end seldom do the same.
    """
    numbers = {task.number for task in own_tasks}
    other_tasks = [task for task in tasks if task.number not in numbers]
    random.shuffle(other_tasks)
    return [*own_tasks, *other_tasks]
