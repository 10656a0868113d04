"""One iteration over a loader, and where it stands."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from fieldslab.reader.loading.epoch_plan import EpochPlan
from fieldslab.reader.loading.stats import PreparedBatch, Recorder

if TYPE_CHECKING:
    from fieldslab.reader.loading.preparation import Preparation


class Position:
    """Where an epoch stands."""

    def __init__(self, epoch: int, position: int) -> None:
        self.epoch = epoch
        self.position = position

    def copy(self) -> "Position":
        """Another one that says the same."""
        return Position(self.epoch, self.position)


class Source(Protocol):
    """Where batches come from, in order."""

    def get_next(self) -> PreparedBatch:
        """The next batch. Raises StopIteration when there is none, or what making it raised."""

    def close(self) -> None:
        """Make no more."""


class OnDemand:
    """Makes batches in the consumer's thread, one at a time."""

    def __init__(self, preparation: "Preparation", count: int) -> None:
        self._preparation = preparation
        self._numbers = iter(range(count))

    def get_next(self) -> PreparedBatch:
        """The next batch. Raises StopIteration when there is none."""
        return self._preparation(next(self._numbers))

    def close(self) -> None:
        """Make no more."""
        self._numbers = iter(())


class EpochIterator(Iterator[Any]):
    """One iteration."""

    def __init__(
        self,
        source: Source,
        plan: EpochPlan,
        where: Position,
        recorder: Recorder,
    ) -> None:
        self._source = source
        self._plan = plan
        self._where = where  # the loader's, until it starts another iteration
        self._recorder = recorder
        self._index = 0
        self._ended = False

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        started = time.perf_counter()
        try:
            prepared = self._source.get_next()
        except StopIteration:
            self._ended = True
            self._where.epoch += 1
            self._where.position = 0
            self.close()
            raise
        except BaseException:
            self.close()
            raise
        waited = time.perf_counter() - started
        self._where.position = self._plan.find_position_after(self._index)
        self._index += 1
        self._recorder.add_batch(prepared, waited)
        return prepared.batch

    def close(self) -> None:
        """End early."""
        self._ended = True
        self._source.close()
