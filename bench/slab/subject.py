"""The slab that is measured: opened, warmed, and how much of it fits into memory."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from fieldslab.bench import machine
from fieldslab.bench.openview import open_view
from fieldslab.bench.slab.strategies import batches
from fieldslab.bench.slab.turns import Turn
from fieldslab.bench.spans import Spans, written_pages
from fieldslab.packer.slabsize import count_bytes
from fieldslab.reader import Batch, Slab
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option

SIZES = (16, 32, 64, 256)
"""Rows of the batches that are measured."""
USUAL = 64
"""Rows of a batch where only one size is measured."""
_PIECE = 32 * 2**20
"""Bytes that are read at a time while warming."""
_PROBE = 64
_MOST_BATCH = 2**30


@dataclass(frozen=True)
class Subject:
    """A slab, the fields of it that are read, and the rows of it that are warm.

    Attributes
    ----------
    slab
        A view: the first rows, as many as were read in the time that warming has.
    fields
        Their names.
    row_bytes
        Bytes of the values of a row, on average.
    sizes
        Of `SIZES`, those whose batches fit well into memory; one at least.
    seed
        What random rows are drawn with.
    """

    slab: Slab
    fields: Sequence[str]
    row_bytes: float
    sizes: tuple[int, ...]
    seed: int
    warm_seconds: float

    @property
    def usual(self) -> int:
        """Rows of a batch where only one size is measured."""
        return min(USUAL, self.sizes[-1])

    def gather(self, rows: np.ndarray) -> Batch:
        """Gather a batch, as training code does."""
        return self.slab.gather(rows, self.fields)

    def gathers(self, order: str, size: int, lane: int = 0) -> Turn:
        """Make a Turn that gathers batches; lanes draw different rows: none warms another's."""
        return Turn(batches(order, len(self.slab), size, self.seed + 1000 * lane), self.gather)

    def copies(self, order: str, size: int, lane: int = 500) -> Turn:
        """Make a Turn that copies the bytes of such batches to two buffers in turn."""
        room = int(1.5 * size * self.row_bytes) + 4096
        targets = cycle([written_pages(room), written_pages(room)])

        def arguments() -> Iterator[tuple[Spans, np.ndarray]]:
            for rows in batches(order, len(self.slab), size, self.seed + 1000 * lane):
                spans, target = Spans(self.slab, rows, self.fields), next(targets)
                yield spans, target if spans.nbytes <= target.size else written_pages(spans.nbytes)

        return Turn(arguments(), lambda pair: pair[0].copy(pair[1]))


def choose_fields(slab: Slab, fields: Sequence[str] | None) -> list[str]:
    """Return the fields to read: those named, or all. Raises UnknownField."""
    for name in fields or ():
        slab[name]
    return list(dict.fromkeys(fields)) if fields else list(slab.fields)


def opened(
    path: str | Path, fields: Sequence[str] | None, **opening: Any
) -> tuple[Slab, list[str]]:
    """Open the slab with options of `open_view`; return it and the fields to read.

    Raises UsageError where there is nothing to measure.
    """
    slab = open_view(path, **opening)
    chosen = choose_fields(slab, fields)
    if not len(slab) or not chosen:
        what = "rows" if chosen else "fields"
        raise UsageError(f"the slab has no {what}: there is nothing to measure", found=str(path))
    translated = [name for name in chosen if slab.storage.load_field(name).codes is not None]
    if translated:
        others = [name for name in chosen if name not in translated]
        raise UsageError(
            "codes that differ from slab to slab cannot be compared with a memcpy",
            field=", ".join(translated),
            hint=f"Measure the other fields: {mark_option('fields', ','.join(others))}.",
        )
    return slab, chosen


def row_bytes(slab: Slab, fields: Sequence[str], seed: int) -> float:
    """Estimate the bytes of a row's values by some random rows."""
    sizes: list[int] = []
    for row in np.random.default_rng(seed).integers(0, len(slab), _PROBE):
        sizes.append(slab.gather([row], fields).nbytes)  # one by one: rows of a gigabyte exist
        if sum(sizes) > _MOST_BATCH:
            break
    return sum(sizes) / len(sizes)


def batch_sizes(per_row: float) -> tuple[int, ...]:
    """Those of `SIZES` whose batches take no more than an eighth of the memory that is free."""
    most = min(_MOST_BATCH, machine.available_bytes() / 8)
    return tuple(size for size in SIZES if size * per_row <= most) or SIZES[:1]


def warmed(
    path: str | Path,
    fields: Sequence[str] | None,
    seconds: float,
    seed: int,
    **opening: Any,
) -> Subject:
    """Open a slab and read its first rows, in order: they are what is measured.

    It stops after so many seconds, and where a quarter of the free memory is full.
    """
    slab, chosen = opened(path, fields, **opening)
    per_row = row_bytes(slab, chosen, seed)
    step = max(int(_PIECE / max(per_row, 1)), 1)
    most = machine.available_bytes() / 4
    started = time.perf_counter()
    rows = total = 0
    while rows < len(slab):
        stop = min(rows + step, len(slab))
        total += slab.gather(range(rows, stop), chosen).nbytes
        rows = stop
        if time.perf_counter() - started > seconds or total > most:
            break
    took = time.perf_counter() - started
    per_row = total / rows
    return Subject(slab[:rows], chosen, per_row, batch_sizes(per_row), seed, took)


def describe(subject: Subject) -> dict[str, Any]:
    """Describe the slab, ready for JSON."""
    manifest = subject.slab.manifest
    fields = {name: subject.slab.fields[name] for name in subject.fields}
    return {
        "path": str(subject.slab.path),
        "id": manifest.id,
        "rows": manifest.rows,
        "shards": len(manifest.shards),
        "stored_bytes": stored_bytes(subject.slab),
        "fields": [
            {
                "name": name,
                "kind": field.kind,
                "dtype": field.dtype,
                "shape": list(field.shape),
                "codec": field.codec,
                "compressed": field.compression is not None,
            }
            for name, field in fields.items()
        ],
        "row_bytes": subject.row_bytes,
        "measured_rows": len(subject.slab),
    }


def files(slab: Slab) -> list[Path]:
    """Return every file of the slab that holds values."""
    return sorted(slab.path.glob("*/*.npy"))


def stored_bytes(slab: Slab) -> int:
    """Count the bytes of the files of the slab that hold values."""
    return sum(count_bytes(files) - files.manifest_bytes for files in slab.storage.slabs.files)
