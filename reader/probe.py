"""How fast random rows of a slab are gathered and loaded on this machine."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fieldslab.reader.buffers import round_up_capacity
from fieldslab.reader.images.encoded import find_images
from fieldslab.reader.loading.loader import Loader
from fieldslab.reader.loading.stats import Stats
from fieldslab.reader.orders.order import Subset
from fieldslab.reader.slab import Slab
from fieldslab.reader.stored.maps import map_keeper
from fieldslab.reader.stored.sizes import count_stored_bytes
from fieldslab.reader.var_len import VarLenValues
from fieldslab.schemas.images import CODES

SAMPLE_ROWS = 2**14
SAMPLE_BYTES = 2**27
"""More than the processor's caches hold, less than takes long to read."""
_PIECE = 256


class Probe:
    """Some random rows of a slab, which are read as the probe is made.

    Attributes
    ----------
    rows, bytes
        How many there are, and their bytes.
    first_touch
        Seconds that it took to gather them for the first time: read from the disk if need be, and
        verified.
    """

    def __init__(
        self,
        slab: Slab,
        names: Sequence[str],
        transforms: Sequence[Callable[..., Mapping[str, Any]]],
        decode: Mapping[str, Any] | None,
        seconds: float,
        output: Literal["numpy", "torch"],
    ) -> None:
        """Take what `Loader` takes, and how long a measurement takes, about."""
        self._slab = slab
        self._names = names
        self._transforms = transforms
        self._decode = decode
        self._seconds = seconds
        self._output = output
        stored = count_stored_bytes(slab.manifest, [slab.fields[name] for name in names], len(slab))
        row = max(stored // len(slab), 1)
        count = min(len(slab), SAMPLE_ROWS, max(SAMPLE_BYTES // row, 1))
        rng = np.random.default_rng(0)
        self._numbers = np.sort(rng.choice(len(slab), count, replace=False))
        slab.gather([], names)  # compiles
        self.rows, self.bytes = count, 0
        started = time.perf_counter()
        for start in range(0, count, _PIECE):
            self.bytes += slab.gather(self._numbers[start : start + _PIECE], names).nbytes
        self.first_touch = time.perf_counter() - started

    def count_unindexed(self, name: str) -> int:
        """Count the JPEG images of a field that have no index, among the rows."""
        storage = self._slab.storage
        locations = storage.locate_rows(self._slab.view, self._numbers)
        with map_keeper.hold():
            images = find_images(storage.load_field(name), locations, storage.pool).images
        return int(((images.codes == CODES["jpeg"]) & (images.counts == 0)).sum())

    def measure_gathered_bytes(self, size: int) -> int:
        """Measure the bytes of one gathered batch."""
        return _count_batch_bytes(
            self._slab.gather(self._numbers[np.arange(size) % self.rows], self._names)
        )

    def measure_ready_bytes(self, size: int) -> int:
        """Measure the bytes of one batch that is decoded and transformed."""
        return max(
            _count_batch_bytes(next(iter(self._make_loader(size, 1, 0)))),
            self.measure_gathered_bytes(size),
        )

    def measure_gather_speed(self, size: int) -> float:
        """Measure gathers of random batches in rows per second, by the median."""
        rng = np.random.default_rng(size)
        seconds: list[float] = []
        batch = None
        while sum(seconds) < self._seconds or len(seconds) < 3:
            rows = rng.choice(self._numbers, size)
            started = time.perf_counter()
            batch = self._slab.gather(rows, self._names)
            seconds.append(time.perf_counter() - started)
        del batch
        return size / max(float(np.median(seconds)), 1e-9)

    def measure_loader(self, size: int, threads: int, prefetch: int, step: float = 0.0) -> Stats:
        """Measure a loader whose consumer computes for some seconds after each batch."""
        loader = self._make_loader(size, threads, prefetch)
        limit = self._seconds * (5 if step else 1)
        started = time.perf_counter()
        with loader:
            for _ in loader:
                if step:
                    time.sleep(step)
                if time.perf_counter() - started > limit and loader.stats().batches > 2:
                    break
        return loader.stats()

    def _make_loader(self, size: int, threads: int, prefetch: int) -> Loader:
        rows = np.resize(self._numbers, max(self.rows, 100 * size))
        return Loader(
            self._slab,
            size,
            Subset(rows, seed=None),
            fields=self._names,
            decode=self._decode,
            transforms=self._transforms,
            threads=threads,
            prefetch=prefetch,
            output=self._output,
        )


def _count_batch_bytes(batch: Mapping[str, Any]) -> int:
    """Count the bytes of recycled memory that a batch takes, in powers of two."""
    return sum(_count_bytes(values) for values in batch.values())


def _count_bytes(values: Any) -> int:
    if isinstance(values, VarLenValues):
        return _count_bytes([values.values, values.offsets])
    if isinstance(values, tuple | list):
        return sum(map(_count_bytes, values))
    return round_up_capacity(values.nbytes) if values.nbytes else 0
