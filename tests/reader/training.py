"""Models and trainers of Lightning, apart for their imports, which take six seconds of a core."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from fieldslab.reader import Shuffled
from fieldslab.reader.lightning import SlabDataModule
from fieldslab.reader.torch import TensorBatch

BATCH = 8


class Line(LightningModule):
    """A linear model that remembers what it saw."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3, 1)
        self.seen: list[tuple[int, list[int], float]] = []
        self.evaluated: list[int] = []

    def training_step(self, batch: TensorBatch) -> torch.Tensor:
        """Mean squared error; noted with epoch and rows."""
        loss = torch.nn.functional.mse_loss(self.layer(batch["x"])[:, 0], batch["y"])
        self.seen.append((self.current_epoch, batch["id"].tolist(), loss.item()))
        return loss

    def validation_step(self, batch: TensorBatch) -> None:
        """Note the rows."""
        self.evaluated += batch.rows.tolist()

    def test_step(self, batch: TensorBatch) -> None:
        """Note the rows."""
        self.evaluated += batch.rows.tolist()

    def predict_step(self, batch: TensorBatch) -> Any:
        """Return the rows."""
        return batch.rows

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam, whose state a checkpoint must hold."""
        return torch.optim.Adam(self.parameters(), lr=0.05)


class SaveAt(Callback):
    """Saves a checkpoint after a step."""

    def __init__(self, step: int, path: Path) -> None:
        self.step, self.path = step, path

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Save when the step is done."""
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)


class SaveAtEnd(Callback):
    """Saves a checkpoint after each epoch, over the one before."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        """Save."""
        trainer.save_checkpoint(self.path)


def trainer(tmp_path: Path, **options: Any) -> Trainer:
    """A quiet trainer on the CPU."""
    quiet: dict[str, Any] = {
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": tmp_path,
    }
    return Trainer(**quiet | options)


def data(path: Path, **options: Any) -> SlabDataModule:
    """The slab for training and validation."""
    return SlabDataModule(train=path, val=path, batch_size=BATCH, order=Shuffled(4), **options)
