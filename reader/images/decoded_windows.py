"""Decoded images of windows: those of one window have the same crop and flip."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fieldslab.reader.batch import Failure
from fieldslab.reader.buffers import Allocator
from fieldslab.reader.decoders.decoder import MEANINGS, Status
from fieldslab.reader.draws.visits import make_draw_numbers
from fieldslab.reader.gather import GatheredFields
from fieldslab.reader.image_values import Views
from fieldslab.reader.images.decoded_batches import add_sizes_and_masks
from fieldslab.reader.images.decoding import decode_images
from fieldslab.reader.images.steps import ImageSteps
from fieldslab.reader.pieces import Pieces
from fieldslab.reader.slab_storage import Storage
from fieldslab.reader.stored.maps import map_keeper
from fieldslab.reader.views import View, find_stored_rows
from fieldslab.schemas.errors import UsageError


def check_window_steps(images: Mapping[str, ImageSteps]) -> None:
    """Raise UsageError for steps that leave out images: a window has all of its rows."""
    for name, steps in images.items():
        if steps.on_error == "skip":
            hint = 'Set on_error="fill".'
            raise UsageError("an image of a window cannot be skipped", field=name, hint=hint)


def decode_windows(
    storage: Storage,
    view: View,
    starts: np.ndarray,
    pieces: Pieces,
    images: Mapping[str, ImageSteps],
    epoch: int,
    memory: Allocator,
    visits: np.ndarray | None,
) -> tuple[GatheredFields, tuple[Failure, ...]]:
    """Decode some fields of windows: arrays (windows, rows, ...), and pictures of own sizes by row.

    What is drawn belongs to the start of a window, int64[n], and to its visit. Raises what
    `decode_images` raises.
    """
    rows, length = pieces.locate_rows(), pieces.shape[1]
    slab_rows = storage.directory.starts[rows.shards] + rows.in_shard
    drawn = np.repeat(make_draw_numbers(find_stored_rows(view, starts), visits), length)
    with map_keeper.hold():  # decoders read images where they lie in the map
        decoded = {
            name: decode_images(
                storage.load_field(name), steps, rows, slab_rows, drawn, epoch, memory, storage.pool
            )
            for name, steps in images.items()
        }
    failures = tuple(
        Failure(name, int(starts[i // length]), MEANINGS[Status(each.statuses[i])])
        for name, each in decoded.items()
        for i in np.flatnonzero(each.statuses > 0).tolist()
    )
    columns = GatheredFields({name: each.values for name, each in decoded.items()}, {}, {})
    add_sizes_and_masks(decoded, *columns)
    for parts in columns:
        for name, each in parts.items():
            parts[name] = _shape_windows(each, pieces.shape)
    return columns, failures


def _shape_windows(values: Any, shape: tuple[int, int]) -> Any:
    """Give values of all rows the shape of windows; pictures of their own sizes stay."""
    if isinstance(values, Views):
        return Views(_shape_windows(each, shape) for each in values)
    if isinstance(values, np.ndarray):
        return values.reshape(*shape, *values.shape[1:])
    return values
