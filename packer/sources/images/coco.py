"""Annotations in the JSON of COCO: boxes, classes, areas, keypoints, captions and masks."""

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from fieldslab.packer.column_names import make_names_unique
from fieldslab.packer.source import ColumnHint
from fieldslab.packer.sources.images.annotation_files import AnnotationFiles, NameIndex
from fieldslab.packer.sources.images.coco_masks import MASK_COLUMNS, Rle, make_mask_columns
from fieldslab.packer.sources.images.image_files import ImageFiles
from fieldslab.packer.sources.images.image_rows import (
    ImageRows,
    Unmatched,
    find_split,
    refuse_missing,
    refuse_unlisted,
)
from fieldslab.packer.sources.images.object_lists import make_lists
from fieldslab.packer.sources.memory_file import MemoryFile
from fieldslab.schemas.errors import SourceInconsistent, SourceUnreadable
from fieldslab.schemas.fields import Logical
from fieldslab.schemas.optiontext import mark_option

Id = int | str


class CocoImage(msgspec.Struct, gc=False):
    """An image that is listed."""

    id: Id
    file_name: str
    height: float | None = None
    width: float | None = None


class CocoObject(msgspec.Struct, gc=False):
    """An annotation of one image."""

    image_id: Id
    category_id: int | None = None
    bbox: list[float] | None = None
    area: float | None = None
    iscrowd: int | bool | None = None
    segmentation: list[list[float]] | Rle | None = None
    keypoints: list[float] | None = None
    caption: str | None = None


class CocoCategory(msgspec.Struct, gc=False):
    """A class of objects."""

    id: int
    name: str
    keypoints: list[str] | None = None


class CocoFile(msgspec.Struct, gc=False):
    """What of a file is packed."""

    images: list[CocoImage]
    annotations: list[CocoObject]
    categories: list[CocoCategory] = []


class _RawFile(msgspec.Struct, gc=False):
    images: list[msgspec.Raw] = []
    annotations: list[msgspec.Raw] = []


_PASSED = {"id", "num_keypoints", "ignore"}
"""Keys of annotations that are left out without a word: they count what is packed."""
_LOOKED_AT = 1000


def read_coco_rows(
    files: ImageFiles, annotations: AnnotationFiles, unmatched: Unmatched
) -> ImageRows:
    """Read annotations, and find the images that they list. Rows are in the order of images.

    Raises
    ------
    SourceUnreadable
        A file is no COCO, or damaged.
    SourceInconsistent
        An annotation contradicts the file, or images are missing or not listed.
    """
    parsed = [_decode(file) for file in annotations.files]
    categories = _join_categories(annotations.files, parsed)
    index = NameIndex(files.paths.to_pylist())
    listed: list[_Listed] = []
    missing: list[str] = []
    for file, name, content in zip(annotations.files, annotations.names, parsed, strict=True):
        for image, objects in _group_objects(file, content):
            number = _find_image(index, file, image, os.path.dirname(name or ""))
            if number is None:
                missing.append(image.file_name)
                continue
            place = f"{file.path} image {image.id}"
            listed.append(_Listed(number, image.id, objects, (image.height, image.width), place))
    numbers, counts = np.unique([row.number for row in listed], return_counts=True)
    if (counts > 1).any():
        twice = files.get_path(int(numbers[counts > 1][0]))
        raise _make_error(annotations.files[0], "an image is listed twice", twice)
    unlisted = np.setdiff1d(np.arange(len(files.paths)), numbers).tolist()
    what = annotations.described
    warnings = refuse_missing(missing, unmatched, what, files.base)
    warnings += refuse_unlisted(len(unlisted), unmatched, what, lambda: files.get_path(unlisted[0]))
    warnings += _list_left_out(annotations.files)
    if unmatched == "keep":
        listed += [_Listed(n, None, [], (None, None), files.get_path(n)) for n in unlisted]
    listed.sort(key=lambda row: row.number)
    rows = np.array([row.number for row in listed], np.int64)
    places = [row.place for row in listed]
    columns, hints = make_object_columns([row.objects for row in listed], places, categories)
    masks = [[item.segmentation for item in row.objects] for row in listed]
    mask_columns = make_mask_columns(masks, [row.size for row in listed], places)
    columns |= mask_columns
    hints |= {name: ColumnHint(why=MASK_COLUMNS[name]) for name in mask_columns}
    ids = [row.identity for row in listed]
    if any(isinstance(identity, str) for identity in ids):
        ids = [None if identity is None else str(identity) for identity in ids]
    columns |= {"image_id": pa.array(ids), "path": files.paths.take(pa.array(rows))}
    table = pa.table(find_split(files, rows) | columns)
    return ImageRows({"image": rows}, table, hints, tuple(warnings))


class _Listed(NamedTuple):
    """An image that is there: the number of its file, its id, annotations, height and width."""

    number: int
    identity: Id | None
    objects: list[CocoObject]
    size: tuple[float | None, float | None]
    place: str


def _group_objects(
    file: MemoryFile, content: CocoFile
) -> Iterator[tuple[CocoImage, list[CocoObject]]]:
    """Group annotations by image."""
    by_image: dict[Id, list[CocoObject]] = {}
    for image in content.images:
        if image.id in by_image:
            raise _make_error(file, "two images have one id", image.id)
        by_image[image.id] = []
    for number, item in enumerate(content.annotations):
        if item.image_id not in by_image:
            raise _make_error(file, f"annotation {number} is of no image", item.image_id)
        by_image[item.image_id].append(item)
    for image in content.images:
        yield image, by_image[image.id]


def _find_image(index: NameIndex, file: MemoryFile, image: CocoImage, folder: str) -> int | None:
    try:
        return index.find(image.file_name, folder)
    except (ValueError, RecursionError) as error:
        problem = f"the image {image.file_name} could be one of several"
        raise _make_error(file, problem, str(error)) from error


def make_object_columns(
    objects: list[list[CocoObject]], places: list[str], categories: dict[int, CocoCategory]
) -> tuple[dict[str, Any], dict[str, ColumnHint]]:
    """Make the columns of the annotations of each image, but for masks, and hints for them."""
    flat = [item for items in objects for item in items]
    counts = np.array([len(items) for items in objects], np.int64)
    columns: dict[str, Any] = {}
    hints: dict[str, ColumnHint] = {}
    names = np.repeat(np.arange(len(objects)), counts)

    def get_place(number: int) -> str:
        return places[int(names[number])]

    if any(item.bbox is not None for item in flat) or not any(item.caption for item in flat):
        boxes = np.zeros((len(flat), 4))
        for number, item in enumerate(flat):
            if item.bbox is None or len(item.bbox) != 4:
                raise SourceInconsistent(
                    "an annotation has no box of 4 numbers",
                    file=get_place(number),
                    found=item.bbox if item.bbox is None else str(item.bbox)[:80],
                )
            boxes[number] = item.bbox
        columns["boxes"] = make_lists(counts, boxes)
        hints["boxes"] = ColumnHint(
            why="boxes x, y, width, height", attributes={"fieldslab.boxes": "xywh"}
        )
    if any(item.category_id is not None for item in flat) or (categories and "boxes" in columns):
        order = {identity: number for number, identity in enumerate(categories)}
        for number, item in enumerate(flat):
            if item.category_id not in order:
                raise SourceInconsistent(
                    "an annotation has a category that is not listed",
                    file=get_place(number),
                    found=str(item.category_id),
                )
        labels = np.array([order[item.category_id] for item in flat], np.int64)  # type: ignore[index]
        columns["labels"] = make_lists(counts, labels)
        titles = tuple(make_names_unique([item.name for item in categories.values()]))
        hints["labels"] = ColumnHint(
            logical=Logical("class_label", names=titles),
            attributes={"fieldslab.category_ids": list(categories)},
            why="1 category" if len(titles) == 1 else f"{len(titles):,} categories",
        )
    for name, dtype, why in (
        ("area", np.float64, "areas"),
        ("iscrowd", np.int64, "1 for crowds"),
    ):
        values = [getattr(item, name) for item in flat]
        if any(value is not None for value in values):
            absent = [number for number, value in enumerate(values) if value is None]
            array = np.array([0 if value is None else value for value in values], dtype)
            columns[name] = make_lists(counts, array)
            hints[name] = ColumnHint(why=why)
            if absent:
                hints[name] = _refuse(
                    f"{len(absent):,} annotations lack it, the first is of {get_place(absent[0])}"
                )
    if any(item.keypoints for item in flat):
        columns["keypoints"], hints["keypoints"] = _make_keypoints(flat, counts, get_place)
    if any(item.caption is not None for item in flat):
        texts = [[item.caption for item in items] for items in objects]
        columns["captions"] = pa.array(texts, pa.large_list(pa.large_string()))
    return columns, hints


def _make_keypoints(
    flat: list[CocoObject], counts: np.ndarray, get_place: Any
) -> tuple[pa.Array, ColumnHint]:
    """Make arrays (objects, points, 3); objects without keypoints have zeros: not labelled."""
    length = next(len(item.keypoints) for item in flat if item.keypoints)
    points = np.zeros((len(flat), length))
    hint = ColumnHint(why="keypoints x, y, visibility")
    if length % 3:
        place = get_place(next(number for number, item in enumerate(flat) if item.keypoints))
        raise SourceInconsistent(
            "keypoints are not 3 numbers each", file=place, field="keypoints", found=length
        )
    for number, item in enumerate(flat):
        if item.keypoints and len(item.keypoints) != length:
            hint = _refuse(
                f"objects have {length // 3} keypoints, but other numbers of them in "
                f"{get_place(number)}"
            )
        elif item.keypoints:
            points[number] = item.keypoints
    return make_lists(counts, points.reshape(len(flat), length // 3, 3)), hint


def _refuse(problem: str) -> ColumnHint:
    advice = f"{mark_option('exclude', ['{0}'])} leaves the field out."
    return ColumnHint(refusal=(problem, advice))


def _decode(file: MemoryFile) -> CocoFile:
    try:
        return msgspec.json.decode(file.data, type=CocoFile)
    except (ValueError, RecursionError) as error:
        raise _make_damage_error(file, error) from error


def _join_categories(files: list[MemoryFile], parsed: list[CocoFile]) -> dict[int, CocoCategory]:
    """Return the categories of all files, by id. Raises SourceInconsistent where they differ."""
    joined = sorted(parsed[0].categories, key=lambda category: category.id)
    for file, content in zip(files, parsed, strict=True):
        file_categories = sorted(content.categories, key=lambda category: category.id)
        if [(item.id, item.name) for item in file_categories] != [
            (item.id, item.name) for item in joined
        ]:
            raise _make_error(
                file, f"categories differ from those of {files[0].path}", len(file_categories)
            )
    categories = {category.id: category for category in joined}
    if len(categories) < len(joined):
        raise _make_error(files[0], "two categories have one id", len(joined))
    return categories


def _list_left_out(files: list[MemoryFile]) -> list[str]:
    """Name keys of annotations that are not packed, as far as the first ones tell."""
    keys: set[str] = set()
    for file in files:
        try:
            for raw in msgspec.json.decode(file.data, type=_RawFile).annotations[:_LOOKED_AT]:
                keys |= msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).keys()
        except (ValueError, RecursionError) as error:  # a key that nobody asked for is not UTF-8
            raise _make_damage_error(file, error) from error
    left = sorted(keys - set(CocoObject.__struct_fields__) - _PASSED)
    return [f"{files[0].path}: left out of annotations: {', '.join(left)}"] if left else []


def _make_damage_error(file: MemoryFile, error: Exception) -> SourceUnreadable:
    return SourceUnreadable(
        f"damaged, or no annotations of COCO: {error}",
        file=file.path,
        hint=f"{mark_option('annotations', 'none')} packs the images without annotations.",
    )


def _make_error(file: MemoryFile, problem: str, found: Any) -> SourceInconsistent:
    return SourceInconsistent(problem, file=file.path, found=found)
