"""The rows of image files: which images each row has, and what is known of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from fieldslab.packer.commands.text_format import format_count
from fieldslab.packer.source import ColumnHint
from fieldslab.packer.sources.images.image_files import ImageFiles
from fieldslab.schemas.errors import SourceInconsistent, UsageError
from fieldslab.schemas.fields import Logical
from fieldslab.schemas.optiontext import mark_option

SPLITS = {"train", "training", "val", "valid", "validation", "eval", "dev", "test", "testing"}
"""Names of folders that hold parts of a dataset, not classes."""

Unmatched = Literal["raise", "skip", "keep"]


@dataclass(frozen=True)
class ImageRows:
    """Rows of images.

    `images` has the number of the file of each row, by column, -1 where the row has none. `table`
    has all other columns. `hints` are for both, by name. `primary` is the column whose file a row
    is named by.
    """

    images: dict[str, np.ndarray]
    table: pa.Table
    hints: Mapping[str, ColumnHint] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def primary(self) -> np.ndarray:
        """The files that rows are named by."""
        return next(iter(self.images.values()))

    @property
    def schema(self) -> pa.Schema:
        """All columns: images first."""
        images = [pa.field(name, pa.large_binary()) for name in self.images]
        return pa.schema([*images, *self.table.schema])

    def list_hints(self) -> dict[int, ColumnHint]:
        """List hints by the numbers of columns."""
        image = ColumnHint(why="image files", image=True)
        hints = dict.fromkeys(self.images, image) | dict(self.hints)
        names = self.schema.names
        return {names.index(name): hint for name, hint in hints.items()}


def make_plain_rows(files: ImageFiles) -> ImageRows:
    """Make a row for each file: its class by its folder, and its path."""
    columns: dict[str, Any] = {}
    hints = {}
    if files.labels:
        columns["label"] = pa.array(files.classes)
        why = format_count(len(files.labels), "folder")
        hints["label"] = ColumnHint(logical=Logical("class_label", names=files.labels), why=why)
    columns["path"] = files.paths
    return ImageRows({"image": np.arange(len(files.paths))}, pa.table(columns), hints)


def find_split(files: ImageFiles, numbers: np.ndarray) -> dict[str, Any]:
    """Find the part of the dataset that each image is in, where all top folders are called so."""
    if not files.labels or not {label.lower() for label in files.labels} <= SPLITS:
        return {}
    codes = files.classes[numbers]
    if (codes < 0).any():
        return {}
    return {"split": pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), files.labels)}


def check_unmatched(value: str) -> Unmatched:
    """Return what to do with images and annotations without each other. Raises UsageError."""
    for known in ("raise", "skip", "keep"):
        if value == known:
            return known
    raise UsageError(
        f"{mark_option('unmatched')}: unknown value", found=value, expected="raise, skip or keep"
    )


def refuse_unlisted(
    count: int, unmatched: Unmatched, what: str, get_first: Callable[[], str]
) -> list[str]:
    """Raise SourceInconsistent for images that no annotation lists, or list a warning."""
    if not count:
        return []
    counted = format_count(count, "image")
    if unmatched == "raise":
        raise SourceInconsistent(
            f"{counted} not listed in {what}; this is the first",
            file=get_first(),
            hint=f"{mark_option('unmatched', 'skip')} leaves such images out, "
            f"{mark_option('unmatched', 'keep')} packs them without annotations.",
        )
    action = "left out" if unmatched == "skip" else "packed without annotations"
    return [f"{counted} not listed in {what}: {action}; the first is {get_first()}"]


def refuse_missing(missing: list[str], unmatched: Unmatched, what: str, base: str) -> list[str]:
    """Raise SourceInconsistent for images that are listed and not there, or list a warning."""
    if not missing:
        return []
    counted = f"{format_count(len(missing), 'listed image')} missing"
    if unmatched == "raise":
        raise SourceInconsistent(
            f"{counted} from {base}; this is the first",
            file=what,
            found=missing[0],
            hint=f"{mark_option('unmatched', 'skip')} leaves them out. Names are relative to the "
            "folder of the file that lists them, or to the folder that is packed.",
        )
    return [f"{what}: {counted} and left out; the first is {missing[0]}"]
