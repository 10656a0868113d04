"""Images as pixels: decoded, cropped, augmented."""

import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from fieldslab.bench.machine import usable_cores
from fieldslab.bench.slab.results import Decode, Speed, Spread
from fieldslab.bench.slab.strategies import subset
from fieldslab.bench.slab.subject import Subject
from fieldslab.bench.slab.turns import Turn, take_turns
from fieldslab.reader import (
    CenterCrop,
    ImageSteps,
    Loader,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Subset,
)
from fieldslab.reader import Decode as Whole

SIDE = 224
WAYS: Mapping[str, Callable[[], list[Any]]] = {
    "whole pictures": lambda: [Whole()],
    f"center crop {SIDE}": lambda: [CenterCrop(SIDE)],
    f"random crop {SIDE}": lambda: [RandomResizedCrop(SIDE)],
    "crop, flip, normalize": lambda: [
        RandomResizedCrop(SIDE),
        RandomHorizontalFlip(),
        Normalize(),
    ],
}
"""What is done to the images, the last as for training."""
_AHEAD = 3
_FEWEST, _MOST = 2, 200
"""Stretches of a loader's batches that are timed."""


def fields(subject: Subject) -> list[str]:
    """Return image fields among those that are read."""
    return [name for name in subject.fields if subject.slab.fields[name].kind == "image"]


def measure(subject: Subject, field: str, seconds: float) -> Decode:
    """Measure random batches of a field by each way in one thread, then the last way by a loader.

    Images that cannot be decoded are filled in, and counted.
    """
    size = subject.usual
    images = {
        name: ImageSteps(steps(), seed=subject.seed, on_error="fill")
        for name, steps in WAYS.items()
    }
    failed: dict[str, int] = dict.fromkeys(images, 0)
    rows = dict.fromkeys(images, 0)

    def decoded(name: str) -> Callable[[Any], Any]:
        def gather(chosen: Any) -> Any:
            batch = subject.slab.gather(chosen, [field], decode={field: images[name]})
            rows[name] += len(chosen)
            failed[name] += len(batch.failures)
            return batch

        return gather

    turns = {
        name: Turn(subject.gathers("random", size, lane).arguments, decoded(name))
        for lane, name in enumerate(images)
    }
    raw = subject.gathers("random", size, len(images)).arguments
    turns["raw"] = Turn(raw, lambda chosen: subject.slab.gather(chosen, [field]))
    times_by_name = take_turns(turns, 0.7 * seconds)
    row_bytes = subject.slab.gather(range(min(len(subject.slab), 256)), [field]).nbytes
    each = row_bytes / min(len(subject.slab), 256)
    speeds = {
        name: Speed(name, size, size * each, Spread.of(times))
        for name, times in times_by_name.items()
    }
    *_, last = images
    threads = usable_cores()
    loaded = _loaded(subject, field, images[last], threads, 0.3 * seconds)
    name = f"the same, Loader, {threads} threads"
    return Decode(
        field,
        size,
        [*(speeds[name] for name in images), Speed(name, size, size * each, Spread.of(loaded))],
        speeds["raw"],
        sum(failed.values()) / sum(rows.values()),
    )


def _loaded(
    subject: Subject, field: str, images: ImageSteps, threads: int, seconds: float
) -> list[float]:
    """Seconds a batch of a loader with so many threads, over stretches of all that it prepares.

    Threads finish several batches at about the same time, so that single ones say little.
    """
    stretch = _AHEAD + threads
    count = _MOST * stretch * subject.usual
    rows = subset("random", len(subject.slab), count, subject.usual, subject.seed)
    loader = Loader(
        subject.slab,
        subject.usual,
        Subset(rows, seed=None),
        fields=[field],
        decode={field: images},
        prefetch=_AHEAD,
        threads=threads,
    )
    stamps: list[float] = []
    with loader:
        for done, _ in enumerate(loader, 1):
            if done % stretch:
                continue
            # The first stretch, with the start of the threads and new memory for each batch, is
            # over here.
            stamps.append(time.perf_counter())
            if stamps[-1] > stamps[0] + seconds and len(stamps) > _FEWEST:
                break
    return [(end - begin) / stretch for begin, end in pairwise(stamps)]
