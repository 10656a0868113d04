"""`fieldslab head`."""

import re
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fieldslab.packer.commands.params import MESSAGES, Option, command
from fieldslab.packer.commands.shared import (
    FOLLOW_LINKS,
    ID,
    MISSING,
    ROWS_FILE,
    SLABS,
    STORAGE_OPTION,
    WHERE,
)
from fieldslab.packer.commands.terminal import get_terminal_width, print_json, print_lines
from fieldslab.packer.commands.text_format import format_count
from fieldslab.schemas.errors import RowOutOfRange, UsageError

if TYPE_CHECKING:
    from fieldslab.packer.check.stored import StoredSlab
    from fieldslab.schemas.fields import Field

ROWS, IMAGES = "Rows and fields", "Images"
_COUNT = click.IntRange(min=0)

PIPE_WIDTH = 120
"""Columns that are shown where there is no terminal."""

EXAMPLES = """\
Examples:
  fieldslab head train.slab
  fieldslab head train.slab --rows 7,-1 --json         the eighth row and the last
  fieldslab head train.slab --rows 100:105 --fields image,label
  fieldslab head train.slab --images pictures/         its images as files, too
  fieldslab head train.slab --where "label == 'cat'" -n 20
  fieldslab head train.slab --rows-file clean.rows -n 20"""


@command(
    SLABS,
    Option("-n count", ROWS, "Number of rows from the start.", "N", type=_COUNT, shown_default=5),
    Option(
        "--rows",
        ROWS,
        "These rows, counted from 0, or A to B (B excluded); negative numbers count from the end.",
        "I,A:B",
    ),
    Option("--fields", ROWS, "Show only these fields: names or patterns.", "a,b", multiple=True),
    Option(
        "--images",
        IMAGES,
        "Write the images of these rows to this folder: encoded ones unchanged, pixels as PNG.",
        "DIR",
        type=click.Path(readable=False, path_type=Path),
    ),
    Option(
        "--size",
        IMAGES,
        "Shrink the images until the longer side has N pixels. Damaged ones stay as they are.",
        "N",
        type=click.IntRange(min=1),
    ),
    ROWS_FILE,
    WHERE,
    ID,
    MISSING,
    FOLLOW_LINKS,
    STORAGE_OPTION,
    Option("--json as_json", MESSAGES, "Print one JSON object per row, and errors as JSON."),
    examples=EXAMPLES,
)
def head(
    slab: str,
    count: int | None,
    rows: str | None,
    fields: Sequence[str],
    images: Path | None,
    size: int | None,
    rows_file: Path | None,
    where: str | None,
    content: str | None,
    missing: str | None,
    follow_links: bool,
    storage_options: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Show some rows of a slab.

    Every byte that is read is checked first. An image is shown as 'image/jpeg 375x500, 61.2 kB',
    which is height x width, pixels as 'image/rgb' or 'image/yuv420'; times in ISO 8601, in UTC
    where they have a zone. With --rows-file or --where, -n and --rows count in the rows that these
    choose, and rows are shown with their numbers in the slab.
    """
    import numpy as np

    from fieldslab.packer.check.stored import StoredSlab
    from fieldslab.packer.check.verify import choose_fields
    from fieldslab.packer.rewrite.selection import find_matching_rows, read_row_numbers
    from fieldslab.packer.unions.source_slabs import find_slabs

    if count is not None and rows is not None:
        raise UsageError("use either -n or --rows, not both")
    if size is not None and images is None:
        raise UsageError("--size needs --images")
    slabs = find_slabs(
        slab,
        missing=missing,
        follow_links=follow_links,
        storage_options=storage_options,
        id=content,
    )
    with slabs.open() as members:
        stored = StoredSlab(members)
        total, listed = stored.manifest.rows, None
        if rows_file is not None:
            listed = read_row_numbers(rows_file, "rows_file", stored.manifest)
        if where is not None:
            matching = find_matching_rows(stored, where)
            listed = matching if listed is None else listed[np.isin(listed, matching)]
        if listed is not None:
            total = len(listed)
        chosen: Sequence[int] = range(min(5 if count is None else count, total))
        if rows is not None:
            chosen = parse_rows(rows, total, _name_rows(listed, where))
        if listed is not None:
            chosen = listed[chosen].tolist()
        shown = choose_fields(stored.manifest, fields or None)
        print_rows(stored, chosen, shown, as_json)
        if images is not None:
            save_images(stored, chosen, shown, images, size)


def _name_rows(listed: object, where: str | None) -> str:
    """Name what `--rows` counts in, for errors."""
    if listed is None:
        return "slab"
    return "file of rows" if where is None else "selection"


def print_rows(
    slab: "StoredSlab", rows: Sequence[int], fields: Sequence["Field"], as_json: bool
) -> None:
    """Print rows as text, or one JSON object for each."""
    from fieldslab.packer.commands import slabs

    if as_json:
        for row in slabs.rows_to_json(slab, rows, fields):
            print_json(row, indent=None)
    else:
        width = get_terminal_width(sys.stdout) or PIPE_WIDTH
        print_lines(slabs.format_rows(slab, rows, width, fields))


def save_images(
    slab: "StoredSlab",
    rows: Sequence[int],
    fields: Sequence["Field"],
    folder: Path,
    size: int | None = None,
) -> None:
    """Write the images of rows to a folder, and say how many there are: see `write_images`."""
    from fieldslab.packer.commands.thumbnails import write_images

    count = len(write_images(slab, rows, fields, folder, size))
    print(f"{format_count(count, 'image')} in {folder}", file=sys.stderr)


def parse_rows(text: str, total: int, what: str = "slab") -> Sequence[int]:
    """Parse row numbers such as `7,-1,100:105`; negative ones count from the end of `what`.

    Raises UsageError for what is no number, RowOutOfRange for what is not there. As with slices of
    Python, a range may end behind the last row.
    """
    hint = f"The {what} has {format_count(total, 'row')}."
    ranges = [_parse_range(part, text, total, hint) for part in text.split(",")]
    return ranges[0] if len(ranges) == 1 else list(chain.from_iterable(ranges))


def _parse_range(part: str, text: str, total: int, hint: str) -> range:
    """Parse the row of `7`, or the rows of `100:105`."""
    if re.fullmatch(r"\s*-?\d+\s*", part):
        row = int(part)
        if not -total <= row < total:
            raise RowOutOfRange(
                "--rows: no such row", row=row, expected=f"{-total}..{total - 1}", hint=hint
            )
        return range(row % total, row % total + 1)
    ends = re.fullmatch(r"\s*(-?\d+)?\s*:\s*(-?\d+)?\s*", part)
    if ends is None:
        expected = "numbers and ranges like 1,7,-1 or 0:5"
        raise UsageError("--rows: not row numbers", found=text, expected=expected)
    rows = range(total)[slice(*(None if end is None else int(end) for end in ends.groups()))]
    if not rows:
        raise RowOutOfRange("--rows: no rows in this range", found=part.strip(), hint=hint)
    return rows
