"""Image fields as `--image` wants them: pixels, smaller files, baseline files, and their index."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.jpegs import SAMPLINGS, encode, photograph
from tests.packer.readback import Readback
from tests.schemas.codecs.reference import index_points
from tests.slabs import array_path, poke, redigest
from tests.yuv import yuv_planes

from fieldslab.packer import Problem, pack, verify
from fieldslab.packer.commands.fieldtext import field_to_json, format_type
from fieldslab.packer.convert import pixels
from fieldslab.packer.options import parse_options
from fieldslab.packer.plan import make_plan
from fieldslab.packer.source import find_source
from fieldslab.packer.write.batches import BATCH_BYTES, read_batches
from fieldslab.schemas.errors import SourceInconsistent, SourceUnsupported, UsageError
from fieldslab.schemas.fields import Role
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.manifest import encode_manifest as encode_manifest

PHOTOS = Path(__file__).parents[2] / "examples" / "photos.parquet"
JPEGS = [
    encode(photograph(50 + index, 90 - index, index), SAMPLINGS[index % 5]) for index in range(10)
]


def opened(data: bytes) -> Image.Image:
    """A picture, by Pillow."""
    return Image.open(io.BytesIO(data))


def png(picture: Image.Image, **options: Any) -> bytes:
    """A picture as PNG."""
    stream = io.BytesIO()
    picture.save(stream, "png", **options)
    return stream.getvalue()


BOMB = png(Image.new("L", (1, 1))).replace(b"\0\0\0\1" * 2, b"\0\0\x7f\xff" * 2)
"""A PNG that states a billion pixels."""


def packed(
    folder: Path, rows: Sequence[bytes | None], spec: str | None = None, **options: Any
) -> Readback:
    """The slab of one column `i` of images, verified and compared with its source."""
    source = folder / "i.parquet"
    pq.write_table(pa.table({"i": pa.array(rows, pa.binary())}), source, row_group_size=4)
    pack(source, folder / "i.slab", shard_size=1, image={"i": spec}, force=True, **options)
    report = verify(folder / "i.slab", against=source)
    assert report.ok, report.problems
    return Readback(folder / "i.slab")


def all_of(back: Readback, role: str) -> np.ndarray:
    """An array of the field `i`, of all shards."""
    parts = [back.array("i", role, index) for index in range(len(back.manifest["shards"]))]
    return np.concatenate([part for part in parts if part is not None])


def planes(row: np.ndarray, height: int, width: int) -> np.ndarray:
    """A row of yuv420 as Y, Cb and Cr: float64[height, width, 3], chroma repeated."""
    low, narrow = -(-height // 2), -(-width // 2)
    assert len(row) == height * width + 2 * low * narrow
    luma, chroma = row[: height * width], row[height * width :].reshape(2, low, narrow)
    wide = chroma.repeat(2, 1).repeat(2, 2)[:, :height, :width]
    return np.stack([luma.reshape(height, width), *wide], axis=-1).astype(float)


def jfif(levels: np.ndarray) -> np.ndarray:
    """Y, Cb and Cr of RGB by the formula of JFIF, exactly."""
    red, green, blue = np.moveaxis(levels.astype(float), -1, 0)
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    return np.stack([luma, 128 + (blue - luma) / 1.772, 128 + (red - luma) / 1.402], axis=-1)


def test_index_by_default(tmp_path: Path) -> None:
    """JPEG images get the points that reading bit by bit gives; `jpeg_index` says how many."""
    rows = [*JPEGS[:5], None, JPEGS[5][:-200], encode(photograph(40, 40), progressive=True)]
    for spacing, every in ((8, 8), ("rows", 0), (3, 3)):
        back = packed(tmp_path, rows, jpeg_index=spacing, nulls="i=mask")
        assert back.fields["i"]["index"] == every
        points = all_of(back, "points.values")
        expected = [point for row in JPEGS[:5] for point in index_points(row, every)]
        bits = points[:, 0].astype(int) | points[:, 1].astype(int) << 16
        assert bits.tolist() == [bit for bit, _ in expected]
        assert back.column("i") == rows
    warnings = back.manifest["made"]["warnings"]
    assert [warning.split(" images are ")[0] for warning in warnings] == ["i: 1 of 7"] * 2


def test_no_index(tmp_path: Path) -> None:
    """Without an index, and where no sampled value is JPEG, there are no such arrays."""
    for rows, index in ((JPEGS, None), ([png(Image.new("RGB", (9, 7)))] * 3, 8)):
        back = packed(tmp_path, rows, jpeg_index=index)
        assert "index" not in back.fields["i"]
        assert all("points" not in shard for shard in back.manifest["shards"])
        assert not list(tmp_path.glob("i.slab/*/*points*"))


def test_rgb(tmp_path: Path) -> None:
    """RGB pixels are those that Pillow decodes, whatever the kind of file."""
    colour = Image.fromarray(photograph(31, 47, 2))
    rows = [
        JPEGS[4],
        JPEGS[0],
        png(colour),
        png(colour.convert("P")),
        png(colour.convert("1")),
        encode(photograph(20, 30), progressive=True),
    ]
    back = packed(tmp_path, rows, "rgb")
    assert back.fields["i"]["codec"] == "rgb"
    assert "coded" not in back.fields["i"]
    expected = [np.asarray(opened(row).convert("RGB")) for row in rows]
    assert back.column("i") == [image.tobytes() for image in expected]
    assert all_of(back, "size").tolist() == [list(image.shape[:2]) for image in expected]


def test_rare_modes(tmp_path: Path) -> None:
    """Alpha is dropped, of 16 bits the high 8 are kept, CMYK is converted; each is told."""
    colour = photograph(8, 8)
    alpha = np.dstack([colour, np.arange(64).reshape(8, 8).astype(np.uint8)])
    wide = (np.arange(64, dtype=np.uint16) * 1000).reshape(8, 8)
    cmyk = io.BytesIO()
    Image.fromarray(colour).convert("CMYK").save(cmyk, "jpeg")
    clear = png(Image.fromarray(colour).convert("P"), transparency=bytes(range(200)))
    rows = [png(Image.fromarray(alpha)), png(Image.fromarray(wide)), cmyk.getvalue(), clear]
    back = packed(tmp_path, rows, "rgb")
    column = [np.frombuffer(row, np.uint8).reshape(8, 8, 3) for row in back.column("i")]
    assert np.array_equal(column[0], colour)
    assert np.array_equal(column[1], np.repeat((wide >> 8).astype(np.uint8)[..., None], 3, axis=2))
    assert np.abs(column[2].astype(int) - colour).mean() < 20
    assert np.array_equal(column[3], np.asarray(opened(clear).convert("RGBA"))[..., :3])
    told = " ".join(back.manifest["made"]["warnings"])
    assert "2 of 4 images had alpha" in told
    assert "1 of 4 images had 16 bit" in told


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_yuv420_of_jpeg(tmp_path: Path, sampling: str) -> None:
    """Planes of a photograph agree with the decoded RGB, converted exactly, within the loss."""
    for height, width in ((33, 47), (1, 1), (2, 33)):
        row = encode(photograph(height, width, 5), sampling, quality=90)
        (actual,) = packed(tmp_path, [row], "yuv420").column("i")
        ours = planes(np.frombuffer(actual, np.uint8), height, width)
        exact = jfif(np.asarray(opened(row).convert("RGB")))
        assert np.abs(ours - exact)[..., 0].mean() < 1
        means = np.abs(ours.mean(axis=(0, 1)) - exact.mean(axis=(0, 1)))
        assert means.max() < 3 if min(height, width) < 3 else means.max() < 1


@pytest.mark.parametrize(("height", "width"), [(64, 96), (63, 95), (33, 34), (2, 3)])
def test_chroma_of_jpeg_is_what_it_holds(tmp_path: Path, height: int, width: int) -> None:
    """Of a JPEG of 4:2:0, the samples that stand in it are stored, off by 2 at most."""
    file = encode(photograph(height, width, 3), "4:2:0", quality=90)
    (row,) = packed(tmp_path, [file], "yuv420").column("i")
    halved = (height + 1) // 2, (width + 1) // 2
    chroma = np.frombuffer(row, np.uint8)[height * width :].reshape(2, *halved)
    held = yuv_planes(file)[1:]
    for ours, theirs in zip(chroma, held, strict=True):
        difference = np.abs(ours.astype(int) - theirs)
        assert difference.max() <= 2
        assert difference.mean() < 0.3


def test_yuv420_of_png(tmp_path: Path) -> None:
    """Y is the nearest level of the formula, Cb and Cr are means of 2 x 2; grey is kept."""
    levels = photograph(21, 35, 7)
    grey = np.asarray(Image.fromarray(levels).convert("L"))
    rows = [png(Image.fromarray(levels)), png(Image.fromarray(grey))]
    colour, plain = packed(tmp_path, rows, "yuv420").column("i")
    exact = jfif(levels)
    ours = planes(np.frombuffer(colour, np.uint8), 21, 35)
    assert np.abs(ours - exact)[..., 0].max() <= 0.51
    blocks = exact[:20, :34, 1:].reshape(10, 2, 17, 2, 2).mean(axis=(1, 3))
    assert np.abs(ours[:20:2, :34:2, 1:] - blocks).max() <= 1.01
    assert plain == grey.tobytes() + b"\x80" * (2 * 11 * 18)


@pytest.mark.parametrize("store", ["rgb", "yuv420", "jpeg"])
@pytest.mark.parametrize(
    ("side", "sizes"),
    [
        ("short-side=30", [(30, 45), (30, 30), (20, 40), (45, 30)]),
        ("long-side=30", [(20, 30), (30, 30), (15, 30), (30, 20)]),
    ],
)
def test_smaller(tmp_path: Path, store: str, side: str, sizes: list[tuple[int, int]]) -> None:
    """A side gets the length asked for, the other keeps the shape; none becomes larger."""
    dimensions = [(60, 90), (80, 80), (20, 40), (90, 60)]
    pictures = [photograph(*size, index) for index, size in enumerate(dimensions)]
    rows = [encode(picture, "4:4:4", quality=95) for picture in pictures]
    back = packed(tmp_path, rows, f"{store},{side}")
    assert all_of(back, "size").tolist() == [list(size) for size in sizes]
    column = back.column("i")
    for row, (height, width), picture, data in zip(rows, sizes, pictures, column, strict=True):
        if store == "jpeg":
            assert (data == row) == ((height, width) == picture.shape[:2])
            levels = np.asarray(opened(data).convert("RGB"))
        else:
            levels = np.frombuffer(data, np.uint8)
        expected = np.asarray(Image.fromarray(picture).resize((width, height), 3)).astype(float)
        if store == "rgb":
            difference = levels.reshape(height, width, 3) - expected
        elif store == "jpeg":
            difference = jfif(levels)[..., 0] - jfif(expected)[..., 0]
        else:
            difference = planes(levels, height, width)[..., 0] - jfif(expected)[..., 0]
        assert np.abs(difference).mean() < 3
    if store == "jpeg":
        assert back.fields["i"]["index"] == 8
        assert len(all_of(back, "points.values")) > 0


def test_fraction(tmp_path: Path) -> None:
    """Some rows are stored as pixels and the rest as it is; which, the row's number alone says."""
    rows = [JPEGS[index % 10] for index in range(60)]
    back = packed(tmp_path, rows, "rgb,fraction=0.5")
    assert back.fields["i"]["coded"] is True
    codes = all_of(back, "codec")
    assert set(codes.tolist()) == {1, 4}
    assert 15 < (codes == 4).sum() < 45
    for row, code, data in zip(rows, codes, back.column("i"), strict=True):
        assert data == (row if code == 1 else np.asarray(opened(row).convert("RGB")).tobytes())
    files = sorted(tmp_path.glob("i.slab/*/*.points.offsets.npy"))
    counts = np.concatenate([np.diff(np.load(file)) for file in files])
    assert ((counts > 0) == (codes == 1)).all()
    less = packed(tmp_path, rows, "rgb,fraction=0.2")
    assert set(np.flatnonzero(all_of(less, "codec") == 4)) < set(np.flatnonzero(codes == 4))
    stream = pack(
        iter(pa.table({"i": rows}).to_batches(7)), tmp_path / "s.slab", image="i:rgb,fraction=0.5"
    )
    assert np.load(stream.path / "shard-00000" / "00-i.codec.npy").tolist() == codes.tolist()


def test_baseline(tmp_path: Path) -> None:
    """Progressive files become baseline ones with the same pixels, and an index; others stay."""
    rows = [
        JPEGS[0],
        encode(photograph(40, 60), progressive=True),
        encode(photograph(40, 60), progressive=True)[:-100],
        png(Image.new("L", (3, 3))),
    ]
    back = packed(tmp_path, rows, "baseline")
    column = back.column("i")
    assert [column[index] == rows[index] for index in range(4)] == [True, False, True, True]
    assert np.array_equal(np.asarray(opened(column[1])), np.asarray(opened(rows[1])))
    assert "progressive" not in opened(column[1]).info
    counts = np.diff(all_of(back, "points.offsets"))
    assert (counts[:2] > 0).all()
    assert any(
        "could not be made baseline" in warning for warning in back.manifest["made"]["warnings"]
    )


def test_orientation(tmp_path: Path) -> None:
    """Pixels lie as they are stored, whatever EXIF says, which is told; smaller files keep EXIF."""
    exif = Image.Exif()
    exif[0x0112] = 6
    row = encode(photograph(40, 60), exif=exif)
    back = packed(tmp_path, [row], "rgb")
    assert all_of(back, "size").tolist() == [[40, 60]]
    assert "1 of 1 images are to be turned" in back.manifest["made"]["warnings"][0]
    (smaller,) = packed(tmp_path, [row], "jpeg,short-side=20").column("i")
    assert opened(smaller).getexif()[0x0112] == 6
    assert opened(smaller).size == (30, 20)


@pytest.mark.parametrize("spec", ["rgb", "yuv420", "jpeg,long-side=9"])
@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (JPEGS[0][:-300], "cannot be decoded"),
        (b"no image", "cannot be decoded"),
        (b"", "cannot be decoded"),
        (png(Image.new("RGB", (30, 30)))[:60], "cannot be decoded"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "cannot be decoded"),
        (BOMB, "too many pixels"),
    ],
    ids=["truncated", "other bytes", "empty", "truncated PNG", "PostScript", "bomb"],
)
def test_what_cannot_be_decoded_is_refused(
    tmp_path: Path, spec: str, row: bytes, problem: str
) -> None:
    """A damaged image that must be decoded is refused with its row, and what to do."""
    rows = [JPEGS[0], JPEGS[1], JPEGS[2], row, JPEGS[3]]
    with pytest.raises(SourceInconsistent, match=problem) as caught:
        pack(pa.table({"i": rows}), tmp_path / "i.slab", image={"i": spec})
    assert (caught.value.context["field"], caught.value.context["row"]) == ("i", 3)
    assert "leaves such rows out" in (caught.value.hint or "")
    assert caught.value.exit_code == 4


def test_bombs_are_refused_by_the_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the format, more pixels than the limit are refused, fewer are not."""
    monkeypatch.setattr(pixels, "MAX_PIXELS", 50 * 90)
    pack(pa.table({"i": JPEGS[:1]}), tmp_path / "i.slab", image="i:rgb")
    bitmap = io.BytesIO()
    Image.new("L", (91, 50)).save(bitmap, "bmp")
    for row in (bitmap.getvalue(), encode(photograph(91, 50))):
        with pytest.raises(SourceInconsistent, match="too many pixels"):
            pack(pa.table({"i": [row]}), tmp_path / "j.slab", image="i:rgb")


def test_jobs_give_the_same_slab(tmp_path: Path) -> None:
    """One process or two: the same id, for an index and for pixels beside files."""
    photos = pq.read_table(PHOTOS, columns=["image"])["image"].slice(0, 40)
    table = pa.table({"file": photos, "pixels": photos})
    pq.write_table(table, tmp_path / "photos.parquet", row_group_size=10)
    ids = set()
    for jobs in (1, 2):
        done = pack(
            tmp_path / "photos.parquet",
            tmp_path / f"{jobs}.slab",
            shard_size=1,
            jobs=jobs,
            image={"file": None, "pixels": "yuv420,short-side=64,fraction=0.5"},
        )
        ids.add(done.manifest.id)
        assert len(done.manifest.shards) > 1
    assert len(ids) == 1


def test_plans_tell_of_loss(tmp_path: Path) -> None:
    """The reason of a field says which form it has, and whether that is lossy."""
    for spec, word in (("yuv420", "lossy"), ("rgb", "alpha"), ("baseline", "without loss")):
        done = pack(pa.table({"i": JPEGS[:1]}), tmp_path / "i.slab", image={"i": spec}, force=True)
        assert word in done.manifest.made.reasons["i"]


def test_batches_of_pixels_are_small(tmp_path: Path) -> None:
    """So many rows are decoded at a time as take about the memory of a batch, by the sample."""
    rows = [encode(photograph(1200, 1600))] * 40
    parsed = {spec: parse_options(image=f"i:{spec}") for spec in ("rgb", "rgb,long-side=64")}
    plans = {s: make_plan(find_source(pa.table({"i": rows})), o) for s, o in parsed.items()}
    longest = {
        spec: max(
            len(batch) for batch in read_batches(plan.source, plan.tasks[0].spans, plan.fields)
        )
        for spec, plan in plans.items()
    }
    assert longest["rgb"] == BATCH_BYTES // (3 * 1200 * 1600)
    assert longest["rgb,long-side=64"] == 40


def test_types_are_shown(tmp_path: Path) -> None:
    """Plans and `info` show codec and index of a field."""
    shown: dict[str, dict[str, Any]] = {
        "jpeg, index every 8 MCUs": {},
        "jpeg": {"jpeg_index": None},
        "jpeg, index every row": {"jpeg_index": "rows"},
        "yuv420": {"image": "i:yuv420"},
    }
    for text, options in shown.items():
        done = pack(pa.table({"i": JPEGS[:1]}), tmp_path / "i.slab", force=True, **options)
        assert format_type(done.manifest.fields[0]) == text
        assert ("index" in field_to_json(done.manifest.fields[0])) == ("index" in text)


def test_forms_of_structs(tmp_path: Path) -> None:
    """The name of a struct{bytes, path} means its bytes, and its path stays text."""
    rows = pa.array([{"bytes": row, "path": f"{index}.jpg"} for index, row in enumerate(JPEGS)])
    done = pack(pa.table({"i": rows}), tmp_path / "i.slab", image="i:rgb,long-side=20")
    assert [(field.kind, field.codec) for field in done.manifest.fields] == [
        ("image", "rgb"),
        ("text", None),
    ]
    with pytest.raises(UsageError, match="not a column of bytes"):
        pack(pa.table({"i": rows}), tmp_path / "j.slab", image="i.path")


@pytest.mark.parametrize("streamed", [False, True])
def test_images_outside_are_refused(tmp_path: Path, streamed: bool) -> None:
    """HuggingFace images that are paths without bytes are refused with what embeds them."""
    rows = pa.array(
        [{"bytes": None, "path": f"{index}.jpg"} for index in range(3)],
        pa.struct({"bytes": pa.binary(), "path": pa.string()}),
    )
    features = b'{"info": {"features": {"i": {"_type": "Image"}}}}'
    table = pa.table({"i": rows}).replace_schema_metadata({b"huggingface": features})
    pq.write_table(table, tmp_path / "i.parquet")
    source: Any = iter(table.to_batches()) if streamed else tmp_path / "i.parquet"
    with pytest.raises(SourceUnsupported, match="lie outside") as caught:
        pack(source, tmp_path / "i.slab", nulls="i=mask")
    assert caught.value.exit_code == 4
    assert "embed_table_storage" in (caught.value.hint or "")
    assert not (tmp_path / "i.slab").exists()


# What verify finds


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A slab with an index, and pixels beside files: rows 1, 2, 4, 5, 6 and 8 are pixels."""
    packed(tmp_path, JPEGS, "rgb,fraction=0.5", jpeg_index=2)
    return tmp_path / "i.slab"


def wrong(slab: Path, role: Role, offset: int, data: np.ndarray) -> Problem:
    """The first problem of a slab in which an array was changed, with digests made anew."""
    poke(array_path(slab, "i", role), data, offset)
    redigest(slab)
    problem = verify(slab).problems[0]
    assert problem.file == str(array_path(slab, "i", role))
    return problem


def test_verify_finds_bits_outside(mixed: Path) -> None:
    """A point behind the end of its image is named with its row and place."""
    problem = wrong(mixed, "points.values", 10 * 5 + 2, np.array([0xFFFF], "<u2"))
    assert "index point" in problem.problem
    assert (problem.rows, problem.offset) == ((0, 0), 4096 + 50)


def test_verify_finds_bits_that_do_not_rise(mixed: Path) -> None:
    """A point in front of the one before it is named."""
    problem = wrong(mixed, "points.values", 10 * 3, np.array([0, 0], "<u2"))
    assert problem.found == "0"


def test_verify_finds_missing_points(mixed: Path) -> None:
    """An image has all of its points or none."""
    file = array_path(mixed, "i", "points.offsets", 0)
    ends = np.load(file)
    problem = wrong(mixed, "points.offsets", 8, np.array([ends[1] - 1] * 3, "<u8"))
    assert "index points" in problem.problem
    assert problem.found == str(ends[1] - 1)
    assert problem.expected == str(ends[1])
    assert problem.rows == (0, 0)


@pytest.mark.parametrize(
    ("role", "offset", "data", "told"),
    [
        ("codec", 0, np.array([9], "u1"), "no codec"),
        ("codec", 0, np.array([4], "u1"), None),
        ("points.offsets", 8, np.array([2**40], "<u8"), "do not rise"),
        ("size", 8, np.array([1], "<u4"), "pixels"),
    ],
)
def test_verify_finds_what_does_not_go_together(
    mixed: Path, role: Role, offset: int, data: np.ndarray, told: str | None
) -> None:
    """Codes are known ones, points' offsets rise, pixels are as many as their sizes say."""
    poke(array_path(mixed, "i", role, 0), data, offset)
    redigest(mixed)
    problems = verify(mixed).problems
    assert problems
    assert told is None or told in problems[0].problem


@pytest.mark.parametrize(
    ("role", "offset", "item", "told"),
    [
        ("points.values", 4, 0, "row 0: index point 0"),
        ("codec", 3, 3, "row 3: codec"),
        ("values", 0, 0, "row 0: element 0"),
    ],
)
def test_against_finds_a_wrong_point(
    mixed: Path, tmp_path: Path, role: Role, offset: int, item: int, told: str
) -> None:
    """`--against` computes points, codes and pixels anew, and names row, file and offset."""
    file = array_path(mixed, "i", role, 0)
    poke(file, np.array([np.memmap(file, "u1", offset=4096 + offset)[0] ^ 3], "u1"), offset)
    report = verify(mixed, against=tmp_path / "i.parquet", quick=True)
    places = [(each.file, each.offset) for each in report.problems if told in each.problem]
    assert places == [(str(file), 4096 + item)], report.problems


def test_against_takes_the_index_of_the_slab(tmp_path: Path) -> None:
    """A slab that was packed before there were indexes is compared without one."""
    packed(tmp_path, JPEGS, jpeg_index=None)
    slab = tmp_path / "i.slab"
    manifest = load_manifest(slab)
    assert manifest.made.options.pop("jpeg_index", 8) is None
    (slab / "manifest.json").write_bytes(encode_manifest(manifest))
    report = verify(slab, against=tmp_path / "i.parquet")
    assert report.ok, report.problems
