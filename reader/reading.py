"""One batch: fields of rows, gathered or decoded."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fieldslab.reader.batch import Batch, Padding
from fieldslab.reader.buffers import Allocator
from fieldslab.reader.draws.visits import check_visits
from fieldslab.reader.images.steps import ImageSteps
from fieldslab.reader.slab_storage import Storage
from fieldslab.reader.views import View


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
) -> Batch:
    """Read rows of a view: the one way of `Slab.gather` and of loaders, which have checked `names`.

    `rows` (int64[n]) become the batch's own: negative ones are made positive. `lap` is called after
    each stage with its name. `batches_in_turn` and `paddings` are as in
    `gather.gather_fields`; no images are decoded with `paddings`. Raises what `Slab.gather` raises.
    """
    places = storage.locate_rows(view, rows)

    def read() -> Batch:
        if images:
            from fieldslab.reader.images.decoded_batches import gather_images

            counted = check_visits(visits, rows)
            return gather_images(
                storage, view, rows, places, names, images, epoch, memory, counted, lap
            )
        stored = [storage.load_field(name) for name in names]
        gathered = storage.gather(stored, places, memory, batches_in_turn, paddings)
        lap("gather")
        return Batch(rows, *gathered, visits=visits)

    if storage.mirrors is None:
        return storage.changes.read(read)
    from fieldslab.reader.absent import read_mirrored_rows  # compiles kernels

    return storage.changes.read(
        lambda: read_mirrored_rows(storage, names, places, tuple(images or ()), read)
    )
