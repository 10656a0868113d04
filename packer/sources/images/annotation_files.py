"""Which files annotate images: tables of metadata, COCO, Pascal VOC."""

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from fieldslab.packer.commands.text_format import escape_controls
from fieldslab.packer.sources.images.image_files import ImageFiles
from fieldslab.packer.sources.memory_file import MemoryFile
from fieldslab.packer.sources.path_lookup import list_folder
from fieldslab.schemas.errors import (
    SourceNotFound,
    SourceUnsupported,
    UsageError,
    make_unreadable_source_error,
)
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.urls import is_url

NONE = "none"
TABLES = (".csv", ".jsonl", ".parquet")
_METADATA = tuple(f"metadata{suffix}" for suffix in TABLES)
_COCO_NAMES = ("instances", "annotations", "_annotations", "person_keypoints", "captions")
_MOST_SHOWN = 3

Kind = Literal["metadata", "coco", "voc"]


class AnnotationFiles(NamedTuple):
    """Files of one kind that annotate images.

    `names` are relative to the folder of the images, or None of a file elsewhere. `used` are the
    names of files among the images.
    """

    kind: Kind
    files: list[MemoryFile]
    names: list[str | None]

    @property
    def used(self) -> set[str]:
        """Names of files among the images."""
        return {name for name in self.names if name is not None}

    def describe(self) -> dict[str, Any]:
        """Return the path of the first file, their number, bytes, and a digest of all."""
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(hashlib.sha256(file.data).digest())
        total = sum(file.size for file in self.files)
        return {
            "path": self.files[0].path,
            "annotations": len(self.files),
            "bytes": total,
            "digest": digest.hexdigest(),
        }

    @property
    def described(self) -> str:
        """The files, for people."""
        more = f" and {len(self.files) - 1:,} more" if len(self.files) > 1 else ""
        return f"{self.files[0].path}{more}"


ReadFile = Callable[[str], bytes]


def find_annotations(
    files: ImageFiles, chosen: str | None, read_file: ReadFile
) -> AnnotationFiles | None:
    """Find the annotations of images: those that are `chosen`, or that are among the images.

    `read_file` reads a file among the images by its name.

    Raises
    ------
    UsageError
        Several files could be meant.
    SourceNotFound, SourceUnreadable, SourceUnsupported
        A chosen file is not there, cannot be read, or is of no kind that is known.
    """
    if chosen == NONE:
        return None
    if chosen is None:
        return _recognise(files, read_file)
    if is_url(chosen) and not os.path.lexists(chosen):
        raise SourceUnsupported(
            "annotations are not read from URLs",
            file=chosen,
            hint=f"Download the file, and name it with {mark_option('annotations')}.",
        )
    inside = [name for name in files.annotations if name == chosen]
    if not os.path.lexists(chosen) and inside:
        paths, names = [files.get_name_path(chosen)], [chosen]
        data = [read_file(chosen)]
    else:
        paths = _list_xml(chosen) if os.path.isdir(chosen) else [chosen]
        data = [_read(path) for path in paths]
        known_paths = set(files.annotations)
        relative = [os.path.relpath(path, files.base) for path in paths]
        names = [name if name in known_paths else None for name in relative]  # type: ignore[misc]
    members = [MemoryFile(path, content) for path, content in zip(paths, data, strict=True)]
    return AnnotationFiles(_find_kind(paths[0]), members, list(names))


def _find_kind(path: str) -> Kind:
    suffix = os.path.splitext(path.lower())[1]
    if suffix in TABLES:
        return "metadata"
    if suffix in (".json", ".xml"):
        return "coco" if suffix == ".json" else "voc"
    raise SourceUnsupported(
        "annotations of an unknown kind",
        file=path,
        expected=f"{', '.join(TABLES)} with a column file_name, .json of COCO, or a folder of .xml "
        "of Pascal VOC",
    )


def _recognise(files: ImageFiles, read_file: ReadFile) -> AnnotationFiles | None:
    """Recognise the annotations among the images. Raises UsageError where several are meant."""
    names = files.annotations
    tables = [name for name in names if os.path.basename(name).lower() in _METADATA]
    coco = [name for name in names if _is_named_as_coco(name) and is_coco(read_file(name))]
    xml = [name for name in names if name.lower().endswith(".xml")]
    voc = xml if xml and b"<annotation" in read_file(xml[0])[:4096] else []
    kinds: dict[Kind, list[str]] = {"metadata": tables, "coco": coco, "voc": voc}
    kinds = {kind: group for kind, group in kinds.items() if group}
    if not kinds:
        return None
    kind, chosen = next(iter(kinds.items()))
    suffixes = {os.path.splitext(name.lower())[1] for name in chosen}
    folders = [os.path.dirname(name) for name in chosen]
    several = kind == "coco" and (len(set(folders)) < len(folders) or "" in folders[1:])
    if len(kinds) > 1 or len(suffixes) > 1 or several or _is_split_badly(kind, files, folders):
        shown = [name for group in kinds.values() for name in group[:_MOST_SHOWN]]
        raise UsageError(
            "several files may annotate these images",
            file=files.base,
            found=", ".join(map(escape_controls, shown)),
            hint=f"Choose one of them: {mark_option('annotations', shown[0])}. "
            f"{mark_option('annotations', NONE)} packs the images alone.",
        )
    members = [MemoryFile(files.get_name_path(name), read_file(name)) for name in chosen]
    return AnnotationFiles(kind, members, list(chosen))


def _is_split_badly(kind: Kind, files: ImageFiles, folders: Sequence[str]) -> bool:
    """Return whether there are several files of COCO, not each in a folder of its images."""
    if kind != "coco" or len(folders) < 2:
        return False
    holding = {os.path.dirname(name) for name in files.paths.to_pylist()}
    return not set(folders) <= holding


def _is_named_as_coco(name: str) -> bool:
    base = os.path.basename(name).lower()
    folder = os.path.basename(os.path.dirname(name)).lower()
    return base.endswith(".json") and (
        base.startswith(_COCO_NAMES) or "coco" in base or folder == "annotations"
    )


def is_coco(data: bytes) -> bool:
    """Return whether JSON has the members of COCO."""
    try:
        members = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return False
    return {"images", "annotations"} <= members.keys()


def _list_xml(folder: str) -> list[str]:
    paths = [entry.path for entry in list_folder(folder) if entry.name.lower().endswith(".xml")]
    if not paths:
        raise SourceNotFound("no .xml files in here", file=folder)
    return paths


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise make_unreadable_source_error(
            error,
            f"cannot be read: {error.strerror}",
            file=path,
            hint=f"{mark_option('annotations')} names a file on a disk, or one among the images.",
        ) from error


class NameIndex:
    """Finds images by names that may lack the folders in front of them."""

    def __init__(self, names: Iterable[str]) -> None:
        """Index the names of all images."""
        self._exact: dict[str, int] = {}
        self._by_base: dict[str, list[int]] = {}
        self.names = list(names)
        for number, name in enumerate(self.names):
            self._exact[name] = number
            self._by_base.setdefault(os.path.basename(name), []).append(number)

    def find_exact(self, name: str) -> int | None:
        """Find the number of an image by its whole name."""
        return self._exact.get(name)

    def find(self, name: str, folder: str) -> int | None:
        """Find an image by a name below `folder`, below the root, or by the end of one name.

        Raises ValueError where several end so.
        """
        name = os.path.normpath(name)
        for full_path in (os.path.normpath(os.path.join(folder, name)), name):
            if full_path in self._exact:
                return self._exact[full_path]
        numbers = [
            number
            for number in self._by_base.get(os.path.basename(name), ())
            if self.names[number].endswith(f"/{name}")
        ]
        if len(numbers) > 1 and folder:
            below = [n for n in numbers if self.names[n].startswith(f"{folder}/")]
            numbers = below or numbers
        if len(numbers) > 1:
            raise ValueError(f"{self.names[numbers[0]]}, {self.names[numbers[1]]}")
        return numbers[0] if numbers else None
