"""Batches of a slab, in an order, made ahead of time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

import numpy as np

from fieldslab.reader.images.steps import check_decode_option
from fieldslab.reader.loading.cache_window import choose_order
from fieldslab.reader.loading.chain import (
    TransformChain,
    check_transforms,
    choose_seed,
    find_paddings,
    make_converter,
)
from fieldslab.reader.loading.epoch_plan import (
    EpochPlan,
    choose_batch_size,
    compute_rank_rows,
    find_rank_and_size,
    make_plan,
)
from fieldslab.reader.loading.identity import STATE_VERSION, describe_identity, read_state
from fieldslab.reader.loading.iteration import (
    BatchSource,
    EpochIterator,
    EpochPosition,
    OnDemandBatches,
    ReceivedBatches,
)
from fieldslab.reader.loading.stats import PreparedBatch, Recorder, Stats
from fieldslab.reader.loading.tuning import TunedWorkers, make_tuner
from fieldslab.reader.orders.order import Order, Sequential, attach_order
from fieldslab.reader.rows import check_integer
from fieldslab.reader.slab import Slab, check_slab
from fieldslab.schemas.cores import count_usable_cores
from fieldslab.schemas.errors import UsageError

if TYPE_CHECKING:
    from fieldslab.reader.loading.isolated import LoaderProcess
    from fieldslab.reader.loading.preparation import Preparation
    from fieldslab.reader.loading.workers import TaskQueue

MOST_THREADS = 4
"""By default there are no more: copying saturates memory with a few."""


class Loader:
    """Iterates over batches of a slab; each iteration is an epoch.

    Threads prepare whole batches ahead of the training step and return them in order: the batches
    are the same for any number of threads. A batch never changes while you hold it or any array
    taken from it. The memory of batches that you released is used again. At most
    `prefetch + threads` batches exist at a time, including the one that you hold. Small batches
    are made several at a time, up to 2 MiB, and share their memory.

    `for batch in loader` starts the current epoch at its beginning, or continues where
    `load_state_dict` says. The next loop is the next epoch. Leaving the loop early stops the
    threads and does not count as an epoch.

    Parameters
    ----------
    slab
        The slab or view.
    batch_size
        Rows in a batch, on each rank. Left out where the order decides, as `TokenBudget` does.
    order
        The rows of an epoch and their sequence. Default: `Shuffled(0)`.
    fields
        Names of the fields to gather. Default: all.
    decode
        Steps for image fields, by name: a list of steps, or `ImageSteps`. Random crops and flips
        depend on epoch and row alone, so a resumed run draws the same.
    transforms
        Functions applied to each batch, in this order: see
        `fieldslab.reader.transforms.transform`. A function takes a batch (of tensors, with
        output="torch") and returns the fields that it makes or replaces, by name. Several threads
        may call it at the same time. If it has a parameter `rng`, it gets random numbers by row:
        the same for any number of threads and ranks, any batch size, and after a resume.
    seed
        Seed of `rng`. Default: the order's seed, or 0 if it has none.
    prefetch
        Number of finished batches that may wait. With 0, batches are made on demand, without
        threads. "auto" finds this number, and that of threads, while batches are taken: enough that
        less than 1 % of the time goes by waiting for data, as far as `memory` and the machine
        allow. The batches are the same. `stats()` says what was found, and the next epoch begins
        with it.
    threads
        Number of threads that make batches. Default: the number of processors, up to 4.
    drop_last
        Leave out the last batch if it is smaller. Otherwise, on several ranks, the last batch is
        filled up with the first rows of the epoch, so that every rank has the same number of
        rows. With `drop_last`, an epoch that is resumed on another number of ranks ends where
        less than a whole step of these ranks is left.
    output
        "numpy" for `Batch`, "torch" for tensors over the same memory (`TensorBatch`).
    pin_memory
        Copy tensors into pinned memory; "auto" does where torch finds an accelerator.
    rank, world_size
        This process's rank and the number of ranks that share each step. Default: those of
        torch.distributed if the program uses it, else 0 and 1.
    read_ahead
        Batches ahead for which the system is asked to read data that is not in memory; 0: none.
    isolate
        Run the threads in another process, so that their Python does not delay the training step.
        Batches are the same, in memory that both processes share. The slab, `order`, `decode` and
        `transforms` are pickled: define functions at the top of a module, and start the program
        below `if __name__ == "__main__":`. The process ends when an iteration is left early, when
        the loader is closed or collected, and with the program. Only on Linux.
    memory
        Bytes that batches may take with prefetch="auto", as they were gathered or decoded; two are
        always made ahead. Default: a quarter of the memory that is free.

    Raises
    ------
    UnknownField, RowOutOfRange, UsageError
        The arguments contradict each other or the slab.
    """

    def __init__(
        self,
        slab: Slab,
        batch_size: int | None = None,
        order: Order | None = None,
        *,
        fields: Sequence[str] | None = None,
        decode: Mapping[str, Any] | None = None,
        transforms: Sequence[Callable[..., Mapping[str, Any]]] = (),
        seed: int | None = None,
        prefetch: int | Literal["auto"] = 3,
        threads: int | None = None,
        drop_last: bool = False,
        output: Literal["numpy", "torch"] = "numpy",
        pin_memory: bool | Literal["auto"] = "auto",
        rank: int | None = None,
        world_size: int | None = None,
        read_ahead: int = 4,
        isolate: bool = False,
        device: str | None = None,
        memory: int | None = None,
    ) -> None:
        check_slab(slab)
        self.slab = slab
        self.order = choose_order(slab, slab.names(fields), order, rank, world_size)
        threads = None if threads is None else check_integer("threads", threads, least=1)
        self._tuner = make_tuner(prefetch, threads, memory, isolate)
        self.prefetch = 1 if prefetch == "auto" else check_integer("prefetch", prefetch, least=0)
        self.threads = threads or min(count_usable_cores(), MOST_THREADS)
        self.drop_last = drop_last
        self.read_ahead = check_integer("read_ahead", read_ahead, least=0)
        self._attached = attach_order(self.order, slab)
        gathered = self._attached.choose_fields(slab, fields)
        self._fields = list(gathered)
        self.batch_size = choose_batch_size(batch_size, self._attached.find_batches(0))
        self._decode = check_decode_option(decode, slab.fields, self._fields)
        self._transforms = check_transforms(gathered, self._decode, transforms)
        self._seed = None if seed is None else check_integer("seed", seed)
        self._convert = make_converter(slab, self._decode, output, pin_memory, device)
        self._given = rank, world_size
        find_rank_and_size(rank, world_size)
        self._position = EpochPosition(0, 0)
        self._resumes = False
        self._recorder = Recorder()
        self._running: WeakSet[EpochIterator] = WeakSet()
        self._task_queues: WeakSet[TaskQueue[Any]] = WeakSet()
        self._idle: list[LoaderProcess] = []
        self.isolate, self.device = isolate, device
        if isolate:
            from fieldslab.reader.loading.isolated import check_isolation

            check_isolation(self.order, self._transforms, self.prefetch)

    @property
    def epoch(self) -> int:
        """The epoch that runs, or comes next."""
        return self._position.epoch

    @property
    def rank(self) -> int:
        """This process's rank."""
        return find_rank_and_size(*self._given)[0]

    @property
    def world_size(self) -> int:
        """How many ranks share each epoch."""
        return find_rank_and_size(*self._given)[1]

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank, which is the same on every rank."""
        return self._make_plan(0, 0).batch_count

    def count_batches_left(self) -> int:
        """Count the batches of the current epoch, on this rank, that were not returned yet."""
        return self._make_plan(self.epoch, self._position.position).batch_count

    def __iter__(self) -> Iterator[Any]:
        """Start an epoch, or go on with the one that was loaded."""
        if not self._resumes:
            self._position = EpochPosition(self._position.epoch, 0)
        self._resumes = False
        plan = self._make_plan(self.epoch, self._position.position)
        source = self._start_workers(plan)
        if self.device is not None:
            source = ReceivedBatches(source)
        self._recorder = Recorder()
        batches = EpochIterator(source, plan, self._position, self._recorder)
        self._running.add(batches)
        return batches

    def set_epoch(self, epoch: int) -> None:
        """Make an epoch the next to iterate over; the one that is current already goes on."""
        epoch = check_integer("epoch", epoch, least=0)
        if epoch != self._position.epoch:
            self._position = EpochPosition(epoch, 0)
            self._resumes = False

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch that was returned: a dict, ready for JSON.

        The state is the same on all ranks that have had the same number of batches. Raises
        UsageError if the order has neither a `key` nor a `repr` of its own.
        """
        return {
            "version": STATE_VERSION,
            "epoch": self._position.epoch,
            "position": self._position.position,
            **self._describe_identity(self.order, self._attached),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue where a run was saved, on any number of ranks.

        Batch size, world size, threads, fields and transforms may differ from the saved run. Slab,
        order, seed and steps for images must be the same, so that the epoch continues with the
        same draws. States of earlier releases can be loaded.

        Raises
        ------
        UsageError
            Not a loader state, or one of other data or of another order: rows would be visited
            twice or never. Nothing changes then.
        """
        saved = read_state(state, self._recall_order, self._describe_identity)
        if saved.position > saved.attached.length(len(self.slab)):
            raise UsageError(
                "the state's position is beyond the end of the epoch", found=saved.position
            )
        self.order, self._attached = saved.order, saved.attached
        self._position = EpochPosition(saved.epoch, saved.position)
        self._resumes = True

    def rows_at(self, epoch: int, step: int, rank: int | None = None) -> np.ndarray:
        """Return the rows of any batch, whatever was visited before: int64[n].

        Nothing is read, so any step of any epoch takes milliseconds.

        Parameters
        ----------
        epoch, step
            Numbers from 0. Steps count from the start of the epoch; in the epoch that runs, or that
            `load_state_dict` set, from where this loader began it.
        rank
            The rank whose batch it is. Default: this one.

        Raises UsageError if the epoch has no such step.
        """
        epoch = check_integer("epoch", epoch, least=0)
        plan = self._make_plan(epoch, self._position.start if epoch == self.epoch else 0)
        if rank is not None:
            plan = replace(plan, rank=find_rank_and_size(rank, self.world_size)[0])
        step = plan.check_index(check_integer("step", step, least=0))
        return compute_rank_rows(self._attached, epoch, plan, step, len(self.slab))

    def stats(self) -> Stats:
        """Return measurements of the current epoch, or of the last one."""
        stats, tuner = self._recorder.compute_stats(), self._tuner
        if tuner is None:
            return stats
        return replace(stats, prefetch=tuner.prefetch, threads=tuner.threads)

    def close(self) -> None:
        """Stop all iterations and wait for their threads; a new one may start afterwards."""
        for batches in list(self._running):
            batches.close()
        for task_queue in list(self._task_queues):
            task_queue.close()
        while self._idle:
            self._idle.pop().kill()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"Loader({str(self.slab.path)!r}, {len(self):,} batches of {self.batch_size:,} rows, "
            f"{self.order!r}, epoch {self.epoch})"
        )

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: everything but the iterations that run."""
        state = self.__dict__ | {"_position": self._position.copy()}
        for name in ("_recorder", "_running", "_task_queues", "_idle"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._recorder = Recorder()
        self._running = WeakSet()
        self._task_queues = WeakSet()
        self._idle = []

    def _recall_order(self, key: Any) -> tuple[Order, Order]:
        """The order that goes on where a state has this key, and the same attached to the slab."""
        recalled = self.order.recall(key) if isinstance(key, Mapping) else None
        if recalled is None:
            return self.order, self._attached
        return recalled, attach_order(recalled, self.slab)

    def _describe_identity(self, order: Order, attached: Order) -> dict[str, Any]:
        """Describe what must be equal where a state is loaded."""
        return describe_identity(self.slab, order, attached, self._decode, self._seed)

    def _make_plan(self, epoch: int, start: int) -> EpochPlan:
        cut = self.batch_size, *find_rank_and_size(*self._given), self.drop_last, start
        return make_plan(self._attached, len(self.slab), epoch, *cut)

    def _start_workers(self, plan: EpochPlan) -> BatchSource:
        ahead = self.prefetch + self.threads - 1
        if self.isolate and plan.batch_count:
            from fieldslab.reader.loading.isolated import IsolatedWorkers

            return IsolatedWorkers(
                self.slab, self, plan, self.threads, ahead, self._convert, self._idle
            )
        preparation = self._make_preparation(plan)
        if self.prefetch == 0 or plan.batch_count == 0:
            return OnDemandBatches(preparation, plan.batch_count)
        from fieldslab.reader.loading.groups import Groups, choose_group_size
        from fieldslab.reader.loading.workers import Workers

        size = choose_group_size(preparation)
        workers: Groups | Workers[PreparedBatch]
        tuner = self._tuner
        if tuner is not None:
            tuner.group_size = size
        if size > 1:
            workers = Groups(preparation, size, plan.batch_count, self.threads, tuner)
        elif tuner is not None:
            workers = TunedWorkers(preparation, plan.batch_count, tuner, lambda batch: [batch])
        else:
            workers = Workers(preparation, plan.batch_count, self.threads, ahead)
        self._task_queues.add(workers.task_queue)
        return workers

    def _count_batches_in_turn(self) -> int:
        """Return how many batches are written before the consumer reads one of them."""
        if self._tuner is not None:
            return self._tuner.ahead + 1
        return self.prefetch + self.threads if self.prefetch else 1

    def _make_preparation(self, plan: EpochPlan) -> "Preparation":
        # Kernels are compiled when these are imported: not before the first batch is wanted.
        from fieldslab.reader.loading.prefetching import make_read_ahead
        from fieldslab.reader.loading.preparation import Preparation

        self.slab.storage.changes.compare_files()
        read_ahead, windows = None, self._attached.windows
        if self.read_ahead and plan.batch_count and (windows is None or windows.span):
            decoded, order, epoch = self._decode, self._attached, self._position.epoch
            read_ahead = make_read_ahead(self.slab, self._fields, decoded, order, plan, epoch)
            if not isinstance(self.order, Sequential):
                read_ahead.advise_random_access()
        padded = self._fields if windows is None else []
        paddings = find_paddings(self.slab, self._transforms, padded, self._decode)
        decode = self._decode
        memory = getattr(self._convert, "memory", None) or self.slab.storage.pool
        if self._convert is not None:
            staged = {} if self._transforms or windows is not None else self._convert.staged
            decode = {**decode, **staged}
        seed, view = choose_seed(self._seed, self.order), self.slab.view
        chain = TransformChain(self._transforms, seed, view, memory, self._convert, paddings)
        return Preparation(
            self.slab,
            self._attached,
            self._position.epoch,
            plan,
            self._fields,
            chain,
            read_ahead,
            self.read_ahead,
            decode,
            batches_in_turn=self._count_batches_in_turn(),
        )
