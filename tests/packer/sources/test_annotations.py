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
from PIL import Image, ImageDraw
from tests.jpegs import encode, photograph
from tests.naming import case
from tests.packer.readback import Readback
from tests.servers.web import WebServer

from fieldslab.packer import pack, verify
from fieldslab.packer.sources.images.coco_masks import decompress_runs
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import (
    NullsFound,
    SourceError,
    SourceInconsistent,
    SourceUnreadable,
    SourceUnsupported,
    UsageError,
)

JPEGS = [encode(photograph(24 + index, 32 - index, index)) for index in range(5)]


def write_images(folder: Path, names: list[str]) -> Path:
    """Write photographs of these names."""
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(JPEGS[number % len(JPEGS)])
    return folder


def packed(source: Path, out: Path, **options: Any) -> Readback:
    """Pack, compare with the source again, and read back."""
    pack(source, out, force=True, **options)
    report = verify(out, against=source)
    assert report.ok, report.problems
    return Readback(out)


def get_names(slab: Any, field: str) -> tuple[str, ...]:
    """Names of the classes of a field."""
    return tuple(slab.fields[field].logical.names)


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


POLYGON = [2.0, 3.0, 10.5, 3.0, 10.5, 9.25, 2.0, 9.25]


def make_coco(names: list[str]) -> dict[str, Any]:
    """Annotations with gaps between ids, crowds, polygons, both kinds of run lengths, keypoints."""
    size = [24, 32]
    runs = [100, 20, 24 * 32 - 120]
    objects = [
        {"bbox": [1, 2.5, 3, 4], "category_id": 18, "area": 12.5, "segmentation": [POLYGON]},
        {
            "bbox": [0, 0, 32, 24],
            "category_id": 3,
            "area": 7,
            "iscrowd": 1,
            "segmentation": {"counts": runs, "size": size},
        },
        {
            "bbox": [5, 6, 7, 8],
            "category_id": 3,
            "area": 0.1,
            "segmentation": {"counts": compress_runs(runs), "size": size},
        },
        {
            "bbox": [1, 1, 1, 1],
            "category_id": 18,
            "area": 1,
            "segmentation": [POLYGON[:6], POLYGON],
        },
    ]
    points = [[4, 5, 2, 0, 0, 0], [7, 8, 1, 9, 9, 2], None, [1, 1, 1, 2, 2, 2]]
    for number, item in enumerate(objects):
        item |= {"id": number, "image_id": 70 if number < 3 else 50}
        item |= {"iscrowd": item.get("iscrowd", 0), "extra": "x"}
        if points[number]:
            item |= {"keypoints": points[number], "num_keypoints": 2}
    images = [
        {"id": identity, "file_name": name, "height": 24, "width": 32}
        for identity, name in zip((70, 50, 60), names, strict=True)
    ]
    categories = [{"id": 18, "name": "dog"}, {"id": 3, "name": "car", "supercategory": "v"}]
    return {"images": images, "annotations": [objects[3], *objects[:3]], "categories": categories}


def compress_runs(runs: list[int]) -> str:
    """Compress run lengths as the COCO API does: maskApi.c, rleToString."""
    text = ""
    for number, run in enumerate(runs):
        value, more = run - (runs[number - 2] if number > 2 else 0), True
        while more:
            bits, value = value & 31, value >> 5
            more = value != (-1 if bits & 16 else 0)
            text += chr((bits | 32 if more else bits) + 48)
    return text


def check_coco(slab: Path, content: dict[str, Any], path_of: dict[str, str]) -> None:
    """Every value is that of the JSON, image by image."""
    rows = open_slab(slab)
    names = get_names(rows, "labels")
    categories = {item["id"]: item["name"] for item in content["categories"]}
    by_path = {path_of[image["file_name"]]: image for image in content["images"]}
    for number in range(len(rows)):
        row = rows[number]
        image = by_path[row["path"]]
        items = [item for item in content["annotations"] if item["image_id"] == image["id"]]
        assert row["image_id"] == image["id"]
        assert row["boxes"].shape == (len(items), 4)
        assert row["boxes"].tolist() == [item["bbox"] for item in items]
        assert [names[k] for k in row["labels"]] == [categories[i["category_id"]] for i in items]
        assert row["area"].tolist() == [item["area"] for item in items]
        assert row["iscrowd"].tolist() == [item["iscrowd"] for item in items]
        zeros = [0] * 6
        assert row["keypoints"].reshape(-1, 6).tolist() == [
            i.get("keypoints", zeros) for i in items
        ]
        polygons = [
            (k, polygon)
            for k, item in enumerate(items)
            if isinstance(item["segmentation"], list)
            for polygon in item["segmentation"]
        ]
        assert row["polygons.objects"].tolist() == [k for k, _ in polygons]
        assert row["polygons.lengths"].tolist() == [len(polygon) // 2 for _, polygon in polygons]
        assert row["polygons.points"].reshape(-1).tolist() == [x for _, p in polygons for x in p]
        masks = [k for k, item in enumerate(items) if isinstance(item["segmentation"], dict)]
        assert row["rle.objects"].tolist() == masks
        assert row["rle.counts"].tolist() == [100, 20, 648] * len(masks)
        assert row["rle.lengths"].tolist() == [3] * len(masks)


def test_coco(tmp_path: Path) -> None:
    """Boxes, classes, areas, crowds, keypoints and masks are those of JSON within the folder."""
    names = ["2.jpg", "1.jpg", "3.jpg"]
    root = write_images(tmp_path / "raw", [f"images/{name}" for name in names])
    content = make_coco(names)
    (root / "annotations").mkdir()
    path = root / "annotations" / "instances_default.json"
    path.write_text(json.dumps(content))
    done = pack(root, tmp_path / "slab")
    assert done.warnings == (f"{path}: left out of annotations: extra",)
    assert verify(tmp_path / "slab", against=root).ok
    check_coco(tmp_path / "slab", content, {name: f"images/{name}" for name in names})
    slab = open_slab(tmp_path / "slab")
    batch = slab.gather(range(3), fields=["boxes", "labels"])
    assert batch["boxes"].values.shape == (4, 4)
    assert slab.fields["boxes"].attributes["fieldslab.boxes"] == "xywh"
    assert slab.fields["labels"].attributes["fieldslab.category_ids"] == [3, 18]
    assert get_names(slab, "labels") == ("car", "dog")
    mask = Image.new("1", (32, 24))
    ImageDraw.Draw(mask).polygon(slab[1]["polygons.points"].reshape(-1).tolist(), fill=1)
    assert np.asarray(mask)[4:9, 3:10].all()


def test_coco_elsewhere(tmp_path: Path) -> None:
    """`annotations` names a file; one of several must be chosen; each split may have one."""
    names = ["2.jpg", "1.jpg", "3.jpg"]
    root = write_images(tmp_path / "raw", names)
    content = make_coco(names)
    for name in ("instances_train.json", "instances_val.json"):
        (tmp_path / name).write_text(json.dumps(content))
    settings = {"annotations": str(tmp_path / "instances_val.json")}
    packed(root, tmp_path / "slab", settings=settings)
    check_coco(tmp_path / "slab", content, {name: name for name in names})
    for name in ("instances_train.json", "instances_val.json"):
        (tmp_path / name).rename(root / name)
    with pytest.raises(UsageError, match="several files") as caught:
        pack(root, tmp_path / "slab", force=True)
    assert 'settings={"annotations": "instances_train.json"}' in str(caught.value)
    packed(root, tmp_path / "slab", settings={"annotations": "instances_train.json"})
    splits = tmp_path / "splits"
    for split in ("train", "valid"):
        write_images(splits / split, names)
        (splits / split / "_annotations.coco.json").write_text(json.dumps(content))
    back = packed(splits, tmp_path / "slab")
    assert len(back.column("path")) == 6
    slab = open_slab(tmp_path / "slab")
    assert [slab[row]["split"] for row in (0, 5)] == ["train", "valid"]


def test_captions(tmp_path: Path) -> None:
    """Each image has any number of captions, in the order of the file; heights may be 24.0."""
    root = write_images(tmp_path / "raw", ["a.jpg", "b.jpg"])
    images = [{"id": n, "file_name": f"{name}.jpg", "height": 24.0} for n, name in enumerate("ab")]
    texts = ["a 'dog'", "", "ü 漢"]
    notes = [{"image_id": 1, "id": n, "caption": text} for n, text in enumerate(texts)]
    path = root / "captions.json"
    path.write_text(json.dumps({"images": images, "annotations": notes}))
    pack(root, tmp_path / "slab")
    slab = open_slab(tmp_path / "slab")
    assert list(slab.fields) == ["image", "captions", "image_id", "path"]
    assert [list(slab[row]["captions"]) for row in (0, 1)] == [[], texts]


def spoil(content: dict[str, Any], key: str, value: Any) -> str:
    """Change a member of the first annotation."""
    first = content["annotations"][0]
    return json.dumps(
        content | {"annotations": [first | {key: value}, *content["annotations"][1:]]}
    )


def test_bad_coco(tmp_path: Path) -> None:
    """What contradicts itself is a named error; a field that some lack can be left out."""
    names = ["2.jpg", "1.jpg", "3.jpg"]
    root = write_images(tmp_path / "raw", names)
    content, path = make_coco(names), tmp_path / "x.json"
    bad = {
        "an annotation has no box": spoil(content, "bbox", [1, 2, 3]),
        "a category that is not listed": spoil(content, "category_id", 4),
        "is of no image": spoil(content, "image_id", 4),
        "odd number of coordinates": spoil(content, "segmentation", [[1, 2, 3]]),
        "run lengths of a mask": spoil(content, "segmentation", {"counts": [3], "size": [24, 32]}),
        "not those of its image": spoil(content, "segmentation", {"counts": "~", "size": [24, 32]}),
        "lack it": spoil(content, "area", None),
        "other numbers of them": spoil(content, "keypoints", [1, 2, 3]),
        "damaged, or no annotations": json.dumps(content)[:-5],
        "two images have one id": json.dumps(content | {"images": content["images"][:1] * 2}),
        "1 image not listed": json.dumps(content | {"images": content["images"][:2]}),
    }
    for problem, text in bad.items():
        path.write_text(text)
        with case(problem), pytest.raises(SourceError, match=problem):
            pack(root, tmp_path / "slab", settings={"annotations": str(path)})
    path.write_bytes(json.dumps(content).encode().replace(b"extra", b"ex\xffra"))
    with pytest.raises(SourceUnreadable, match="damaged, or no annotations"):
        pack(root, tmp_path / "slab", settings={"annotations": str(path)})
    path.write_text(spoil(content, "area", None))
    pack(root, tmp_path / "slab", settings={"annotations": str(path)}, exclude="area")
    assert decompress_runs(compress_runs([5, 0, 1, 700000, 3, 9])) == [5, 0, 1, 700000, 3, 9]


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
