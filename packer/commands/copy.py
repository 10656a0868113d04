"""`fieldslab copy`."""

from typing import Any

from fieldslab.packer.commands.params import MESSAGES, PATH, Argument, Option, command
from fieldslab.packer.commands.shared import FOLLOW_LINKS, ID, JSON, PROGRESS, STORAGE_OPTION
from fieldslab.packer.commands.terminal import convert_interrupts, print_json, print_lines

EXAMPLES = """\
Examples:
  fieldslab copy train.slab s3://bucket/train.slab
  fieldslab copy s3://bucket/train.slab /local/train.slab
  fieldslab copy https://host/train.slab train.slab"""


@command(
    Argument("source", "SRC", "A directory that pack wrote, or its URL.", type=PATH),
    Argument("destination", "DST", "The directory or URL of the copy.", type=PATH),
    Option("--force", "Options", "Replace another slab at DST: in a directory only."),
    ID,
    FOLLOW_LINKS,
    STORAGE_OPTION,
    PROGRESS,
    JSON,
    Option("-q --quiet", MESSAGES, "Print nothing but errors."),
    examples=EXAMPLES,
)
def copy(
    source: str,
    destination: str,
    force: bool,
    content: str | None,
    follow_links: bool,
    storage_options: dict[str, Any] | None,
    progress: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Copy a slab between directories and buckets, verified on the way.

    Every block is compared with its digest, and the manifest comes last, so that no reader finds
    half a slab. To continue an interrupted copy, run the same command again. Credentials and
    endpoints of buckets come from the environment, such as AWS_PROFILE and AWS_ENDPOINT_URL;
    --storage-option is for SRC and DST alike, where they are URLs. A signature is copied, too.
    """
    from fieldslab.packer.commands.progress import show_bar
    from fieldslab.packer.commands.text_format import format_duration, format_rate, format_size
    from fieldslab.packer.copying.copy_slab import copy_slab
    from fieldslab.packer.slabsize import count_bytes
    from fieldslab.packer.unions.source_slabs import refuse_union
    from fieldslab.schemas.folder import check_pinned
    from fieldslab.schemas.stores.slab_objects import is_remote, open_slab_anywhere

    refuse_union(source, "one slab is copied at a time, and this lists many")
    hidden = progress == "none" or quiet or as_json
    source_options = storage_options
    destination_options = storage_options if is_remote(destination) else None
    if destination_options and not is_remote(source):
        source_options = None
    with open_slab_anywhere(
        source, follow_links=follow_links, storage_options=source_options
    ) as files:
        check_pinned(content, files.manifest.id, files.path)
        total = count_bytes(files)
    with (
        convert_interrupts(lambda: "run the same command again to go on from there"),
        show_bar("copying", source, total, "bytes", hidden=hidden) as move,
    ):
        copied = copy_slab(
            source,
            destination,
            force=force,
            id=content,
            follow_links=follow_links,
            source_options=source_options,
            destination_options=destination_options,
            progress=move,
        )
    if as_json:
        print_json(copied.as_dict())
    elif not quiet:
        text = "is there already"
        if copied.copied_bytes:
            speed = format_rate(copied.copied_bytes, copied.seconds)
            seconds = format_duration(copied.seconds)
            text = f"copied {format_size(copied.copied_bytes)} in {seconds}, {speed}"
        signed = ", with its signature" if copied.signed else ""
        print_lines(iter([f"{copied.destination}: {text}{signed}", f"id {copied.id}"]))
