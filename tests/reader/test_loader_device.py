"""`Loader(device="cpu")`: the way of a batch to a GPU, with everything done on the processor."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from tests.jpegs import encode, photograph
from tests.naming import case

from fieldslab.packer import pack
from fieldslab.reader import (
    CenterCrop,
    Decode,
    ImageSteps,
    Loader,
    MultiCrop,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Sequential,
    Slab,
    Standardize,
    open_slab,
)
from fieldslab.reader.loading.sendbuffers import SendBuffers
from fieldslab.reader.loading.streams import ProcessorStream
from fieldslab.reader.tensor_batch import Jagged
from fieldslab.schemas.errors import DamagedImage, UsageError

ROWS = 12
OPTIONS: dict[str, Any] = {"output": "torch", "threads": 2}


def pack_rows(folder: Path, codec: str) -> Slab:
    """A slab with photographs of one codec, a null among them, and fields of each kind."""
    images: list[bytes | None]
    images = [encode(photograph(70 + row, 90, row), quality=90) for row in range(ROWS)]
    images[5] = None
    table = pa.table(
        {
            "image": pa.array(images, pa.binary()),
            "half": pa.array(np.arange(ROWS, dtype=np.float16)),
            "large": pa.FixedSizeListArray.from_arrays(np.arange(ROWS * 30_000.0), 30_000),
            "tokens": [list(range(row)) for row in range(ROWS)],
            "text": [f"row {row}" for row in range(ROWS)],
            "weight": pa.array([None if row == 3 else row for row in range(ROWS)], pa.int64()),
        }
    )
    path = folder / f"{codec}.slab"
    pack(table, path, image={"image": codec}, nulls=["image=mask", "weight=mask"])
    return open_slab(path)


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Photographs stored as planes."""
    return pack_rows(tmp_path_factory.mktemp("device"), "yuv420")


def assert_same(actual: Any, wanted: Any, tolerance: float) -> None:
    """Two batches of tensors have the same values; images within a tolerance."""
    assert list(actual) == list(wanted)
    for name, value in wanted.items():
        parts = value if isinstance(value, tuple) else (value,)
        others = actual[name] if isinstance(value, tuple) else (actual[name],)
        for part, other in zip(others, parts, strict=True):
            if isinstance(other, torch.Tensor):
                assert part.dtype == other.dtype
                assert part.shape == other.shape
                allowed = tolerance if name == "image" else 0
                if other.numel():
                    assert (part.double() - other.double()).abs().max() <= allowed, name
            elif not isinstance(other, list):
                assert part.tolist() == other.tolist()
    assert actual.rows.equal(wanted.rows)
    assert actual.failures == wanted.failures
    for members in ("valid", "sizes"):
        for name, tensor in getattr(wanted, members).items():
            assert getattr(actual, members)[name].equal(tensor)


STEPS: dict[str, Any] = {
    "float": ImageSteps([RandomResizedCrop(24), RandomHorizontalFlip(), Normalize()], fill=9),
    "uint8": ImageSteps([CenterCrop(20, resize=24)], fill=200, crop_boxes=True),
    "bfloat16": ImageSteps([CenterCrop(20), Normalize(dtype="bfloat16")], channels_first=False),
    "views": ImageSteps([MultiCrop([RandomResizedCrop(24), CenterCrop(16), CenterCrop(16)])]),
    "whole": ImageSteps([Decode()]),
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_batches_are_those_of_the_processor(slab: Slab, steps: ImageSteps) -> None:
    """All fields are the same, and images within a grey level; so are nulls."""
    level = 1 / 57 + 0.03 if steps.normalize else 1
    few = slab[2:7]
    options = OPTIONS | {"decode": {"image": steps}}
    with Loader(few, 3, device="cpu", **options) as loader:
        for actual, expected in zip(loader, Loader(few, 3, **options), strict=True):
            assert_same(actual, expected, level)


def test_batches_without_threads(slab: Slab) -> None:
    """They are sent by the thread that asks for them."""
    options = OPTIONS | {"decode": {"image": STEPS["whole"]}, "prefetch": 0}
    loader = Loader(slab, 5, device="cpu", **options)
    for actual, expected in zip(loader, Loader(slab, 5, **options), strict=True):
        assert_same(actual, expected, 0)


def test_device_alone_gives_tensors(slab: Slab) -> None:
    """`output` need not be said, ragged fields are jagged, and text stays what it is."""
    batch = next(iter(Loader(slab, 4, Sequential(), fields=["tokens", "text"], device="cpu")))
    assert isinstance(batch["tokens"], Jagged)
    assert batch["tokens"].values.tolist() == [0, 0, 1, 0, 1, 2]
    assert batch["text"].tolist() == ["row 0", "row 1", "row 2", "row 3"]


def test_images_that_are_no_pixels_are_decoded_on_the_processor(tmp_path: Path) -> None:
    """JPEG comes as it does without a device, also beside pictures that are stored as pixels."""
    for codec, tolerance in (("jpeg,short-side=60", 0), ("rgb,fraction=0.5", 1 / 57)):
        few = pack_rows(tmp_path, codec)[:6]
        for steps in (STEPS["float"], STEPS["views"]):
            with case(f"{codec} {steps}"):
                options: dict[str, Any] = {"fields": ["image"], "decode": {"image": steps}}
                (expected,) = Loader(few, 6, **options, **OPTIONS)
                (actual,) = Loader(few, 6, **options, device="cpu")
                assert_same(actual, expected, tolerance if steps.normalize else 1)


def test_a_transform_gets_images_of_the_processor(slab: Slab) -> None:
    """Functions see what they see without a device; what they make is sent."""

    def brighten(batch: Any) -> dict[str, Any]:
        assert batch["image"].is_cpu
        return {"bright": batch["image"] * 2}

    options: dict[str, Any] = {
        "fields": ["image", "large"],
        "decode": {"image": STEPS["float"]},
        "transforms": [Standardize("large", 3, 2), brighten],
    }
    wanted = list(Loader(slab, 5, **options, **OPTIONS))
    for actual, expected in zip(Loader(slab, 5, **options, device="cpu"), wanted, strict=True):
        assert_same(actual, expected, 0)


def test_batches_do_not_change_while_they_are_held(slab: Slab) -> None:
    """Nor do the texts, which stay where they were gathered, when many more were sent."""
    options: dict[str, Any] = {"fields": ["large", "text"], "threads": 2, "prefetch": 2}
    wanted = [batch.rows.tolist() for _ in range(3) for batch in Loader(slab, 2, Sequential())]
    loader = Loader(slab, 2, Sequential(), device="cpu", **options)
    batches = [batch for _ in range(3) for batch in loader]
    assert [batch.rows.tolist() for batch in batches] == wanted
    for batch in batches:
        assert batch["large"][:, 0].tolist() == [30_000.0 * row for row in batch.rows.tolist()]
        assert batch["text"].tolist() == [f"row {row}" for row in batch.rows.tolist()]


def test_a_process_makes_batches_for_a_device(slab: Slab) -> None:
    """With `isolate`, they are decoded there and sent from here."""
    options: dict[str, Any] = {"fields": ["image", "large"], "decode": {"image": STEPS["uint8"]}}
    wanted = list(Loader(slab, 5, **options, **OPTIONS))
    with Loader(slab, 5, **options, device="cpu", isolate=True) as loader:
        for actual, expected in zip(loader, wanted, strict=True):
            assert_same(actual, expected, 0)


def test_damaged_pixels_are_failures(tmp_path: Path) -> None:
    """As on the processor: they are raised, left out or filled."""
    slab = pack_rows(tmp_path, "rgb")[:6]
    most = 72 * 90 + 1
    loader = Loader(
        slab, ROWS, decode={"image": ImageSteps([CenterCrop(8)], max_pixels=most)}, device="cpu"
    )
    with pytest.raises(DamagedImage, match="max_pixels"):
        next(iter(loader))
    for on_error in ("skip", "fill"):
        with case(on_error):
            options: dict[str, Any] = {"max_pixels": most, "on_error": on_error}
            steps = {"image": ImageSteps([CenterCrop(8), Normalize()], fill=70, **options)}
            actual = next(iter(Loader(slab, ROWS, decode=steps, device="cpu")))
            wanted = next(iter(Loader(slab, ROWS, decode=steps, **OPTIONS)))
            assert len(actual.failures) == 2
            assert_same(actual, wanted, 1 / 57)


PLAIN = """
import sys
from fieldslab.reader import CenterCrop, Loader, open_slab
sys.modules["triton"] = None
options = {"decode": {"image": [CenterCrop(8)]}, "fields": ["image"]}
(found,) = Loader(open_slab(sys.argv[1]), 99, device="cpu", **options)
(wanted,) = Loader(open_slab(sys.argv[1]), 99, output="torch", **options)
assert found["image"].equal(wanted["image"])
from fieldslab.reader.pixels import fused
"""


def test_a_processor_needs_no_triton(slab: Slab) -> None:
    """Unless the interpreter is asked for; the kernel says what to install."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    del environment["TRITON_INTERPRET"]
    command = [sys.executable, "-c", PLAIN, str(slab.path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert "MissingLibrary" in last, done.stderr
    assert "pip install 'triton" in last


def test_a_loader_for_a_device_can_be_pickled(slab: Slab) -> None:
    """As one without; its memory is left behind."""
    loader = Loader(slab, 6, Sequential(), fields=["large"], device="cpu")
    next(iter(loader))
    other = pickle.loads(pickle.dumps(loader))
    assert [batch.rows.tolist() for batch in other] == [batch.rows.tolist() for batch in loader]


def test_buffers_are_used_again() -> None:
    """A batch is gathered into memory of an earlier one that was sent and that nobody holds."""
    memory = SendBuffers(ProcessorStream())
    blocks = set()
    for size in (100_000, 90_000, 110_000, 100_000):
        values = memory.allocate_array("a", (size,), np.dtype(np.uint8))
        small = memory.allocate_array("b", (3,), np.dtype(np.int64))
        values[:], small[:] = size % 251, size
        buffer, offsets = memory.place_tensors([*map(torch.from_numpy, (small, values))])
        for array, offset in zip((small, values), offsets, strict=True):
            kept = np.ndarray(array.shape, array.dtype, buffer.memory, offset)
            np.testing.assert_array_equal(kept, array)
        blocks.add(buffer.memory.ctypes.data)
        memory.keep_until(None, buffer)
        del buffer, kept, values, small, array
    assert len(blocks) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda:99"}, "cannot be used"),
        ({"device": "moon"}, "no such device"),
        ({"device": "meta"}, "cannot be used"),
        ({"device": "cpu", "pin_memory": True}, "pin_memory"),
    ],
)
def test_devices_that_cannot_be(slab: Slab, options: Any, message: str) -> None:
    """A device that is not there is named when the loader is made."""
    with pytest.raises(UsageError, match=message):
        Loader(slab, 4, **options)
