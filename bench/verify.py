"""How fast a slab is verified, beside reading the same bytes and doing nothing with them.

Run as a program: `python -m fieldslab.bench.verify [--quick] [--json FILE]`. It makes its own
slab, which stays in the page cache: from a disk, both wait for the disk. The mark is the time of
plain reads divided by that of `verify`; plain reads go over the same files, in pieces as large,
by as many threads, into a buffer as large, which begins a page. They bound `verify`, which has to
read and then to digest: XXH3 takes a tenth to a fifth of the time of a read. Where other programs
use the machine, the ratio in processor time is the steadier one. It is measured as large slabs are
verified: without the interpreter lock, by code that `verify` makes once it has digested a GiB.
"""

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.bench.photographs import DISTINCT, repeated_photographs
from fieldslab.bench.timing import Ratio, interleave, program, ratio
from fieldslab.packer import pack, verify
from fieldslab.packer.check import digests
from fieldslab.packer.check.block_check import CHUNK
from fieldslab.packer.check.foldercheck import PIECE_BLOCKS
from fieldslab.packer.check.threads import THREADS
from fieldslab.schemas.digest import BLOCK, XXH3
from fieldslab.schemas.mapping import allocate_aligned

MIB = 2**20


def photographs(size: int, distinct: int = DISTINCT) -> Iterator[pa.RecordBatch]:
    """Yield batches of JPEG files, which are packed with their index, and labels."""
    files = repeated_photographs(size, distinct)
    while images := list(islice(files, 600)):
        column = pa.array(images, pa.large_binary())
        yield pa.record_batch({"image": column, "label": np.arange(len(images))})


def table(size: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of many short rows: vectors, labels, tokens and text, about 500 bytes."""
    rng = np.random.default_rng(0)
    rows = 120_000
    for _ in range(0, size, 64 * MIB):
        tokens = pa.array(rng.integers(0, 30_000, rows * 50), pa.int32())
        vectors = pa.array(rng.random(rows * 64), pa.float32())
        columns = {
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 64),
            "label": rng.integers(0, 100, rows),
            "tokens": pa.LargeListArray.from_arrays(np.arange(rows + 1) * 50, tokens),
            "text": [f"the text of row {row}" for row in range(rows)],
        }
        yield pa.record_batch(columns)


def read_plainly(slab: Path, threads: int, digest: bool = False) -> None:
    """Read every byte of every array into a buffer that each thread uses again and again.

    With `digest`, digest what was read, and do nothing else that `verify` does.
    """
    piece = PIECE_BLOCKS * BLOCK
    files = sorted(slab.rglob("*.npy"))
    pieces = [(file, start) for file in files for start in range(0, file.stat().st_size, piece)]
    todo = iter(pieces)
    lock = threading.Lock()

    def work() -> None:
        buffer = allocate_aligned(CHUNK)
        while True:
            with lock:
                item = next(todo, None)
            if item is None:
                return
            read_piece(*item, piece, buffer, digest)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def read_piece(file: Path, start: int, size: int, buffer: np.ndarray, digest: bool) -> None:
    """Read `size` bytes of a file from `start` on, or to its end."""
    fd = os.open(file, os.O_RDONLY)
    try:
        stop = start + size
        while start < stop:
            done = os.preadv(fd, [buffer.data], start)
            if not done:
                return
            if digest:
                digests.compute_digests(XXH3, buffer[:done])
            start += done
    finally:
        os.close(fd)


def measure(slab: Path, rounds: int) -> tuple[int, dict[str, list[float]], dict[str, Ratio]]:
    """Measure seconds of each check of a slab, and ratios to plain reads in processor time."""
    size = verify(slab).bytes
    spent: dict[str, list[float]] = {"verify": [], "read": [], "digest": []}

    def counted(name: str, call: Callable[[], object]) -> Callable[[], None]:
        def run_it() -> None:
            before = time.process_time()
            call()
            spent[name].append(time.process_time() - before)

        return run_it

    calls = {
        "verify": counted("verify", lambda: verify(slab)),
        "read": counted("read", lambda: read_plainly(slab, THREADS)),
        "digest": counted("digest", lambda: read_plainly(slab, THREADS, digest=True)),
        "read by one": lambda: read_plainly(slab, 1),
    }
    seconds = interleave(calls, rounds)
    return size, seconds, {key: ratio(spent[key], spent["read"]) for key in ("verify", "digest")}


def run(quick: bool = False) -> dict[str, Any]:
    """Measure everything and print it; the result is ready for JSON."""
    size, rounds = (256 * MIB, 7) if quick else (512 * MIB, 15)
    results: dict[str, Any] = {}
    digests.switch_to_native_digests()
    print(f"{'slab':<12} {'size':>8} {'verify':>10}   as fast as plain reads, by {THREADS} threads")
    with tempfile.TemporaryDirectory(prefix="fieldslab-bench-") as name:
        for label, make in (("photographs", photographs), ("table", table)):
            slab = Path(name) / f"{label}.slab"
            pack(make(size), slab)
            total, seconds, work = measure(slab, rounds)
            shutil.rmtree(slab)
            speed = results[f"verify, GB/s, {label}"] = total / median(seconds["verify"]) / 1e9
            same, single = (
                ratio(seconds["verify"], seconds[key]) for key in ("read", "read by one")
            )
            results[f"verify / plain reads, {THREADS} threads each, {label}"] = same
            results[f"verify, {THREADS} threads / plain reads, one thread, {label}"] = single
            results[f"verify / plain reads, in processor time, {label}"] = work["verify"]
            results[f"reads and digests / plain reads, in processor time, {label}"] = work["digest"]
            print(f"{label:<12} {total / 1e9:5.2f} GB {speed:5.1f} GB/s   {same}; by one: {single}")
            limit = f"reads and digests alone: {work['digest']}"
            print(f"{'':<35}in processor time: {work['verify']}; {limit}")
    return results


if __name__ == "__main__":
    program(run, __doc__)
