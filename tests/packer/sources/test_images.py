"""Folders of image files as a source: rows, classes, names, what is left out, what is refused."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.jpegs import encode, photograph
from tests.packer.readback import Readback
from tests.packer.sources.test_lookup import ordinary_user

from fieldslab.packer import PackResult, pack, verify
from fieldslab.packer.options import parse_options
from fieldslab.packer.plan import make_plan
from fieldslab.packer.source import find_source
from fieldslab.packer.sources.images import source as images_source
from fieldslab.reader import CenterCrop, open_slab
from fieldslab.schemas.errors import (
    SourceChanged,
    SourceError,
    SourceInconsistent,
    SourceUnreadable,
    SourceUnsupported,
    UsageError,
)

JPEGS = [encode(photograph(60 + index, 80 - index, index)) for index in range(6)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photographs of two classes in three formats, and one class within a class."""
    root = tmp_path / "photos"
    for name, data in zip(("b/2.jpg", "b/10.JPEG", "a b/1.jpg", "b/in/3.jpg"), JPEGS, strict=False):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    Image.fromarray(photograph(30, 20, 7)).save(root / "b" / "4.png")
    Image.fromarray(photograph(31, 21, 8)).save(root / "a b" / "x.webp")
    return root


NAMES = ["a b/1.jpg", "a b/x.webp", "b/10.JPEG", "b/2.jpg", "b/4.png", "b/in/3.jpg"]


def packed(source: Any, out: Path, **options: Any) -> PackResult:
    """Pack, verify, and compare with the source."""
    done = pack(source, out, force=True, **options)
    report = verify(out, against=source)
    assert report.ok, report.problems
    return done


def test_a_folder(folder: Path, tmp_path: Path) -> None:
    """A row is a file: its bytes, its class by the sorted names of folders, and its path."""
    assert not packed(folder, tmp_path / "x.slab").warnings
    back = Readback(tmp_path / "x.slab")
    assert list(back.fields) == ["image", "label", "path"]
    assert back.column("path") == NAMES
    assert back.column("image") == [(folder / name).read_bytes() for name in NAMES]
    assert [int(label) for label in back.column("label")] == [0, 0, 1, 1, 1, 1]
    assert back.fields["label"]["dtype"] == "int64"
    assert back.fields["label"]["logical"] == {"type": "class_label", "names": ["a b", "b"]}
    assert back.fields["image"]["kind"] == "image"
    assert back.manifest["made"]["options"]["from"] == "images"


def test_as_imagefolder(folder: Path, tmp_path: Path) -> None:
    """Classes, and within them files, are those that torchvision's rule gives."""
    (folder / "a").mkdir()
    shutil.copy(folder / "b" / "2.jpg", folder / "a" / "2.jpg")
    packed(folder, tmp_path / "x.slab")
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    back = Readback(tmp_path / "x.slab")
    assert back.fields["label"]["logical"]["names"] == classes
    for name, label in zip(back.column("path"), back.column("label"), strict=True):
        assert name.split("/")[0] == classes[int(label)]
    assert [int(label) for label in back.column("label")] == [0, 1, 1, 2, 2, 2, 2]


def test_images_can_be_trained_on(folder: Path, tmp_path: Path) -> None:
    """What was packed from files is decoded and cropped like any other image."""
    packed(folder, tmp_path / "x.slab")
    slab = open_slab(tmp_path / "x.slab")
    batch = slab.gather(range(6), decode={"image": [CenterCrop(16, resize=20)]})
    assert batch["image"].shape == (6, 16, 16, 3)
    assert slab.fields["label"].logical is not None
    assert slab[2]["path"] == "b/10.JPEG"


@pytest.mark.parametrize(
    ("pattern", "names", "labels"),
    [
        ("photos/**/*.jpg", ["a b/1.jpg", "b/2.jpg", "b/in/3.jpg"], ["a b", "b"]),
        ("photos/*/*.[Jjp]*", ["a b/1.jpg", "b/10.JPEG", "b/2.jpg", "b/4.png"], ["a b", "b"]),
        ("photos/b/*", ["10.JPEG", "2.jpg", "4.png"], None),
        ("photos/b/2.jpg", ["2.jpg"], None),
        ("photos/b", ["10.JPEG", "2.jpg", "4.png", "in/3.jpg"], ["in"]),
    ],
)
def test_classes_begin_below_what_is_named(
    folder: Path, tmp_path: Path, pattern: str, names: list[str], labels: list[str] | None
) -> None:
    """Paths and classes are relative to the folder, or to what stands before the first wildcard."""
    if pattern == "photos/b":
        with pytest.raises(SourceInconsistent, match="3 images are not in a class folder"):
            pack(tmp_path / pattern, tmp_path / "x.slab")
        packed(tmp_path / pattern, tmp_path / "x.slab", exclude="label")
    else:
        packed(str(tmp_path / pattern), tmp_path / "x.slab")
    back = Readback(tmp_path / "x.slab")
    assert back.column("path") == names
    if labels is None or pattern == "photos/b":
        assert "label" not in back.fields
    else:
        assert back.fields["label"]["logical"]["names"] == labels


def test_several_are_named(folder: Path, tmp_path: Path) -> None:
    """Folders keep their order, and their classes are joined; files have a common folder."""
    other = tmp_path / "more"
    (other / "c").mkdir(parents=True)
    (other / "c" / "9.jpg").write_bytes(JPEGS[5])
    packed([other, folder], tmp_path / "x.slab")
    back = Readback(tmp_path / "x.slab")
    assert back.column("path") == ["more/c/9.jpg", *(f"photos/{name}" for name in NAMES)]
    assert [int(label) for label in back.column("label")] == [2, 0, 0, 1, 1, 1, 1]
    files = [folder / name for name in reversed(NAMES)]
    packed(files, tmp_path / "y.slab")
    back = Readback(tmp_path / "y.slab")
    assert back.column("path") == NAMES[::-1]
    assert [int(label) for label in back.column("label")] == [1, 1, 1, 1, 0, 0]


def test_options_as_with_other_sources(folder: Path, tmp_path: Path) -> None:
    """Fields, rows, forms of images and shards in processes: the slab does not depend on jobs."""
    images = {"image": "rgb,short-side=16"}
    whole = packed(folder, tmp_path / "x.slab", image=images, exclude="path", rows="1:5")
    assert [field.name for field in whole.manifest.fields] == ["image", "label"]
    assert whole.manifest.rows == 4
    many = tmp_path / "many"
    for index in range(1100):
        (many / str(index % 2)).mkdir(parents=True, exist_ok=True)
        (many / str(index % 2) / f"{index}.jpg").write_bytes(JPEGS[index % 5])
    single = packed(many, tmp_path / "y.slab", shard_size=1)
    two = packed(many, tmp_path / "z.slab", shard_size=1, jobs=2)
    assert [shard.rows for shard in single.manifest.shards] == [512, 512, 76]
    assert single.manifest.id == two.manifest.id
    paths = Readback(tmp_path / "z.slab").column("path")
    assert paths == sorted(paths, key=lambda name: name.split("/"))
    packed(many, tmp_path / "p.slab", fields="path,label")


def test_what_is_no_image_by_name(folder: Path, tmp_path: Path) -> None:
    """Other files, hidden ones, links that go round and empty folders are counted and said."""
    (folder / "b" / ".DS_Store").write_bytes(b"x")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "1.jpg").write_bytes(JPEGS[0])
    (folder / "classes.json").write_text("{}")
    for index in range(4):
        (folder / "b" / f"{index}.txt").write_text("x")
    (folder / "again").symlink_to(folder)
    (folder / "b" / "5.jpg").symlink_to(folder / "a b" / "1.jpg")
    (folder / "empty").mkdir()
    actual = packed(folder, tmp_path / "x.slab")
    assert actual.manifest.rows == 7
    assert actual.warnings == (
        f"{folder}: left out 5 files without the name of an image (b/0.txt, b/1.txt, b/2.txt, "
        "...), 2 hidden, 1 link to folders that they are in",
        f"{folder}: no images in 1 folder: empty",
    )


def test_parts_of_a_dataset_are_no_classes(folder: Path, tmp_path: Path) -> None:
    """Where folders are called train and val, a warning says how to pack one of them."""
    (tmp_path / "data").mkdir()
    folder.rename(tmp_path / "data" / "train")
    shutil.copytree(tmp_path / "data" / "train", tmp_path / "data" / "val")
    (warning,) = packed(tmp_path / "data", tmp_path / "x.slab").warnings
    assert f"name its folder: {tmp_path}/data/train" in warning


SPOILED: dict[str, tuple[Callable[[Path], object], type[SourceError], str]] = {
    "text": (lambda path: path.write_text("not a picture"), SourceUnsupported, "is not an image"),
    "empty": (Path.touch, SourceUnsupported, "is empty"),
    "pipe": (os.mkfifo, SourceUnreadable, "is not a file"),
    "nowhere": (
        lambda path: path.symlink_to("no"),
        SourceUnreadable,
        "cannot be read: No such file",
    ),
}


def test_classes_named_one_by_one(folder: Path, tmp_path: Path) -> None:
    """Where the folders of classes are named themselves, a warning says what to name instead."""
    shutil.rmtree(folder / "b" / "in")
    (warning,) = packed([folder / "a b", folder / "b"], tmp_path / "x.slab").warnings
    assert warning.startswith("no label: ")
    assert warning.endswith(f"name the folder above them: {folder}")


@pytest.mark.parametrize("how", SPOILED)
def test_what_cannot_be_packed_is_named(folder: Path, tmp_path: Path, how: str) -> None:
    """What has the name of an image and is none, or no file, is an error with its path."""
    make, kind, text = SPOILED[how]
    (folder / "b" / "2.jpg").unlink()
    make(folder / "b" / "2.jpg")
    with pytest.raises(kind, match=text) as caught:
        pack(folder, tmp_path / "x.slab")
    assert caught.value.context["file"] == str(folder / "b" / "2.jpg")
    assert not (tmp_path / "x.slab").exists()


def test_a_closed_file(folder: Path) -> None:
    """A file that may not be read is an error with its path."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        shutil.copytree(folder, Path(name) / "photos")
        closed = Path(name, "photos", "b", "2.jpg")
        source = find_source(str(closed.parents[1]))
        closed.chmod(0)
        with ordinary_user(), pytest.raises(SourceUnreadable, match="no permission") as caught:
            list(source.read(source.units[0], [0], 1000))
        assert caught.value.context["file"] == str(closed)


def test_names_that_are_no_text(folder: Path, tmp_path: Path) -> None:
    """A name that is not UTF-8 cannot be a path in a slab, and is an error."""
    (folder / "b" / "2.jpg").rename(os.fsdecode(os.fsencode(folder) + b"/b/\xff.jpg"))
    with pytest.raises(SourceUnreadable, match="not UTF-8") as caught:
        pack(folder, tmp_path / "x.slab")
    assert caught.value.context["file"] == rf"{folder}/b/\xff.jpg"


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(JPEGS[4])])
def test_a_change_is_seen(folder: Path, change: Callable[[Path], object]) -> None:
    """A file that goes away, or becomes another one, while it is packed is an error."""
    source = find_source(folder)
    change(folder / "b" / "2.jpg")
    with pytest.raises(SourceChanged) as caught:
        list(source.read(source.units[0], [0], 2**20))
    assert caught.value.context["file"] == str(folder / "b" / "2.jpg")


def test_the_first_of_many_is_named(tmp_path: Path) -> None:
    """Many files are read at a time, yet in order; of several that changed, the first is named."""
    for index in range(200):
        (tmp_path / f"{index:03}.jpg").write_bytes(JPEGS[index % 5] + bytes([index]))
    source = find_source(tmp_path)
    (batch,) = source.read(source.units[0], [0], 2**24)
    assert [value.as_py()[-1] for value in batch.column(0)] == list(range(200))
    for index in (150, 70, 199):
        (tmp_path / f"{index:03}.jpg").unlink()
    with pytest.raises(SourceChanged) as caught:
        list(source.read(source.units[0], [0], 2**24))
    assert caught.value.context["file"] == str(tmp_path / "070.jpg")


def test_against_another_folder(folder: Path, tmp_path: Path) -> None:
    """Verify finds a file that changed, and one that came."""
    pack(folder, tmp_path / "x.slab")
    data = bytearray((folder / "b" / "2.jpg").read_bytes())
    data[-5] ^= 1
    (folder / "b" / "2.jpg").write_bytes(data)
    (problem,) = verify(tmp_path / "x.slab", against=folder).problems
    assert (problem.field, problem.rows) == ("image", (3, 3))
    (folder / "b" / "99.jpg").write_bytes(data)
    texts = [str(problem) for problem in verify(tmp_path / "x.slab", against=folder).problems]
    assert any("differ in rows (expected 7, found 6)" in text for text in texts)


def test_mixed_with_tables(folder: Path, tmp_path: Path) -> None:
    """A folder of images and Parquet is an error that says how to choose; either can be chosen."""
    pq.write_table(pa.table({"x": [1]}), folder / "b" / "m.parquet")
    with pytest.raises(UsageError, match="both parquet files and images") as caught:
        pack(folder, tmp_path / "x.slab")
    assert 'from_="images"' in str(caught.value.hint)
    assert pack(folder, tmp_path / "x.slab", from_="parquet").manifest.rows == 1
    done = pack(folder, tmp_path / "x.slab", from_="images", force=True)
    assert done.manifest.rows == 6
    assert "left out 1 file without the name of an image (b/m.parquet)" in done.warnings[0]
    with pytest.raises(UsageError, match="of one kind"):
        pack([folder / "b" / "2.jpg", folder / "b" / "m.parquet"], tmp_path / "y.slab")


def test_nothing_there(tmp_path: Path) -> None:
    """No image at all is an error that says where it was looked for."""
    (tmp_path / "none").mkdir()
    for pattern in ("none", "none/*.jpg", "missing.jpg"):
        with pytest.raises(SourceUnreadable) as caught:
            pack(str(tmp_path / pattern), tmp_path / "x.slab")
        assert caught.value.context["file"] == str(tmp_path / pattern)
    with pytest.raises(SourceUnreadable, match="no image files"):
        pack(tmp_path / "none", tmp_path / "x.slab", from_="images")


def test_memory_is_bounded(folder: Path) -> None:
    """Batches keep to their size, units to theirs, and one large file is a batch by itself."""
    big = JPEGS[0] + bytes(3 * images_source.UNIT_BYTES)
    (folder / "b" / "3.jpg").write_bytes(big)
    source = find_source(folder)
    rows = 0
    for unit in source.units:
        assert unit.rows is not None
        for batch in source.read(unit, [0, 1, 2], 8000):
            rows += batch.num_rows
            assert batch.num_rows == 1 or batch.nbytes < 8000 + 200
    assert rows == 7
    assert max(unit.rows or 0 for unit in source.units) < 7


def test_the_plan_reads_little(folder: Path) -> None:
    """What becomes of the columns is known from names and sizes, and told as such."""
    plan = make_plan(find_source(folder), parse_options())
    assert [field.why for field in plan.fields] == ["image files", "2 folders", "string"]
    assert plan.fields[0].bytes == sum((folder / name).stat().st_size for name in NAMES)
    assert np.array_equal(plan.columns, [0, 1, 2])
