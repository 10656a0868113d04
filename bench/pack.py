"""How fast Parquet is packed, beside reading it alone and writing as many bytes alone.

Run as a program: `python -m fieldslab.bench.pack [--quick] [--json FILE]`. It makes its own
files. The mark is (read + write) / pack, where `read` is pyarrow's `iter_batches` over the file
as it comes, and `write` a plain write and fsync of as many bytes as the slab has. Photographs are
packed with the index by which crops of them are decoded, as they are unless told otherwise, and
without: to make it, every JPEG is decoded as far as its Huffman codes, in threads. The second ratio
is that of processor time, of all threads together: other programs disturb it less.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fieldslab.bench.photographs import DISTINCT, repeated_photographs
from fieldslab.bench.timing import interleave, program, ratio
from fieldslab.packer import pack

MIB = 2**20

PACK = "import sys; from fieldslab.packer import pack; pack(sys.argv[1], sys.argv[2])"


def photographs(path: Path, size: int, groups: int, distinct: int = DISTINCT) -> None:
    """Write JPEG files and labels, uncompressed."""
    files = list(repeated_photographs(size, distinct))
    labels = np.random.default_rng(0).integers(0, 1000, len(files))
    table = pa.table({"image": pa.array(files, pa.large_binary()), "label": labels})
    rows = -(-len(files) // groups)
    pq.write_table(table, path, row_group_size=rows, compression="none", use_dictionary=False)


def mixed(path: Path, size: int, groups: int) -> None:
    """Write vectors, labels, tokens and text, compressed with zstd: about 540 bytes a row."""
    rng = np.random.default_rng(0)
    rows = max(size // groups // 540, 1)
    writer = None
    for _ in range(groups):
        vectors = pa.array(rng.normal(size=rows * 64).astype(np.float32))
        tokens = pa.array(rng.integers(0, 30_000, rows * 50).astype(np.int32))
        table = pa.table(
            {
                "vector": pa.FixedSizeListArray.from_arrays(vectors, 64),
                "label": rng.integers(0, 100, rows),
                "tokens": pa.LargeListArray.from_arrays(np.arange(rows + 1) * 50, tokens),
                "text": [f"the text of row {row}" for row in range(rows)],
            }
        )
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table, row_group_size=rows)
    if writer is not None:
        writer.close()


def measure(source: Path, folder: Path, rounds: int, **options: Any) -> dict[str, Any]:
    """Pack one file and compare with a plain read and a plain write."""
    slab, plain = folder / "out.slab", folder / "plain.bin"
    block = os.urandom(8 * MIB)

    def packing() -> int:
        shutil.rmtree(slab, ignore_errors=True)
        return pack(source, slab, **options).bytes

    size = packing()

    def read() -> None:
        for _ in pq.ParquetFile(source).iter_batches():
            pass

    def write() -> None:
        plain.unlink(missing_ok=True)
        with open(plain, "wb", buffering=0) as file:
            for start in range(0, size, len(block)):
                file.write(block[: size - start])
            os.fsync(file.fileno())

    processor: dict[str, list[float]] = {"pack": [], "read": [], "write": []}

    def timed(name: str, call: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            before = time.process_time()
            call()
            processor[name].append(time.process_time() - before)

        return run

    calls = {"pack": packing, "read": read, "write": write}
    seconds = interleave({name: timed(name, call) for name, call in calls.items()}, rounds)
    processor = {name: times[-rounds:] for name, times in processor.items()}  # warm ones go first
    parts = [a + b for a, b in zip(seconds["read"], seconds["write"], strict=True)]
    processor_parts = [a + b for a, b in zip(processor["read"], processor["write"], strict=True)]
    shutil.rmtree(slab)
    plain.unlink()
    return {
        "gb": size / 1e9,
        "pack_gb_s": size / median(seconds["pack"]) / 1e9,
        "read_s": median(seconds["read"]),
        "write_s": median(seconds["write"]),
        "pack_s": median(seconds["pack"]),
        "ratio": ratio(seconds["pack"], parts),
        "processor_ratio": ratio(processor["pack"], processor_parts),
    }


CASES: tuple[tuple[str, Callable[[Path, int, int], None], dict[str, Any]], ...] = (
    ("photographs, with their index", photographs, {}),
    ("photographs, without an index", photographs, {"jpeg_index": None}),
    ("table, zstd", mixed, {}),
)
"""What is packed, what makes it, and options of `pack`."""


def peak_anonymous(source: Path, out: Path) -> float:
    """Measure the peak RssAnon of packing one file, in MB; 0 if the system does not tell."""
    process = subprocess.Popen([sys.executable, "-P", "-c", PACK, source, out])
    status = Path(f"/proc/{process.pid}/status")
    peak = 0
    while process.poll() is None:
        try:
            lines = status.read_text().splitlines()
        except OSError:
            break
        peak = max([peak, *(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))])
        time.sleep(0.01)
    if process.wait():
        raise RuntimeError(f"packing {source} failed")
    return peak * 1024 / 1e6


def run(quick: bool = False) -> dict[str, Any]:
    """Measure everything and print it; the result is ready for JSON."""
    size, rounds = (128 * MIB, 3) if quick else (256 * MIB, 3)
    results: dict[str, Any] = {}
    print(f"{'Parquet':<34} {'size':>8} {'pack':>10}   (read + write) / pack, processor time")
    with tempfile.TemporaryDirectory(prefix="fieldslab-bench-") as name:
        folder = Path(name)
        source = folder / "source.parquet"
        for label, make, options in CASES:
            make(source, size, 12)
            measured = results[label] = measure(source, folder, rounds, **options)
            print(
                f"{label:<34} {measured['gb']:5.2f} GB {measured['pack_gb_s']:5.2f} GB/s"
                f"   {measured['ratio']}  {measured['processor_ratio']}"
            )
        photographs(source, size if quick else 512 * MIB, 1)
        peak = results["peak RssAnon, one row group, MB"] = peak_anonymous(source, folder / "o")
        gb = source.stat().st_size / 1e9
        print(f"{'peak RssAnon, one row group':<34} {gb:5.2f} GB {peak:5.0f} MB")
    return results


if __name__ == "__main__":
    program(run, __doc__)
