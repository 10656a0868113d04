"""Photographs of 2 to 18 megapixels: speed of their crops, and PSNR at each scale."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fieldslab.bench.images.fidelity import fidelity
from fieldslab.bench.images.speed import BATCH, SIZE, WHOLE, DecodingSpeed, PillowWay, time_gather
from fieldslab.bench.images.whole import WholeDecoder
from fieldslab.bench.photographs import large_photographs
from fieldslab.bench.timing import interleave, ratio
from fieldslab.packer import pack
from fieldslab.reader import CenterCrop, ImageSteps, RandomResizedCrop, Slab, open_slab

SCALES = 1.0, 2.0, 3.5, 5.0, 9.0, 16.0, 28.0
"""How many times larger than its view a box is: `roi` decodes blocks at 1/2 from 3.5 on, at 1/4
from 9 and at 1/8 from 28."""


def build_large(count: int, folder: Path) -> Slab:
    """Pack large photographs, with an index."""
    source = folder / "large.parquet"
    pq.write_table(pa.table({"image": pa.array(large_photographs(count), pa.binary())}), source)
    pack(source, folder / "large.slab", image="image")
    return open_slab(folder / "large.slab")


def time_large(slab: Slab, rounds: int) -> dict[str, DecodingSpeed]:
    """Measure RandomResizedCrop in two threads, by decoder."""
    crop = RandomResizedCrop(SIZE)
    calls: dict[str, Any] = {"Pillow": partial(PillowWay(slab, crop, BATCH // 8), 2)}
    decoders: dict[str, Any] = {WHOLE: WholeDecoder(), "turbojpeg": "turbojpeg", "roi": "roi"}
    for name, decoder in decoders.items():
        images = ImageSteps([crop], decoder=decoder)
        calls[name] = partial(time_gather, slab, images, 2, BATCH // 8)
    seconds = interleave(calls, rounds)
    return {
        name: DecodingSpeed(
            len(slab) / float(np.median(taken)),
            ratio(taken, seconds[WHOLE]),
            ratio(taken, seconds["Pillow"]),
        )
        for name, taken in seconds.items()
    }


def find_psnr_by_scale(slab: Slab) -> dict[float, float]:
    """Find the PSNR of the worst view at each scale, in dB: the middle of each photograph."""
    sizes = slab.gather(range(len(slab)), ["image"]).sizes["image"]
    return {
        scale: min(
            fidelity(alone, alone, CenterCrop(int(min(size) / scale)), "roi").psnr
            for alone, size in ((slab[row : row + 1], sizes[row]) for row in range(len(slab)))
        )
        for scale in SCALES
    }
