"""Slabs as datasets for PyTorch's DataLoader.

A slab is a map-style dataset as it is. With `collate`, a batch is one gather instead of a Python
object a row:

    slab = open_slab("train.slab")
    loader = DataLoader(slab, batch_size=256, shuffle=True, num_workers=2, collate_fn=collate)

or, where a few fields are enough, `DataLoader(SlabDataset(slab, ["tokens"]), ...)`. Samplers,
`Subset`, `random_split` and torchdata's `StatefulDataLoader` work on both. The project's own
`Loader` gives the same batches with `output="torch"`, and without worker processes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, default_collate

import fieldslab.reader.gather  # noqa: F401  # so that forked workers inherit the kernels
from fieldslab.reader.images.steps import as_images
from fieldslab.reader.orders.order import whole
from fieldslab.reader.rows import Rows
from fieldslab.reader.samples import Samples
from fieldslab.reader.slab import Slab, check_slab
from fieldslab.reader.tensors import Jagged, TensorBatch, ToTensors

__all__ = ["Jagged", "SlabDataset", "TensorBatch", "collate"]


class SlabDataset(Dataset[dict[str, Any]]):
    """Some fields of a slab or view, as a map-style dataset.

    An item is a row: a dict from field name to value, as in `slab[row]`. `__getitems__` returns
    `Samples`, from which `collate` makes a batch.

    With `decode`, images are decoded as by `Loader`. What is drawn depends on `epoch`, which is
    yours to set before each epoch; worker processes see it, those that persist too.
    """

    def __init__(
        self,
        slab: Slab,
        fields: Sequence[str] | None = None,
        decode: Mapping[str, Any] | None = None,
    ) -> None:
        """Take names of fields: all if not given. Raises UnknownField, UsageError."""
        check_slab(slab)
        self.slab = slab
        self.fields = slab.names(fields)
        self.decode = as_images(decode, slab.fields, self.fields)
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    @property
    def epoch(self) -> int:
        """The epoch that images are drawn for, in this process and in its workers."""
        return int(self._epoch)

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch.fill_(whole("epoch", epoch, least=0))

    def __len__(self) -> int:
        return len(self.slab)

    def __getitem__(self, row: int) -> dict[str, Any]:
        """One row. Raises RowOutOfRange."""
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Rows) -> Samples:
        """Many rows; they are read when they are used."""
        return Samples(self.slab, rows, self.fields, self.decode, self.epoch)


def collate(samples: Any) -> Any:
    """Make a batch, for `DataLoader(..., collate_fn=collate)`.

    Rows of a slab become a `TensorBatch`, whose tensors share the memory of one gather. Whatever
    else there is, such as rows of a dataset that wraps a slab, goes to PyTorch's
    `default_collate`. Raises what `Slab.gather` raises.
    """
    if isinstance(samples, Samples):
        return ToTensors(samples.slab.fields, False, samples.decode)(samples.batch)
    return default_collate(samples)
