"""A slab with every kind of array, damage of every kind, and repairs that are killed."""

import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.jpegs import encode, photograph

from fieldslab.packer import pack, repair
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.folder import load_manifest

ROWS, GROUP = 240, 40
OPTIONS: dict[str, Any] = {
    "nulls": ["number=mask"],
    "compress": ["story=3", "wide=1"],
    "shard_size": "2M",
}
_STEPS = ("pwrite", "fsync", "rename", "mkdir", "unlink")

Content = dict[str, bytes]
"""The bytes of each file of a slab, by its path in it."""


@dataclass(frozen=True)
class Subject:
    """A source, its slab, and the bytes of that."""

    source: Path
    slab: Path
    content: Content

    def restore(self, path: Path) -> None:
        """Make `path` the slab as it was packed."""
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.slab, path)


def make_subject(folder: Path, options: dict[str, Any] = OPTIONS) -> Subject:
    """Pack a source of fields of every kind into a slab of several shards of many blocks."""
    rng = np.random.default_rng(0)
    photos = [encode(photograph(120, 160, number), quality=90) for number in range(4)]
    numbers: list[int | None] = list(range(ROWS))
    numbers[GROUP + 3] = None
    columns = {
        "number": pa.array(numbers, pa.int64()),
        "text": [rng.bytes(int(rng.integers(0, 4000))).hex() for _ in range(ROWS)],
        "tokens": [rng.integers(0, 1000, rng.integers(0, 900), np.int32) for _ in range(ROWS)],
        "vector": pa.FixedSizeListArray.from_arrays(rng.random(ROWS * 2000).astype("f4"), 2000),
        "image": [photos[row % 4] + bytes(row % 7) for row in range(ROWS)],
        "city": pa.array([f"{row % 130} " * 300 for row in range(ROWS)]).dictionary_encode(),
        "story": [f"once upon a time, {row}, there was a slab " * 20 for row in range(ROWS)],
        "wide": pa.FixedSizeListArray.from_arrays(rng.random(ROWS * 1000), 1000),
    }
    source, slab = folder / "rows.parquet", folder / "whole.slab"
    pq.write_table(pa.table(columns), source, row_group_size=GROUP)
    pack(source, slab, **options)
    return Subject(source, slab, read_content(slab))


def read_content(slab: Path) -> Content:
    """Read all files of a slab, but for hidden ones."""
    paths = (path for path in slab.rglob("*") if path.is_file() and path.name[0] != ".")
    return {str(path.relative_to(slab)): path.read_bytes() for path in paths}


def list_arrays(slab: Path) -> list[Path]:
    """List all array files and digest tables."""
    return sorted(slab.rglob("*.npy"))


def flip_blocks(slab: Path, rng: random.Random, count: int) -> None:
    """Flip a bit in so many random blocks of arrays."""
    blocks = [
        (path, start)
        for path in list_arrays(slab)
        if path.name != "digests.npy"
        for start in range(HEADER, path.stat().st_size, BLOCK)
    ]
    for path, start in rng.sample(blocks, min(count, len(blocks))):
        stop = min(start + BLOCK, path.stat().st_size)
        _flip(path, rng.randrange(start, stop), 1 << rng.randrange(8))


def _flip(path: Path, offset: int, mask: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ mask]))


def _choose(slab: Path, rng: random.Random, part: str = "") -> Path:
    return rng.choice([path for path in list_arrays(slab) if part in path.name])


def _cut(slab: Path, rng: random.Random) -> None:
    path = _choose(slab, rng)
    os.truncate(path, rng.randrange(path.stat().st_size))


def _grow(slab: Path, rng: random.Random) -> None:
    with _choose(slab, rng).open("ab") as file:
        file.write(rng.randbytes(rng.randrange(1, 9000)))


def _zero(slab: Path, rng: random.Random) -> None:
    path = _choose(slab, rng)
    size = path.stat().st_size
    start = rng.randrange(size)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(min(rng.randrange(1, 300_000), size - start)))


def _swap(slab: Path, rng: random.Random) -> None:
    first, second = rng.sample(list_arrays(slab), 2)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


DAMAGE: dict[str, Callable[[Path, random.Random], None]] = {
    "a block": lambda slab, rng: flip_blocks(slab, rng, 1),
    "many blocks": lambda slab, rng: flip_blocks(slab, rng, rng.randrange(2, 60)),
    "a header": lambda slab, rng: _flip(_choose(slab, rng), rng.randrange(HEADER)),
    "offsets": lambda slab, rng: _flip(_choose(slab, rng, "offsets"), HEADER + 8),
    "index points": lambda slab, rng: _flip(_choose(slab, rng, "points"), HEADER),
    "a digest": lambda slab, rng: _flip(_choose(slab, rng, "digests"), HEADER + 3),
    "digests gone": lambda slab, rng: _choose(slab, rng, "digests").unlink(),
    "categories": lambda slab, rng: _flip(_choose(slab, rng, "categories"), HEADER + 9),
    "a dictionary": lambda slab, rng: _flip(_choose(slab, rng, "dictionary"), HEADER + 20),
    "a file gone": lambda slab, rng: _choose(slab, rng).unlink(),
    "a folder gone": lambda slab, rng: shutil.rmtree(_choose(slab, rng).parent),
    "cut": _cut,
    "grown": _grow,
    "zeros": _zero,
    "two files swapped": _swap,
}


def repair_by_another(subject: Subject, slab: Path, helper: str, step: int | None = None) -> bool:
    """Repair in a forked process that is killed in front of its `step`-th step, if it gets there.

    `helper` is "source" or "copy". Returns True if it was killed. Raises if it failed.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if step is not None:
                _kill_at(step)
            code = 0 if repair_from(subject, slab, helper) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if status not in (0, signal.SIGKILL):
        raise AssertionError(f"the repair ended with status {status}: see its traceback")
    return status != 0


def repair_from(subject: Subject, slab: Path, helper: str) -> bool:
    """Repair from the source or from a copy; whether all is whole then."""
    if helper == "source":
        return repair(slab, against=subject.source).ok
    return repair(slab, from_=subject.slab).ok


def _kill_at(wanted: int) -> None:
    """From now on, die in front of the `wanted`-th call that writes, syncs, names or removes."""
    count = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == wanted:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return step

    for name in _STEPS:
        setattr(os, name, counted(getattr(os, name)))


def run_round(subject: Subject, slab: Path, rng: random.Random) -> Counter[str]:
    """Damage a slab, kill repairs of it, and let one finish; count what was done.

    After each kill, a file has the bytes it had before, or those that it should have.
    """
    subject.restore(slab)
    kinds = rng.sample(sorted(DAMAGE), rng.choice((1, 1, 1, 2, 3)))
    for kind in kinds:
        try:
            DAMAGE[kind](slab, rng)
        except IndexError:  # an earlier kind removed all such files
            continue
    helper = rng.choice(("source", "copy"))
    counts = Counter({f"damage: {kind}": 1 for kind in kinds}) + Counter({f"from {helper}": 1})
    before = read_content(slab)
    for _ in range(rng.choice((0, 1, 2))):
        if not repair_by_another(subject, slab, helper, rng.randrange(1, 60)):
            break
        counts["killed"] += 1
        now = read_content(slab)
        assert before.keys() <= now.keys(), (kinds, before.keys() - now.keys())
        for name, data in now.items():
            assert data in (before.get(name), subject.content[name]), (kinds, name)
    repair_by_another(subject, slab, helper)
    assert read_content(slab) == subject.content, kinds
    leftovers = list(slab.rglob(".*")) + list(slab.parent.glob("*.partial"))
    assert not leftovers, (kinds, leftovers)
    assert load_manifest(slab).id == load_manifest(subject.slab).id
    return counts + Counter({"repaired": 1})
