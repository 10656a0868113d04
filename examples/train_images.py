"""Train a small convolutional network in PyTorch: which photograph is a crop from?

fieldslab pack examples/photos.parquet -o build/photos.slab --nulls weight=mask
python examples/train_images.py build/photos.slab
"""

import sys

import torch
from torch import nn

from fieldslab.reader import (
    CenterCrop,
    Loader,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Sequential,
    open_slab,
)

EPOCHS = 8
BATCH = 16
SIZE = 64
TRAIN = {"image": [RandomResizedCrop(SIZE, scale=(0.3, 1)), RandomHorizontalFlip(), Normalize()]}
TEST = {"image": [CenterCrop(SIZE), Normalize()]}


def make_model() -> nn.Module:
    """Three convolutions, each at half the size of the one before."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
        convolution = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1)
        layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 8))


def main(path: str) -> None:
    """Train, and print the loss of each epoch; then the share of right answers on whole crops."""
    torch.manual_seed(0)
    slab = open_slab(path)
    fields = ["image", "label"]
    loader = Loader(slab, BATCH, fields=fields, decode=TRAIN, output="torch")
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for epoch in range(EPOCHS):
        loss_sum = 0.0
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            loss_sum += loss.item() * len(batch["label"])
        print(f"epoch {epoch}: loss {loss_sum / len(slab):.3f}")
    model.eval()
    right = 0
    with torch.no_grad():
        plain = Loader(slab, BATCH, Sequential(), fields=fields, decode=TEST, output="torch")
        for batch in plain:
            right += int((model(batch["image"]).argmax(1) == batch["label"]).sum())
    print(f"right {right / len(slab):.0%}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "build/photos.slab")
