"""Shuffled batches from the JetClass layout, beside the usual loader of its HDF5 files.

Run as a program: `python -m fieldslab.bench.jetclass [--quick] [--json FILE] [--folder DIR]`.

It makes files as they are found: `feature_matrix` (N, 100, 11) padded with 0, `adjacency_matrix`
(N, 4950, 6), which is the upper triangle of 100 x 100 pairs padded with -1000, `labels`,
`n_particles` and `index`; chunked by 1000 rows or 128, compressed with lzf or gzip. They are
packed, whole and with `--ragged`, and compared with the loader that such files are read with: it
reads 128 rows at a time and keeps the last ones. Everything is in the page cache for both.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import h5py
import numpy as np

from fieldslab.bench.timing import Ratio, interleave, ratio
from fieldslab.packer import PackResult, pack
from fieldslab.reader import Ragged, Slab, open_slab

PARTICLES, FEATURES, PAIRS, PAIR_FEATURES = 100, 11, 4950, 6
ROW_BYTES = 4 * (PARTICLES * FEATURES + PAIRS * PAIR_FEATURES)
BATCH = 128
LOADER_CHUNK = 128
LOADER_ROWS = 2
"""Rows in a batch of the usual loader, which takes up to a second for each."""
RAGGED = ["feature_matrix:len=n_particles", "adjacency_matrix:pad=-1000"]


class Case(NamedTuple):
    """How the HDF5 files are stored."""

    filter: str
    chunk: int

    def __str__(self) -> str:
        return f"{self.filter}, chunks of {self.chunk} rows"


CASES = [Case("lzf", 1000), Case("gzip", 1000), Case("lzf", 128), Case("gzip", 128)]


def make_files(folder: Path, case: Case, files: int, rows: int) -> list[Path]:
    """Write files of `rows` rows each."""
    paths = []
    for number in range(files):
        rng = np.random.default_rng(number)
        paths.append(folder / f"jets-{number}.h5")
        with h5py.File(paths[-1], "w") as file:
            file.attrs["total_events"] = rows
            for name, values in jets(rng, rows).items():
                chunks = (min(case.chunk, rows), *values.shape[1:])
                file.create_dataset(name, data=values, chunks=chunks, compression=case.filter)
    return paths


def jets(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    """Make random jets of about 40 particles, which compress as badly as real ones."""
    count = np.clip(rng.normal(40, 15, rows).round(), 0, PARTICLES).astype(np.int16)
    features = rng.standard_normal((rows, PARTICLES, FEATURES), np.float32)
    features[np.arange(PARTICLES) >= count[:, None]] = 0
    pairs = rng.standard_normal((rows, PAIRS, PAIR_FEATURES), np.float32)
    _, second = np.triu_indices(PARTICLES, 1)
    pairs[second >= count[:, None]] = -1000
    return {
        "feature_matrix": features,
        "adjacency_matrix": pairs,
        "labels": rng.integers(0, 10, rows),
        "n_particles": count,
        "index": np.arange(rows, dtype=np.int64),
    }


class UsualLoader:
    """Rows out of HDF5 as they usually are read: 128 at a time, and the last 128 are kept."""

    def __init__(self, paths: list[Path]) -> None:
        self._files = [h5py.File(path) for path in paths]
        self._names = list(self._files[0])
        self._ends = np.cumsum([len(file["labels"]) for file in self._files])
        self._kept: tuple[int, int] | None = None
        self._chunk: dict[str, np.ndarray] = {}

    def gather(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return a batch, row by row."""
        dicts = [self._row(int(row)) for row in rows]
        return {name: np.stack([row[name] for row in dicts]) for name in self._names}

    def _row(self, row: int) -> dict[str, np.ndarray]:
        number = int(np.searchsorted(self._ends, row, side="right"))
        row -= int(self._ends[number - 1]) if number else 0
        start = row // LOADER_CHUNK * LOADER_CHUNK
        if self._kept != (number, start):
            file = self._files[number]
            stop = start + LOADER_CHUNK
            self._chunk = {name: file[name][start:stop] for name in self._names}
            self._kept = number, start
        return {name: values[row - start] for name, values in self._chunk.items()}


def measure(folder: Path, case: Case, files: int, rows: int, rounds: int) -> dict[str, Any]:
    """Pack files of one kind, and gather shuffled batches both ways."""
    paths = make_files(folder, case, files, rows)
    packed = _pack(paths, folder / "whole.slab")
    ragged = _pack(paths, folder / "ragged.slab", ragged=RAGGED)
    whole, cut, loader = open_slab(packed.path), open_slab(ragged.path), UsualLoader(paths)
    _check(whole, cut, loader, np.random.default_rng(1).permutation(len(whole))[:LOADER_ROWS])
    order = np.random.default_rng(0).permutation(len(whole))
    whole.gather(order[: len(order) // 2])
    few = _batches(order, LOADER_ROWS)
    mixed, mixed_cut = _batches(order, BATCH), _batches(order, BATCH)
    kept: dict[str, Any] = {}
    calls = {
        "loader": lambda: kept.update(loader=loader.gather(next(few))),
        "slab": lambda: kept.update(slab=whole.gather(next(mixed))),
        "ragged": lambda: kept.update(ragged=cut.gather(next(mixed_cut))),
    }
    seconds = interleave(calls, rounds)
    per_row = [batch_seconds / LOADER_ROWS for batch_seconds in seconds["loader"]]
    slab, cut_slab = (
        [batch_seconds / BATCH for batch_seconds in seconds[name]] for name in ("slab", "ragged")
    )
    total = files * rows * ROW_BYTES
    return {
        "case": str(case),
        "file_mb": sum(path.stat().st_size for path in paths) / 1e6,
        "pack_mb_s": total / packed.seconds / 1e6,
        "pack_ragged_mb_s": total / ragged.seconds / 1e6,
        "ragged_size": ragged.bytes / packed.bytes,
        "loader_rows_s": 1 / median(per_row),
        "slab_rows_s": 1 / median(slab),
        "ragged_rows_s": 1 / median(cut_slab),
        "ratio": ratio(slab, per_row),
        "ratio_ragged": ratio(cut_slab, per_row),
    }


def _pack(paths: list[Path], out: Path, **options: Any) -> PackResult:
    shutil.rmtree(out, ignore_errors=True)
    return pack(paths, out, **options)


def _batches(order: np.ndarray, size: int) -> Iterator[np.ndarray]:
    return cycle([order[start : start + size] for start in range(0, len(order) - size + 1, size)])


def _check(whole: Slab, cut: Slab, loader: UsualLoader, rows: np.ndarray) -> None:
    """Both ways give the same batch, bit for bit."""
    expected, gathered, padded = loader.gather(rows), whole.gather(rows), cut.gather(rows)
    for name, values in expected.items():
        fill = -1000 if name == "adjacency_matrix" else 0
        again = padded[name]
        if isinstance(again, Ragged):
            again = again.to_padded(values.shape[1], fill)
        for other in (gathered[name], again):
            if not isinstance(other, np.ndarray) or other.tobytes() != values.tobytes():
                raise AssertionError(f"{name} differs")


def run(quick: bool = False, folder: Path | None = None) -> dict[str, Any]:
    """Measure every case and print a table."""
    files, rows, rounds = (1, 1000, 3) if quick else (2, 2000, 10)
    results = []
    print(
        f"{files} files of {rows:,} rows, {files * rows * ROW_BYTES / 1e6:.0f} MB decoded; "
        f"shuffled batches of {BATCH}, all five fields\n\n"
        f"{'HDF5 files':<28} {'pack MB/s':>10} {'ragged':>7} {'loader rows/s':>14} "
        f"{'slab rows/s':>12} {'ragged':>8}   slab / loader"
    )
    for case in CASES:
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            figures = measure(Path(temporary), case, files, rows, rounds)
        results.append(figures)
        print(
            f"{figures['case']:<28} {figures['pack_mb_s']:10.0f} "
            f"{figures['pack_ragged_mb_s']:7.0f} {figures['loader_rows_s']:14.1f} "
            f"{figures['slab_rows_s']:12.0f} {figures['ragged_rows_s']:8.0f}   "
            f"{_times(figures['ratio'])}, ragged {_times(figures['ratio_ragged'])}",
            flush=True,
        )
    print(f"\nA ragged slab takes {results[0]['ragged_size']:.0%} of the bytes of a whole one.")
    return {"cases": results}


def _times(measured: Ratio) -> str:
    return f"{measured.median:,.0f}x ({measured.low:,.0f}-{measured.high:,.0f})"


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description="Shuffled batches of the JetClass layout.")
    parser.add_argument("--quick", action="store_true", help="less data, fewer rounds")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--folder", type=Path, help="where to put the data (several GB)")
    options = parser.parse_args()
    results = run(options.quick, options.folder)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
