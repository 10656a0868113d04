"""Views of stored pixels by the kernel for GPUs, run by Triton's interpreter on the processor."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.jpegs import photograph
from tests.naming import case
from tests.reader.decoders.decoding import MAX_PIXELS, crops_of, encoded, target_of
from tests.reader.decoders.test_planes import to_planes

from fieldslab.reader.decoders.decoder import Crops, EncodedImages, Status, Target
from fieldslab.reader.decoders.planecopy import copy_regions
from fieldslab.reader.decoders.planes import Planes
from fieldslab.reader.pixels import fused
from fieldslab.reader.pixels.records import RECORD_LENGTH
from fieldslab.schemas.images import CODES
from fieldslab.schemas.mapping import get_address

BOXES = {
    "all": (0, 0, 93, 131),
    "usual": (21, 13, 60, 77),
    "usual, even": (20, 14, 60, 76),
    "enlarged": (30, 41, 9, 6),
    "bottom right": (88, 120, 5, 11),
    "wide": (10, 0, 2, 131),
    "tall": (0, 97, 93, 3),
    "column": (3, 130, 90, 1),
    "pixel": (92, 130, 1, 1),
    "top left": (0, 0, 3, 2),
}
CODED = {"rgb": lambda pixels: pixels.tobytes(), "yuv420": to_planes}


def copied(batch: EncodedImages, crops: Crops) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Regions, records and statuses of all images."""
    count, views = crops.flips.shape
    which, statuses = np.arange(count), np.empty(count, np.int32)
    records = np.zeros((count, views, RECORD_LENGTH), np.int64)
    size = copy_regions(batch, which, crops, MAX_PIXELS, 0, statuses, records)
    regions = np.full(size, 255, np.uint8)
    copy_regions(batch, which, crops, MAX_PIXELS, get_address(regions), statuses, records)
    return torch.from_numpy(regions), torch.from_numpy(records), statuses


def compare(batch: EncodedImages, crops: Crops, target: Target, dtype: torch.dtype) -> float:
    """The largest difference between what the processor and what the kernel make, as stored."""
    Planes().decode(batch, np.arange(len(crops.boxes)), crops, target, MAX_PIXELS)
    regions, records, _ = copied(batch, crops)
    wanted = torch.from_numpy(target.out)
    wanted = wanted.view(torch.bfloat16) if dtype == torch.bfloat16 else wanted
    actual = torch.zeros_like(wanted).flatten(0, 1)
    scale, bias = target.scale.tolist(), target.bias.tolist()
    channels_first = target.channels_first
    fused.write_views(regions, records.flatten(0, 1), actual, channels_first, scale, bias, 0)
    return float((actual.float() - wanted.float().flatten(0, 1)).abs().max())


@pytest.mark.parametrize("code", CODED)
def test_views_are_those_of_the_processor(code: str) -> None:
    """Each box, with others of its picture or alone, flipped or not, within a grey level."""
    batch, _kept = encoded([CODED[code](photograph(93, 131))], [(93, 131)], CODES[code])
    few = [BOXES[name] for name in ("usual", "bottom right", "column")]
    together = crops_of([list(BOXES.values())])
    alone = [crops_of([[box]], flip) for box in few[:2] for flip in (False, True)]
    cases = [((40, 56), together), *(((24, 33), crops) for crops in alone)]
    cases += [(size, crops_of([few])) for size in ((7, 90), (1, 1))]
    for size, crops in cases:
        with case(f"{size} {crops}"):
            target = target_of(np.zeros((*crops.flips.shape, *size, 3), np.uint8))
            assert compare(batch, crops, target, torch.uint8) <= 1


def test_every_number_and_order_of_axes() -> None:
    """Floats are normalized values that were not rounded before; channels come first or last."""
    images = [CODED[code](photograph(93, 131)) for code in CODED]
    batch, _kept = encoded(images, [(93, 131)] * 2, [CODES[code] for code in CODED])
    crops = crops_of([BOXES["usual"]] * 2)
    scale, bias = np.array([0.5, 1, 2], np.float32), np.array([0, -3, 7], np.float32)
    for name, level in (("float32", 0.6), ("float16", 0.7), ("bfloat16", 4)):
        stored = np.uint16 if name == "bfloat16" else name
        for shape in ((2, 1, 3, 30, 20), (2, 1, 30, 20, 3)):
            with case(f"{name} {shape}"):
                target = Target(np.zeros(shape, stored), shape[2] == 3, scale, bias)
                assert compare(batch, crops, target, getattr(torch, name)) <= level


def test_a_large_photograph_is_made_small() -> None:
    """Windows of many samples, and weights that have to be exact far from the corner."""
    pixels = np.tile(photograph(250, 400), (1, 50, 1))
    batch, _kept = encoded([to_planes(pixels)], [(250, 20000)], CODES["yuv420"])
    crops = crops_of([[(111, 3, 60, 400), (111, 19900, 40, 30)]])
    target = target_of(np.zeros((1, 2, 10, 48, 3), np.uint8))
    assert compare(batch, crops, target, torch.uint8) <= 1


def test_pictures_that_fail_are_filled() -> None:
    """Nothing is copied for what is cut off, too large or outside; its views are `fill`, scaled."""
    data = to_planes(photograph(20, 30))
    images = [data, data[:-1], data, b"\xff\xd8\xff" + data]
    codes = [CODES["yuv420"]] * 3 + [CODES["jpeg"]]
    batch, _kept = encoded(images, [(20, 30)] * 4, codes, [])
    crops = crops_of([(0, 0, 20, 30), (0, 0, 20, 30), (5, 0, 16, 30), (0, 0, 20, 30)])
    regions, records, statuses = copied(batch, crops)
    assert statuses.tolist() == [
        Status.OK,
        Status.TRUNCATED,
        Status.OTHER_SIZE,
        Status.UNSUPPORTED,
    ]
    assert len(regions) == -(-len(data) // 64) * 64
    out = torch.zeros(4, 3, 8, 8)
    fused.write_views(regions, records.flatten(0, 1), out, True, [2, 2, 2], [1, 1, 1], 100)
    assert bool((out[1:] == 201).all())
    assert not bool((out[0] == 201).any())


def test_no_views_are_no_work() -> None:
    """A batch of no rows, and one whose images were all left out."""
    out = torch.zeros(0, 8, 8, 3, dtype=torch.uint8)
    nothing = torch.zeros(0, RECORD_LENGTH, dtype=torch.int64)
    fused.write_views(torch.zeros(0, dtype=torch.uint8), nothing, out, False, [1] * 3, [0] * 3, 0)


COMPILE = """
from fieldslab.reader.pixels import fused
assert not fused.is_interpreted()
for capability, dtype, channels_first in ((90, "u8", False), (80, "bf16", True)):
    made = fused.compile_for(capability, dtype, channels_first)
    assert made["cubin"].startswith(b"\\x7fELF")
    assert f".target sm_{capability}" in made["ptx"]
"""


def test_it_compiles_for_gpus(tmp_path: Path) -> None:
    """Ahead of time, for those of compute capability 8.0 and 9.0; no GPU is needed."""
    environment: dict[str, Any] = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    del environment["TRITON_INTERPRET"]
    subprocess.run([sys.executable, "-W", "error", "-c", COMPILE], env=environment, check=True)
