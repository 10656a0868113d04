"""Slabs as datasets for PyTorch's DataLoader.

A slab is a map-style dataset as it is. With `collate`, a batch is one gather instead of a Python
object a row:

    slab = open_slab("train.slab")
    loader = DataLoader(slab, batch_size=256, shuffle=True, num_workers=2, collate_fn=collate)

or, where a few fields are enough, `DataLoader(SlabDataset(slab, ["tokens"]), ...)`. Samplers,
`Subset`, `random_split` and torchdata's `StatefulDataLoader` work on both. The project's own
`Loader` gives the same batches with `output="torch"`, and without worker processes.

A dataset is asked for rows and cannot know that a sampler draws a row for the second time in an
epoch: from one batch to the next, it would get the same crop again. Put a `CountingSampler`
around a sampler that repeats rows:

    sampler = CountingSampler(WeightedRandomSampler(weights, len(slab)))
    loader = DataLoader(dataset, batch_size=256, sampler=sampler, collate_fn=collate)
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, Sampler, default_collate

import fieldslab.reader.gather  # noqa: F401  # so that forked workers inherit the kernels
from fieldslab.reader.draws.visits import Visit
from fieldslab.reader.images.steps import check_decode_option
from fieldslab.reader.loading.chain import TransformChain, check_transforms
from fieldslab.reader.orders.windows import Windows, WindowSamples
from fieldslab.reader.row_samples import SampledSlab, Samples
from fieldslab.reader.rows import Rows, check_integer
from fieldslab.reader.slab import Slab, check_slab
from fieldslab.reader.tensor_batch import Jagged, TensorBatch, ToTensors
from fieldslab.reader.transforms.perrow import DrawFrom, PerRow, TensorGenerator

__all__ = [
    "CountingSampler",
    "DrawFrom",
    "Jagged",
    "PerRow",
    "SlabDataset",
    "TensorBatch",
    "TensorGenerator",
    "collate",
]


class SlabDataset(Dataset[dict[str, Any]]):
    """Some fields of a slab or view, as a map-style dataset.

    An item is a row: a dict from field name to value, as in `slab[row]`. `__getitems__` returns
    `Samples`, from which `collate` makes a batch.

    With `decode`, images are decoded as by `Loader`. What is drawn depends on `epoch`, which is
    yours to set before each epoch; worker processes see it, those that persist too. Rows that a
    batch has twice are drawn twice; for rows that come again in other batches, see
    `CountingSampler`.

    With `transforms`, each batch is transformed as by a `Loader` with output="torch": functions
    get tensors, and those that take `rng` draw by `seed`, `epoch`, row and visit. An item is then
    a batch of one row, transformed, and of that the row.

    With `windows`, an item is a window, and the dataset has as many as an epoch of that order.
    They are numbered as they are stored: a sampler shuffles them.
    """

    def __init__(
        self,
        slab: Slab,
        fields: Sequence[str] | None = None,
        decode: Mapping[str, Any] | None = None,
        transforms: Sequence[Callable[..., Mapping[str, Any]]] = (),
        seed: int = 0,
        windows: Windows | None = None,
    ) -> None:
        """Take names of fields: all if not given. Raises UnknownField, UsageError."""
        check_slab(slab)
        self.slab = slab
        self.samples: SampledSlab = slab
        self.fields = slab.names(fields)
        if windows is not None:
            self.samples = chosen = WindowSamples(slab, windows)
            self.fields = chosen.choose_fields(fields)
        self.decode = check_decode_option(decode, slab.fields, self.fields)
        if windows is not None and self.decode:
            from fieldslab.reader.images.decoded_windows import check_window_steps  # kernels

            check_window_steps(self.decode)
        gathered = {name: self.samples.fields[name] for name in self.fields}
        self.transforms = check_transforms(gathered, self.decode, transforms)
        self.seed = check_integer("seed", seed)
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    @property
    def epoch(self) -> int:
        """The epoch that images are drawn for, in this process and in its workers."""
        return int(self._epoch)

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch.fill_(check_integer("epoch", epoch, least=0))

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, row: int) -> dict[str, Any]:
        """One row. Raises RowOutOfRange."""
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Rows) -> Samples:
        """Return many rows, which are read when they are used."""
        chain = None
        if self.transforms or self.samples is not self.slab:
            convert = ToTensors(self.slab.fields, False, self.decode)
            memory = self.slab.storage.pool
            chain = TransformChain(self.transforms, self.seed, self.slab.view, memory, convert)
        return Samples(self.samples, rows, self.fields, self.decode, self.epoch, chain=chain)


class CountingSampler(Sampler[Any]):
    """The rows of another sampler, each with its visit: how often the row came in this iteration.

    With it, a row that is sampled several times in an epoch is drawn anew each time, as in a
    `Loader` with `Weighted`, for any batch size and number of workers. Samplers of rows and of
    batches will do. Each process counts what it samples itself: a row that two ranks sample has
    the same crop on both.
    """

    def __init__(self, sampler: Iterable[Any]) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        counts: Counter[int] = Counter()

        def add_visit(row: Any) -> Visit:
            counts[row] += 1
            return Visit(row, counts[row] - 1)

        for rows in self.sampler:
            yield [add_visit(row) for row in rows] if isinstance(rows, list) else add_visit(rows)

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]

    def set_epoch(self, epoch: int) -> None:
        """Tell the sampler, as `DistributedSampler` wants it."""
        self.sampler.set_epoch(epoch)  # type: ignore[attr-defined]


def collate(samples: Any) -> Any:
    """Make a batch, for `DataLoader(..., collate_fn=collate)`.

    Rows of a slab become a `TensorBatch`, whose tensors share the memory of one gather. Whatever
    else there is, such as rows of a dataset that wraps a slab, goes to PyTorch's
    `default_collate`. Raises what `Slab.gather` raises.
    """
    if isinstance(samples, Samples):
        if samples.chain is None:
            return ToTensors(samples.slab.fields, False, samples.decode)(samples.batch)
        return samples.chain(samples.batch, samples.epoch)
    return default_collate(samples)
