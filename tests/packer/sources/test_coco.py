"""Annotations of COCO: boxes, masks, captions, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw
from tests.naming import case
from tests.packer.sources.annotating import get_names, packed, write_images

from fieldslab.packer import pack, verify
from fieldslab.packer.sources.images.coco_masks import decompress_runs
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import (
    SourceError,
    SourceUnreadable,
    UsageError,
)

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
