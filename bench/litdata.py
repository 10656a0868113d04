"""A slab beside the LitData stream that it was packed from.

Run as a program: `python -m fieldslab.bench.litdata [--quick] [--json FILE]`. It writes its own
stream with litdata, once in each of its two layouts, packs it, and compares rows a second:
random batches of the slab with `StreamingDataset[i]`, with a shuffled `StreamingDataLoader` of
two workers (timed from its first batch on) and with reading the stream in order; and packing
with a plain read of the same files. Nothing is decoded anywhere.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from litdata import Jpeg, StreamingDataLoader, StreamingDataset
from litdata.streaming.cache import Cache
from litdata.streaming.serializers import BytesSerializer

from fieldslab.bench.photographs import repeated_photographs
from fieldslab.bench.timing import Ratio, interleave, program, ratio
from fieldslab.packer import pack
from fieldslab.packer.source import find_source
from fieldslab.reader import Slab, open_slab

BATCH = 64
READ = 8 * 2**20
PHOTOGRAPH = 70_000
"""Bytes of a photograph, about."""

BATCH_BYTES = 32 * 2**20

Item = Callable[[int, bytes], dict[str, Any]]


def as_bytes(row: int, jpeg: bytes) -> dict[str, Any]:
    """Return an item that litdata stores in its Arrow layout."""
    return {"image": jpeg, "label": row % 1000, "index": row, "path": f"train/{row:07}.jpg"}


def as_media(row: int, jpeg: bytes) -> dict[str, Any]:
    """Return an item that litdata stores as serialised leaves."""
    return as_bytes(row, jpeg) | {"image": Jpeg(bytes=jpeg, max_quality=None)}


CASES: dict[str, Item] = {"Arrow layout": as_bytes, "leaves": as_media}


def write_stream(folder: Path, item: Item, rows: int) -> None:
    """Write a stream of labels, numbers, paths and photographs."""
    cache = Cache(str(folder), chunk_bytes="64MB")
    photographs = repeated_photographs(2 * PHOTOGRAPH * rows)
    for row, jpeg in zip(range(rows), photographs, strict=False):
        cache[row] = item(row, jpeg)
    cache.done()
    cache.merge()


class Encoded(BytesSerializer):  # type: ignore[misc]
    """Gives an encoded picture as bytes, which can go to another process."""

    def deserialize(self, data: Any) -> bytes:
        """Return the bytes of a leaf, which litdata may hand over as a view of its map."""
        return bytes(data)


def dataset(folder: Path, **options: Any) -> StreamingDataset:
    """Return the stream as litdata reads it, with encoded pictures left as they are."""
    return StreamingDataset(str(folder), serializers={"jpeg": Encoded()}, **options)


def gather(slab: Slab, rows: np.ndarray) -> None:
    """Gather random batches of the slab."""
    for start in range(0, len(rows), BATCH):
        slab.gather(rows[start : start + BATCH])


def one_by_one(folder: Path, rows: np.ndarray) -> None:
    """`StreamingDataset[i]`."""
    stream = dataset(folder)
    for row in rows.tolist():
        stream[row]


def in_order(folder: Path) -> None:
    """Read the stream from start to end in one process."""
    for _ in dataset(folder):
        pass


def loader_rate(folder: Path) -> float:
    """Measure rows a second of a shuffled loader with two workers, from its first batch on."""
    loader = StreamingDataLoader(
        dataset(folder, shuffle=True), batch_size=BATCH, num_workers=2, collate_fn=list
    )
    rows, started = 0, 0.0
    for batch in loader:
        if not started:
            started = time.perf_counter()
        else:
            rows += len(batch)
    return rows / (time.perf_counter() - started)


def plain_read(folder: Path) -> None:
    """Read every file of the stream into one buffer."""
    buffer = bytearray(READ)
    for path in sorted(folder.iterdir()):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def source_read(folder: Path) -> None:
    """Read every row of the stream as `pack` does, and nothing more."""
    source = find_source(folder)
    for unit in source.units:
        for _ in source.read(unit, list(range(len(source.schema))), BATCH_BYTES):
            pass


def packing(folder: Path, out: Path) -> None:
    """Pack the whole stream."""
    shutil.rmtree(out, ignore_errors=True)
    pack(folder, out)


def write_as_much(folder: Path, file: Path) -> None:
    """Write and fsync as many bytes as the stream has."""
    block = os.urandom(READ)
    left = sum(path.stat().st_size for path in folder.iterdir())
    with open(file, "wb", buffering=0) as out:
        while left > 0:
            left -= out.write(block[:left])
        os.fsync(out.fileno())
    file.unlink()


def measure(folder: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Measure all comparisons of one stream."""
    stream, slab_path = folder / "stream", folder / "out.slab"
    pack(stream, slab_path)
    slab = open_slab(slab_path)
    some = np.random.default_rng(1).integers(0, rows, max(rows // 4, BATCH))
    everything = np.random.default_rng(2).permutation(rows)
    seconds = interleave(
        {
            "gather some": partial(gather, slab, some),
            "one by one": partial(one_by_one, stream, some),
            "gather all": partial(gather, slab, everything),
            "in order": partial(in_order, stream),
        },
        rounds,
    )
    # Apart, so that what is written back does not slow the gathers.
    seconds |= interleave(
        {
            "plain read": partial(plain_read, stream),
            "source": partial(source_read, stream),
            "pack": partial(packing, stream, folder / "again.slab"),
            "write": partial(write_as_much, stream, folder / "plain.bin"),
        },
        rounds,
    )
    loader = [loader_rate(stream) for _ in range(rounds)]
    parts = [a + b for a, b in zip(seconds["plain read"], seconds["write"], strict=True)]
    size = sum(path.stat().st_size for path in stream.iterdir())
    return {
        "rows": rows,
        "gb": size / 1e9,
        "gather_rows_s": rows / median(seconds["gather all"]),
        "one_by_one_rows_s": len(some) / median(seconds["one by one"]),
        "in_order_rows_s": rows / median(seconds["in order"]),
        "loader_rows_s": median(loader),
        "plain_read_gb_s": size / median(seconds["plain read"]) / 1e9,
        "source_gb_s": size / median(seconds["source"]) / 1e9,
        "litdata_gb_s": size / median(seconds["in order"]) / 1e9,
        "pack_gb_s": size / median(seconds["pack"]) / 1e9,
        "gather / StreamingDataset[i]": ratio(seconds["gather some"], seconds["one by one"]),
        "gather / shuffled loader": ratio(seconds["gather all"], [rows / rate for rate in loader]),
        "gather / in order": ratio(seconds["gather all"], seconds["in order"]),
        "pack / plain read + write": ratio(seconds["pack"], parts),
    }


def run(quick: bool = False) -> dict[str, Any]:
    """Measure everything and print it; the result is ready for JSON."""
    rows, rounds = (600, 3) if quick else (3000, 5)
    results: dict[str, Any] = {}
    for label, item in CASES.items():
        with tempfile.TemporaryDirectory(prefix="fieldslab-bench-") as name:
            folder = Path(name)
            write_stream(folder / "stream", item, rows)
            results[label] = measured = measure(folder, rows, rounds)
        print(f"{label}: {rows} rows, {measured['gb']:.2f} GB")
        for key, value in measured.items():
            if isinstance(value, Ratio):
                print(f"  {key:<34} {value}")
            elif key not in ("rows", "gb"):
                print(f"  {key:<34} {value:,.2f}" if value < 100 else f"  {key:<34} {value:,.0f}")
    return results


if __name__ == "__main__":
    program(run, __doc__)
