"""Random numbers of transforms: numpy's words, a stream for each row, the same wherever."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from tests.reader.images.packing import pack_images, photographs
from tests.slabs import Column, ragged, write_slab
from torch.utils.data import DataLoader

from fieldslab.reader import (
    Batch,
    Cast,
    ImageSteps,
    Lambda,
    Loader,
    Pad,
    Resize,
    Sequential,
    Shuffled,
    Slab,
    Transform,
    Weighted,
    open_slab,
)
from fieldslab.reader.grain import grain_batches
from fieldslab.reader.torch import (
    CountingSampler,
    Jagged,
    PerRow,
    SlabDataset,
    TensorBatch,
    TensorGenerator,
    collate,
)
from fieldslab.reader.transforms.rng import RowGenerator
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Logical

ROWS = 30
FIELDS = ["x", "row"]
N = 40_000
GOLDEN = {
    "random": [0.8287754671943492, 0.13552981786892215],
    "integers": [[272, 293], [528, 477]],
    "normal": [[-2.5828418230292995], [-1.166503664709682]],
    "seeds": [8632063348707891819, 3849674326015047960],
}
"""Drawn by the first version."""


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Numbers, tokens of different lengths, and bfloat16."""
    columns = {
        "x": np.zeros((ROWS, 3), np.float32),
        "row": np.arange(ROWS),
        "tokens": ragged([np.arange(n % 4) for n in range(ROWS)], "int32"),
        "half": Column(np.zeros(ROWS, np.uint16), "fixed", "uint16", logical=Logical("bfloat16")),
    }
    return open_slab(write_slab(tmp_path_factory.mktemp("rng") / "a.slab", columns))


def noise(batch: Any, rng: Any) -> dict[str, Any]:
    """One number a row, and some for each value of it."""
    scale = rng.uniform(0.5, 1.5, dtype="float32")
    return {"x": batch["x"] + scale[:, None] * rng.normal(size=3, dtype="float32")}


def by_row(batches: Iterable[Any]) -> dict[int, list[list[float]]]:
    """What stands in `x` for each row, at each of its visits."""
    actual: dict[int, list[list[float]]] = {}
    for batch in batches:
        for row, x in zip(batch["row"].tolist(), batch["x"].tolist(), strict=True):
            actual.setdefault(row, []).append(x)
    return actual


def made(subjects: int = N, *key: int) -> RowGenerator:
    """A generator for so many rows."""
    return RowGenerator(np.arange(subjects, dtype=np.uint64), *key)


def test_draws_are_frozen() -> None:
    """A run that resumes in another version draws what it would have drawn."""
    rng = made(2, 7, 3, 0)
    assert rng.random().tolist() == GOLDEN["random"]
    assert rng.integers(-5, 1000, size=2).tolist() == GOLDEN["integers"]
    assert rng.normal(size=1) == pytest.approx(np.array(GOLDEN["normal"]), abs=1e-12)
    assert rng.seeds().tolist() == GOLDEN["seeds"]


def test_numbers_have_their_distributions() -> None:
    """Moments are those of the distribution; rows, calls and values of a row are independent."""
    rng = made()
    error = 5 / math.sqrt(N)
    drawn = rng.uniform(2, 4)
    assert drawn.shape == (N,)
    assert 2 <= drawn.min() < drawn.max() < 4
    assert drawn.mean() == pytest.approx(3, abs=error)
    assert drawn.std() == pytest.approx(2 / math.sqrt(12), abs=error)
    normal = rng.normal(1, 2, size=(2, 2)).reshape(N, 4)
    assert normal.mean() == pytest.approx(1, abs=error)
    assert normal.std() == pytest.approx(2, abs=error)
    assert (((normal - 1) / 2) ** 4).mean() == pytest.approx(3, abs=0.1)
    counts = np.bincount(rng.integers(-3, 4) + 3)
    assert (np.abs(counts - N / 7) < 5 * math.sqrt(N / 7)).all()
    chosen = np.bincount(rng.choice([4, 5, 6], p=[1, 0, 3]))
    assert chosen[5] == 0
    assert chosen[4] == pytest.approx(N / 4, rel=0.05)
    streams = [drawn[1:], drawn[:-1], rng.random()[1:], *rng.random(size=2)[1:].T, *normal[1:].T]
    correlations = np.corrcoef(streams) - np.eye(len(streams))
    assert np.abs(correlations).max() < error


def test_signatures_are_numpys() -> None:
    """Shapes, dtypes and bounds are what numpy's generator gives, with the rows in front."""
    rng, theirs = made(5), np.random.default_rng(0)
    for name, arguments in (
        ("random", {}),
        ("random", {"dtype": np.float32}),
        ("uniform", {"low": -1, "high": 2}),
        ("normal", {"loc": 3.0}),
        ("standard_normal", {}),
        ("integers", {"low": 9}),
        ("integers", {"low": 3, "high": 3, "endpoint": True, "dtype": np.uint8}),
        ("choice", {"a": ["a", "b"]}),
    ):
        for size in (None, 4, (2, 3)):
            actual = getattr(rng, name)(size=size, **arguments)
            wanted = np.asarray(getattr(theirs, name)(size=size, **arguments))
            assert actual.shape == (5, *wanted.shape)
            assert size is None or actual.dtype == wanted.dtype
    assert rng.integers(np.arange(5), np.arange(5) + 1).tolist() == [0, 1, 2, 3, 4]
    assert rng.uniform(np.arange(5), np.arange(5)).tolist() == [0, 1, 2, 3, 4]
    everything = made(N).integers(-(2**63), 2**63 - 1, endpoint=True)
    assert everything.min() < -(2**62) < 2**62 < everything.max()
    flat = made(4).random(lengths=np.array([2, 0, 1, 3]))
    assert flat.shape == (6,)
    assert flat[[0, 2, 3]].tolist() == made(4).random(size=1)[[0, 2, 3], 0].tolist()


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.random(size=-1),
        lambda rng: rng.random(size=1.5),
        lambda rng: rng.random(dtype="int64"),
        lambda rng: rng.random(size=2, lengths=[1] * 5),
        lambda rng: rng.random(lengths=[1]),
        lambda rng: rng.normal(scale=-1),
        lambda rng: rng.uniform(np.zeros(4)),
        lambda rng: rng.integers(3, 3),
        lambda rng: rng.integers(0.5, 3),
        lambda rng: rng.integers(300, dtype=np.uint8, size=9),
        lambda rng: rng.choice([]),
        lambda rng: rng.choice(3, p=[1, 1]),
    ],
)
def test_impossible_draws_are_refused(draw: Any) -> None:
    """What cannot be drawn is said, not drawn."""
    with pytest.raises(UsageError):
        draw(made(5))


ORDERS = [Shuffled(6), Weighted(np.arange(ROWS) ** 4, 6)]


@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("order", ORDERS, ids=["shuffled", "weighted"])
def test_loaders_draw_the_same(slab: Slab, order: Any, output: Any) -> None:
    """Threads, batch size, ranks, resuming and the output do not change what is drawn."""
    common: Any = {"fields": FIELDS, "transforms": [noise], "output": output}
    whole = by_row(Loader(slab, ROWS, order, fields=FIELDS, transforms=[noise], prefetch=0))
    visits = [tuple(x) for row in whole.values() for x in row]
    assert len(set(visits)) == len(visits) == ROWS
    assert by_row(Loader(slab, 4, order, threads=3, **common)) == whole
    ranks = [Loader(slab, 3, order, rank=rank, world_size=2, **common) for rank in (0, 1)]
    assert by_row(each for step in zip(*ranks, strict=True) for each in step) == whole
    loader = Loader(slab, 7, order, prefetch=0, **common)
    begun = [next(iter(loader))]
    other = Loader(slab, 5, order, threads=2, **common)
    other.load_state_dict(loader.state_dict())
    assert by_row([*begun, *other]) == whole
    assert by_row(other) != whole  # the next epoch


@pytest.mark.parametrize("order", ORDERS, ids=["shuffled", "weighted"])
def test_adapters_draw_the_same(slab: Slab, order: Any) -> None:
    """Grain, Lightning and a DataLoader draw what a loader does."""
    from fieldslab.reader.lightning import SlabDataModule  # see test_lightning.py

    whole = by_row(Loader(slab, ROWS, order, fields=FIELDS, transforms=[noise], prefetch=0))
    common: Any = {"order": order, "fields": FIELDS, "transforms": [noise]}
    source = grain_batches(slab, 8, drop_last=False, **common)
    assert by_row(source[n] for n in range(len(source))) == whole
    module = SlabDataModule(train=slab, batch_size=8, **common)
    module.setup("fit")
    assert by_row(module.train_dataloader()) == whole
    module.teardown("fit")


@pytest.mark.parametrize("workers", [0, 1])
def test_datasets_draw_the_same(slab: Slab, workers: int) -> None:
    """A DataLoader's batches and items have the draws of (seed, epoch, row, visit)."""
    data = SlabDataset(slab, FIELDS, transforms=[noise], seed=6)
    data.epoch = 2
    loader = Loader(slab, ROWS, Sequential(), fields=FIELDS, transforms=[noise], seed=6)
    loader.set_epoch(2)
    whole = by_row(loader)
    assert by_row(DataLoader(data, 4, num_workers=workers, collate_fn=collate)) == whole
    assert by_row(DataLoader(data, 4, num_workers=workers)) == whole
    assert data[3]["x"].tolist() == whole[3][0]
    again = CountingSampler([3, 4, 3, 3])
    batches = DataLoader(data, 2, sampler=again, num_workers=workers, collate_fn=collate)
    visits = by_row(batches)[3]
    assert len({tuple(visit) for visit in visits}) == 3
    assert visits[0] == whole[3][0]


def test_a_view_draws_by_the_rows_of_the_slab(slab: Slab) -> None:
    """Rows of a view have the numbers that they have in the whole slab."""
    common: Any = {"fields": FIELDS, "transforms": [noise], "prefetch": 0}
    whole = by_row(Loader(slab, 8, Sequential(), **common))
    part = by_row(Loader(slab[4:20:3], 8, Sequential(), **common))
    assert part == {row: whole[row] for row in range(4, 20, 3)}


def test_where_the_seed_comes_from(slab: Slab) -> None:
    """`seed` decides, or else the order's seed; a state of another seed is refused."""

    def draws(order: Any, **options: Any) -> Any:
        common: Any = {"fields": FIELDS, "transforms": [noise], "prefetch": 0} | options
        return by_row(Loader(slab, 8, order, **common))

    plain = draws(Sequential())
    assert draws(Sequential(), seed=0) == draws(Shuffled(5), seed=0) == plain
    assert draws(Sequential(), seed=5) == draws(Shuffled(5)) != plain
    source = grain_batches(slab, 10, 5, order=Sequential(), fields=FIELDS, transforms=[noise])
    assert by_row(source[n] for n in range(3)) == draws(Shuffled(5))
    state = Loader(slab, 8, seed=1).state_dict()
    Loader(slab, 8, seed=1).load_state_dict(state)
    with pytest.raises(UsageError, match="another seed"):
        Loader(slab, 8, seed=2).load_state_dict(state)
    with pytest.raises(UsageError, match="another seed"):
        Loader(slab, 8, seed=2).load_state_dict(Loader(slab, 8).state_dict())


def test_functions_get_tensors_and_transforms_get_arrays(slab: Slab) -> None:
    """With output="torch", each gets what it is written for, in any sequence."""
    seen: list[Any] = []

    def look(batch: Any, rng: Any) -> dict[str, Any]:
        seen.append((batch, rng))
        return {"mask": rng.random(lengths=torch.diff(batch["tokens"].offsets)) < 0.5}

    def double(values: Any) -> Any:
        seen.append(values)
        return values.to(torch.float64) * 2

    class Arrays(Transform):
        field = "x"

        def __call__(self, batch: Batch, memory: Any = None) -> dict[str, Any]:
            seen.append(batch)
            return {"x": np.add(batch["x"], 1)}

    chain: Any = [look, Arrays(), Lambda("x", double), Pad("tokens", 4), Cast("x", "float32")]
    (batch,) = Loader(slab, ROWS, Sequential(), transforms=chain, output="torch")
    (first, rng), arrays, values = seen
    assert isinstance(first, TensorBatch)
    assert isinstance(first["tokens"], Jagged)
    assert first["half"].dtype == torch.bfloat16
    assert isinstance(rng, TensorGenerator)
    assert isinstance(arrays, Batch)
    assert isinstance(arrays["x"], np.ndarray)
    assert isinstance(values, torch.Tensor)
    assert batch["x"].dtype == torch.float32
    assert (batch["x"] == 2).all()
    assert batch["half"].dtype == torch.bfloat16
    assert batch["tokens"].shape == (ROWS, 4)
    assert batch["mask"].shape == first["tokens"].values.shape
    assert batch.rows.tolist() == list(range(ROWS))
    seen.clear()
    list(Loader(slab, ROWS, Sequential(), transforms=[Arrays()]))
    assert isinstance(seen[0], Batch)
    with pytest.raises(AttributeError) as caught:
        list(Loader(slab, 8, transforms=[lambda batch: batch["x"].astype("f8")], output="torch"))
    assert "get tensors" in "".join(caught.value.__notes__)


def test_whole_batches_may_be_returned(slab: Slab) -> None:
    """A function may change the batch and return it, of tensors or of arrays, or drop rows."""

    def change(batch: Any) -> Any:
        batch["x"] = batch["x"] + 1
        return batch

    def drop(batch: Batch) -> Batch:
        keep = batch.rows % 2 == 0
        columns = {name: batch[name][keep] for name in FIELDS}
        return Batch(batch.rows[keep], columns, {}, {})

    common: Any = {"fields": FIELDS, "prefetch": 0}
    (batch,) = Loader(slab, ROWS, transforms=[change], output="torch", **common)
    assert (batch["x"] == 1).all()
    whole = by_row(Loader(slab, 8, transforms=[noise], **common))
    actual = by_row(Loader(slab, 8, transforms=[drop, noise], **common))
    assert sorted(actual) == list(range(0, ROWS, 2))
    assert actual != {row: whole[row] for row in actual}  # `noise` is the second one now
    chain: Any = [lambda batch: {}, noise]
    assert actual == {
        row: by_row(Loader(slab, 8, transforms=chain, **common))[row] for row in actual
    }


def test_global_state_still_works(slab: Slab) -> None:
    """A function that draws from numpy's or torch's global state is called as ever."""

    def draw(batch: Any) -> dict[str, Any]:
        return {"draw": np.random.rand(len(batch.rows)), "other": torch.rand(len(batch.rows))}  # noqa: NPY002

    batches = list(Loader(slab, 8, fields=FIELDS, transforms=[draw], output="torch"))
    assert sum(len(batch["draw"]) for batch in batches) == ROWS


class Augment(torch.nn.Module):
    """What torchvision's transforms do: they draw from torch's global state, and take no `rng`."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Take uint8 (3, height, width)."""
        assert image.dtype == torch.uint8
        assert image.shape == (3, 12, 10)
        if torch.rand(1) < 0.5:
            image = image.flip(-1)
        order = torch.randperm(3)
        top = int(torch.randint(0, 4, size=(1,)))
        factor = torch.empty(1).uniform_(0.6, 1.4)
        erased = torch.empty([3, 4, 4]).normal_() + torch.randn_like(image[:, :4, :4].float())
        choice = int(torch.multinomial(torch.ones(3), 1))
        result = (image[order].float() * factor).clamp(0, 255)
        result[:, top : top + 4, choice : choice + 4] = erased
        return result


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Small photographs."""
    return pack_images(tmp_path_factory.mktemp("images"), photographs(ROWS, 24, 20))


VIEWS = {"image": ImageSteps([Resize((12, 10))], channels_first=True)}


def augmented(batches: Iterable[Any]) -> dict[int, bytes]:
    """The images of all rows."""
    return {
        row: np.asarray(image).tobytes()
        for batch in batches
        for row, image in zip(batch["row"].tolist(), batch["image"], strict=True)
    }


def test_functions_of_one_sample_draw_by_row(images: Slab) -> None:
    """`PerRow` seeds them by row: the same in threads and workers, with torch's state untouched."""
    chain: Any = [PerRow("image", Augment())]
    data = SlabDataset(images, decode=VIEWS, transforms=chain)
    whole = augmented(DataLoader(data, ROWS, collate_fn=collate))
    assert len(set(whole.values())) == ROWS
    assert augmented(DataLoader(data, 7, num_workers=1, collate_fn=collate)) == whole
    for output in ("torch", "numpy"):
        torch.manual_seed(1)
        wanted = torch.rand(8)
        torch.manual_seed(1)
        drawn, batches = [], []
        for batch in Loader(images, 4, decode=VIEWS, transforms=chain, output=output, threads=3):
            drawn.append(torch.rand(1))  # a training step draws, too
            batches.append(batch)
        assert torch.equal(torch.cat(drawn), wanted)
        assert augmented(batches) == whole


def test_a_function_of_one_sample_keeps_one_shape(images: Slab) -> None:
    """Rows that cannot be stacked are told of, with the field."""
    cut = PerRow("image", lambda image: image[:, : int(torch.randint(1, 12, ()))])
    with pytest.raises(UsageError, match="one shape"):
        list(Loader(images, 8, decode=VIEWS, transforms=[cut]))


def test_generators_of_torch_belong_to_rows(slab: Slab) -> None:
    """`rng.generators()` gives a torch.Generator for each row, the same in any batch."""

    def draw(batch: Any, rng: Any) -> dict[str, Any]:
        return {"x": torch.stack([torch.rand(2, generator=each) for each in rng.generators()])}

    common: Any = {"fields": FIELDS, "transforms": [draw], "output": "torch"}
    assert by_row(Loader(slab, 4, threads=2, **common)) == by_row(Loader(slab, 9, **common))
