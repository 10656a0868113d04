"""The abstract class `Engine`, and the lookup by name."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from fieldslab.packer.option_values import parse_integer
from fieldslab.packer.pack_options import Progress
from fieldslab.schemas.cores import count_usable_cores
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.registry import Registry

Record_co = TypeVar("Record_co", covariant=True)
_Record = TypeVar("_Record")


class Task(Protocol):
    """One shard to write, or to look through for what all shards share."""

    @property
    def number(self) -> int:
        """Number of the shard."""

    @property
    def source(self) -> str:
        """The first file that is read, for messages."""


class Work(Protocol[Record_co]):
    """What it takes to do any task; pickled, as its records are, where tasks run elsewhere.

    Packing a shard is a `ShardWork`: its records name the folder that the shard was written in.
    """

    def write(self, task: Any, progress: Progress) -> Record_co:
        """Do a task; returns what it found, or where it wrote the shard."""


class Engine(ABC):
    """Runs shard tasks: in this process, in several, or on several machines.

    A class needs a `name` and defines `run`. Other packages register theirs under the entry point
    `fieldslab.engines`.

    `work.write(task, progress)` runs a task wherever `work` can be pickled to and the output can be
    written, and returns a record. Each call that writes a shard does so in a new folder. A task may
    run several times, at once or one after the other; only the attempt whose record is yielded
    becomes part of the slab, and the pack removes all others.
    """

    name: str
    """What `pack(..., engine=)` and `--engine` call it."""
    in_process: ClassVar[bool] = False
    """Whether tasks run in this process."""
    on_machine: ClassVar[bool] = False
    """Whether tasks run on this machine, and share its disks."""

    def __init__(self, jobs: int) -> None:
        """Run up to `jobs` tasks at a time."""
        self.jobs = jobs

    @classmethod
    def choose_jobs(cls) -> int:
        """Return how many tasks run at a time where the user does not say: one for each core."""
        return count_usable_cores()

    @abstractmethod
    def run(
        self, work: Work[_Record], tasks: Sequence[Task], progress: Progress
    ) -> Generator[_Record, None, None]:
        """Run every task and yield one record for each as soon as it is finished, in any order.

        `progress` is called in this process, from any thread. Closing the generator cancels the
        tasks that have not begun; when that returns, nothing of the run is at work any longer.

        Raises what a task raises, and SourceUnreadable where a worker dies.
        """


ENGINES = Registry(
    "engine",
    "fieldslab.engines",
    {
        "here": "fieldslab.packer.write.engines.here:InProcessEngine",
        "processes": "fieldslab.packer.write.engines.processes:ProcessEngine",
        "ray": "fieldslab.packer.write.engines.ray:RayEngine",
    },
    option="engine",
    base=Engine,
)
"""Every engine. Where none is asked for, `jobs` chooses between the first two."""


def find_engine(name: str | None, jobs: int | None, tasks: int) -> Engine:
    """Return the engine of this name; without a name, processes if there are several jobs.

    It runs no more jobs than there are `tasks`. Without `jobs`, it chooses how many it runs.

    Raises UsageError where there is no engine of this name.
    """
    if name is None:
        jobs = min(jobs or 1, max(tasks, 1))
        name = "processes" if jobs > 1 else "here"
    kind: type[Engine] = ENGINES.load(name)
    if jobs is None:
        jobs = kind.choose_jobs()
    return kind(max(1, min(jobs, tasks)))


def check_jobs(jobs: Any) -> None:
    """Raise UsageError for what is no number of jobs; None is fine."""
    if jobs is not None and parse_integer("jobs", jobs) < 1:
        raise UsageError(f"{mark_option('jobs')} must be at least 1", found=jobs)
