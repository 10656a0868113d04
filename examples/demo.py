"""Gather shuffled batches from a slab, and print the rate beside that of a plain memcpy.

python examples/demo.py build/photos.slab
"""

import sys
import time

import numpy as np

from fieldslab.reader import open_slab

BATCH = 32
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

    generator = np.random.default_rng(0)
    gathering = copying = 0.0
    rows = size = 0
    for warm in (False, True):
        for _ in range(ROUNDS):
            order = generator.permutation(len(slab))[:BATCH]
            started = time.perf_counter()
            batch = slab.gather(order)
            gathered = time.perf_counter()
            parts = [getattr(value, "values", value) for value in batch.values()]
            copies = [np.empty_like(part) for part in parts]
            for target, part in zip(copies, parts, strict=True):
                target[...] = part  # the second copy below finds its pages in place
            before = time.perf_counter()
            for target, part in zip(copies, parts, strict=True):
                target[...] = part
            after = time.perf_counter()
            if warm:
                gathering += gathered - started
                copying += after - before
                rows += len(order)
                size += sum(part.nbytes for part in parts)
    rate, ceiling = size / gathering / 1e9, size / copying / 1e9
    print(f"{rows:,} rows in shuffled batches of {BATCH}, {size / 1e9:.2f} GB, one thread:")
    print(f"  gather   {rows / gathering:>10,.0f} rows/s  {rate:6.2f} GB/s")
    print(f"  memcpy   {rows / copying:>10,.0f} rows/s  {ceiling:6.2f} GB/s  (the same bytes)")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "build/photos.slab")
