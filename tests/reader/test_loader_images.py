"""Loaders and adapters that decode images."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.reader.images.packing import pack_images, photographs
from tests.reader.loading import images_by_row
from torch.utils.data import DataLoader

from fieldslab.reader import (
    CenterCrop,
    Decode,
    ImageSteps,
    Lambda,
    Loader,
    MultiCrop,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    Sequential,
    Shuffled,
    Slab,
)
from fieldslab.reader.grain import grain_batches
from fieldslab.reader.tensor_batch import TensorBatch
from fieldslab.reader.torch import SlabDataset, collate
from fieldslab.schemas.errors import DamagedImage, UsageError

ROWS = 30
DECODE = {"image": [RandomResizedCrop(24), RandomHorizontalFlip(), Normalize()]}


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Small photographs."""
    return pack_images(tmp_path_factory.mktemp("images"), photographs(ROWS, 40, 50))


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Row 17 is no image."""
    rows = photographs(ROWS, 40, 50)
    rows[17] = b"nothing"
    return pack_images(tmp_path_factory.mktemp("broken"), rows)


def test_batches_do_not_depend_on_threads_or_size(slab: Slab) -> None:
    """Any number of threads, any batch size, and a gather: the same images for each row."""
    wanted = slab.gather(range(ROWS), decode=DECODE, epoch=0)["image"]
    for size, threads, prefetch in ((7, 1, 0), (7, 3, 3), (30, 2, 1)):
        loader = Loader(slab, size, decode=DECODE, threads=threads, prefetch=prefetch)
        images = images_by_row(loader)
        assert len(images) == ROWS
        for row, image in images.items():
            np.testing.assert_array_equal(image, wanted[row])
    second = images_by_row(loader)
    np.testing.assert_array_equal(second[3], slab.gather([3], decode=DECODE, epoch=1)["image"][0])


def test_resuming_draws_what_would_have_been_drawn(slab: Slab) -> None:
    """A state taken in the middle of an epoch leads to the same images."""
    whole = [batch["image"].copy() for batch in Loader(slab, 8, decode=DECODE)]
    loader = Loader(slab, 8, decode=DECODE)
    batches = iter(loader)
    next(batches)
    next(batches)
    state = loader.state_dict()
    loader.close()
    other = Loader(slab, 8, decode=DECODE, threads=1)
    other.load_state_dict(state)
    for actual, wanted in zip([batch["image"] for batch in other], whole[2:], strict=True):
        np.testing.assert_array_equal(actual, wanted)
    for wrong in (None, {"image": ImageSteps(DECODE["image"], seed=1)}, {"image": [Resize(24)]}):
        stranger = Loader(slab, 8, decode=wrong)
        if wrong is not None:
            with pytest.raises(UsageError, match="another decode"):
                stranger.load_state_dict(state)


def test_statistics_tell_of_decoding_and_failures(broken: Slab) -> None:
    """Decoding is a stage of its own, and failures are counted."""
    images = ImageSteps([Resize(8)], on_error="skip")
    loader = Loader(broken, 10, Sequential(), decode={"image": images})
    sizes = [(len(batch.rows), len(batch["image"]), len(batch.failures)) for batch in loader]
    assert sizes == [(10, 10, 0), (9, 9, 1), (10, 10, 0)]
    stats = loader.stats()
    assert stats.failures == 1
    assert stats.rows == 29
    assert stats.stages["decode"] > 0
    assert "1 images could not be decoded, or values are damaged" in str(stats)
    assert stats.as_dict()["failures"] == 1


def test_errors_name_row_field_and_batch(broken: Slab) -> None:
    """What cannot be decoded ends the epoch, and says where it was."""
    with pytest.raises(DamagedImage, match="field image, row 17") as caught:
        list(Loader(broken, 10, Sequential(), decode=DECODE))
    assert "in batch 1 of epoch 0" in "".join(caught.value.__notes__)


def test_transforms_get_decoded_images(slab: Slab) -> None:
    """Transforms come after decoding, and may use what it made."""
    half = Lambda("image", lambda image: image[:, :2])
    loader = Loader(slab, 10, decode=DECODE, transforms=[half])
    assert next(iter(loader))["image"].shape == (10, 2, 24, 24)
    loader.close()
    with pytest.raises(UsageError, match="belong in `decode`"):
        Loader(slab, 10, decode=DECODE, transforms=[Normalize()])  # type: ignore[list-item]


def test_tensors(slab: Slab) -> None:
    """torch gets images, boxes, views and pictures as tensors over the same memory."""

    def first(steps: list[object], **options: object) -> TensorBatch:
        decode = {"image": ImageSteps(steps, **options)}  # type: ignore[arg-type]
        with Loader(slab, 4, Sequential(), decode=decode, output="torch") as loader:
            batch: TensorBatch = next(iter(loader))
        return batch

    batch = first([RandomResizedCrop(8), Normalize()], crop_boxes=True)
    assert batch["image"].shape == (4, 3, 8, 8)
    assert batch["image"].dtype == torch.float32
    assert batch["image.boxes"].dtype == torch.int32
    assert batch.failures == ()
    assert first([Resize(8), Normalize(dtype="bfloat16")])["image"].dtype == torch.bfloat16
    views = first([MultiCrop([Resize(8), CenterCrop(4)])])
    assert [tuple(view.shape) for view in views["image"]] == [(4, 1, 8, 8, 3), (4, 1, 4, 4, 3)]
    assert type(views.to("cpu")["image"]) is tuple
    pictures = first([Decode()])["image"]
    assert [tuple(picture.shape) for picture in pictures] == [(40, 50, 3)] * 4


def test_dataset_for_torch(slab: Slab) -> None:
    """A DataLoader over a decoding dataset: batches and single rows, in the epoch that is set."""
    data = SlabDataset(slab, decode=DECODE)
    data.epoch = 2
    wanted = slab.gather(range(ROWS), decode=DECODE, epoch=2)["image"]
    batches = list(DataLoader(data, 10, collate_fn=collate, num_workers=1))
    actual = torch.cat([batch["image"] for batch in batches])
    np.testing.assert_array_equal(actual.numpy(), wanted)
    np.testing.assert_array_equal(data[5]["image"], wanted[5])
    assert data[5]["row"] == 5


def test_workers_that_persist_see_the_epoch(slab: Slab) -> None:
    """Each epoch that is set has crops of its own, in workers that live on as well."""
    data = SlabDataset(slab, ["image"], decode=DECODE)
    loader = DataLoader(data, 10, collate_fn=collate, num_workers=1, persistent_workers=True)
    for epoch in (0, 1):
        data.epoch = epoch
        actual = torch.cat([batch["image"] for batch in loader])
        wanted = slab.gather(range(ROWS), decode=DECODE, epoch=epoch)["image"]
        np.testing.assert_array_equal(actual.numpy(), wanted)


def test_lightning_passes_it_on(slab: Slab) -> None:
    """The data module takes `decode` like every other option."""
    from lightning.pytorch import LightningDataModule  # see test_lightning.py

    from fieldslab.reader.lightning import SlabDataModule

    data = SlabDataModule(train=slab, batch_size=10, decode=DECODE, order=Shuffled(3))
    assert isinstance(data, LightningDataModule)
    data.setup("fit")
    batch = next(iter(data.train_dataloader()))
    assert batch["image"].shape == (10, 3, 24, 24)
    data.teardown("fit")


def test_grain_passes_it_on(slab: Slab) -> None:
    """So does the source of batches for Grain, which tells it in its representation."""
    source = grain_batches(slab, 10, decode=DECODE, epochs=2)
    batch = source[4]
    wanted = slab.gather(batch["row"], decode=DECODE, epoch=1)["image"]
    np.testing.assert_array_equal(batch["image"], wanted)
    assert "RandomResizedCrop" in repr(source)


def test_a_loader_in_another_process(slab: Slab, tmp_path: Path) -> None:
    """Everything that decodes can be pickled and goes on in a forked child."""
    import multiprocessing

    loader = Loader(slab, 10, Sequential(), decode=DECODE)
    list(loader)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        actual = pool.apply(images_by_row, (Loader(slab, 10, Sequential(), decode=DECODE),))
    np.testing.assert_array_equal(actual[7], slab.gather([7], decode=DECODE)["image"][0])
