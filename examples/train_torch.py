"""Train a small model in PyTorch: which photograph is a crop from, judged by its colours?

fieldslab pack examples/photos.parquet -o build/photos.slab --nulls weight=mask
python examples/train_torch.py build/photos.slab
"""

import sys

import torch
from torch.utils.data import DataLoader

from fieldslab.reader import open_slab
from fieldslab.reader.torch import SlabDataset, collate

EPOCHS = 20
BATCH = 16


def main(path: str) -> None:
    """Train, and print the loss and the share of right answers."""
    torch.manual_seed(0)
    data = SlabDataset(open_slab(path), ["embedding", "label"])
    loader = DataLoader(data, BATCH, shuffle=True, collate_fn=collate)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(EPOCHS):
        loss_sum = right = 0.0
        for batch in loader:
            scores = model(batch["embedding"])
            loss = torch.nn.functional.cross_entropy(scores, batch["label"])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            loss_sum += loss.item() * len(scores)
            right += (scores.argmax(1) == batch["label"]).sum().item()
        print(f"epoch {epoch}: loss {loss_sum / len(data):.3f}, right {right / len(data):.0%}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "build/photos.slab")
