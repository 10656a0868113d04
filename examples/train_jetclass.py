"""Train a small particle transformer on jets, whose files are as those of JetClass: padded HDF5.

python examples/train_jetclass.py [jets/*.h5]

Without files it makes some: jets of two kinds, narrow ones and those with two cores.
"""

import sys
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch

from fieldslab.packer import pack
from fieldslab.reader import Loader, Pad, Shuffled, UpperTriangle, open_slab
from fieldslab.reader.torch import TensorBatch

EPOCHS = 5
MOST = 30
"""Particles that every row has room for."""
EMPTY = -1000
"""What the files hold for pairs without particles."""


def make_jets(path: Path, rows: int, seed: int) -> None:
    """Write a file of random jets: particles (eta, phi, log pt), and all their pairs."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, rows)
    count = rng.integers(10, MOST + 1, rows)
    core = rng.choice([-0.4, 0.4], (rows, MOST)) * label[:, None]
    particles = rng.normal(0, 0.15, (rows, MOST, 3)).astype(np.float32)
    particles[:, :, 0] += core
    first, second = np.triu_indices(MOST, 1)
    apart = np.abs(particles[:, first, :2] - particles[:, second, :2])
    pairs = np.log(np.concatenate([np.hypot(*apart.T).T[:, :, None], apart], axis=2) + 1e-3)
    particles[np.arange(MOST) >= count[:, None]] = 0
    pairs[second >= count[:, None]] = EMPTY
    with h5py.File(path, "w") as file:
        columns = {
            "feature_matrix": particles,
            "adjacency_matrix": pairs,
            "labels": label,
            "n_particles": count,
        }
        for name, values in columns.items():
            file.create_dataset(name, data=values, chunks=True, compression="lzf")


class Model(torch.nn.Module):
    """One layer of attention, in which what is known of two particles is added to their score."""

    def __init__(self, features: int, pairs: int, width: int = 32) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(features, width)
        self.score = torch.nn.Sequential(
            torch.nn.Linear(pairs, 16), torch.nn.GELU(), torch.nn.Linear(16, 1)
        )
        self.mix = torch.nn.Linear(width, 3 * width)
        self.judge = torch.nn.Sequential(
            torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, 2)
        )

    def forward(
        self, particles: torch.Tensor, pairs: torch.Tensor, there: torch.Tensor
    ) -> torch.Tensor:
        """Particles (B, n, features), pairs (B, n, n, features), bool (B, n) to scores (B, 2)."""
        states = self.embed(particles)
        query, key, value = self.mix(states).chunk(3, dim=2)
        bias = self.score(pairs).squeeze(3).masked_fill(~there[:, None, :], -1e9)
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        summed = ((states + mixed) * there[:, :, None]).sum(dim=1)
        return self.judge(summed / there.sum(dim=1, keepdim=True))


def train(slab: Path) -> None:
    """Train, and print the loss and the share of right answers of each epoch."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # more only get in each other's way where a step is this small
    jets = open_slab(slab)
    features = jets.fields["feature_matrix"].shape[-1]
    pairs = jets.fields["adjacency_matrix"].shape[-1]
    model = Model(features, pairs)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    transforms = [
        Pad("feature_matrix", MOST, mask="there"),
        UpperTriangle("adjacency_matrix", n=MOST, fill=0, padding=EMPTY),
    ]
    with Loader(jets, 64, Shuffled(0), transforms=transforms, output="torch") as loader:
        for epoch in range(EPOCHS):
            loss_sum = right = 0.0
            for batch in loader:
                loss, hits = step(model, optimizer, batch)
                loss_sum += loss * len(batch.rows)
                right += hits
            print(f"epoch {epoch}: loss {loss_sum / len(jets):.3f}, right {right / len(jets):.0%}")


def step(model: Model, optimizer: torch.optim.Optimizer, batch: TensorBatch) -> tuple[float, float]:
    """One step of training: its loss, and how many jets were told right before it."""
    scores = model(batch["feature_matrix"], batch["adjacency_matrix"], batch["there"])
    loss = torch.nn.functional.cross_entropy(scores, batch["labels"])
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item(), (scores.argmax(1) == batch["labels"]).sum().item()


def main(files: list[str]) -> None:
    """Pack the files without their padding, and learn from them."""
    with tempfile.TemporaryDirectory() as folder:
        if not files:
            for number in range(2):
                make_jets(Path(folder) / f"jets-{number}.h5", 500, seed=number)
            files = [f"{folder}/*.h5"]
        ragged = ["feature_matrix:len=n_particles", f"adjacency_matrix:pad={EMPTY}"]
        packed = pack(files, Path(folder) / "jets.slab", ragged=ragged)
        print(f"{packed.manifest.rows:,} jets, {packed.bytes / 1e6:.1f} MB")
        train(packed.path)


if __name__ == "__main__":
    main(sys.argv[1:])
