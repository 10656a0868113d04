"""`fieldslab export`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fieldslab.packer.commands.params import MESSAGES, Option, command
from fieldslab.packer.commands.shared import (
    FOLLOW_LINKS,
    ID,
    JSON,
    MISSING,
    PROGRESS,
    ROWS_FILE,
    SLABS,
    STORAGE_OPTION,
    WHERE,
)
from fieldslab.packer.commands.terminal import convert_interrupts, print_json

EXAMPLES = """\
Examples:
  fieldslab export train.slab -o train.parquet
  fieldslab export train.slab -o cats.parquet --fields image,label --where "label == 'cat'"
  fieldslab export train.slab -o clean.parquet --rows-file clean.rows"""


@command(
    SLABS,
    Option(
        "-o --output",
        "Options",
        "The Parquet file to write.",
        "OUT",
        type=click.Path(readable=False, path_type=Path),
        required=True,
    ),
    Option("--fields", "Options", "Only these fields: names or patterns.", "a,b", multiple=True),
    ROWS_FILE,
    WHERE,
    Option("--force", "Options", "Replace the file if it exists."),
    ID,
    MISSING,
    FOLLOW_LINKS,
    STORAGE_OPTION,
    PROGRESS,
    JSON,
    Option("-q --quiet", MESSAGES, "Print nothing but errors."),
    examples=EXAMPLES,
)
def export(
    slab: str,
    output: Path,
    fields: Sequence[str],
    rows_file: Path | None,
    where: str | None,
    force: bool,
    content: str | None,
    missing: str | None,
    follow_links: bool,
    storage_options: dict[str, Any] | None,
    progress: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write a slab as a Parquet file.

    Every byte that is read is checked first. Packed again with the same options, the file gives the
    same values. Rows of a file keep the order that they have in the slab.
    """
    from fieldslab.packer.check.stored import StoredSlab
    from fieldslab.packer.check.verify import choose_fields
    from fieldslab.packer.commands.progress import show_bar
    from fieldslab.packer.commands.text_format import format_count
    from fieldslab.packer.parquet_export import export_parquet
    from fieldslab.packer.rewrite.selection import find_matching_rows, select_rows
    from fieldslab.packer.unions.source_slabs import find_slabs

    slabs = find_slabs(
        slab,
        missing=missing,
        follow_links=follow_links,
        storage_options=storage_options,
        id=content,
    )
    hidden = progress == "none" or quiet or as_json
    with slabs.open() as members:
        manifest, stored = members.manifest, StoredSlab(members)
        matching = None if where is None else find_matching_rows(stored, where)
        rows = select_rows(manifest, rows_file, None, matching)
        chosen = choose_fields(manifest, fields or None)
        total = manifest.rows if rows is None else len(rows)
        with (
            convert_interrupts(lambda: "nothing is left behind"),
            show_bar("exporting", str(output), total, "rows", hidden=hidden) as move,
        ):
            export_parquet(stored, output, chosen, rows, force=force, progress=move)
    if as_json:
        print_json({"path": str(output), "rows": total, "bytes": output.stat().st_size})
    elif not quiet:
        print(f"{output}: {format_count(total, 'row')}")
