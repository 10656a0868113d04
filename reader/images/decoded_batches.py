"""Batches with decoded images: those are decoded first, then the other fields are gathered."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fieldslab.reader.batch import Batch, Failure, Values
from fieldslab.reader.buffers import Allocator
from fieldslab.reader.copying import RowLocations
from fieldslab.reader.decoders.decoder import MEANINGS, Status
from fieldslab.reader.draws.visits import make_draw_numbers
from fieldslab.reader.images.decoding import DecodedImages, decode_images
from fieldslab.reader.images.steps import ImageSteps
from fieldslab.reader.quarantine import NOTHING, Moved, blank_rows
from fieldslab.reader.slab_storage import Storage
from fieldslab.reader.stored.maps import map_keeper
from fieldslab.reader.views import View, find_stored_rows


def gather_images(
    storage: Storage,
    view: View,
    numbers: np.ndarray,
    locations: RowLocations,
    names: Sequence[str],
    images: Mapping[str, ImageSteps],
    epoch: int,
    memory: Allocator,
    visits: np.ndarray,
    lap: Callable[[str], None] = lambda stage: None,
    moved: Moved = NOTHING,
) -> Batch:
    """Gather fields of rows, some of them decoded.

    Parameters
    ----------
    numbers, locations
        Rows of the view, from 0, and where they lie.
    names, images
        The fields, and what is done to those that are decoded.
    visits
        Numbers that tell the visits of a row apart, for what is drawn: int64[n].
    lap
        Is called after each stage with its name.
    moved
        Which rows are damaged, and are filled as if they were null.

    Raises what `decode_images` and `gather` raise.
    """
    rows = find_stored_rows(view, numbers)
    pool = storage.pool
    drawn = make_draw_numbers(rows, visits)
    with map_keeper.hold():  # decoders read images where they lie in the map
        decoded = {
            name: decode_images(
                storage.load_field(name),
                each,
                moved.places.get(name, locations),
                rows,
                drawn,
                epoch,
                memory,
                pool,
                moved.damaged.get(name),
            )
            for name, each in images.items()
        }
    failures = tuple(
        Failure(name, int(numbers[i]), MEANINGS[Status(each.statuses[i])])
        for name, each in decoded.items()
        for i in np.flatnonzero(each.statuses > 0).tolist()
    )
    keep = np.ones(len(rows), np.bool_)
    for name, each in decoded.items():
        if images[name].on_error == "skip":
            keep &= each.statuses <= 0
    if not keep.all():
        numbers, locations = (
            numbers[keep],
            RowLocations(locations.shards[keep], locations.in_shard[keep]),
        )
        visits, moved = visits[keep], moved.select(keep)
        decoded = {name: each.select_rows(keep) for name, each in decoded.items()}
    lap("decode")
    other_fields = [storage.load_field(name) for name in names if name not in images]
    columns = moved.gather(storage.gather, other_fields, locations, memory)
    values: dict[str, Values] = {}
    for name in names:
        values[name] = decoded[name].values if name in decoded else columns.values[name]
    for name in decoded:
        if not storage.fields[name].nullable:  # what is damaged is null here, but has no mask
            decoded[name] = decoded[name]._replace(valid=None)
    add_sizes_and_masks(decoded, values, columns.valid, columns.sizes)
    lap("gather")
    batch = Batch(numbers, values, columns.valid, columns.sizes, failures, visits)
    blank_rows(batch, moved.damaged, storage.fields, images)
    return batch


def add_sizes_and_masks(
    decoded: Mapping[str, DecodedImages],
    values: dict[str, Values],
    valid: dict[str, np.ndarray],
    sizes: dict[str, np.ndarray],
) -> None:
    """Add what comes with the values of decoded fields."""
    for name, each in decoded.items():
        sizes[name] = each.sizes
        if each.valid is not None:
            valid[name] = each.valid
        if each.boxes is not None:
            values[f"{name}.boxes"] = each.boxes
