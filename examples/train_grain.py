"""Train a language model in JAX, with batches from Grain: which byte follows which?

fieldslab pack examples/photos.parquet -o build/photos.slab --nulls weight=mask
python examples/train_grain.py build/photos.slab
"""

import sys

import grain
import jax
import jax.numpy as jnp

from fieldslab.reader import Shift, open_slab
from fieldslab.reader.grain import grain_batches

EPOCHS = 20
LENGTH = 64
RATE = 30.0


def loss_of(table: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
    """Cross entropy of the targets, where there are any; `table` holds scores (256, 256)."""
    scores = jax.nn.log_softmax(table[batch["inputs"]])
    targets = jnp.take_along_axis(scores, batch["targets"][..., None], axis=-1)[..., 0]
    return -(targets * batch["mask"]).sum() / batch["mask"].sum()


@jax.jit
def step(table: jax.Array, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Table after one step of gradient descent, and the loss before it."""
    loss, gradient = jax.value_and_grad(loss_of)(table, batch)
    return table - RATE * gradient, loss


def main(path: str) -> None:
    """Train, and print the loss of each epoch."""
    source = grain_batches(
        open_slab(path),
        batch_size=16,
        seed=0,
        fields=["tokens"],
        transforms=[Shift("tokens", LENGTH, ignore=0)],
        epochs=EPOCHS,
    )
    batches = len(source) // EPOCHS
    table = jnp.zeros((256, 256))
    losses = []
    for batch in grain.MapDataset.source(source).to_iter_dataset():
        arrays = {name: batch[name] for name in ("inputs", "targets", "mask")}
        table, loss = step(table, jax.device_put(arrays))
        losses.append(float(loss))
        if len(losses) % batches == 0:
            mean = sum(losses[-batches:]) / batches
            print(f"epoch {len(losses) // batches - 1}: loss {mean:.3f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "build/photos.slab")
