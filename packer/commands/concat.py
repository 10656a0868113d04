"""`fieldslab concat`."""

from typing import Any

from fieldslab.packer.commands.params import MESSAGES, PATH, Option, command
from fieldslab.packer.commands.shared import JSON, PROGRESS, SLAB_LIST, STORAGE_OPTION
from fieldslab.packer.commands.terminal import convert_interrupts, print_json, print_lines

EXAMPLES = """\
Examples:
  fieldslab concat monday.slab tuesday.slab -o all.slab
  fieldslab concat parts/*.slab -o /other/disk/all.slab"""


@command(
    SLAB_LIST,
    Option("-o --out", "Options", "The new slab's directory.", "OUT", type=PATH, required=True),
    Option("--copy", "Options", "Copy files also where they could share their bytes."),
    Option("--force", "Options", "Replace another slab at OUT."),
    STORAGE_OPTION,
    PROGRESS,
    JSON,
    Option("-q --quiet", MESSAGES, "Print nothing but errors."),
    examples=EXAMPLES,
)
def concat(
    slabs: tuple[str, ...],
    out: str,
    copy: bool,
    force: bool,
    storage_options: dict[str, Any] | None,
    progress: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Join slabs into one, whose rows follow each other, without converting anything.

    Files get a second name where they lie on the same file system (hard links), and are copied and
    verified elsewhere. Fields must be stored alike; slabs that differ are read as a union. To
    continue an interrupted copy, run the same command again. Signatures of the slabs stay behind:
    sign the new one.
    """
    from fieldslab.packer.commands.progress import show_bar
    from fieldslab.packer.commands.text_format import format_count
    from fieldslab.packer.slabsize import count_bytes
    from fieldslab.packer.unions import concat as joining
    from fieldslab.packer.unions.union_changes import expand_places
    from fieldslab.schemas.stores.slab_objects import is_remote, open_slab_anywhere

    total = 0
    places = expand_places(slabs, storage_options)
    for slab in places:
        with open_slab_anywhere(
            slab, storage_options=storage_options if is_remote(slab) else None
        ) as files:
            total += count_bytes(files)
    hidden = progress == "none" or quiet or as_json
    with (
        convert_interrupts(lambda: "run the same command again to go on from there"),
        show_bar("joining", out, total, "bytes", hidden=hidden) as move,
    ):
        manifest = joining.concat(
            places, out, copy=copy, force=force, storage_options=storage_options, progress=move
        )
    if as_json:
        print_json({"path": out, "id": manifest.id, "rows": manifest.rows})
    elif not quiet:
        counts = format_count(manifest.rows, "row"), format_count(len(manifest.shards), "shard")
        print_lines(iter([f"{out}: {counts[0]} in {counts[1]}", f"id {manifest.id}"]))
