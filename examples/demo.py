"""Gather shuffled batches from a slab, and print the rate beside that of a plain memcpy.

python examples/demo.py build/photos.slab
"""

import sys
import time
from statistics import median

import numpy as np

from fieldslab.reader import open_slab

ROUNDS = 200


def main(path: str) -> None:
    """Show a row and a batch, then measure."""
    slab = open_slab(path)
    print(slab)
    row = slab[7]
    print(
        f"\nslab[7]: label {row['label']}, {len(row['image']):,} bytes of JPEG, {row['caption']!r}"
    )
    batch = slab.gather([5, 1, 100])
    print(f"slab.gather([5, 1, 100]): labels {batch['label'].tolist()}, {batch['tokens']}\n")

    # The whole set in shuffled order, and the same bytes copied in one piece a field.
    columns = [slab[name][:] for name in slab.fields]
    parts = [getattr(column, "values", column) for column in columns]
    copies = [np.ones_like(part) for part in parts]
    size = sum(part.nbytes for part in parts)
    generator = np.random.default_rng(0)
    gathering, copying = [], []
    for _ in range(ROUNDS):
        order = generator.permutation(len(slab))
        started = time.perf_counter()
        slab.gather(order)
        gathered = time.perf_counter()
        for target, part in zip(copies, parts, strict=True):
            target[...] = part
        copied = time.perf_counter()
        gathering.append(gathered - started)
        copying.append(copied - gathered)
    print(f"{ROUNDS} shuffled batches of {len(slab)} rows, {size / 1e6:.1f} MB each, one thread:")
    for name, seconds in (("gather", median(gathering)), ("memcpy", median(copying))):
        rate = f"{len(slab) / seconds:>10,.0f} rows/s  {size / seconds / 1e9:6.2f} GB/s"
        print(f"  {name}   {rate}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "build/photos.slab")
