"""Rows that an epoch has several times: drawn anew each time, by seed, epoch, row and visit."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from tests.reader.images.packing import pack_images, photographs
from torch.utils.data import DataLoader, WeightedRandomSampler

from fieldslab.reader import (
    Decode,
    ImageSteps,
    Loader,
    MultiCrop,
    Order,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Sequential,
    Shuffled,
    Slab,
    Subset,
    Weighted,
)
from fieldslab.reader.draws.visits import count_visits, make_draw_numbers
from fieldslab.reader.grain import grain_batches
from fieldslab.reader.torch import CountingSampler, SlabDataset, collate
from fieldslab.schemas.errors import UsageError

ROWS = 12
DECODE = {"image": ImageSteps([RandomResizedCrop(8), RandomHorizontalFlip()], crop_boxes=True)}
FAVOURITE = Weighted([30.0] + [1.0] * (ROWS - 1), seed=4)
"""Row 0 comes in about three of four positions."""


class Twice(Order):
    """Every row twice, by an order that says nothing of repeats."""

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`."""
        return np.arange(start, stop, dtype=np.int64) // 2

    def length(self, total: int) -> int:
        """See `Order`."""
        return 2 * total


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Small photographs."""
    return pack_images(tmp_path_factory.mktemp("images"), photographs(ROWS, 60, 80))


def boxes_of(batches: Any) -> dict[int, list[tuple[int, ...]]]:
    """The boxes of each row, in the order in which they came."""
    boxes = defaultdict(list)
    for batch in batches:
        for row, box in zip(batch["row"].tolist(), batch["image.boxes"].tolist(), strict=True):
            boxes[row].append(tuple(box))
    return dict(boxes)


ORDERS = [FAVOURITE, Subset([3, 3, -9, 5, 3]), Subset([1, 1, 2], seed=None), Twice()]


@pytest.mark.parametrize("order", ORDERS, ids=["weighted", "shuffled list", "list", "own"])
def test_a_row_that_comes_again_is_drawn_again(slab: Slab, order: Order) -> None:
    """Each visit of a row in an epoch has a crop of its own, whatever the batch size."""
    whole = boxes_of(Loader(slab, 100, order, decode=DECODE, prefetch=0))
    assert max(map(len, whole.values())) > 1
    for boxes in whole.values():
        assert len(set(boxes)) == len(boxes)
    assert boxes_of(Loader(slab, 2, order, decode=DECODE, threads=3)) == whole


def test_ranks_and_resuming_do_not_change_the_draws(slab: Slab) -> None:
    """Weighted draws are the same on two ranks, and after a resume in the middle of the epoch."""
    whole = boxes_of(Loader(slab, 4, FAVOURITE, decode=DECODE, prefetch=0))
    ranks = [
        list(Loader(slab, 2, FAVOURITE, decode=DECODE, prefetch=0, rank=rank, world_size=2))
        for rank in (0, 1)
    ]
    assert boxes_of(batch for step in zip(*ranks, strict=True) for batch in step) == whole
    loader = Loader(slab, 4, FAVOURITE, decode=DECODE, prefetch=0)
    first = [next(iter(loader))]
    other = Loader(slab, 3, FAVOURITE, decode=DECODE, prefetch=0)
    other.load_state_dict(loader.state_dict())
    assert boxes_of([*first, *other]) == whole


def test_rows_that_fill_up_the_last_step_are_drawn_again(slab: Slab) -> None:
    """Rows that ranks visit again at the end of an epoch do not look as they did before."""
    ranks = [
        Loader(slab[:5], 2, decode=DECODE, prefetch=0, rank=rank, world_size=3) for rank in range(3)
    ]
    boxes = boxes_of(batch for loader in ranks for batch in loader)
    assert sum(map(len, boxes.values())) == 6
    assert len({box for row in boxes.values() for box in row}) == 6
    plain = slab.gather(range(5), decode=DECODE)["image.boxes"].tolist()
    assert all(tuple(plain[row]) in boxes[row] for row in range(5))


def test_an_epoch_without_repeats_is_drawn_as_ever(slab: Slab) -> None:
    """Where each row comes once, draws depend on the row alone, as in the first release."""
    wanted = slab.gather(range(ROWS), decode=DECODE)["image.boxes"].tolist()
    for order in (Shuffled(3), Sequential(), Subset(range(ROWS)), Subset(fraction=1.0)):
        actual = boxes_of(Loader(slab, 5, order, decode=DECODE, prefetch=0))
        assert actual == {row: [tuple(box)] for row, box in enumerate(wanted)}


def test_a_gather_draws_rows_that_it_has_twice_twice(slab: Slab) -> None:
    """Visits count within the call, unless they are given; each view is drawn by itself."""
    steps = [MultiCrop([RandomResizedCrop(8)] * 2), RandomHorizontalFlip()]
    decode = {"image": ImageSteps(steps, crop_boxes=True)}
    boxes = slab.gather([4, 1, 4, 4], decode=decode)["image.boxes"]
    assert len({tuple(box) for row in boxes[[0, 2, 3]] for box in row.tolist()}) == 6
    alone = [slab.gather([4], decode=decode, visits=[n])["image.boxes"][0] for n in range(3)]
    np.testing.assert_array_equal(boxes[[0, 2, 3]], alone)
    for wrong in ([0], [0, -1], [0.5, 1], [[0, 1]]):
        with pytest.raises(UsageError, match="visit"):
            slab.gather([4, 4], decode=decode, visits=wrong)


def test_flips_of_whole_pictures_are_drawn_again(slab: Slab) -> None:
    """Pictures of their own size are flipped by visit, too: 40 visits are not all alike."""
    pictures = slab.gather([2] * 40, decode={"image": [Decode(), RandomHorizontalFlip()]})["image"]
    assert len({picture.tobytes() for picture in pictures}) == 2


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("together", [True, False], ids=["collate", "default"])
def test_samplers_that_repeat_rows(slab: Slab, workers: int, together: bool) -> None:
    """With `CountingSampler`, a DataLoader draws what a gather of all its rows draws."""
    torch.manual_seed(0)
    weights = [20.0] + [1.0] * (ROWS - 1)
    rows = list(WeightedRandomSampler(weights, 30))
    data = SlabDataset(slab, decode=DECODE)
    loader = DataLoader(
        data,
        4,
        sampler=CountingSampler(rows),
        num_workers=workers,
        collate_fn=collate if together else None,
    )
    assert len(loader) == 8
    actual = boxes_of(loader)
    assert len(set(actual[0])) == len(actual[0]) > 10
    assert actual == boxes_of([slab.gather(rows, decode=DECODE)])


def test_batches_of_a_sampler_are_counted(slab: Slab) -> None:
    """A sampler of batches will do, and so will one that knows nothing: it counts in a batch."""
    data = SlabDataset(slab, decode=DECODE)
    batches = [[1, 1, 2], [1, 2, 2]]
    counted = DataLoader(data, batch_sampler=CountingSampler(batches), collate_fn=collate)
    assert [len(set(boxes)) for boxes in boxes_of(counted).values()] == [3, 3]
    plain = DataLoader(data, batch_sampler=batches, collate_fn=collate)
    assert [len(set(boxes)) for boxes in boxes_of(plain).values()] == [2, 2]


def test_grain_draws_as_a_loader_does(slab: Slab) -> None:
    """Batches for Grain have the boxes that a loader's have."""
    source = grain_batches(slab, 4, order=FAVOURITE, decode=DECODE)
    loader = Loader(slab, 4, FAVOURITE, decode=DECODE, prefetch=0)
    assert boxes_of(source[n] for n in range(len(source))) == boxes_of(loader)


def test_visits_are_counted_in_their_order() -> None:
    """Counts follow the rows; a billion rows need none, for positions tell visits apart."""
    assert count_visits(np.array([5, 1, 5, 5, 1])).tolist() == [0, 0, 1, 2, 1]
    assert count_visits(np.empty(0, np.int64)).tolist() == []
    assert Twice().visits(0, 10**9, 10**9 + 3, 2**40).tolist() == [10**9 + n for n in range(3)]
    assert Subset([0, -1, 9, 0]).visits(0, 0, 4, 10).sum() == 2


def test_what_is_drawn_by_is_frozen() -> None:
    """Runs that stopped in an epoch with repeated rows resume by these numbers."""
    rows = np.array([7, 7, 7, 10**12])
    assert make_draw_numbers(rows, None).tolist() == rows.tolist()
    actual = make_draw_numbers(rows, np.array([0, 1, 2, 10**9])).tolist()
    assert actual == [7, 11662483131139462300, 9125460933879440406, 11827570862707790414]
