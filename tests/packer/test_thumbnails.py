"""`fieldslab head --images`: images of a slab as files."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from tests.jpegs import encode, photograph
from tests.slabs import array_path, poke, redigest

from fieldslab.packer import pack
from fieldslab.packer.cli import run

JPEGS = [encode(photograph(50, 80, index)) for index in range(4)]


def opened(path: Path) -> np.ndarray:
    """Pixels of a file: uint8[height, width, 3]."""
    return np.asarray(Image.open(io.BytesIO(path.read_bytes())).convert("RGB"))


@pytest.fixture
def slab(tmp_path: Path) -> Path:
    """Images as JPEG, as two kinds of pixels, and one that is null."""
    rows = [*JPEGS, None]
    table = pa.table({"a": rows, "b": rows, "c": rows, "n": range(5)})
    pack(table, tmp_path / "i.slab", nulls="*=mask", image=["b:rgb", "c:yuv420"])
    return tmp_path / "i.slab"


def test_files_are_what_is_stored(slab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A JPEG is written byte for byte, pixels as PNG; nulls have no file; the table is printed."""
    out = slab.parent / "new" / "pictures"
    assert run(["head", str(slab), "--images", str(out), "--rows", "2,-1"]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "2-00-a.jpg",
        "2-01-b.png",
        "2-02-c.png",
    ]
    assert (out / "2-00-a.jpg").read_bytes() == JPEGS[2]
    expected = np.asarray(Image.open(io.BytesIO(JPEGS[2])).convert("RGB"))
    assert np.array_equal(opened(out / "2-01-b.png"), expected)
    planes = opened(out / "2-02-c.png").astype(int)
    assert np.abs(planes - expected).mean() < 4
    printed = capsys.readouterr()
    assert "3 images in" in printed.err
    for text in ("image/jpeg 50x80", "image/rgb 50x80, 12.0 kB", "image/yuv420 50x80, 6.0 kB"):
        assert text in printed.out


def test_smaller_files(slab: Path, tmp_path: Path) -> None:
    """`--size` is what the longer side has at most; what is smaller stays as it is."""
    for size, expected in ((20, {(20, 12)}), (500, {(80, 50)})):
        out = tmp_path / str(size)
        assert run(["head", str(slab), "--images", str(out), "--size", str(size), "-n", "2"]) == 0
        assert {opened(path).shape[1::-1] for path in out.iterdir()} == expected
    assert (tmp_path / "500" / "0-00-a.jpg").read_bytes() == JPEGS[0]


def test_what_cannot_be_written(
    slab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Damaged pixels, a folder that is a file, a slab without images: an error with its code."""
    plain = pack(pa.table({"x": [1]}), tmp_path / "x.slab").path
    assert run(["head", str(plain), "--images", str(tmp_path / "out")]) == 2
    assert run(["head", str(slab), "--size", "9"]) == 2
    assert run(["head", str(slab), "--images", str(plain / "manifest.json")]) == 5
    poke(array_path(slab, "c", "size"), np.array([51], "<u4"))
    redigest(slab)
    assert run(["head", str(slab), "--images", str(tmp_path / "out"), "-n", "1"]) == 1
    assert "row 0" in capsys.readouterr().err


def test_damaged_images_stay_as_they_are(tmp_path: Path) -> None:
    """Looking at a slab does not end at its first damaged image: that one's file is its bytes."""
    rows = [JPEGS[0], JPEGS[1][:-400], JPEGS[2]]
    path, out = pack(pa.table({"a": rows}), tmp_path / "i.slab", image="a").path, tmp_path / "out"
    assert run(["head", str(path), "--images", str(out), "--size", "20"]) == 0
    assert (out / "1-00-a.jpg").read_bytes() == rows[1]
    assert opened(out / "2-00-a.jpg").shape == (12, 20, 3)


def test_bytes_that_are_no_image(tmp_path: Path) -> None:
    """Bytes of no known format are written as they are."""
    path = pack(pa.table({"a": [b"what is it"]}), tmp_path / "i.slab", image="a").path
    for size in ([], ["--size", "9"]):
        assert run(["head", str(path), "--images", str(tmp_path / "out"), *size]) == 0
        assert (tmp_path / "out" / "0-00-a.bin").read_bytes() == b"what is it"
