"""Annotations in the XML of Pascal VOC: a file for each image, read without entities or a DTD."""

import os
from typing import Any, NamedTuple
from xml.parsers import expat

import numpy as np
import pyarrow as pa

from fieldslab.packer.commands.text_format import format_count
from fieldslab.packer.source import ColumnHint
from fieldslab.packer.sources.images.annotation_files import AnnotationFiles, NameIndex
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

_IMAGES = "JPEGImages"
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_FLAGS = ("difficult", "truncated", "occluded")
_MOST_BYTES = 1 << 24
_MOST_DEPTH = 32


class VocFile(NamedTuple):
    """What one file says: the name of the image, and its objects."""

    file_name: str | None
    objects: list[dict[str, str]]


def read_voc_rows(
    files: ImageFiles, annotations: AnnotationFiles, unmatched: Unmatched
) -> ImageRows:
    """Read annotations, and find the image of each. Rows are in the order of images.

    Where there is a folder JPEGImages, only images in it are meant: others are masks.

    Raises
    ------
    SourceUnreadable
        A file is no XML, or has a DTD or entities.
    SourceInconsistent
        An object has no box, or images are missing or not listed.
    """
    paths = files.paths.to_pylist()
    inside = [f"/{_IMAGES}/" in f"/{path}" for path in paths]
    chosen = [number for number, is_in in enumerate(inside) if is_in or not any(inside)]
    index = NameIndex(paths[number] for number in chosen)
    by_stem: dict[str, list[int]] = {}
    for place, number in enumerate(chosen):
        by_stem.setdefault(_get_stem(paths[number]), []).append(place)
    parsed: dict[int, tuple[MemoryFile, VocFile]] = {}
    missing = []
    for file, name in zip(annotations.files, annotations.names, strict=True):
        content = parse_voc(file)
        position = _find_image(index, by_stem, file, name or "", content)
        if position is None:
            missing.append(content.file_name or _get_stem(file.path))
        elif chosen[position] in parsed:
            raise SourceInconsistent(
                "two files annotate one image",
                file=file.path,
                found=files.get_path(chosen[position]),
            )
        else:
            parsed[chosen[position]] = file, content
    what = annotations.described
    warnings = refuse_missing(missing, unmatched, what, files.base)
    unlisted = [number for number in chosen if number not in parsed]
    warnings += refuse_unlisted(len(unlisted), unmatched, what, lambda: files.get_path(unlisted[0]))
    if excluded := len(paths) - len(chosen):
        warnings.append(
            f"{files.base}: left out {format_count(excluded, 'image')} outside of {_IMAGES}"
        )
    rows = np.array(sorted([*parsed, *(unlisted if unmatched == "keep" else [])]), np.int64)
    nothing = MemoryFile("", b""), VocFile(None, [])
    columns, hints = _make_columns([parsed.get(int(row), nothing) for row in rows])
    path = {"path": files.paths.take(pa.array(rows))}
    table = pa.table(find_split(files, rows) | columns | path)
    return ImageRows({"image": rows}, table, hints, tuple(warnings))


def _make_columns(
    parsed: list[tuple[MemoryFile, VocFile]],
) -> tuple[dict[str, Any], dict[str, ColumnHint]]:
    counts = np.array([len(content.objects) for _, content in parsed], np.int64)
    flat = [(file, texts) for file, content in parsed for texts in content.objects]
    boxes = np.empty((len(flat), 4))
    for number, (file, texts) in enumerate(flat):
        try:
            boxes[number] = [float(texts[f"bndbox/{corner}"]) for corner in _CORNERS]
        except (KeyError, ValueError) as error:
            raise SourceInconsistent(
                "an object has no box of four numbers", file=file.path, found=str(error)
            ) from error
    hint = ColumnHint(
        why="boxes xmin, ymin, xmax, ymax", attributes={"fieldslab.boxes": "xyxy, from 1"}
    )
    columns: dict[str, Any] = {"boxes": make_lists(counts, boxes)}
    hints = {"boxes": hint}
    for field, element in (("labels", "name"), ("poses", "pose")):
        values = [texts.get(element, "") for _, texts in flat]
        if element == "name" or any(values):
            names = sorted(set(values))
            codes = {name: number for number, name in enumerate(names)}
            numbers = np.array([codes[value] for value in values], np.int64)
            columns[field] = make_lists(counts, numbers)
            why = format_count(len(names), element)
            hints[field] = ColumnHint(logical=Logical("class_label", names=tuple(names)), why=why)
    for flag in _FLAGS:
        if any(flag in texts for _, texts in flat):
            columns[flag] = make_lists(counts, _read_flags(flat, flag))
            hints[flag] = ColumnHint(why="0, 1, or -1 where the file does not say")
    return columns, hints


def _read_flags(flat: list[tuple[MemoryFile, dict[str, str]]], flag: str) -> np.ndarray:
    flags = np.full(len(flat), -1, np.int8)
    for number, (file, texts) in enumerate(flat):
        if (text := texts.get(flag, "")) != "":
            if text not in ("0", "1"):
                raise SourceInconsistent(
                    "neither 0 nor 1", file=file.path, field=flag, found=text[:80]
                )
            flags[number] = int(text)
    return flags


def _find_image(
    index: NameIndex, by_stem: dict[str, list[int]], file: MemoryFile, name: str, content: VocFile
) -> int | None:
    """Find the image of a file: of the same name, or else of the name that it says.

    Where folders have images of one name, the one beside is meant. Raises SourceInconsistent.
    """
    positions = by_stem.get(_get_stem(file.path), [])
    folder = os.path.dirname(name)
    if len(positions) > 1:
        near = [p for p in positions if os.path.dirname(index.names[p]) == folder]
        parent = os.path.dirname(folder) + "/" if os.path.dirname(folder) else ""
        near = near or [p for p in positions if parent and index.names[p].startswith(parent)]
        positions = near or positions
    if len(positions) > 1:
        raise SourceInconsistent(
            "the annotated image could be one of several",
            file=file.path,
            found=f"{index.names[positions[0]]}, {index.names[positions[1]]}",
        )
    if positions or not content.file_name:
        return positions[0] if positions else None
    try:
        return index.find(os.path.basename(content.file_name.replace("\\", "/")), folder)
    except ValueError as error:
        raise SourceInconsistent(
            "the annotated image could be one of several", file=file.path, found=str(error)
        ) from error


def _get_stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def parse_voc(file: MemoryFile) -> VocFile:
    """Parse a file: names of elements below `object`, such as `bndbox/xmin`, and their text.

    A DTD is refused, and with it all entities: they could read other files, or grow without limit.

    Raises SourceUnreadable where it is no XML of Pascal VOC.
    """
    path: list[str] = []
    texts: list[str] = []
    objects: list[dict[str, str]] = []
    names: list[str] = []
    roots: list[str] = []

    def refuse(*_: Any) -> None:
        raise ValueError("it has a DTD, which could define entities")

    def start(name: str, _: Any) -> None:
        if not path:
            roots.append(name)
        path.append(name)
        texts.append("")
        if len(path) > _MOST_DEPTH:
            raise ValueError(f"elements are nested more than {_MOST_DEPTH} deep")
        if path[1:] == ["object"]:
            objects.append({})

    def end(_: str) -> None:
        text = texts.pop().strip()
        inside = "/".join(path[2:])
        if path[1:2] == ["object"] and inside:
            objects[-1].setdefault(inside, text)
        elif path[1:] == ["filename"]:
            names.append(text)
        path.pop()

    def add_text(text: str) -> None:
        texts[-1] += text

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = add_text
    try:
        if len(file.data) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
        parser.Parse(file.data, True)
        if roots != ["annotation"]:
            raise ValueError(f"the root is <{roots[0]}>, not <annotation>")
    except (expat.ExpatError, ValueError) as error:
        raise SourceUnreadable(
            f"damaged, or no XML of Pascal VOC: {error}",
            file=file.path,
            hint="Write the file again, or leave it out.",
        ) from error
    return VocFile(names[0] if names else None, objects)
