"""Small batches, made several at a time: one gather and one hand-over between threads for all."""

from collections.abc import Iterator

from fieldslab.reader import forks
from fieldslab.reader.loading.preparation import Preparation
from fieldslab.reader.loading.stats import PreparedBatch
from fieldslab.reader.loading.tuning import TunedWorkers, Tuner
from fieldslab.reader.loading.workers import Workers

GROUP_BYTES = 2 << 20
"""A group has no more than this."""
_MOST = 16
_LEAST_GROUPS = 16
"""An epoch has as many groups, so that it begins and ends without waiting for a large one."""

Outcome = PreparedBatch | Exception


def choose_group_size(preparation: Preparation) -> int:
    """Choose how many batches are made together; 1 if they are not small."""
    if not preparation.takes_groups:
        return 1
    fitting = GROUP_BYTES // max(preparation.batch_bytes, 1)
    return max(min(fitting, _MOST, preparation.batch_count // _LEAST_GROUPS), 1)


class GroupMaker:
    """Makes groups of batches by their number; any number of threads may call it at once."""

    def __init__(self, preparation: Preparation, size: int, batches: int) -> None:
        self._preparation = preparation
        self._size = size
        self._batches = batches

    def __call__(self, number: int) -> list[Outcome]:
        """Make a group: its batches in order, up to an error that ends them."""
        first = number * self._size
        indexes = range(first, min(first + self._size, self._batches))
        try:
            return [*self._preparation.make_batches(indexes)]
        except Exception:  # noqa: BLE001 - those in front of the wrong one can still be had
            return [*self._make_one_by_one(indexes)]

    def _make_one_by_one(self, indexes: range) -> Iterator[Outcome]:
        for index in indexes:
            try:
                yield self._preparation(index)
            except Exception as error:  # noqa: BLE001 - the consumer has to hear of it
                yield error
                return


class Groups:
    """Hands over the batches of groups one by one."""

    def __init__(
        self,
        preparation: Preparation,
        size: int,
        batches: int,
        threads: int,
        tuner: Tuner | None = None,
    ) -> None:
        """Start threads that make the batches, `size` together: as many as `tuner` says, if any."""
        make, count = GroupMaker(preparation, size, batches), -(-batches // size)
        self._workers: Workers[list[Outcome]]
        if tuner is None:
            self._workers = Workers(make, count, threads, threads + 1)
        else:
            self._workers = TunedWorkers(make, count, tuner, _list_batches)
        self.task_queue = self._workers.task_queue
        self._ready: list[Outcome] = []  # the next one comes last
        forks.register_for_forks(self)

    def get_next(self) -> PreparedBatch:
        """See `Workers.get_next`."""
        if not self._ready:
            self._ready = self._workers.get_next()[::-1]
        outcome = self._ready.pop()
        if isinstance(outcome, Exception):
            self.task_queue.stop()
            raise outcome
        return outcome

    def close(self) -> None:
        """See `Workers.close`."""
        self._ready = []
        self._workers.close()

    def after_fork(self) -> None:
        """End the iteration in a forked child: `get_next` raises the reason."""
        self._ready = []


def _list_batches(outcomes: list[Outcome]) -> list[PreparedBatch]:
    return [outcome for outcome in outcomes if isinstance(outcome, PreparedBatch)]
