"""One batch: fields of rows, gathered or decoded."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fieldslab.reader.batch import Batch, Padding
from fieldslab.reader.buffers import Allocator
from fieldslab.reader.copying import RowLocations
from fieldslab.reader.draws.visits import check_visits
from fieldslab.reader.images.steps import ImageSteps
from fieldslab.reader.quarantine import NOTHING, Moved, blank_rows, read_around_damage
from fieldslab.reader.slab_storage import Storage
from fieldslab.reader.views import View, find_stored_rows


def read_batch(
    storage: Storage,
    view: View,
    rows: np.ndarray,
    names: Sequence[str],
    memory: Allocator,
    images: Mapping[str, ImageSteps] | None = None,
    epoch: int = 0,
    visits: Any = None,
    lap: Callable[[str], None] = lambda stage: None,
    batches_in_turn: int = 1,
    paddings: Mapping[str, Padding] | None = None,
    exact: bool = False,
) -> Batch:
    """Read rows of a view: the one way of `Slab.gather` and of loaders, which have checked `names`.

    `rows` (int64[n]) become the batch's own: negative ones are made positive. `lap` is called after
    each stage with its name. `batches_in_turn` and `paddings` are as in
    `gather.gather_fields`; no images are decoded with `paddings`. With `exact`,
    damaged rows are an error, whatever `open_slab` was asked for. Raises what `Slab.gather` raises.
    """
    located = storage.locate_rows(view, rows)

    def read(numbers: np.ndarray, places: RowLocations, visits: Any, moved: Moved) -> Batch:
        def read_present() -> Batch:
            if images:
                from fieldslab.reader.images.decoded_batches import gather_images

                counted = check_visits(visits, numbers)
                return gather_images(
                    storage,
                    view,
                    numbers,
                    places,
                    names,
                    images,
                    epoch,
                    memory,
                    counted,
                    lap,
                    moved,
                )
            stored = [storage.load_field(name) for name in names]
            gathered = moved.gather(
                storage.gather, stored, places, memory, batches_in_turn, paddings
            )
            lap("gather")
            batch = Batch(numbers, *gathered, visits=visits)
            if moved.damaged:
                blank_rows(batch, moved.damaged, storage.fields, (), paddings)
            return batch

        if storage.mirrors is None:
            return storage.changes.read(read_present)
        if moved.damaged:  # blocks are fetched one by one, as they are verified
            return storage.read(names, places.shards, read_present)
        from fieldslab.reader.absent import read_mirrored_rows  # compiles kernels

        return storage.changes.read(
            lambda: read_mirrored_rows(storage, names, places, tuple(images or ()), read_present)
        )

    if storage.quarantine is None or exact:
        return read(rows, located, visits, NOTHING)
    slab_rows = find_stored_rows(view, rows)
    return read_around_damage(
        storage.quarantine, storage, names, slab_rows, rows, located, visits, read
    )
