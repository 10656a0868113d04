"""Steps as a user writes them."""

import json
import pickle
from typing import Any

import numpy as np
import pytest
from tests.naming import case

from fieldslab.reader import (
    CenterCrop,
    Decode,
    ImageSteps,
    MultiCrop,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
)
from fieldslab.reader.images.steps import check_decode_option
from fieldslab.schemas.errors import UsageError

CROP = RandomResizedCrop(8)
WRONG: dict[str, Any] = {
    "no crop": lambda: ImageSteps([Normalize()]),
    "out of turn": lambda: ImageSteps([RandomHorizontalFlip(), CROP]),
    "two crops": lambda: ImageSteps([CROP, Resize(4)]),
    "no step": lambda: ImageSteps([CROP, np.flip]),
    "floats of many sizes": lambda: ImageSteps([Decode(), Normalize()]),
    "boxes of whole pictures": lambda: ImageSteps([Decode()], crop_boxes=True),
    "a field in a step": lambda: ImageSteps([CROP, Normalize("x", 1, 2)]),
    "means of 0 to 1": lambda: ImageSteps([CROP, Normalize(mean=(0.485, 0.456, 0.406))]),
    "means that are words": lambda: Normalize(mean="imagenet"),
    "deviations of 0 to 1": lambda: ImageSteps([CROP, Normalize(mean=0.5, std=0.2)]),
    "two deviations": lambda: ImageSteps([CROP, Normalize(std=[50, 50])]),
    "uint8 with a mean": lambda: Normalize(mean=3, dtype="uint8"),
    "integers": lambda: ImageSteps([CROP, Normalize(dtype="int32")]),
    "float64": lambda: ImageSteps([CROP, Normalize(dtype="float64")]),
    "not a dtype": lambda: Normalize(dtype="float7"),
    "a field without mean": lambda: Normalize("x"),
    "size 0": lambda: Resize(0),
    "half a pixel": lambda: Resize(7.5),  # type: ignore[arg-type]
    "a huge view": lambda: Resize((1, 20_000)),
    "scale that falls": lambda: RandomResizedCrop(8, scale=(1.0, 0.5)),
    "ratio 0": lambda: RandomResizedCrop(8, ratio=(0, 1)),
    "a larger view than picture": lambda: CenterCrop(224, resize=200),
    "no views": lambda: MultiCrop([]),
    "views of nothing": lambda: MultiCrop([Decode()]),  # type: ignore[list-item]
    "probability 2": lambda: RandomHorizontalFlip(2),
    "no policy": lambda: ImageSteps([CROP], on_error="ignore"),  # type: ignore[arg-type]
    "a number for a decoder": lambda: ImageSteps([CROP], decoder=3),  # type: ignore[arg-type]
    "no grey level": lambda: ImageSteps([CROP], fill=256),
    "a text for a list": lambda: ImageSteps("CROP"),
    "a step without a list": lambda: ImageSteps(CROP),  # type: ignore[arg-type]
    "a class for a step": lambda: ImageSteps([RandomResizedCrop]),
    "channels first of whole pictures": lambda: ImageSteps([Decode()], channels_first=True),
    "three sides": lambda: Resize((1, 2, 3)),  # type: ignore[arg-type]
    "one ratio": lambda: RandomResizedCrop(8, ratio=1.0),  # type: ignore[arg-type]
    "a ratio in words": lambda: RandomResizedCrop(8, ratio=("1", "2")),  # type: ignore[arg-type]
    "a number of views": lambda: MultiCrop(2),  # type: ignore[arg-type]
    "a view without a list": lambda: MultiCrop(CROP),  # type: ignore[arg-type]
    "probability in words": lambda: RandomHorizontalFlip("half"),  # type: ignore[arg-type]
    "steps without a field": lambda: check_decode_option([CROP], {}, []),
    "no pixels": lambda: ImageSteps([CROP], max_pixels=0),
}


def test_what_cannot_be_is_refused() -> None:
    """A mistake is a UsageError where it is made."""
    for name, make in WRONG.items():
        with case(name), pytest.raises(UsageError):
            make()


def test_defaults() -> None:
    """Grey levels are channels last; what is normalized is channels first, unless told."""
    assert (ImageSteps([CROP]).dtype, ImageSteps([CROP]).channels_first) == ("uint8", False)
    normal = ImageSteps([CROP, RandomHorizontalFlip(), Normalize()])
    assert (normal.dtype, normal.channels_first) == ("float32", True)
    assert not ImageSteps([CROP, Normalize()], channels_first=False).channels_first
    assert ImageSteps([CROP, Normalize(dtype="uint8")]).dtype == "uint8"


def key_of(images: ImageSteps) -> str:
    """The key of steps as a loader's state has it in a file."""
    return json.dumps(images.key())


def test_keys_tell_what_decides_on_values() -> None:
    """Steps that draw or store differently have different keys; policy plays no part."""
    steps = [CROP, RandomHorizontalFlip(), Normalize()]
    same = {key_of(ImageSteps(steps)), key_of(ImageSteps(steps, on_error="fill", decoder="pillow"))}
    assert len(same) == 1
    others = [
        ImageSteps(steps, seed=1),
        ImageSteps(steps, apply_exif=True),
        ImageSteps(steps, channels_first=False),
        ImageSteps(steps[:2]),
        ImageSteps([RandomResizedCrop(8, (0.1, 1)), *steps[1:]]),
        ImageSteps([CROP, RandomHorizontalFlip(0.1), Normalize()]),
        ImageSteps([*steps[:2], Normalize(dtype="float16")]),
        ImageSteps([*steps[:2], Normalize(mean=1.0)]),
        ImageSteps([MultiCrop([CROP, CROP]), *steps[1:]]),
        ImageSteps([CenterCrop(8), *steps[1:]]),
        ImageSteps([CenterCrop(8, resize=9), *steps[1:]]),
        ImageSteps([Resize(8), *steps[1:]]),
        ImageSteps([Decode()]),
    ]
    assert len(same | {key_of(images) for images in others}) == 1 + len(others)


def test_they_can_be_pickled() -> None:
    """Loaders and their options go to other processes."""
    images = ImageSteps([CROP, RandomHorizontalFlip(), Normalize()], seed=3)
    restored = pickle.loads(pickle.dumps(images))
    assert (key_of(restored), repr(restored)) == (key_of(images), repr(images))
