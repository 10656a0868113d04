"""Shards as tasks of Ray, on one machine or on a cluster that sees sources and output."""

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from fieldslab.packer.pack_options import Progress
from fieldslab.packer.write.engines.engine import Engine, Task, Work
from fieldslab.schemas.errors import FieldslabError, MissingLibrary, SourceUnreadable
from fieldslab.schemas.optiontext import mark_option

_Record = TypeVar("_Record")

RETRIES = 3
"""How often a task is run again whose worker or machine was lost. What it raises is final."""

_CANCELLED = 10.0
"""Seconds to wait for a task that was cancelled."""


class RayEngine(Engine):
    """Runs tasks on the cluster that Ray is connected to.

    Without a connection it makes one: to the cluster of `RAY_ADDRESS`, to one that runs on this
    machine, or else to a new one of this machine alone. Tasks are spread over the machines. One
    whose machine is lost runs again elsewhere; the others are not touched.
    """

    name = "ray"

    @classmethod
    def choose_jobs(cls) -> int:
        """Run as many tasks as the cluster has cores."""
        return _count_cores(_connect())

    def run(
        self, work: Work[_Record], tasks: Sequence[Task], progress: Progress
    ) -> Generator[_Record, None, None]:
        """Run every task. Closing cancels tasks, and waits until they are gone.

        Progress is told of whole tasks. Where a task raises, those that have begun are finished;
        where workers die again and again over one, all others are.
        """
        ray = _connect()
        shared_work = ray.put(work)
        # One function with one size for all: each other one would slow the scheduler down.
        remote = ray.remote(
            num_cpus=1,
            max_retries=RETRIES,
            memory=min(_estimate_memory(tasks), _find_largest_memory(ray)) or None,
            scheduling_strategy="SPREAD",
        )(_run_task)
        # Cores that wait for the driver to hand out the next task would be idle.
        window = self.jobs if self.jobs < _count_cores(ray) else 2 * self.jobs
        waiting = deque(tasks)
        running: dict[Any, Task] = {}
        failure: FieldslabError | None = None
        try:
            while waiting or running:
                while waiting and len(running) < window:
                    task = waiting.popleft()
                    running[remote.remote(shared_work, task)] = task
                finished, _ = ray.wait(list(running), num_returns=1)
                for reference in finished:
                    task = running.pop(reference)
                    try:
                        record, rows, size = ray.get(reference)
                    except ray.exceptions.RayTaskError as error:
                        if not isinstance(error.cause, FieldslabError):
                            raise
                        failure = failure or error.cause
                        waiting.clear()
                        continue
                    except ray.exceptions.RayError as error:
                        failure = failure or _make_lost_error(task, error)
                        continue
                    progress(rows, size)
                    yield record
            if failure is not None:
                raise failure
        finally:
            # The last ones first, which wait for a core: where one were handed out while it is
            # cancelled, Ray 2.60 would end this process.
            for reference in reversed(running):
                ray.cancel(reference, force=True)
                ray.wait([reference], timeout=_CANCELLED)


def _connect() -> Any:
    """Connect to a cluster, unless that is done; return the library. Raises MissingLibrary."""
    try:
        import ray
    except ImportError as error:
        raise MissingLibrary(
            f"{mark_option('engine', 'ray')} needs Ray, which is not installed",
            hint="pip install 'ray>=2.40'",
        ) from error
    if not ray.is_initialized():
        ray.init(
            configure_logging=False, log_to_driver=False, namespace="fieldslab", logging_level=40
        )
    return ray


def _count_cores(ray: Any) -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _estimate_memory(tasks: Sequence[Task]) -> int:
    """Estimate the bytes that a task takes at most, as tasks say; 0 if they do not."""
    return max((getattr(task, "memory", 0) for task in tasks), default=0)


def _find_largest_memory(ray: Any) -> int:
    """Find the memory of the largest machine: a task that asks for more would wait forever."""
    sizes = [node["Resources"].get("memory", 0) for node in ray.nodes() if node["Alive"]]
    return int(max(sizes, default=0))


def _run_task(work: Work[_Record], task: Task) -> tuple[_Record, int, int]:
    """Run a task: its record, and the rows and bytes that it told progress of."""
    done = [0, 0]

    def add_done(rows: int, bytes: int) -> None:
        done[0] += rows
        done[1] += bytes

    record = work.write(task, add_done)
    return record, done[0], done[1]


def _make_lost_error(task: Task, error: Exception) -> SourceUnreadable:
    return SourceUnreadable(
        f"workers died {RETRIES + 1} times while they packed shard {task.number}",
        file=task.source,
        found=type(error).__name__,
        hint="The file may crash the library that reads it, or memory ran out. The other shards "
        "are kept: run the same command again.",
    )
