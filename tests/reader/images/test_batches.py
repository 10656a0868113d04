"""Images in batches, from packed slabs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.jpegs import encode, photograph
from tests.reader.images.packing import pack_images, photographs, save
from tests.reader.pixels.pictures import psnr, resized

from fieldslab.reader import (
    CenterCrop,
    Decode,
    Failure,
    ImageSteps,
    MultiCrop,
    Normalize,
    Pictures,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    Slab,
    open_slab,
)
from fieldslab.reader.row_samples import Samples
from fieldslab.schemas.errors import DamagedImage, UnknownField, UsageError

STEPS = [RandomResizedCrop(48), RandomHorizontalFlip(), Normalize()]
GARBAGE = b"this is no image at all"


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Photographs of different sizes, in JPEG, PNG, WebP and TIFF."""
    rows = photographs(6)
    rows += [save(photograph(70, 60, n), codec) for n, codec in enumerate(["png", "webp", "tiff"])]
    rows.append(encode(photograph(40, 50), "4:4:4", progressive=True))
    return pack_images(tmp_path_factory.mktemp("images"), rows)


def test_views_are_what_pillow_makes_of_the_boxes(slab: Slab) -> None:
    """Each view is its box, as Pillow crops and resizes it; whatever the format."""
    batch = slab.gather(
        range(10), decode={"image": ImageSteps([RandomResizedCrop(48)], crop_boxes=True)}
    )
    assert batch["image"].shape == (10, 48, 48, 3)
    assert batch["image"].dtype == np.uint8
    assert batch["row"].tolist() == list(range(10))
    assert list(batch) == ["image", "row", "image.boxes"]
    pictures = slab.gather(range(10), decode={"image": [Decode()]})["image"]
    for view, box, picture in zip(batch["image"], batch["image.boxes"], pictures, strict=True):
        assert psnr(view, resized(picture, tuple(box.tolist()), (48, 48))) > 40


def test_draws_belong_to_the_row(slab: Slab) -> None:
    """Order, company, views of the slab and batches do not change what is drawn; epochs do."""
    decode = {"image": STEPS}
    whole = slab.gather(range(10), decode=decode, epoch=4)["image"]
    np.testing.assert_array_equal(
        slab.gather([7, 2], decode=decode, epoch=4)["image"], whole[[7, 2]]
    )
    part = slab[2:9:3]
    np.testing.assert_array_equal(
        part.gather([0, 1, 2], decode=decode, epoch=4)["image"], whole[[2, 5, 8]]
    )
    other = slab.gather(range(10), decode=decode, epoch=5)["image"]
    assert all((view != two).any() for view, two in zip(whole, other, strict=True))
    seeded = {"image": ImageSteps(STEPS, seed=1)}
    assert (slab.gather(range(10), decode=seeded, epoch=4)["image"] != whole).any()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
def test_normalized_values(slab: Slab, dtype: str) -> None:
    """(value - mean) / std, channels first, in each dtype."""
    crop = CenterCrop(40)
    grey = slab.gather(range(10), decode={"image": [crop]})["image"].astype(float)
    values = slab.gather(range(10), decode={"image": [crop, Normalize(dtype=dtype)]})["image"]
    assert values.shape == (10, 3, 40, 40)
    wanted = np.moveaxis((grey - [123.675, 116.28, 103.53]) / [58.395, 57.12, 57.375], 3, 1)
    if dtype == "uint8":
        wanted = np.moveaxis(grey, 3, 1)
    if dtype == "bfloat16":
        assert values.dtype == np.uint16
        values = (values.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(values, wanted, atol=0.03)


def test_several_views(slab: Slab) -> None:
    """One size gives one array, several sizes one for each; flips are drawn for each view."""
    crop = RandomResizedCrop(32)
    decode = {"image": ImageSteps([MultiCrop([crop] * 3), RandomHorizontalFlip()], crop_boxes=True)}
    batch = slab.gather(range(10), decode=decode)
    assert batch["image"].shape == (10, 3, 32, 32, 3)
    assert batch["image.boxes"].shape == (10, 3, 4)
    single = slab.gather(range(10), decode={"image": [crop, RandomHorizontalFlip()]})
    np.testing.assert_array_equal(batch["image"][:, 0], single["image"])
    decode = {
        "image": ImageSteps([MultiCrop([crop, Resize((8, 9)), crop]), RandomHorizontalFlip()])
    }
    views = slab.gather(range(10), decode=decode)["image"]
    assert [array.shape for array in views] == [(10, 2, 32, 32, 3), (10, 1, 8, 9, 3)]
    np.testing.assert_array_equal(views[0], batch["image"][:, [0, 2]])
    assert views.nbytes == sum(array.nbytes for array in views)


def test_pictures_as_they_are(slab: Slab) -> None:
    """`Decode()` gives each picture whole, at its size."""
    pictures = slab.gather([9, 6, 0], decode={"image": [Decode()]})["image"]
    assert isinstance(pictures, Pictures)
    assert [picture.shape for picture in pictures] == [(40, 50, 3), (70, 60, 3), (90, 130, 3)]
    np.testing.assert_array_equal(pictures[1], photograph(70, 60, 0))
    assert pictures.sizes.tolist() == [[40, 50], [70, 60], [90, 130]]
    assert pictures.nbytes == 3 * (40 * 50 + 70 * 60 + 90 * 130)
    flipped = slab.gather([6], decode={"image": [Decode(), RandomHorizontalFlip(1.0)]})["image"]
    np.testing.assert_array_equal(flipped[0], photograph(70, 60, 0)[:, ::-1])


def test_into_buffers(slab: Slab) -> None:
    """`out` takes decoded images, too, and its memory is used again."""
    out = slab.buffers(10, ["image"])
    decode = {"image": STEPS}
    first = slab.gather(range(10), out=out, decode=decode)["image"]
    address = first.ctypes.data
    wanted = slab.gather([5, 4], decode=decode)["image"]
    again = slab.gather([5, 4], out=out, decode=decode)["image"]
    assert again.ctypes.data == address
    np.testing.assert_array_equal(again, wanted)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Rows 1 and 3 are damaged, row 4 is null."""
    rows: list[bytes | None] = [*photographs(6)]
    rows[1], rows[3], rows[4] = GARBAGE, photographs(4)[3][:1500], None
    folder = tmp_path_factory.mktemp("broken")
    return pack_images(folder, rows, nulls={"image": "mask"})


def test_an_error_names_file_row_and_field(broken: Slab) -> None:
    """By default the first image that cannot be decoded ends it."""
    with pytest.raises(DamagedImage) as caught:
        broken.gather([0, 3, 1], decode={"image": STEPS})
    file = broken.path / "shard-00000" / "00-image.values.npy"
    assert caught.value.context == {"file": file, "field": "image", "row": 3}
    with pytest.raises(
        DamagedImage, match=r"is not an image of a known format \(field image, row 1\)"
    ):
        broken[1:].gather([0], decode={"image": STEPS})


def test_fill(broken: Slab) -> None:
    """Places of failures and of nulls hold a grey level, and both are told."""
    decode = {"image": ImageSteps([Resize(20)], on_error="fill", fill=99)}
    batch = broken.gather(range(6), decode=decode)
    assert (batch["image"][[1, 3, 4]] == 99).all()
    assert not (batch["image"][[0, 2, 5]] == 99).all(axis=(1, 2, 3)).any()
    assert batch.valid["image"].tolist() == [True, True, True, True, False, True]
    assert [(failure.field, failure.row) for failure in batch.failures] == [
        ("image", 1),
        ("image", 3),
    ]
    normal = ImageSteps([Resize(20), Normalize(dtype="bfloat16")], on_error="fill", fill=99)
    pixels = broken.gather([1], decode={"image": normal})["image"][0, :, 0, 0]
    values = (pixels.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(values, [-0.42, -0.30, -0.079], rtol=0.03)


def test_skip(broken: Slab) -> None:
    """Rows whose image fails are left out of every field; nulls stay."""
    decode = {"image": ImageSteps([Resize(20)], on_error="skip", crop_boxes=True)}
    batch = broken.gather(range(6), decode=decode)
    assert batch.rows.tolist() == batch["row"].tolist() == [0, 2, 4, 5]
    assert len(batch["image"]) == len(batch["image.boxes"]) == len(batch.sizes["image"]) == 4
    assert batch.valid["image"].tolist() == [True, True, False, True]
    whole = broken.gather([0, 2, 4, 5], decode=decode)
    np.testing.assert_array_equal(batch["image"], whole["image"])
    assert batch.failures[0] == Failure("image", 1, "is not an image of a known format")
    assert [failure.row for failure in batch.failures] == [1, 3]


def test_one_row_cannot_be_skipped(broken: Slab) -> None:
    """A dataset's item is a row: where that one fails, the error names it."""
    decode = {"image": ImageSteps([Resize(20)], on_error="skip")}
    samples = Samples(broken, [0, 1], ["image"], decode)
    assert samples[0]["image"].shape == (20, 20, 3)
    with pytest.raises(DamagedImage, match=r"field image, row 1\)"):
        samples[1]


@pytest.mark.parametrize("epoch", [-1, "first", 0.5])
def test_an_epoch_is_a_number(broken: Slab, epoch: Any) -> None:
    """What is no epoch is refused, not drawn from."""
    with pytest.raises(UsageError, match="epoch"):
        broken.gather([0], decode={"image": STEPS}, epoch=epoch)


@pytest.mark.parametrize("policy", ["skip", "fill"])
def test_failures_among_pictures(broken: Slab, policy: Any) -> None:
    """Pictures of their own sizes: what failed is gone, or grey at the size in its header."""
    images = ImageSteps([Decode()], on_error=policy, fill=7)
    batch = broken.gather(range(6), decode={"image": images})
    pictures = batch["image"].tolist()
    if policy == "fill":
        assert pictures[1].shape == pictures[4].shape == (0, 0, 3)
        assert (pictures[3] == 7).all()
        assert pictures[3].shape == (90, 130, 3)
    kept = [0, 2, 5] if policy == "fill" else [0, 1, 3]
    for index, row in zip(kept, [0, 2, 5], strict=True):
        alone = broken.gather([row], decode={"image": [Decode()]})["image"][0]
        np.testing.assert_array_equal(pictures[index], alone)
    assert len(pictures) == len(batch["row"]) == (6 if policy == "fill" else 4)


def test_bombs_are_not_unpacked(slab: Slab) -> None:
    """More pixels than `max_pixels` fail, before anything is allocated for them."""
    for steps in ([Resize(8)], [Decode()]):
        images = ImageSteps(steps, max_pixels=90 * 130 - 1, on_error="fill")
        batch = slab.gather(range(10), decode={"image": images})
        assert [failure.row for failure in batch.failures] == list(range(6))
        assert all("max_pixels" in failure.reason for failure in batch.failures)


def test_any_whole_number_is_a_limit(slab: Slab) -> None:
    """`max_pixels` may be more than 64 bits hold."""
    images = ImageSteps([Resize(8)], max_pixels=2**70)
    values = slab.gather(range(10), decode={"image": images})["image"]
    np.testing.assert_array_equal(
        values, slab.gather(range(10), decode={"image": [Resize(8)]})["image"]
    )


@pytest.mark.parametrize("size", [(2**32 - 1, 2**32 - 1), (2**32 - 1, 2863311531)], ids=str)
def test_sizes_whose_product_no_number_holds(tmp_path: Path, size: tuple[int, int]) -> None:
    """A slab that lies about sizes is told of, by pixels; nothing wraps around to a small one."""
    path = pack_images(tmp_path, photographs(2)).path
    (file,) = path.glob("*/*image.size.npy")
    data = bytearray(file.read_bytes())
    data[4096:4104] = np.array(size, "<u4").tobytes()
    file.write_bytes(data)
    slab = open_slab(path, verify=False)
    for steps in ([Decode()], [Resize(8)], [CenterCrop(8)], [RandomResizedCrop(8)]):
        batch = slab.gather([0, 1], decode={"image": ImageSteps(steps, on_error="fill")})
        assert [failure.row for failure in batch.failures] == [0]


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("codec", ["jpeg", "png"])
def test_exif_orientation(tmp_path: Path, turn: int, codec: str) -> None:
    """Pictures are turned as they are to be shown: boxes, flips and all."""
    stored = photograph(64, 96, 2)
    exif = Image.Exif()
    exif[0x0112] = turn
    options = {"quality": 97, "subsampling": 0} if codec == "jpeg" else {}
    slab = pack_images(tmp_path, [save(stored, codec, exif=exif, **options)])
    ways = [
        None,
        None,
        Image.Transpose.FLIP_LEFT_RIGHT,
        Image.Transpose.ROTATE_180,
        Image.Transpose.FLIP_TOP_BOTTOM,
        Image.Transpose.TRANSPOSE,
        Image.Transpose.ROTATE_270,
        Image.Transpose.TRANSVERSE,
        Image.Transpose.ROTATE_90,
    ]
    way = ways[turn]
    pixels = slab.gather([0], decode={"image": [Decode()]})["image"][0]
    shown = pixels if way is None else np.asarray(Image.fromarray(pixels).transpose(way))
    whole = slab.gather([0], decode={"image": ImageSteps([Decode()], apply_exif=True)})["image"][0]
    assert np.abs(whole.astype(int) - shown).max() <= 1
    for p, first in ((0.0, False), (1.0, True)):
        steps = [RandomResizedCrop((40, 30)), RandomHorizontalFlip(p)]
        images = ImageSteps(steps, apply_exif=True, crop_boxes=True, channels_first=first)
        batch = slab.gather([0], decode={"image": images})
        wanted = resized(shown, tuple(batch["image.boxes"][0].tolist()), (40, 30))
        actual = np.moveaxis(batch["image"][0], 0, 2) if first else batch["image"][0]
        assert psnr(actual[:, ::-1] if p else actual, wanted) > 45


@pytest.mark.parametrize("form", ["rgb", "yuv420", "rgb,fraction=0.5", "jpeg,short-side=64"])
def test_pixels_stored_at_pack(tmp_path: Path, form: str) -> None:
    """Decoded at pack or not, by the row: views look alike."""
    rows = photographs(8)
    plain = pack_images(tmp_path, rows)
    stored = pack_images(tmp_path, rows, image=f"image:{form}")
    decode = {"image": ImageSteps([CenterCrop(60)], apply_exif=True)}
    first, two = (each.gather(range(8), decode=decode)["image"] for each in (plain, stored))
    assert psnr(first, two) > (30 if "short" in form else 45)


@pytest.mark.parametrize("decoder", ["roi", "turbojpeg", "pillow"])
def test_every_decoder_sees_the_same(slab: Slab, decoder: str) -> None:
    """A decoder that is asked for by name makes of JPEG what the others make."""
    decode = {"image": ImageSteps(STEPS[:2], decoder=decoder)}
    wanted = slab.gather(range(6), decode={"image": STEPS[:2]})["image"]
    assert psnr(slab.gather(range(6), decode=decode)["image"], wanted) > 48


@pytest.mark.parametrize("decoder", ["roi", "turbojpeg"])
def test_a_decoder_by_name_gets_no_help(slab: Slab, decoder: str) -> None:
    """What it does not take is a failure, and the message names who would."""
    with pytest.raises(DamagedImage, match=f"Only `{decoder}` was tried"):
        slab.gather([6], decode={"image": ImageSteps(STEPS, decoder=decoder)})


def test_what_cannot_be_decoded(slab: Slab) -> None:
    """Fields that are no images, are not there, or are not gathered."""
    with pytest.raises(UsageError, match="only image fields"):
        slab.gather([0], decode={"row": STEPS})
    with pytest.raises(UnknownField):
        slab.gather([0], decode={"picture": STEPS})
    with pytest.raises(UsageError, match="not in `fields`"):
        slab.gather([0], ["row"], decode={"image": STEPS})
    with pytest.raises(UsageError, match="no such decoder"):
        slab.gather([0], decode={"image": ImageSteps(STEPS, decoder="magic")})


def test_no_rows(slab: Slab) -> None:
    """An empty batch has its shape and dtype."""
    assert slab.gather([], decode={"image": STEPS})["image"].shape == (0, 3, 48, 48)
    assert len(slab.gather([], decode={"image": [Decode()]})["image"]) == 0
