"""Images inside zip and tar files: the rows of the folder, nothing extracted, damage named."""

import io
import json
import os
import struct
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.jpegs import encode, photograph
from tests.naming import case
from tests.packer.packing import listing, pack_shards
from tests.packer.readback import Readback

from fieldslab.packer import pack, verify
from fieldslab.packer.options import parse_options
from fieldslab.packer.pack_source import pack_plan
from fieldslab.packer.plan import make_plan
from fieldslab.packer.source import find_source
from fieldslab.packer.sources.images.source import ImageSource
from fieldslab.schemas.errors import (
    SourceChanged,
    SourceError,
    SourceUnreadable,
    SourceUnsupported,
    UsageError,
)

JPEGS = [encode(photograph(24 + index, 32 - index, index)) for index in range(5)]
NAMES = ["a b/1.jpg", "a b/漢 🙂.jpg", "b/100%#?&.jpg", "b/new\nline.jpg"]
NAMES += ["b/in/CAT.jpg", "b/in/cat.jpg"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photographs of two classes with unusual names, and what is no image."""
    root = tmp_path / "raw"
    for number, name in enumerate([*NAMES, "b/" + "long" * 60 + ".jpg"]):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(JPEGS[number % 5])
    (root / "b" / "README.txt").write_text("x" * 4000)
    (root / "b" / ".hidden.jpg").write_bytes(b"")
    return root


def write_zip(folder: Path, path: Path, method: int = zipfile.ZIP_DEFLATED) -> Path:
    """Write a zip of a folder, with members for folders, in an order of its own."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name in sorted(folder.rglob("*"), reverse=True):
            archive.write(name, name.relative_to(folder))
    return path


def write_tar(folder: Path, path: Path) -> Path:
    """Write a tar as GNU tar does, with `./` in front of all names."""
    subprocess.run(["tar", "-cf", path, "-C", folder, "."], check=True)
    return path


def test_as_the_folder(folder: Path, tmp_path: Path) -> None:
    """A zip, stored or deflated, and a tar have the rows of the folder; jobs change nothing."""
    pack(folder, tmp_path / "folder.slab")
    expected = Readback(tmp_path / "folder.slab")
    assert sorted(expected.column("path")) == sorted([*NAMES, "b/" + "long" * 60 + ".jpg"])
    archives = [
        write_zip(folder, tmp_path / "x.zip"),
        write_zip(folder, tmp_path / "stored.zip", zipfile.ZIP_STORED),
        write_tar(folder, tmp_path / "x.tar"),
    ]
    before = listing(tmp_path)
    for archive in archives:
        with case(archive.name):
            done = pack(archive, tmp_path / "x.slab", force=True)
            assert done.warnings == (
                f"{archive}: left out 1 file without the name of an image (b/README.txt), 1 hidden",
            )
            back = Readback(tmp_path / "x.slab")
            for name in expected.fields:
                assert back.fields[name] == expected.fields[name]
                assert [bytes(v) if name == "image" else v for v in back.column(name)] == [
                    bytes(v) if name == "image" else v for v in expected.column(name)
                ]
            assert verify(tmp_path / "x.slab", against=archive).ok
            two = pack_shards(archive, tmp_path / "y.slab", jobs=2, force=True)
            assert two.manifest.rows == done.manifest.rows
    assert set(listing(tmp_path)) == {*before, "x.slab", "y.slab"}


def test_several_archives(folder: Path, tmp_path: Path) -> None:
    """Archives of a glob stand as folders side by side; a folder that holds all is passed over."""
    root = tmp_path / "zips"
    root.mkdir()
    for name in ("one", "two"):
        with zipfile.ZipFile(root / f"{name}.zip", "w") as archive:
            for number in range(2):
                archive.writestr(f"photos/c{number}/{number}.jpg", JPEGS[number])
    pack(str(root / "*.zip"), tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    assert back.column("path") == [
        f"{name}.zip/photos/c{number}/{number}.jpg" for name in ("one", "two") for number in (0, 1)
    ]
    assert back.fields["label"]["logical"]["names"] == ["c0", "c1"]
    pack(root / "one.zip", tmp_path / "one")
    assert Readback(tmp_path / "one").column("path") == ["c0/0.jpg", "c1/1.jpg"]
    with pytest.raises(UsageError, match="not both"):
        pack([root / "one.zip", folder], tmp_path / "slab", force=True)


def test_annotations_inside(folder: Path, tmp_path: Path) -> None:
    """Metadata and COCO inside an archive are those of its images."""
    rows = "".join(f"{name},{number}\n" for number, name in enumerate(NAMES[:2]))
    (folder / "metadata.csv").write_text(f"file_name,n\n{rows}")
    path = write_zip(folder, tmp_path / "x.zip")
    pack(path, tmp_path / "slab", settings={"unmatched": "skip"})
    back = Readback(tmp_path / "slab")
    assert (back.column("path"), list(back.column("n"))) == (NAMES[:2], [0, 1])
    assert back.manifest["made"]["sources"][-1]["path"] == f"{path}/metadata.csv"
    (folder / "metadata.csv").unlink()
    images = [{"id": n, "file_name": name} for n, name in enumerate(NAMES)]
    content = {"images": images, "annotations": [], "categories": [{"id": 1, "name": "x"}]}
    (folder / "_annotations.coco.json").write_text(json.dumps(content))
    path = write_tar(folder, tmp_path / "x.tar")
    pack(path, tmp_path / "slab", settings={"unmatched": "skip"}, force=True)
    assert sorted(Readback(tmp_path / "slab").column("image_id")) == list(range(6))


def test_tars_of_samples(tmp_path: Path) -> None:
    """A tar of samples is WebDataset, one of folders of images is not; `from_` overrides it."""
    path = tmp_path / "x.tar"
    for names, kind in (
        (["c/1.jpg", "c/2.jpg", "d/1.jpg"], "images"),
        (["c/1.jpg", "c/1.cls"], "webdataset"),
        (["1.jpg", "2.jpg"], "webdataset"),
        (["c/1.jpg", "c/1.seg.jpg"], "webdataset"),
        (["c/1.jpg", "c/2.mp4"], "webdataset"),
        (["c/1.jpg", "metadata.csv", "annotations/1.xml"], "images"),
    ):
        with tarfile.open(path, "w") as tar:
            for name in names:
                info = tarfile.TarInfo(name)
                info.size = len(JPEGS[0])
                tar.addfile(info, io.BytesIO(JPEGS[0]))
        with case(names):
            assert (ImageSource.accepts([str(path)])) == (kind == "images")
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("1.jpg")
        info.size = len(JPEGS[0])
        tar.addfile(info, io.BytesIO(JPEGS[0]))
    assert find_source(path).name == "webdataset"
    assert find_source(path, "images").schema.names == ["image", "path"]
    for name, warned in (("c/1.jpg", True), ("./1.jpg", False)):
        with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tar:
            info = tarfile.TarInfo(name)
            info.size = len(JPEGS[0])
            tar.addfile(info, io.BytesIO(JPEGS[0]))
        source = find_source(tmp_path / "x.tar.gz")
        assert source.name == "webdataset"
        with case(name):
            assert any("without labels" in text for text in source.warnings) == warned
    with pytest.raises(SourceUnsupported, match="compressed tar"):
        find_source(tmp_path / "x.tar.gz", "images")
    with pytest.raises(SourceUnsupported, match="not read from URLs"):
        find_source("s3://bucket/x.zip", "images", storage_options={"skip_signature": "true"})


def spoil(data: bytes, old: bytes, new: bytes, count: int = -1) -> bytes:
    """Replace bytes that must be there."""
    assert old in data
    return data.replace(old, new, count)


def make_zip(**options: Any) -> bytes:
    """A zip with one compressible photograph."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", options.pop("method", zipfile.ZIP_DEFLATED)) as archive:
        for name, content in (options or {"1.jpg": JPEGS[0] + bytes(5000)}).items():
            archive.writestr(name.replace("_", "/"), content)
    return stream.getvalue()


def test_bad_zips(tmp_path: Path) -> None:
    """Bombs, wrong CRCs, encryption, odd methods, double names and cut files are named errors."""
    data, path = make_zip(), tmp_path / "x.zip"
    size = struct.pack("<I", len(JPEGS[0]) + 5000)
    crc = struct.pack("<I", zipfile.ZipFile(io.BytesIO(data)).infolist()[0].CRC)
    head, directory = data.index(b"PK\x03\x04"), data.index(b"PK\x01\x02")
    start = struct.pack("<I", head)
    flags = data[: directory + 8] + b"\x01" + data[directory + 9 :]
    lengths = data[directory + 28 : directory + 34]  # of the name, of more, of a comment
    nameless = (
        data[: directory + 28] + lengths[4:] + bytes(2) + lengths[:2] + data[directory + 34 :]
    )
    twice = data[:directory] + data[directory:-22] * 2 + data[-22:]
    end = bytearray(twice[-22:])
    end[8:12], end[12:16] = b"\x02\0\x02\0", struct.pack("<I", len(twice) - 22 - directory)
    cases = {
        "CRC": spoil(data, crc, b"\1\2\3\4"),
        "cannot hold": spoil(data, size, b"\xff\xff\xff\x7e"),
        "holds more than": spoil(data, size, struct.pack("<I", 5000)),
        "its content does not": spoil(data, size, struct.pack("<I", len(JPEGS[0]) + 5001)),
        "is encrypted": flags,
        "compressed in a way": make_zip(method=zipfile.ZIP_LZMA),
        "lie upon each other": twice[:-22] + bytes(end),
        "File is not a zip file": data[:-30],
        "no header at byte": b"XX" + data[2:],
        "invalid": data[: head + 40] + b"\xff" * 8 + data[head + 48 :],
        "leads out": make_zip(**{".._x.jpg": b"x"}),
        "codec can't decode": spoil(make_zip(**{"é.jpg": b"x"}), "é".encode(), b"\xff\xfe"),
        "zip file version 9.9": data[: directory + 6] + b"\x63" + data[directory + 7 :],
        "a member has no name": nameless,
        "no images in this archive": make_zip(**{"x.txt": b"x"}),
        "is not an image": make_zip(**{"x.jpg": b"hello"}),
    }
    assert start == bytes(4)
    for problem, content in cases.items():
        path.write_bytes(content)
        with case(problem), pytest.raises(SourceError, match=problem) as caught:
            pack(path, tmp_path / "slab")
        assert caught.value.context["file"].startswith(str(path))
    path.write_bytes(data)
    plan = make_plan(find_source(path), parse_options())
    path.write_bytes(data + b"\0")
    with pytest.raises(SourceChanged) as changed:
        pack_plan(plan, tmp_path / "slab")
    assert changed.value.context["file"] == str(path)


def test_bad_tars(tmp_path: Path) -> None:
    """A damaged tar of images is an error with its offset, and so are two members of one name."""
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("c/1.jpg", "c/2.jpg", "c/1.jpg"):
            info = tarfile.TarInfo(name)
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
    with pytest.raises(SourceUnreadable, match="two members have one name"):
        find_source(path, "images")
    path.write_bytes(path.read_bytes()[:1500])
    with pytest.raises(SourceUnreadable, match="missing") as caught:
        find_source(path, "images")
    assert caught.value.context["file"] == f"{path} byte 1024"


def test_large_zip(tmp_path: Path) -> None:
    """Members behind 4 GiB are found by the directory of zip64."""
    path = tmp_path / "x.zip"
    with path.open("wb") as file:
        file.seek(2**32 + 100)
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("c/1.jpg", JPEGS[0])
            archive.writestr("c/2.jpg", JPEGS[1])
    pack(path, tmp_path / "slab")
    assert [bytes(v) for v in Readback(tmp_path / "slab").column("image")] == JPEGS[:2]


def test_names_of_zips(tmp_path: Path) -> None:
    """Names that a zip does not call UTF-8 are read as such if possible, else as code page 437."""
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("AAAA.jpg", JPEGS[0])
        archive.writestr("BBBB.jpg", JPEGS[1])
    data = path.read_bytes()
    path.write_bytes(data.replace(b"AAAA", "üé".encode()).replace(b"BBBB", b"\x81\x82.."))
    pack(path, tmp_path / "slab")
    assert sorted(Readback(tmp_path / "slab").column("path")) == sorted(["üé.jpg", "üé...jpg"])
    assert os.path.getsize(path) == len(data)
