"""Slabs in Lightning: a data module whose training goes on in mid-epoch.

    data = SlabDataModule(train="train.slab", val="val.slab", batch_size=256, fields=["x", "y"])
    trainer.fit(model, data)                                  # or with ckpt_path=...

With Fabric, use a `Loader` with `output="torch"` and `fabric.to_device(batch)`, and put the loader
into what `fabric.save` and `fabric.load` take; or pass a DataLoader over a `SlabDataset` to
`fabric.setup_dataloaders`.
"""

import os
from collections.abc import Iterator
from typing import Any, Literal

from lightning.pytorch import LightningDataModule

from fieldslab.reader.advisor import Advice, advise
from fieldslab.reader.loading.loader import Loader
from fieldslab.reader.open_slab import open_slab
from fieldslab.reader.orders.order import Order, Sequential
from fieldslab.reader.slab import Slab
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.notices import warn

Part = Literal["train", "val", "test", "predict"]
Source = Slab | str | os.PathLike[str]

_PARTS: dict[str | None, tuple[Part, ...]] = {
    "fit": ("train", "val"),
    "validate": ("val",),
    "test": ("test",),
    "predict": ("predict",),
    None: ("train", "val", "test", "predict"),
}


_GIVE_ONE = 'Write SlabDataModule({0}="{0}.slab", ...).'
_OPTIONS = {
    "fields",
    "decode",
    "transforms",
    "seed",
    "prefetch",
    "threads",
    "drop_last",
    "pin_memory",
    "read_ahead",
    "isolate",
    "memory",
}
_OPENING = {"cache_dir", "cache_limit", "storage_options", "cache_shared"}
"""Options of `open_slab`."""


class SlabDataModule(LightningDataModule):
    """Loaders for training, validation, test and prediction.

    Batches are `TensorBatch`. Training is shuffled, everything else comes as it is stored. Every
    rank has its share, and `set_epoch` is called by the trainer. A checkpoint holds where training
    stood, to the batch, and a run goes on from there on any number of ranks. Override `loader` for
    other options in other parts.

    Parameters
    ----------
    train, val, test, predict
        Slabs or views, or their paths, which each process then opens for itself.
    batch_size
        Rows in a batch, on each rank. Left out where the order decides, as `TokenBudget` does.
    order
        Order of training, `Shuffled(0)` if not given.
    options
        Whatever else `Loader` takes: `fields`, `decode`, `transforms`, `seed`, `prefetch`,
        `threads`, `drop_last`, `pin_memory`, `read_ahead`, `isolate`, `memory`. Functions in
        `transforms` get tensors. And for paths and URLs what `open_slab` takes: `cache_dir`,
        `cache_limit`, `storage_options`, `cache_shared`.

    Raises
    ------
    UsageError
        None of the parts is given, or an option is unknown.
    """

    def __init__(
        self,
        train: Source | None = None,
        val: Source | None = None,
        test: Source | None = None,
        predict: Source | None = None,
        *,
        batch_size: int | None = None,
        order: Order | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        sources = {"train": train, "val": val, "test": test, "predict": predict}
        self.sources = {part: source for part, source in sources.items() if source is not None}
        if not self.sources:
            raise UsageError("no slab given", hint=_GIVE_ONE.format("train"))
        option_names = _OPTIONS | _OPENING
        if unknown := sorted(options.keys() - option_names):
            raise UsageError(
                "unknown option", expected=f"one of {sorted(option_names)}", found=unknown
            )
        self.opening = {name: options.pop(name) for name in _OPENING & options.keys()}
        if self.opening and all(isinstance(source, Slab) for source in self.sources.values()):
            raise UsageError(
                "these options are for paths and URLs, and all slabs are open already",
                found=", ".join(sorted(self.opening)),
                hint="Give them to open_slab.",
            )
        self.batch_size = batch_size
        self.order = order
        self.options = options
        self.loaders: dict[str, Loader] = {}
        self._cut_epoch: dict[str, int] = {}
        if val is None:
            # Lightning validates where the hook is overridden; it would warn of an empty loader.
            self.val_dataloader = super().val_dataloader  # type: ignore[method-assign]

    def loader(self, slab: Slab, part: Part) -> Loader:
        """Make the loader of a part; `output="torch"` belongs to it."""
        order = self.order
        if part != "train":
            order = Sequential() if order is None else order.in_sequence()
        return Loader(slab, self.batch_size, order, output="torch", **self.options)

    def advise(self, *, step_ms: float | None = None, memory: int | None = None) -> Advice:
        """Measure the slab for training on this machine, some seconds; print what suits it.

        `step_ms` is how long a training step takes, `memory` how many bytes batches may take: see
        `fieldslab.reader.advisor`. Raises UsageError without a slab to train on.
        """
        if "train" not in self.sources:
            raise UsageError("no slab given for `train`", hint=_GIVE_ONE.format("train"))
        advice = advise(
            self._open("train"),
            self.batch_size,
            fields=self.options.get("fields"),
            transforms=self.options.get("transforms", ()),
            decode=self.options.get("decode"),
            step_ms=step_ms,
            memory=memory,
            output="torch",
        )
        print(advice)  # noqa: T201  # to be read is what it is for
        return advice

    def prepare_data(self) -> None:
        """Open all slabs once, so that one that is missing or damaged is found before a run."""
        for part in self.sources:
            self._open(part)

    def setup(self, stage: str | None = None) -> None:
        """Make the loaders of a stage: fit, validate, test, predict; all of them for None.

        Raises what `open_slab` and `Loader` raise.
        """
        if stage == "fit":
            self._cut_epoch = {}
        for part in _PARTS[stage]:
            if part in self.sources and part not in self.loaders:
                self.loaders[part] = self.loader(self._open(part), part)

    def train_dataloader(self) -> "TrainingLoader":
        """Return the batches to train on. Raises UsageError without a slab for it."""
        return TrainingLoader(self._get_loader("train"))

    def val_dataloader(self) -> "EvaluationLoader":
        """Return the batches to validate on; without a slab for it, there is no validation."""
        return EvaluationLoader(self._get_loader("val"))

    def test_dataloader(self) -> "EvaluationLoader":
        """Return the batches to test on. Raises UsageError without a slab for it."""
        return EvaluationLoader(self._get_loader("test"))

    def predict_dataloader(self) -> "EvaluationLoader":
        """Return the batches to predict. Raises UsageError without a slab for it."""
        return EvaluationLoader(self._get_loader("predict"))

    def teardown(self, stage: str | None = None) -> None:
        """Stop the threads of a stage's loaders."""
        if stage == "fit":
            self._cut_epoch = self._find_cut_epoch()
        for part in _PARTS[stage]:
            if part in self.loaders:
                self.loaders.pop(part).close()

    def _find_cut_epoch(self) -> dict[str, int]:
        """Find the epoch in which `fit` has stopped, and how many batches of it are left."""
        loader = self.loaders.get("train")
        limit = 1.0 if self.trainer is None else self.trainer.limit_train_batches
        if loader is None or not isinstance(limit, float) or limit != 1:  # the integer 1: a batch
            return {}
        left = loader.count_batches_left()
        return {"epoch": loader.epoch, "left": left} if 0 < left < len(loader) else {}

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint holds that is saved after `fit` has stopped within an epoch.

        Where training stands is in the state of the loader, which Lightning saves while it runs.
        """
        return self._cut_epoch

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Warn of the rest of an epoch, which Lightning leaves out: see `state_dict`."""
        if state_dict:
            epoch, left = state_dict["epoch"], state_dict["left"]
            warn(
                f"the checkpoint was saved after `fit` had stopped within epoch {epoch}, which "
                f"Lightning takes for its end: the other {left:,} batches of it are left out, and "
                f"training goes on with epoch {epoch + 1}. To go on in mid-epoch, let a callback "
                "save while training runs, such as ModelCheckpoint(every_n_train_steps=...)."
            )

    def on_exception(self, exception: BaseException) -> None:
        """Stop all threads when a run fails or is interrupted."""
        for loader in self.loaders.values():
            loader.close()

    def _get_loader(self, part: Part) -> Loader:
        if part not in self.sources:
            raise UsageError(f"no slab given for `{part}`", hint=_GIVE_ONE.format(part))
        if part not in self.loaders:
            self.loaders[part] = self.loader(self._open(part), part)
        return self.loaders[part]

    def _open(self, part: str) -> Slab:
        source = self.sources[part]
        return source if isinstance(source, Slab) else open_slab(source, **self.opening)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds. Raises UsageError where that is a credential."""
        from fieldslab.schemas.mirror.channel import refuse_credentials

        for source in self.sources.values():
            if not isinstance(source, Slab):
                refuse_credentials(os.fspath(source), self.opening.get("storage_options") or {})
        return self.__dict__


class EvaluationLoader:
    """A loader that starts at the first batch, however far a pass before it came."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


class TrainingLoader:
    """A loader as Lightning's training loop expects one.

    It asks for an iterator before it says which epoch comes, so an epoch starts when its first
    batch is wanted; and it tells the epoch to something called `sampler`.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    @property
    def sampler(self) -> Loader:
        """What is told the epoch."""
        return self.loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        yield from self.loader

    def state_dict(self) -> dict[str, Any]:
        """See `Loader`."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Loader`."""
        self.loader.load_state_dict(state)
