"""Read random batches from a slab, and from the Parquet file that it was packed from.

python examples/demo.py examples/photos.parquet build [SECONDS]

Each way of reading is timed for so many seconds, or for two.
"""

import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

from fieldslab.packer import pack
from fieldslab.reader import Loader, Shuffled, Slab, open_slab

REPEATS = 32
ROW_GROUP = 128
BATCH = 64
EPOCHS = 5


def make(source: Path, folder: Path) -> tuple[Path, Slab]:
    """The rows of a Parquet file many times over, as a Parquet file and as a slab."""
    table = pq.read_table(source)
    parquet, slab = folder / "many.parquet", folder / "many.slab"
    pq.write_table(pa.concat_tables([table] * REPEATS), parquet, row_group_size=ROW_GROUP)
    print(f"packing the {len(table)} photographs {REPEATS} times over", flush=True)
    packed = pack(parquet, slab, nulls={"weight": "mask"}, force=True)
    print(f"{REPEATS * len(table):,} rows, {packed.bytes / 1e6:.0f} MB, {packed.seconds:.1f} s")
    return parquet, open_slab(slab)


def rows_a_second(read: Callable[[np.ndarray], object], total: int, wanted: float) -> float:
    """Rows a second in random batches, the median of what `wanted` seconds are enough for."""
    rng = np.random.default_rng(0)
    read(rng.permutation(total)[:BATCH])
    seconds: list[float] = []
    while sum(seconds) < wanted:
        rows = rng.permutation(total)[:BATCH]
        started = time.perf_counter()
        read(rows)
        seconds.append(time.perf_counter() - started)
    return BATCH / median(seconds)


def main(source: Path, folder: Path, wanted: float = 2.0) -> None:
    """Show a row and a batch, then measure."""
    parquet, slab = make(source, folder)
    row = slab[7]
    print(
        f"\nslab[7]: label {row['label']}, {len(row['image']):,} bytes of JPEG, {row['caption']!r}"
    )
    batch = slab.gather([5, 1, 100])
    print(f"slab.gather([5, 1, 100]): labels {batch['label'].tolist()}, {batch['tokens']}")

    for _ in Loader(slab, BATCH):  # every block is compared with its checksum when first touched
        pass
    dataset = pyarrow.dataset.dataset(parquet)
    images = slab["image"][:].values
    size = slab.gather(range(BATCH)).nbytes
    targets = cycle([np.ones(size, np.uint8), np.ones(size, np.uint8)])

    def copy(rows: np.ndarray) -> None:
        start = int(rows[0]) * (len(images) - size) // len(slab)
        np.copyto(next(targets), images[start : start + size])

    ways: dict[str, Callable[[np.ndarray], object]] = {
        f"Parquet, row groups of {ROW_GROUP}, take": dataset.take,
        "slab, gather": slab.gather,
        "memcpy of as many bytes": copy,
    }
    print(
        f"\nrandom batches of {BATCH} of {len(slab):,} rows, all fields, from memory, one thread:"
    )
    slowest = 0.0
    for name, read in ways.items():
        rate = rows_a_second(read, len(slab), wanted)
        slowest = slowest or rate
        print(f"  {name:<34}{rate:>11,.0f} rows/s {rate / slowest:>7,.0f}x", flush=True)

    loader = Loader(slab, BATCH, Shuffled(seed=0))
    seconds = []
    for _ in range(EPOCHS):
        started = time.perf_counter()
        for batch in loader:
            del batch
        seconds.append(time.perf_counter() - started)
    print(f"  {'slab, shuffled epochs by Loader':<34}{len(slab) / median(seconds):>11,.0f} rows/s")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(float, sys.argv[3:]))
