"""Slabs in Grain, the loader of JAX programs.

A slab is a `grain.sources.RandomAccessDataSource` of rows as it is. Faster by far is a source of
whole batches, since Grain then does its work once a batch:

    source = grain_batches(open_slab("train.slab"), batch_size=128, epochs=3)
    dataset = grain.MapDataset.source(source).to_iter_dataset()
    for batch in dataset:
        step(jax.device_put(batch, sharding))

Element `i` of the source is batch `i` of the run, whoever asks for it, so what Grain saves of an
iterator's state is all there is to resume by.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fieldslab.reader.batch import Batch
from fieldslab.reader.images.steps import ImageSteps, check_decode_option
from fieldslab.reader.loading.chain import TransformChain, choose_seed
from fieldslab.reader.loading.epoch_plan import (
    BatchPlan,
    EpochPlan,
    choose_batch_size,
    find_rank_and_size,
    make_plan,
)
from fieldslab.reader.loading.preparation import Preparation
from fieldslab.reader.orders.order import Order, Shuffled
from fieldslab.reader.rows import check_index, check_integer
from fieldslab.reader.slab import Slab, check_slab
from fieldslab.schemas.errors import UsageError


def grain_batches(
    slab: Slab,
    batch_size: int | None = None,
    seed: int = 0,
    *,
    order: Order | None = None,
    fields: Sequence[str] | None = None,
    decode: Mapping[str, Any] | None = None,
    transforms: Sequence[Callable[..., Mapping[str, Any]]] = (),
    epochs: int = 1,
    drop_last: bool = True,
    rank: int | None = None,
    world_size: int | None = None,
) -> "GrainBatches":
    """Return a source of batches, for `grain.MapDataset.source`.

    Parameters
    ----------
    slab
        The slab or view.
    batch_size
        Rows in a batch, on each process. Left out where the order decides, as `TokenBudget` does.
    seed
        Shuffles the rows, in each epoch anew, and is the seed of `rng`. Do not shuffle the dataset
        again.
    order
        Another order than `Shuffled(seed)`. Its seed is also that of `rng`, if it has one.
    fields
        Names of the fields to gather; all if not given.
    decode
        What image fields become, by name, as in `Loader`.
    transforms
        What is done to each batch, as in `Loader`: `Pad` makes arrays of ragged fields. Functions
        that take `rng` draw as in a `Loader` of the same order and seed.
    epochs
        How many epochs the source has. It may be any number: nothing is stored for them.
    drop_last
        Leave out the last batch of an epoch where it is smaller; compiled JAX functions want one
        shape. Else it is smaller, and several processes fill it up alike.
    rank, world_size
        Which share of each step is this process's: JAX's process index and count if not given and
        `jax.distributed` is initialised, else there is one.

    Raises
    ------
    UnknownField, RowOutOfRange, UsageError
        The arguments contradict each other, or the slab.
    """
    check_slab(slab)
    seed = check_integer("seed", seed)
    order = Shuffled(seed) if order is None else order
    rank, world_size = _find_process(rank, world_size)
    attached = order.attach(slab)
    size = choose_batch_size(batch_size, attached.find_batches(0))
    plan = make_plan(attached, len(slab), 0, size, rank, world_size, drop_last, start=0)
    epochs = check_integer("epochs", epochs, least=1)
    names = list(attached.choose_fields(slab, fields))
    images = check_decode_option(decode, slab.fields, names)
    if getattr(order, "seed", None) is not None:
        seed = choose_seed(None, order)
    return GrainBatches(slab, order, plan, names, images, transforms, epochs, seed)


class GrainBatches:
    """Batches of all epochs, by number; each is read when it is asked for, in any thread.

    It is a `grain.sources.RandomAccessDataSource`, which asks for methods, not for a base class.

    A batch is a dict from field name to ndarray, which JAX takes for a tree of arrays; ragged, text
    and binary fields are what they are in a `Batch`. Fields that may have nulls have their mask
    under `NAME.valid` beside them. It pickles as the slab's path.
    """

    def __init__(
        self,
        slab: Slab,
        order: Order,
        plan: EpochPlan,
        fields: Sequence[str],
        decode: Mapping[str, ImageSteps],
        transforms: Sequence[Callable[..., Mapping[str, Any]]],
        epochs: int,
        seed: int = 0,
    ) -> None:
        """Not for callers: use `grain_batches`."""
        self._slab = slab
        self._order = order
        self._attached = order.attach(slab)
        self._plan = plan
        self._fields = list(fields)
        self._decode = decode
        self._transforms = list(transforms)
        self._epochs = epochs
        self._seed = seed

    def __len__(self) -> int:
        return self._plan.batch_count * self._epochs

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One batch. Raises RowOutOfRange, DamagedArray."""
        epoch, number = divmod(check_index(index, len(self)), self._plan.batch_count)
        prepare = Preparation(
            self._slab,
            self._attached,
            epoch,
            self._make_plan(epoch),
            self._fields,
            TransformChain(self._transforms, self._seed, self._slab.view, self._slab.storage.pool),
            read_ahead=None,
            ahead=0,
            decode=self._decode,
        )
        return _convert_to_tree(prepare(number).batch)

    def _make_plan(self, epoch: int) -> EpochPlan:
        batches = self._attached.find_batches(epoch)
        if batches is None or not isinstance(self._plan, BatchPlan):
            return self._plan
        return replace(self._plan, batches=batches)

    def __repr__(self) -> str:
        """The same in every process that reads the same; Grain compares it before it resumes."""
        plan = self._plan
        return (
            f"GrainBatches({self._slab.manifest.id}, {self._slab.view}, {self._attached!r}, "
            f"{self._fields}, {self._decode}, batch_size={plan.batch_size}, "
            f"world_size={plan.world_size}, drop_last={plan.drop_last}, epochs={self._epochs})"
        )


def _convert_to_tree(batch: Batch) -> dict[str, Any]:
    tree: dict[str, Any] = dict(batch)
    for name, valid in batch.valid.items():
        if f"{name}.valid" in tree:
            hint = "Leave this field out with `fields`."
            raise UsageError(
                "a field has the same name as the mask of another", field=f"{name}.valid", hint=hint
            )
        tree[f"{name}.valid"] = valid
    return tree


def _find_process(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return rank and number of processes: those given, or JAX's if it runs on several."""
    if rank is not None or world_size is not None:
        return find_rank_and_size(rank, world_size)
    # Who runs several processes has imported JAX to say so; nobody else waits for it.
    jax = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return 0, 1
    return jax.process_index(), jax.process_count()
