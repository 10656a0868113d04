"""What kernels and orders make of fixed inputs, as hashes: processors must agree on them.

`python -m tests.machine_numbers` prints them as JSON. `tests/golden/numbers.json` holds what an
x86-64 with fused multiply-add printed. Inputs come from SHAKE-256 (FIPS 202) and from frozen slabs,
so that they depend neither on the machine nor on a version of numpy.

Two sorts of results may differ in their last digits, and are printed as numbers. Colours are
converted with multiply-adds, which round once where the processor has an instruction for both, and
twice elsewhere. Normal numbers need logarithms and cosines, which C libraries round differently.
`BOUNDS` says by how much each may differ.
"""

import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256, shake_256
from pathlib import Path
from typing import Any

import numpy as np
from tests.slabs import Column, categorical, ragged, write_slab

from fieldslab.reader import (
    Balanced,
    Batch,
    Blocked,
    ByLength,
    Grouped,
    ImageSteps,
    Loader,
    Mixed,
    Near,
    Normalize,
    Pad,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    Shuffled,
    Slab,
    TokenBudget,
    VarLenValues,
    Weighted,
    Windows,
    kernels,
    open_slab,
)
from fieldslab.reader.draws import permutation
from fieldslab.reader.orders.order import Order
from fieldslab.reader.padding import pad_packed_rows
from fieldslab.reader.transforms.transform import FRESH
from fieldslab.schemas.digest import SHA256
from fieldslab.schemas.mapping import get_address
from fieldslab.schemas.native import digest_blocks

FROZEN = Path(__file__).parent / "golden" / "v1"
ROWS = 3000
PHOTOS = [0, 1, 2, 3, 4, 9]
"""Rows of the frozen slab `indexed` that have index points."""
BOUNDS = {"pixels uint8": 1.0, "pixels float32": 4e-6, "normal draws": 1e-14}
"""How far numbers may lie apart: a grey level; in units of Normalize; in deviations."""

Slabs = dict[str, Slab]


def make_bytes(name: str, count: int) -> bytes:
    """Bytes that look random, always the same for a name."""
    return shake_256(name.encode()).digest(count)


def make_integers(name: str, count: int, end: int) -> np.ndarray:
    """Integers below `end`: int64[count]."""
    numbers: np.ndarray = np.frombuffer(make_bytes(name, 4 * count), "<u4") % np.int64(end)
    return numbers


def make_columns() -> dict[str, Column | np.ndarray]:
    """Numbers of any bits, infinite ones and NaN among them; texts of tokens; classes."""
    lengths = make_integers("lengths", ROWS, 40)
    return {
        "row": np.arange(ROWS),
        "float32": np.frombuffer(make_bytes("float32", 20 * ROWS), "<f4").reshape(ROWS, 5),
        "float64": np.frombuffer(make_bytes("float64", 24 * ROWS), "<f8").reshape(ROWS, 3),
        "int64": np.frombuffer(make_bytes("int64", 16 * ROWS), "<i8").reshape(ROWS, 2),
        "tokens": ragged(
            [make_integers(f"tokens {row}", n, 50_000) for row, n in enumerate(lengths)], "int32"
        ),
        "class": categorical(make_integers("class", ROWS, 3), ["a", "b", "c"]),
        "user": make_integers("user", ROWS, 70),
        "episode": np.arange(ROWS) // 170,
    }


def hash_arrays(arrays: Iterable[np.ndarray]) -> str:
    """SHA-256 of dtypes, shapes and bytes."""
    digest = sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def split_batch(batch: Batch) -> Iterator[np.ndarray]:
    """The arrays of a batch, field by field."""
    yield batch.rows
    for values in batch.values():
        if isinstance(values, VarLenValues):
            yield values.offsets
            values = values.values
        yield values
    yield from batch.valid.values()


def draw_order(slab: Slab, order: Order, fields: tuple[str, ...] = ("row",)) -> Iterator[Any]:
    """The arrays of every batch in two epochs of the second of two ranks."""
    size = None if isinstance(order, TokenBudget) else 48
    loader = Loader(slab, size, order, fields=fields, prefetch=0, rank=1, world_size=2)
    for _epoch in range(2):
        for batch in loader:
            yield from split_batch(batch)


def copy_rows() -> Iterator[np.ndarray]:
    """Rows of all sorts of sizes, copied through the caches and past them."""
    for size in (1, 7, 16, 33, 64, 100, 129, 4096, 4133, 9001):
        source = np.frombuffer(make_bytes(f"rows {size}", 50 * size), np.uint8)
        places, addresses = make_integers("places", 70, 50), np.array([get_address(source)])
        for stream in (False, True):
            out = np.zeros(70 * size + 64, np.uint8)
            shards, counts = np.zeros(70, np.int64), np.ones(1, np.int64)
            begin = get_address(out) + 3
            kernels.copy_rows(shards, places, counts, size, addresses, begin, stream)
            yield out


def permute() -> Iterator[np.ndarray]:
    """Shuffles of few and of very many rows, and numbers drawn by position."""
    key = permutation.make_keys("machine", 7)
    for total in (1, 255, 256, 1000, 2**31 + 11, 2**62):
        positions = np.arange(min(total, 500)) * (total // min(total, 500))
        yield permutation.permute_positions(positions, total, key)
    totals = make_integers("totals", 500, 9000) + 1
    streams, sides = np.arange(500), permutation.compute_sides(totals)
    yield permutation.permute_each_position(totals - 1, sides, streams, key)
    yield permutation.draw_uniform(streams, key)


def pad_tokens(slab: Slab) -> Iterator[np.ndarray]:
    """Rows padded on both sides: by the gather, and from a packed batch."""
    for side in ("left", "right"):
        pad = Pad("tokens", 24, -1, side, "mask")
        loader = Loader(slab, 100, Shuffled(5), fields=["tokens"], transforms=[pad], prefetch=0)
        for batch in loader:
            yield from split_batch(batch)
    packed = slab.gather(range(0, ROWS, 7), ["tokens"])["tokens"]
    for left in (False, True):
        yield pad_packed_rows(packed.values, packed.offsets, 17, 9, FRESH, left)


def gather_casts(slab: Slab, dtype: str) -> Iterator[np.ndarray]:
    """Numbers of every sort in another dtype."""
    fields = ("float32", "float64", "int64", "tokens")
    cast = slab.cast(dict.fromkeys(fields, dtype))
    return split_batch(cast.gather(make_integers("rows", 900, ROWS), fields))


def gather_frozen() -> Iterator[np.ndarray]:
    """Every row of every frozen slab, with digests compared on the way."""
    for path in sorted(FROZEN.glob("*.slab")):
        slab = open_slab(path)
        for name in slab.fields:
            if slab.fields[name].kind != "nested":
                yield from split_batch(slab.gather(range(len(slab)), [name]))


def decode(steps: list[Any]) -> Iterator[np.ndarray]:
    """Views of frozen photographs: by index points, and of pixels that are stored as such."""
    chosen = ImageSteps(steps, decoder="roi", seed=4)
    slab = open_slab(FROZEN / "indexed.slab")
    yield slab.gather(PHOTOS, ["photo"], decode={"photo": chosen}, epoch=1)["photo"]
    chosen = ImageSteps(steps, decoder="planes", seed=4)
    slab = open_slab(FROZEN / "pixels.slab")
    for name in ("rgb", "yuv420"):
        yield slab.gather([0, 2, 4], [name], decode={name: chosen}, epoch=1)[name]


def draw_boxes() -> Iterator[np.ndarray]:
    """Boxes of random crops."""
    steps = ImageSteps([RandomResizedCrop(8), RandomHorizontalFlip()], seed=4, crop_boxes=True)
    slab = open_slab(FROZEN / "indexed.slab")
    for epoch in range(60):
        batch = slab.gather(PHOTOS, ["photo"], decode={"photo": steps}, epoch=epoch)
        yield from (batch[name] for name in batch if name != "photo")


def draw_normal(slab: Slab) -> Iterator[np.ndarray]:
    """Normal numbers of transforms."""

    def draw(batch: Any, rng: Any) -> dict[str, Any]:
        return {"drawn": rng.normal(size=3)}

    for batch in Loader(slab[:60], 20, fields=["row"], transforms=[draw], prefetch=0):
        yield batch["drawn"]


def make_exact_jobs(slab: Slab) -> dict[str, Callable[[], Iterable[np.ndarray]]]:
    """What must not differ in a bit, by name."""
    data = make_bytes("blocks", 3 * 2**16 + 1000)
    weights = {"a": 0.52, "b": 0.31, "c": 0.17}
    orders: dict[str, Order] = {
        "Shuffled": Shuffled(3),
        "Near": Near(groups=2, window=2, seed=3),
        "Blocked": Blocked(3),
        "Blocked, small": Blocked(3, block_rows=16, window=5),
        "Mixed": Mixed(weights, 3, by="class"),
        "Mixed, loose": Mixed({"a": 0.5123456789, "b": 0.31, "c": 0.17}, 3, by="class"),
        "Mixed, drop": Mixed(weights, 3, by="class", exhausted="drop"),
        "Weighted": Weighted(1 / (1 + make_integers("weights", ROWS, 9)), 3),
        "Balanced": Balanced("class", 3),
        "Grouped": Grouped("user", 3),
        "ByLength": ByLength("tokens", 3),
        "TokenBudget": TokenBudget(2000, "tokens", 3),
    }
    windows = Windows(8, 3, within="episode", seed=3)
    return {
        "XXH3 in machine code": lambda: [digest_blocks(np.frombuffer(data, np.uint8))],
        "SHA-256": lambda: [SHA256.compute_blocks(memoryview(data)).view(np.uint8)],
        "copies": copy_rows,
        "shuffles": permute,
        "padding": lambda: pad_tokens(slab),
        "frozen slabs": gather_frozen,
        "gather": lambda: split_batch(slab.gather(make_integers("rows", 900, ROWS))),
        "windows": lambda: draw_order(slab, windows, ("row", "float32")),
        "crops": draw_boxes,
        **{
            f"as {dtype}": lambda dtype=dtype: gather_casts(slab, dtype)  # type: ignore[misc]
            for dtype in ("float32", "float16", "bfloat16")
        },
        **{
            name: lambda order=order: draw_order(slab, order)  # type: ignore[misc]
            for name, order in orders.items()
        },
    }


def compute_numbers(folder: Path) -> dict[str, dict[str, str]]:
    """Compute everything: {"exact": hashes, "near": texts of numbers}; `folder` gets a slab."""
    slab = open_slab(write_slab(folder / "numbers.slab", make_columns(), [700, 1, 1299, 1000]))
    crop: list[Any] = [RandomResizedCrop((5, 6)), RandomHorizontalFlip()]
    near = {
        "pixels uint8": [*decode([Resize((7, 5))]), *decode(crop)],
        "pixels float32": [*decode([Resize((5, 4)), Normalize()])],
        "normal draws": list(draw_normal(slab)),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Near says that rows were not shuffled
        exact = {name: hash_arrays(job()) for name, job in make_exact_jobs(slab).items()}
    return {"exact": exact, "near": {name: write_numbers(near[name]) for name in near}}


def write_numbers(arrays: Iterable[np.ndarray]) -> str:
    """Write numbers so that they are read back bit for bit, on one line."""
    return " ".join(str(number) for array in arrays for number in array.ravel())


def main() -> None:
    """Print what this machine computes."""
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(json.dumps(compute_numbers(Path(folder)), indent=1) + "\n")


if __name__ == "__main__":
    main()
