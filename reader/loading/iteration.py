"""One iteration over a loader, and where it stands."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from fieldslab.reader.loading.epoch_plan import EpochPlan
from fieldslab.reader.loading.stats import COUNTED_TOGETHER, PreparedBatch, Recorder

if TYPE_CHECKING:
    from fieldslab.reader.loading.preparation import Preparation


class EpochPosition:
    """Where an epoch stands: behind `taken` batches of a plan, or at `start` without one."""

    def __init__(self, epoch: int, start: int) -> None:
        self.epoch = epoch
        self.start = start
        self.plan: EpochPlan | None = None
        self.taken = 0

    @property
    def position(self) -> int:
        """The next position of the epoch that no rank has visited."""
        # Computed when somebody asks: between two batches, each line takes ten times its time.
        return self.start if self.plan is None else self.plan.find_position_after(self.taken - 1)

    def copy(self) -> "EpochPosition":
        """Return a copy."""
        return EpochPosition(self.epoch, self.position)

    def end_epoch(self) -> None:
        """Go on to the next epoch."""
        self.epoch += 1
        self.start, self.plan = 0, None


class BatchSource(Protocol):
    """Where batches come from, in order."""

    @property
    def get_next(self) -> Callable[[], PreparedBatch]:
        """A function that returns the next batch, or raises StopIteration when there is none."""

    def close(self) -> None:
        """Make no more."""


class OnDemandBatches:
    """Makes batches in the consumer's thread, one at a time."""

    def __init__(self, preparation: "Preparation", count: int) -> None:
        self._preparation = preparation
        self._numbers = iter(range(count))

    def get_next(self) -> PreparedBatch:
        """Return the next batch. Raises StopIteration when there is none."""
        return self._preparation(next(self._numbers))

    def close(self) -> None:
        """Make no more."""
        self._numbers = iter(())


class ReceivedBatches:
    """Batches of a source that sends them to a device, as the consumer may use them."""

    def __init__(self, source: BatchSource) -> None:
        self._source = source

    def get_next(self) -> PreparedBatch:
        """See `BatchSource`."""
        prepared = self._source.get_next()
        return prepared._replace(batch=prepared.batch.receive())

    def close(self) -> None:
        """See `BatchSource`."""
        self._source.close()


class EpochIterator(Iterator[Any]):
    """One iteration.

    A training step leaves nothing of this in the processor's caches, and then each function that is
    called in Python takes 3 us, whatever it does. So `__next__` calls only what gives it the batch.
    """

    def __init__(
        self,
        source: BatchSource,
        plan: EpochPlan,
        where: EpochPosition,
        recorder: Recorder,
    ) -> None:
        where.plan, where.taken = plan, 0
        self._source = source
        self._get_next = source.get_next
        self._where = where  # the loader's, until it starts another iteration
        self._recorder = recorder
        self._added = recorder.added
        self._ended = False

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        started = time.perf_counter()
        try:
            prepared = self._get_next()
        except StopIteration:
            self._where.end_epoch()
            self.close()
            raise
        except BaseException:
            self.close()
            raise
        self._where.taken += 1
        added = self._added
        added.append((started, time.perf_counter(), prepared[1:]))
        if len(added) == COUNTED_TOGETHER:
            self._recorder.count_added()
        return prepared.batch

    def close(self) -> None:
        """End early."""
        self._ended = True
        self._source.close()
