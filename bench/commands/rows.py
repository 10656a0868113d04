"""`fieldslab rows`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fieldslab.packer.commands.params import PATH, Option, command
from fieldslab.packer.commands.shared import (
    FOLLOW_LINKS,
    ID,
    JSON,
    MISSING,
    ROWS_FILE,
    SLABS,
    STORAGE_OPTION,
)
from fieldslab.packer.commands.terminal import print_json, print_lines

TRAINING, STEP, OUTPUT = "Training", "Step", "Output"
_COUNT = click.IntRange(min=0)
_POSITIVE = click.IntRange(min=1)
EXAMPLES = """\
Examples:
  fieldslab rows train.slab --batch-size 256 --epoch 2 --step 340
  fieldslab rows train.slab --order 'Shuffled(seed=0)' --batch-size 256 \\
      --world-size 8 --rank 3 --epoch 2 --step 340 --show
  fieldslab rows train.slab --state loader.json --batch-size 256        the next batch"""


@command(
    SLABS,
    Option(
        "--order",
        TRAINING,
        "The order of the loader, as in Python; nothing of it is executed. The default is that of "
        "the state, or 'Shuffled(0)'.",
        "ORDER",
    ),
    Option("--batch-size", TRAINING, "Rows in a batch, on each rank.", "N", type=_POSITIVE),
    Option("--world-size", TRAINING, "Number of ranks.", "N", type=_POSITIVE, default=1),
    Option("--rank", TRAINING, "Only the rows of this rank. The default is all.", "N", type=_COUNT),
    Option("--drop-last", TRAINING, "The loader leaves out a last batch that is smaller."),
    Option("--epoch", STEP, "Number of the epoch, from 0.", "N", type=_COUNT, shown_default=0),
    Option("--step", STEP, "Number of the step in the epoch, from 0.", "N", type=_COUNT, default=0),
    Option(
        "--state",
        STEP,
        "A loader's state_dict() as JSON. Steps of its epoch are counted from there.",
        "FILE",
        type=PATH,
    ),
    Option("--show", OUTPUT, "Show the content of the rows, as 'fieldslab head' does."),
    Option("--fields", OUTPUT, "Show only these fields: names or patterns.", "a,b", multiple=True),
    Option(
        "--images",
        OUTPUT,
        "Write the images of the rows to this folder, as 'fieldslab head' does.",
        "DIR",
        type=click.Path(readable=False, path_type=Path),
    ),
    ID,
    ROWS_FILE,
    MISSING,
    FOLLOW_LINKS,
    STORAGE_OPTION,
    JSON,
    examples=EXAMPLES,
)
def rows(
    slab: str,
    order: str | None,
    batch_size: int | None,
    world_size: int,
    rank: int | None,
    drop_last: bool,
    epoch: int | None,
    step: int,
    state: str | None,
    show: bool,
    fields: Sequence[str],
    images: Path | None,
    content: str | None,
    rows_file: Path | None,
    missing: str | None,
    follow_links: bool,
    storage_options: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """List the rows of any training step.

    Prints the number of each row, one a line, in the sequence in which a Loader returns them: rank
    by rank. It computes the step from the order, so the time does not depend on how many steps
    came before. If the Loader had a view, give its rows by --rows-file, where they are no slice
    that --state tells. Rows are listed with their numbers in the slab.
    """
    from fieldslab.bench.openview import open_view, slice_as_saved
    from fieldslab.reader import Loader
    from fieldslab.reader.orders.ordertext import parse_order, recall_order
    from fieldslab.schemas.errors import UsageError

    if rank is not None and rank >= world_size:
        raise UsageError("--rank: no such rank", expected=f"0..{world_size - 1}", found=rank)
    places: dict[str, Any] = {
        "id": content,
        "missing": missing,
        "follow_links": follow_links,
        "storage_options": storage_options,
    }
    opened = open_view(slab, rows_file, **places)
    saved = None if state is None else _read_state(Path(state))
    if saved is not None:
        opened = slice_as_saved(opened, saved, rows_file)
    if order is not None:
        chosen = parse_order(order)
    else:
        chosen = parse_order("Shuffled(0)") if saved is None else recall_order(saved["order"])
    options: dict[str, Any] = {"rank": rank or 0, "world_size": world_size, "drop_last": drop_last}
    loader = Loader(opened, batch_size, chosen, fields=[], prefetch=0, **options)
    if saved is not None:
        loader.load_state_dict(saved)
    epoch = loader.epoch if epoch is None else epoch
    numbers: list[int] = []
    for member in range(world_size) if rank is None else [rank]:
        numbers += loader.rows_at(epoch, step, member).tolist()
    counts_elements = getattr(chosen, "of", None) is not None
    if not counts_elements:
        numbers = [opened.view[number] for number in numbers]
    if show or images is not None:
        if counts_elements:
            hint = "Leave out --show and --images."
            raise UsageError("the order counts elements, not rows", found=repr(chosen), hint=hint)
        # Imported here: a list of numbers does without.
        from fieldslab.packer.check.stored import StoredSlab
        from fieldslab.packer.check.verify import choose_fields
        from fieldslab.packer.commands.head import print_rows, save_images
        from fieldslab.packer.unions.source_slabs import find_slabs

        with find_slabs(slab, **places).open() as members:
            stored = StoredSlab(members)
            shown = choose_fields(stored.manifest, fields or None)
            if show:
                print_rows(stored, numbers, shown, as_json)
            if images is not None:
                save_images(stored, numbers, shown, images)
    elif as_json:
        print_json({"epoch": epoch, "step": step, "rank": rank, "rows": numbers}, indent=None)
    else:
        print_lines(map(str, numbers))


def _read_state(path: Path) -> dict[str, Any]:
    from fieldslab.schemas.errors import UsageError

    hint = "Write it with json.dump(loader.state_dict(), file)."
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--state: cannot be read: {error.strerror}", file=path) from error
    except ValueError:
        raise UsageError("--state: not JSON", file=path, hint=hint) from None
    if not isinstance(state, dict) or not isinstance(state.get("order"), dict):
        raise UsageError("--state: not the state of a loader", file=path, hint=hint)
    return state
