"""Train a small model with Lightning, stop in mid-epoch, and go on from the checkpoint.

fieldslab pack examples/photos.parquet -o build/photos.slab --nulls weight=mask
python examples/train_lightning.py build/photos.slab
"""

import sys
import tempfile
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy

from fieldslab.reader.lightning import SlabDataModule
from fieldslab.reader.torch import TensorBatch


class Colours(LightningModule):
    """Which photograph is a crop from, judged by its colours?"""

    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Sequential(
            torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
        )

    def training_step(self, batch: TensorBatch) -> torch.Tensor:
        """Loss of a batch."""
        return cross_entropy(self.model(batch["embedding"]), batch["label"])

    def validation_step(self, batch: TensorBatch) -> None:
        """Share of right answers."""
        right = self.model(batch["embedding"]).argmax(1) == batch["label"]
        self.log("right", right.float().mean(), batch_size=len(right))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


def fit(path: str, checkpoint: str | None = None, **options: Any) -> Trainer:
    """Run a trainer on the CPU."""
    data = SlabDataModule(train=path, val=path, batch_size=16, fields=["embedding", "label"])
    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(Colours(), data, ckpt_path=checkpoint, weights_only=True)
    return trainer


def main(path: str) -> None:
    """Train for 100 steps, which are 12 epochs and a half; then go on to the end of epoch 20."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        saving = ModelCheckpoint(folder, every_n_train_steps=100)
        stopped = fit(path, max_steps=100, callbacks=[saving])
        resumed = fit(path, saving.best_model_path, max_epochs=20, enable_checkpointing=False)
    print(f"resumed at step {stopped.global_step}, ended at step {resumed.global_step}")
    print(f"right {resumed.callback_metrics['right'].item():.0%}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "build/photos.slab")
