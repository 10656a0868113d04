"""Windows in loaders, datasets and transforms, and the orders that draw them."""

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.naming import case
from tests.reader.conftest import ROWS
from tests.reader.images.packing import pack_images, photographs
from tests.reader.windowing import ORDERS, as_lists
from tests.slabs import lie, write_slab
from torch.utils.data import DataLoader

from fieldslab.reader import (
    Batch,
    Decode,
    ImageSteps,
    Loader,
    Mixed,
    Pad,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    Runs,
    Shift,
    Slab,
    Standardize,
    Windows,
    open_slab,
)
from fieldslab.reader.grain import grain_batches
from fieldslab.reader.torch import SlabDataset, collate
from fieldslab.schemas.errors import RowOutOfRange, UsageError
from fieldslab.schemas.manifest import SHUFFLE_ATTRIBUTE
from fieldslab.schemas.notices import FieldslabWarning


def test_each_window_comes_once_an_epoch(series: Slab) -> None:
    """Windows start at every `stride`-th row of a run, and none goes beyond it but to be filled."""
    runs = series.find_runs("episode")
    ends = runs.starts + runs.lengths
    expected = {
        "rows": [*range(12, 147, 4), *range(162, 255, 4), *range(270, 285, 4)],
        "all": [*range(0, 294, 3)],
        "repeat": [
            s for low, high in zip(runs.starts, ends, strict=True) for s in range(low, high, 5)
        ],
        "zeros": [*range(300)],
        "deltas": [*range(1, 4), *range(13, 155), *range(163, 263), *range(271, 293)],
        "stored": [*range(0, 300, 3)],
        "elements": [*range(0, 434, 16)],
    }
    for name, order in ORDERS.items():
        with case(name):
            attached = order.attach(series)
            epochs = [attached.rows(epoch, 0, attached.length(ROWS), ROWS) for epoch in range(2)]
            assert sorted(epochs[0].tolist()) == sorted(epochs[1].tolist()) == expected[name]
            assert (epochs[0].tolist() == expected[name]) == (order.seed is None)
            assert (epochs[0].tolist() == epochs[1].tolist()) == (order.seed is None)
            stored = order.in_sequence().attach(series)
            assert stored.rows(1, 0, stored.length(ROWS), ROWS).tolist() == expected[name]
    for short in (Windows(200, within="episode"), Windows(9, of="tokens")):
        assert list(Loader(series[:3], 4, short, prefetch=0)) == []


def test_loaders_make_batches_of_windows(series: Slab) -> None:
    """The same with threads, in groups, in a process, for torch and a device, after a pickle."""
    for name, order in ORDERS.items():
        with case(name):
            fields = None if order.of else ["x", "state", "tokens", "episode"]
            attached = order.attach(series)
            rows = attached.rows(0, 0, attached.length(ROWS), ROWS)
            shape = order.shape
            asked: Any = (
                {"of": order.of}
                if order.of
                else {
                    "fields": fields,
                    "delta_indices": shape.delta_indices or None,
                    "within": order.within,
                    "edges": None if order.edges == "drop" else order.edges,
                }
            )
            expected = as_lists(series.gather_windows(rows[:64], shape.length, **asked))
            loaders = {
                "threads": Loader(series, 64, order, fields=fields),
                "on demand": pickle.loads(
                    pickle.dumps(Loader(series, 64, order, fields=fields, prefetch=0))
                ),
                "cached": Loader(series, 64, order, fields=fields, read_ahead=0),
            }
            for what, loader in loaders.items():
                with case(what):
                    batches = list(loader)
                    assert as_lists(batches[0]) == expected
                    assert (
                        np.concatenate([batch.rows for batch in batches]).tolist() == rows.tolist()
                    )
            tensors = next(
                iter(Loader(series, 64, order, fields=fields, output="torch", prefetch=0))
            )
            for field in tensors:
                if field != "tokens" or order.of:
                    assert tensors[field].tolist() == expected[field]
    order = ORDERS["deltas"]
    small = Loader(series, 4, order, fields=["x", "state"])
    rows = np.concatenate([batch.rows for batch in small])
    assert (
        rows.tolist()
        == np.concatenate([small.rows_at(0, step) for step in range(len(small))]).tolist()
    )
    with Loader(series, 64, order, fields=["x"], isolate=True) as isolated:
        assert next(iter(isolated))["x"].shape == (64, 2)
    sent = next(iter(Loader(series, 64, ORDERS["zeros"], fields=["x"], device="cpu")))
    assert sent["x_is_pad"].shape == (64, 5)
    source = grain_batches(series, 8, order=ORDERS["elements"], drop_last=False)
    assert source[0]["tokens"].shape == (8, 17)


def test_images_of_a_window_have_one_crop(tmp_path: Path) -> None:
    """They are decoded as by a gather, with the crop and flip of the window's first row."""
    slab = pack_images(tmp_path, photographs(12, 24, 32))
    crop = ImageSteps([RandomResizedCrop(8), RandomHorizontalFlip()], crop_boxes=True)
    resize = ImageSteps([Resize((6, 8))])
    order = Windows(4, 2, edges="zeros", seed=None)
    for steps in (crop, resize):
        batch = next(iter(Loader(slab, 6, order, decode={"image": steps}, prefetch=0)))
        rows = (batch.rows[:, None] + np.arange(4)).clip(None, 11)
        expected = slab.gather(rows.reshape(-1), decode={"image": steps})
        inside = ~batch["is_pad"]
        assert batch["image"][~inside].max() == 0
        assert batch.sizes["image"].shape == (6, 4, 2)
        if steps is resize:
            pixels = expected["image"].reshape(batch["image"].shape)
            assert np.array_equal(batch["image"][inside], pixels[inside])
            continue
        boxes = slab.gather(batch.rows, decode={"image": crop})["image.boxes"]
        assert (batch["image.boxes"] == np.where(inside[..., None], boxes[:, None], 0)).all()
    whole = slab.gather_windows([0, 8], 4, decode={"image": [Decode()]})
    assert [picture.shape for picture in whole["image"]] == [(24, 32, 3)] * 8
    shapes = slab.gather_windows(
        [5], delta_indices={"image": [-2, 0]}, decode={"image": [Resize((6, 8))]}
    )
    assert shapes["image"].shape == (1, 2, 6, 8, 3)
    with pytest.raises(UsageError, match="cannot be filled with zeros"):
        slab.gather_windows([9], 4, decode={"image": [Decode()]}, edges="zeros")
    skipping = ImageSteps([Resize((6, 8))], on_error="skip")
    with pytest.raises(UsageError, match="cannot be skipped"):
        slab.gather_windows([0], 4, decode={"image": skipping})


def test_a_dataset_has_windows_for_a_dataloader(series: Slab, tmp_path: Path) -> None:
    """Each comes once, with what a sampler wants of it; an item is one window."""
    for name in ("rows", "deltas", "elements"):
        order = ORDERS[name]
        fields = None if order.of else ["x", "state", "tokens"]
        dataset = pickle.loads(pickle.dumps(SlabDataset(series, fields, windows=order)))
        attached = order.in_sequence().attach(series)
        starts = attached.rows(0, 0, attached.length(ROWS), ROWS)
        assert len(dataset) == len(starts)
        loader = DataLoader(dataset, 64, shuffle=True, collate_fn=collate)
        batches = list(loader)
        assert sorted(torch.cat([batch.rows for batch in batches]).tolist()) == starts.tolist()
        field = order.of or "x"
        rows = batches[0].rows.numpy()
        expected = attached.windows.read(rows, dataset.fields, series.storage.pool)[field]
        assert batches[0][field].tolist() == expected.tolist()
        assert dataset[3][field].tolist() == series_values(series, order, starts[3])
    slab = pack_images(tmp_path, photographs(6, 24, 32))
    images = SlabDataset(slab, ["image"], {"image": [Resize((6, 8))]}, windows=Windows(3))
    assert next(iter(DataLoader(images, 2, collate_fn=collate)))["image"].shape == (2, 3, 6, 8, 3)
    assert images[-1]["image"].shape == (3, 6, 8, 3)
    with pytest.raises(RowOutOfRange):
        images[4]
    with pytest.raises(UsageError, match="one field"):
        SlabDataset(series, ["x"], windows=ORDERS["elements"])


def series_values(series: Slab, order: Windows, start: int) -> list[Any]:
    """Values of the field `x`, or of the elements, in one window."""
    shape = order.shape
    if order.of:
        batch = series.gather_windows([start], shape.length, of=order.of)
        return list(batch[order.of][0].tolist())
    indices = shape.find_indices("x")
    assert indices is not None
    return [int(start) + index for index in indices]


def test_transforms_take_windows(series: Slab) -> None:
    """They see fields as they are in a batch, and `rng` draws once for a window."""

    def draw(batch: Batch, rng: Any) -> dict[str, Any]:
        return {"drawn": rng.uniform(0, 1)}

    pairs = Shift("tokens", dtype=np.int64)
    batch = next(iter(Loader(series, 8, ORDERS["elements"], transforms=[pairs, draw], prefetch=0)))
    assert batch["targets"].tolist() == batch["tokens"][:, 1:].tolist()
    assert batch["drawn"].shape == (8,)
    scaled = Standardize("state", [0, 0], [2, 4])
    batch = next(iter(Loader(series, 8, ORDERS["rows"], transforms=[scaled], prefetch=0)))
    assert batch["state"].tolist() == (batch["x"][..., None] / [2.0, -4.0]).tolist()
    with pytest.raises(UsageError, match="no rows of different lengths"):
        Loader(series, 8, ORDERS["elements"], transforms=[Pad("tokens", 4)])


def test_states_know_their_windows(series: Slab) -> None:
    """Keys tell apart what gives other windows; a run goes on where it stopped, and is frozen."""
    keys = [json.dumps(order.key()) for order in ORDERS.values()]
    runs = series.find_runs("episode")
    others = [
        Windows(16, 4, runs),
        Windows(16, 4, Runs(runs.starts, runs.lengths - 1)),
        Windows(16, 4),
    ]
    keys += [json.dumps(order.key()) for order in others]
    assert len(set(keys)) == len(keys)
    assert ORDERS["rows"].key() == {
        "name": "Windows",
        "version": 1,
        "length": 16,
        "stride": 4,
        "within": "episode",
        "delta_indices": None,
        "edges": "drop",
        "of": None,
        "seed": 0,
    }
    first = {
        name: order.attach(series).rows(1, 0, 4, ROWS).tolist() for name, order in ORDERS.items()
    }
    assert first == FROZEN
    loader = Loader(series, 8, ORDERS["rows"], fields=["x"], prefetch=0)
    next(iter(loader))
    with pytest.raises(UsageError, match="another order"):
        Loader(series, 8, others[0], fields=["x"]).load_state_dict(loader.state_dict())


FROZEN = {
    "rows": [132, 202, 28, 40],
    "all": [168, 96, 0, 117],
    "repeat": [142, 212, 12, 27],
    "zeros": [0, 244, 100, 263],
    "deltas": [124, 219, 240, 208],
    "stored": [0, 3, 6, 9],
    "elements": [272, 432, 64, 112],
}


def test_windows_that_make_no_sense_are_warned_of(series: Slab, tmp_path: Path) -> None:
    """Of rows that were shuffled, alone or in a union, and where no run is long enough."""
    path = write_slab(tmp_path / "a.slab", {"x": np.arange(20)})
    lie(path, attributes={SHUFFLE_ATTRIBUTE: 0})
    shuffled = open_slab(path)
    plain = open_slab(write_slab(tmp_path / "b.slab", {"x": np.arange(20)}))
    for slab in (shuffled, plain + shuffled):
        with pytest.warns(FieldslabWarning, match=r"a\.slab was shuffled"):
            Windows(3).attach(slab)
    groups = {"a": range(20)}
    with pytest.warns(FieldslabWarning, match="was shuffled"):
        Mixed({"a": 1}, groups=groups, windows=Windows(3)).attach(shuffled)
    with pytest.warns(FieldslabWarning, match="has no window"):
        Windows(200, within="episode").attach(series)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Windows(3).attach(plain)
        Windows(3, of="x").attach(shuffled)
        Windows(3).attach(series[:0])
