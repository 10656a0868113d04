"""Images per second of each way to store and decode them, as ratios within one run."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fieldslab.bench.images.fidelity import boxes_of, by_pillow
from fieldslab.bench.images.subjects import encoded
from fieldslab.bench.images.whole import WholeDecoder
from fieldslab.bench.timing import Ratio, interleave, ratio
from fieldslab.reader import (
    CenterCrop,
    ImageSteps,
    Loader,
    Normalize,
    RandomResizedCrop,
    Sequential,
    Slab,
)

SIZE = 224
BATCH = 32
PILLOW, WHOLE = "Pillow, whole picture", "libjpeg-turbo, whole picture"
CASES = {
    WHOLE: ("jpeg", "whole"),
    "turbojpeg": ("jpeg", "turbojpeg"),
    "roi": ("jpeg", "roi"),
    "jpeg,short-side=256": ("small", "roi"),
    "yuv420": ("yuv420", "planes"),
    "rgb,long-side=256": ("rgb256", "planes"),
}
"""What is measured -> which slab, which decoder."""
CROPS = {
    f"RandomResizedCrop({SIZE})": RandomResizedCrop(SIZE),
    f"CenterCrop({SIZE})": CenterCrop(SIZE, resize=256),
}


class DecodingSpeed(NamedTuple):
    """Images per second, and how many times as fast as the two plain ways."""

    rate: float
    whole: Ratio
    pillow: Ratio


def speeds(slabs: dict[str, Slab], rounds: int) -> dict[str, dict[str, DecodingSpeed]]:
    """Measure the DecodingSpeed of each case in one and two threads, by crop and by case."""
    speeds_by_crop = {}
    for label, crop in CROPS.items():
        calls: dict[str, Callable[[], Any]] = {}
        pillow = PillowWay(slabs["jpeg"], crop)
        for threads in (1, 2):
            calls[case_of(PILLOW, threads)] = partial(pillow, threads)
            for case, (way, decoder) in CASES.items():
                images = ImageSteps([crop], decoder=_decoder(decoder))
                calls[case_of(case, threads)] = partial(time_gather, slabs[way], images, threads)
        seconds = interleave(calls, rounds)
        count = len(slabs["jpeg"])
        speeds_by_crop[label] = {
            case: DecodingSpeed(
                count / float(np.median(seconds[case])),
                ratio(seconds[case], seconds[case_of(WHOLE, _threads(case))]),
                ratio(seconds[case], seconds[case_of(PILLOW, _threads(case))]),
            )
            for case in calls
        }
    return speeds_by_crop


def other_ratios(slab: Slab, rounds: int) -> dict[str, Ratio]:
    """Compare costs: of normalizing, of the loader, and what a second thread gains."""
    crop = RandomResizedCrop(SIZE)
    plain = ImageSteps([crop], decoder="roi")
    floats = ImageSteps([crop, Normalize()], decoder="roi")
    calls = {
        "plain": partial(time_gather, slab, plain, 1),
        "two": partial(time_gather, slab, plain, 2),
        "floats": partial(time_gather, slab, floats, 1),
        "loader": partial(_load, slab, plain),
    }
    seconds = interleave(calls, rounds)
    return {
        "float32, channels first / uint8": ratio(seconds["floats"], seconds["plain"]),
        "two threads / one": ratio(seconds["two"], seconds["plain"]),
        "loader of two threads / decoding in two threads": ratio(seconds["loader"], seconds["two"]),
    }


def case_of(name: str, threads: int) -> str:
    """Name a case in so many threads."""
    return f"{name}, {threads} thread{'s' * (threads > 1)}"


def _threads(case: str) -> int:
    return 2 if case.endswith("2 threads") else 1


def _decoder(name: str) -> Any:
    return WholeDecoder() if name == "whole" else name


def _batches(count: int, batch: int) -> list[range]:
    return [range(start, min(start + batch, count)) for start in range(0, count, batch)]


def time_gather(slab: Slab, images: ImageSteps, threads: int, batch: int = BATCH) -> None:
    """Decode all images of a slab, so many a batch."""

    def one(rows: Sequence[int]) -> None:
        slab.gather(rows, ["image"], decode={"image": images})

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one, _batches(len(slab), batch)))


def _load(slab: Slab, images: ImageSteps) -> None:
    loader = Loader(
        slab, BATCH, Sequential(), fields=["image"], decode={"image": images}, threads=2
    )
    for _ in loader:
        pass


class PillowWay:
    """What is done without us: each file opened, decoded whole, cropped and resized."""

    def __init__(self, slab: Slab, crop: Any, batch: int = BATCH) -> None:
        self._batch = batch
        self._files = list(encoded(slab))
        self._boxes = boxes_of(slab, crop).tolist()

    def __call__(self, threads: int) -> None:
        """Decode all."""
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(self._one, _batches(len(self._files), self._batch)))

    def _one(self, rows: Sequence[int]) -> None:
        for row in rows:
            np.asarray(by_pillow(self._files[row], self._boxes[row], SIZE))
