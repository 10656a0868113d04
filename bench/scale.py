"""Windows, many slabs as one, mixtures and conditions, each beside the least that it could take.

Run as a program: `python -m fieldslab.bench.scale [--quick] [--json FILE] [--readme]`. It makes its
own data, larger than the last-level cache. Calls of a kind take turns. In a checkout, `--readme`
writes the table in docs/explanation/benchmarks.md.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fieldslab.bench.figure_table import table
from fieldslab.bench.gather import KIB
from fieldslab.bench.loader import MIB, show
from fieldslab.bench.machine import Watch, describe
from fieldslab.bench.readme import publish
from fieldslab.bench.spans import copy_spans, written_pages
from fieldslab.bench.timing import Ratio, interleave, ratio
from fieldslab.packer import pack
from fieldslab.reader import Mixed, Order, Shuffled, Slab, open_slab
from fieldslab.schemas.mapping import get_address

ROW_BYTES = (4, 64, KIB, 16 * KIB)
LENGTHS = (16, 64)
BLOCK = 1024
MEMBERS = (8, 64)
BATCH_BYTES = 4 * MIB
SOURCES = (2, 40, 1000)
STRETCH = 4096
"""Positions whose rows a loader computes at once."""
CONDITIONS = {
    "label == 3": pc.field("label") == 3,
    "weight > 0.9": pc.field("weight") > 0.9,
    'source == "web"': pc.field("source") == "web",
    'caption == "caption 7"': pc.field("caption") == "caption 7",
}
MARKS = {
    **{
        f"windows of {length} rows of {_size} B: gather_windows / memcpy": "at least 0.9"
        for _size in ROW_BYTES
        for length in LENGTHS
    },
    **{
        f"1 KiB rows, union of {members} slabs / one slab{_shards}: gather": "at least 0.97"
        for members in MEMBERS
        for _shards in ("", f" of {members} shards")
    },
    "categories that differ in 8 slabs / the same in all: gather": "at least 0.97",
}


def pack_floats(
    path: Path, row_bytes: int, total: int, seed: int = 0, shard_size: str = "1G"
) -> Path:
    """Pack random bytes as float32, in rows of `row_bytes`."""

    def read() -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng(seed)
        for _ in range(max(total // (16 * MIB), 1)):
            size = min(total, 16 * MIB)
            values = pa.array(random.integers(0, 2**31, size // 4, np.int32).view(np.float32))
            if row_bytes > 4:
                values = pa.FixedSizeListArray.from_arrays(values, row_bytes // 4)
            yield pa.record_batch({"data": values})

    pack(read(), path, shard_size=shard_size)
    return path


def measure_windows(slab: Slab, length: int, rounds: int) -> Ratio:
    """Measure `gather_windows` beside a memcpy of the same windows from one thread."""
    window = slab.fields["data"].item_bytes * length
    count = max(BATCH_BYTES // window, 1)
    return _measure_starts(slab, None, length, len(slab), count, window, rounds)


def measure_elements(slab: Slab, length: int, rounds: int) -> Ratio:
    """Measure windows of elements of the ragged field `data` beside a memcpy of the same."""
    values = slab.storage.load_field("data").values
    window = values.item_bytes * length
    total = int(values.items.sum())
    return _measure_starts(slab, "data", length, total, BATCH_BYTES // window, window, rounds)


def _measure_starts(
    slab: Slab, of: str | None, length: int, total: int, count: int, window: int, rounds: int
) -> Ratio:
    slab.gather(range(len(slab)))  # touches every page, and verifies every block
    random = np.random.default_rng(0)
    batches = [random.integers(0, total - length + 1, count) for _ in range(24)]
    (base,) = slab.storage.load_field("data").values.addresses.tolist()
    spans = [(base + starts * (window // length), np.full(count, window)) for starts in batches]
    gathers, copies = cycle(batches), cycle(spans[12:] + spans[:12])
    targets = cycle([written_pages(count * window), written_pages(count * window)])
    held: list[Any] = [None]

    def gather() -> None:
        held[0] = slab.gather_windows(next(gathers), length, of=of)

    def copy() -> None:
        copy_spans(*next(copies), get_address(next(targets)))

    seconds = interleave({"gather": gather, "memcpy": copy}, rounds, warm=4)
    return ratio(seconds["gather"], seconds["memcpy"])


def measure_union(others: Sequence[Slab], paths: Sequence[Path], rounds: int) -> list[Ratio]:
    """Measure random batches of a union beside those of other slabs with as many rows."""
    union = open_slab([str(path) for path in paths])
    random = np.random.default_rng(0)
    size = BATCH_BYTES // KIB // 4
    rows = min(map(len, [*others, union]))
    batches = [random.integers(0, rows, size) for _ in range(64)]
    held: dict[str, Any] = {}

    def gather(name: str, slab: Slab, turns: Iterator[np.ndarray]) -> Callable[[], None]:
        slab.gather(range(len(slab)))

        def call() -> None:
            held[name] = slab.gather(next(turns))

        return call

    calls = {"union": gather("union", union, cycle(batches))}
    for number, slab in enumerate(others, 1):
        turns = 64 * number // (len(others) + 1)
        calls[f"{number}"] = gather(f"{number}", slab, cycle(batches[turns:] + batches[:turns]))
    union_seconds, *others_seconds = interleave(calls, rounds, warm=4).values()
    return [ratio(union_seconds, seconds) for seconds in others_seconds]


def measure_categories(folder: Path, rows: int, rounds: int) -> Ratio:
    """Measure a union whose slabs number their categories differently beside one where they do not.

    In both, a row has 1 KiB of numbers and two categorical fields.
    """
    names = [f"category {number}" for number in range(100)]
    random = np.random.default_rng(0)
    unions = []
    for kind in ("same", "different"):
        paths = []
        for number in range(8):
            turn = 7 * number if kind == "different" else 0
            numbers = pa.array(random.random(rows * KIB // 4, np.float32))
            columns: dict[str, pa.Array] = {
                f"field {field}": pa.DictionaryArray.from_arrays(
                    pa.array(random.integers(0, 100, rows, np.int32)), names[turn:] + names[:turn]
                )
                for field in range(2)
            }
            columns["data"] = pa.FixedSizeListArray.from_arrays(numbers, KIB // 4)
            paths.append(folder / f"{kind}-{number}.slab")
            pack(pa.table(columns), paths[-1])
        unions.append(paths)
    (result,) = measure_union([open_slab([str(path) for path in unions[0]])], unions[1], rounds)
    return result


def measure_mixed(slab: Slab, rounds: int) -> dict[str, float]:
    """Measure what rows of a batch of 256 cost, computed as loaders do: microseconds."""
    total = len(slab)
    orders: dict[str, Order] = {"Shuffled": Shuffled(0)}
    for count in SOURCES:
        groups = {f"{n}": range(n * total // count, (n + 1) * total // count) for n in range(count)}
        weights = {name: 1.0 + number % 7 for number, name in enumerate(groups)}
        orders[f"Mixed of {count:,} sources"] = Mixed(weights, groups=groups).attach(slab)
    starts = cycle(range(0, total - STRETCH, STRETCH))

    def compute(order: Order) -> Callable[[], None]:
        def call() -> None:
            start = next(starts)
            order.rows(0, start, start + STRETCH, total)

        return call

    seconds = interleave({name: compute(order) for name, order in orders.items()}, rounds, warm=2)
    batches = STRETCH / 256
    return {
        f"{name}: rows of a batch of 256, us": median(taken) / batches * 1e6
        for name, taken in seconds.items()
    }


def make_table(rows: int) -> pa.Table:
    """Make columns that conditions ask for."""
    random = np.random.default_rng(0)
    sources = pa.DictionaryArray.from_arrays(
        pa.array(random.integers(0, 3, rows, np.int32)), ["web", "books", "code"]
    )
    captions = pa.array([f"caption {number}" for number in range(1000)])
    return pa.table(
        {
            "label": random.integers(0, 10, rows),
            "weight": random.random(rows, np.float32),
            "source": sources,
            "caption": captions.take(pa.array(random.integers(0, 1000, rows))),
        }
    )


def measure_where(folder: Path, rows: int, rounds: int) -> dict[str, Ratio | float]:
    """Measure `slab.where` beside pyarrow on the same columns in memory."""
    columns = make_table(rows)
    pack(columns, folder / "where.slab")
    slab = open_slab(folder / "where.slab")
    results: dict[str, Ratio | float] = {}
    for text, condition in CONDITIONS.items():
        name = text.split()[0]
        column = columns.select([name]).append_column("row", pa.array(np.arange(rows)))

        def choose(condition: pc.Expression = condition) -> int:
            return len(slab.where(condition))

        def filter_rows(condition: pc.Expression = condition, column: pa.Table = column) -> int:
            found: int = column.filter(condition).num_rows
            return found

        if choose() != filter_rows():
            raise AssertionError(text)
        seconds = interleave({"where": choose, "pyarrow": filter_rows}, rounds)
        results[f"where, {text}, million rows/s"] = rows / median(seconds["where"]) / 1e6
        results[f"where, {text}: slab / pyarrow in memory"] = ratio(
            seconds["where"], seconds["pyarrow"]
        )
    return results


def pack_tokens(path: Path, total: int) -> Path:
    """Pack texts of random lengths, uint16 tokens."""
    random = np.random.default_rng(0)
    ends = np.cumsum(random.integers(1, 2000, total // 2000))
    tokens = pa.array(random.integers(0, 50_000, int(ends[-1]), np.uint16))
    offsets = pa.array(np.concatenate([[0], ends]))
    lists = pa.LargeListArray.from_arrays(offsets, tokens)
    pack(pa.record_batch({"data": lists}), path)
    return path


def run(quick: bool = False, look: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Measure everything and print it; the result is ready for JSON.

    `look` is called between measurements.
    """
    total = (64 if quick else 256) * MIB
    rounds = 20 if quick else 60
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="fieldslab-bench-") as name:
        folder = Path(name)
        for row_bytes in ROW_BYTES:
            slab = open_slab(pack_floats(folder / f"{row_bytes}.slab", row_bytes, total))
            for length in LENGTHS:
                label = f"windows of {length} rows of {row_bytes} B: gather_windows / memcpy"
                results[label] = measure_windows(slab, length, rounds)
            look()
        tokens = open_slab(pack_tokens(folder / "tokens.slab", total // 2))
        label = f"windows of {BLOCK + 1:,} tokens: gather_windows / memcpy"
        results[label] = measure_elements(tokens, BLOCK + 1, rounds)
        one = open_slab(folder / f"{KIB}.slab")
        results |= measure_mixed(one, 3 * rounds)
        for members in MEMBERS:
            paths = [
                pack_floats(folder / f"{members}-{n}.slab", KIB, total // members, n)
                for n in range(members)
            ]
            shards = pack_floats(
                folder / f"shards-{members}.slab",
                KIB,
                total,
                shard_size=f"{total // members // KIB}K",
            )
            look()
            label = f"1 KiB rows, union of {members} slabs / one slab"
            ratios = measure_union([one, open_slab(shards)], paths, 4 * rounds)
            results[f"{label}: gather"], results[f"{label} of {members} shards: gather"] = ratios
        label = "categories that differ in 8 slabs / the same in all: gather"
        results[label] = measure_categories(folder, total // KIB // 8, 4 * rounds)
        results |= measure_where(folder, 500_000 if quick else 5_000_000, max(rounds // 6, 3))
    show(results, MARKS)
    return results


def main() -> None:
    """Measure, and write the results where they are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    parser.add_argument("--readme", action="store_true", help="write the table in docs/")
    options = parser.parse_args()
    watch = Watch()
    results = run(options.quick, watch.look)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    if options.readme:
        machine = describe(("fieldslab", "numpy", "numba", "pyarrow")) | watch.found()
        publish("scale", table(results, machine))


if __name__ == "__main__":
    main()
