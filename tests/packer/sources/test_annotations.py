"""Annotations of images: tables, COCO and Pascal VOC, compared with independent reads."""

import csv
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.naming import case
from tests.packer.readback import Readback
from tests.packer.sources.annotating import JPEGS, get_names, packed, write_images
from tests.servers.web import WebServer

from fieldslab.packer import pack, verify
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import (
    NullsFound,
    SourceError,
    SourceInconsistent,
    SourceUnreadable,
    SourceUnsupported,
    UsageError,
)


def write_table(folder: Path, suffix: str, rows: list[dict[str, Any]]) -> Path:
    """Write metadata in one of the three formats."""
    path = folder / f"metadata{suffix}"
    if suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_metadata(tmp_path: Path, suffix: str) -> None:
    """Rows are those of the table in its order; its columns and types stay, images are found."""
    root = write_images(tmp_path / "raw", ["b.jpg", "in/a.jpg", "c d.jpg"])
    names = ["c d.jpg", "in/a.jpg", "b.jpg", "c d.jpg"]
    rows = [
        {"file_name": name, "caption": f'{number}, "ü"', "score": number / 4, "n": number}
        for number, name in enumerate(names)
    ]
    write_table(root, suffix, rows)
    back = packed(root, tmp_path / "slab")
    assert list(back.fields) == ["image", "caption", "score", "n", "path"]
    assert [bytes(data) for data in back.column("image")] == [
        (root / name).read_bytes() for name in names
    ]
    for name in ("caption", "score", "n"):
        assert list(back.column(name)) == [row[name] for row in rows]
    assert back.column("path") == names
    if suffix == ".csv":
        back = packed(root, tmp_path / "slab", cast={"n": "text"}, rows="1:3")
        assert back.column("n") == ["1", "2"]


def test_metadata_of_splits_and_pairs(tmp_path: Path) -> None:
    """Folders have tables; `x_file_name` names the images of the column x; rows may lack one."""
    root = write_images(
        tmp_path / "raw", [f"{s}/{n}.png" for s in ("train", "test") for n in "abc"]
    )
    for split in ("train", "test"):
        rows: list[dict[str, Any]] = [
            {"file_name": "a.png", "mask_file_name": "b.png", "boxes": [[1.5, 2, 3, 4]]},
            {"file_name": "c.png", "mask_file_name": None, "boxes": []},
        ]
        write_table(root / split, ".jsonl", rows)
    with pytest.raises(NullsFound):
        pack(root, tmp_path / "slab")
    back = packed(root, tmp_path / "slab", nulls={"mask": "mask"})
    assert list(back.fields) == ["image", "mask", "boxes", "split", "path"]
    assert back.column("path") == ["test/a.png", "test/c.png", "train/a.png", "train/c.png"]
    masks = [(root / split / "b.png").read_bytes() for split in ("test", "train")]
    assert back.column("mask") == [masks[0], None, masks[1], None]
    slab = open_slab(tmp_path / "slab")
    assert [slab[row]["split"] for row in range(4)] == ["test", "test", "train", "train"]
    assert slab[0]["boxes"].tolist() == [[1.5, 2, 3, 4]]
    assert slab[1]["boxes"].shape == (0, 4)


def test_metadata_that_does_not_fit(tmp_path: Path) -> None:
    """Missing and unlisted images are named errors, or left out on request; so are bad tables."""
    root = write_images(tmp_path / "raw", ["a.jpg", "b.jpg", "c.jpg"])
    write_table(root, ".csv", [{"file_name": "a.jpg", "x": 1}, {"file_name": "z.jpg", "x": 2}])
    with pytest.raises(SourceInconsistent, match="1 listed image missing") as caught:
        pack(root, tmp_path / "slab")
    assert caught.value.context["found"] == "z.jpg"
    back = packed(root, tmp_path / "slab", settings={"unmatched": "skip"})
    assert (back.column("path"), list(back.column("x"))) == (["a.jpg"], [1])
    done = pack(
        root, tmp_path / "slab", settings={"unmatched": "keep"}, nulls={"x": "mask"}, force=True
    )
    assert Readback(tmp_path / "slab").column("x") == [1, None, None]
    assert any("z.jpg" in text for text in done.warnings)
    assert any("2 images not listed" in text for text in done.warnings)
    write_table(root, ".csv", [{"file_name": "a.jpg"}])
    with pytest.raises(SourceInconsistent, match="2 images not listed") as caught:
        pack(root, tmp_path / "slab", force=True)
    assert caught.value.context["file"] == str(root / "b.jpg")
    pack(root, tmp_path / "slab", settings={"annotations": "none"}, force=True)
    assert list(Readback(tmp_path / "slab").fields) == ["image", "path"]
    for text, problem in (("name,x\na.jpg,1\n", "no column names the images"), ("", "empty")):
        (root / "metadata.csv").write_text(text)
        with case(text), pytest.raises(SourceError, match=problem) as refused:
            pack(root, tmp_path / "slab", force=True)
        assert refused.value.context["file"] == str(root / "metadata.csv")
    write_table(root, ".jsonl", [{"file_name": "../secret.jpg"}])
    with pytest.raises(UsageError, match="several files"):
        pack(root, tmp_path / "slab", force=True)
    (root / "metadata.csv").unlink()
    (tmp_path / "secret.jpg").write_bytes(JPEGS[0])
    with pytest.raises(SourceInconsistent, match="missing"):
        pack(root, tmp_path / "slab", force=True)


def make_voc(name: str, objects: list[dict[str, Any]]) -> str:
    """Write XML as Pascal VOC has it, with parts of objects."""
    texts = [
        f"<object><name>{item['name']}</name>"
        + (f"<pose>{item['pose']}</pose>" if "pose" in item else "")
        + (f"<difficult>{item['difficult']}</difficult>" if "difficult" in item else "")
        + "<truncated>0</truncated>"
        + "<bndbox>"
        + "".join(f"<{key}>{item[key]}</{key}>" for key in ("xmin", "ymin", "xmax", "ymax"))
        + "</bndbox><part><name>head</name><bndbox><xmin>9</xmin></bndbox></part></object>"
        for item in objects
    ]
    return f"<annotation><filename>{name}</filename>{''.join(texts)}</annotation>"


def test_voc(tmp_path: Path) -> None:
    """Boxes, classes, poses and flags are those of the XML; masks in other folders are no rows."""
    names = ["000005", "000007", "000009"]
    root = write_images(tmp_path / "VOC", [f"JPEGImages/{name}.jpg" for name in names])
    write_images(root, ["SegmentationClass/000005.png"])
    rng = np.random.default_rng(0)
    (root / "Annotations").mkdir()
    for number, name in enumerate(names):
        objects = [
            {
                "name": str(rng.choice(["dog", "a & b".replace("&", "&amp;")])),
                "pose": "Left" if item else "Unspecified",
                "xmin": 1 + item,
                "ymin": 2.5,
                "xmax": int(rng.integers(5, 90)),
                "ymax": 30,
            }
            | ({"difficult": item % 2} if item < 2 else {})
            for item in range(2 * number)
        ]
        (root / "Annotations" / f"{name}.xml").write_text(make_voc(f"{name}.jpg", objects))
    done = pack(root, tmp_path / "slab")
    assert done.warnings == (f"{root}: left out 1 image outside of JPEGImages",)
    assert verify(tmp_path / "slab", against=root).ok
    slab = open_slab(tmp_path / "slab")
    fields = slab.fields
    assert list(fields) == [
        "image",
        "boxes",
        "labels",
        "poses",
        "difficult",
        "truncated",
        "path",
    ]
    for row, name in enumerate(names):
        items = ET.parse(root / "Annotations" / f"{name}.xml").getroot().findall("object")
        values = slab[row]
        corners = ("xmin", "ymin", "xmax", "ymax")
        expected = [[float(i.findtext(f"bndbox/{c}") or "") for c in corners] for i in items]
        assert values["path"] == f"JPEGImages/{name}.jpg"
        assert values["boxes"].shape == (len(items), 4)
        assert values["boxes"].tolist() == expected
        assert [get_names(slab, "labels")[k] for k in values["labels"]] == [
            item.findtext("name") for item in items
        ]
        assert [get_names(slab, "poses")[k] for k in values["poses"]] == [
            item.findtext("pose") for item in items
        ]
        assert values["difficult"].tolist() == [int(i.findtext("difficult") or -1) for i in items]
        assert values["truncated"].tolist() == [0] * len(items)


BOMB = "<!DOCTYPE x [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;'>]><annotation>&b;</annotation>"


OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "/etc/passwd">]><annotation>&a;</annotation>'


def test_bad_voc(tmp_path: Path) -> None:
    """Entities and DTDs are refused by name, and so is what is no annotation of VOC."""
    root = write_images(tmp_path / "raw", ["a.jpg", "b.jpg"])
    box = {"xmin": 1, "ymin": 1, "xmax": 2, "ymax": 2}
    (root / "b.xml").write_text(make_voc("b.jpg", []))
    bad: dict[str, tuple[str, type[SourceError]]] = {
        "it has a DTD": (BOMB, SourceUnreadable),
        "DTD, which could": (OUTSIDE, SourceUnreadable),
        "undefined entity": ("<annotation>&a;</annotation>", SourceUnreadable),
        "nested more than": ("<annotation>" + "<a>" * 40, SourceUnreadable),
        "no element found": ("<annotation><object>", SourceUnreadable),
        "the root is <x>": ("<x><annotation/></x>", SourceUnreadable),
        "no box of four numbers": (
            make_voc("a.jpg", [box | {"name": "x", "xmin": "far"}]),
            SourceInconsistent,
        ),
        "neither 0 nor 1": (
            make_voc("a.jpg", [box | {"name": "x", "difficult": 2}]),
            SourceInconsistent,
        ),
    }
    for problem, (text, kind) in bad.items():
        (root / "a.xml").write_text(text)
        settings = {"annotations": str(root)}
        with case(problem), pytest.raises(kind, match=problem) as caught:
            pack(root, tmp_path / "slab", settings=settings)
        assert caught.value.context["file"] == str(root / "a.xml")
    (root / "a.xml").write_text(make_voc("other.jpg", [box | {"name": "x"}]))
    pack(root, tmp_path / "slab")
    assert open_slab(tmp_path / "slab")[0]["boxes"].tolist() == [[1, 1, 2, 2]]
    (root / "b.xml").unlink()
    with pytest.raises(SourceInconsistent, match="1 image not listed"):
        pack(root, tmp_path / "slab", force=True)


def test_images_at_urls(tmp_path: Path, serve: Callable[..., WebServer]) -> None:
    """Images of a web server are annotated by a file on a disk; their names may hold any sign."""
    names = ["a b.jpg", "100%.jpg", "x#y.jpg"]
    root = write_images(tmp_path / "raw", [f"in/{name}" for name in names])
    web = serve(root)
    table = write_table(tmp_path, ".csv", [{"file_name": name, "n": name} for name in names])
    urls = [f"{web.url}/in/{quote(name)}" for name in names]
    pack(urls, tmp_path / "slab", settings={"annotations": str(table)})
    back = Readback(tmp_path / "slab")
    assert back.column("path") == back.column("n") == names
    assert [bytes(v) for v in back.column("image")] == JPEGS[:3]
    pack(urls, tmp_path / "plain")
    assert Readback(tmp_path / "plain").column("path") == names


def test_annotations_of_no_kind(tmp_path: Path) -> None:
    """A file of another kind, a URL and an unknown choice are named; other JSON is left out."""
    root = write_images(tmp_path / "raw", ["a.jpg"])
    (root / "annotations.json").write_text('{"a": 1}')
    (root / "x.yaml").write_text("")
    assert "left out 2 files" in pack(root, tmp_path / "slab").warnings[0]
    for settings, kind in (
        ({"annotations": str(root / "x.yaml")}, SourceUnsupported),
        ({"annotations": "s3://x/y.json"}, SourceUnsupported),
        ({"annotations": "no.json"}, SourceUnreadable),
        ({"unmatched": "drop"}, UsageError),
    ):
        with case(settings), pytest.raises(kind):
            pack(root, tmp_path / "other", settings=settings)
