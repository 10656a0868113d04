"""States of loaders: keys of orders and steps, and states that earlier releases saved."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.reader.images.packing import pack_images, photographs
from tests.slabs import write_slab

from fieldslab.reader import (
    Blocked,
    ByLength,
    CenterCrop,
    Decode,
    ImageSteps,
    Loader,
    MultiCrop,
    Normalize,
    Order,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    Sequential,
    Shuffled,
    Slab,
    Strided,
    Subset,
    Weighted,
    open_slab,
)
from fieldslab.schemas.errors import UsageError

ROWS = 40
SAVED = json.loads((Path(__file__).parent / "states_v1.json").read_text())
"""What loaders of that release saved after 5 rows of `ORDERS`, with the rows that were left; and
how they named `IMAGES`."""
STATE = SAVED["orders"][0]["state"]
ORDERS: list[Order] = [
    Sequential(),
    Shuffled(3),
    Shuffled(-3),
    Strided(3),
    Subset([1, 5, 9, -1, 20, 33], seed=2),
    Subset(range(12), seed=None),
    Subset(fraction=0.25, seed=4),
    Weighted(np.arange(40) % 7, seed=5),
    Blocked(3),
    Blocked(3, 8, 2),
    Blocked(3, 8, 2, spread=True),
    Blocked(3, spread=False),
    ByLength("text", seed=6, bucket=8),
]
IMAGES: list[Any] = [
    [RandomResizedCrop(24), RandomHorizontalFlip(), Normalize()],
    ImageSteps(
        [CenterCrop(8, resize=9), Normalize(mean=3, std=2.5, dtype="bfloat16")],
        seed=7,
        apply_exif=True,
    ),
    [
        MultiCrop([RandomResizedCrop((8, 9), (0.1, 1), (0.5, 2)), Resize(4)]),
        RandomHorizontalFlip(0.25),
    ],
    [Decode()],
    [CenterCrop(8), Normalize(dtype="uint8")],
]


class Mine(Order):
    """A user's order that is told by its `repr`."""

    repeats = False

    def __init__(self, number: int) -> None:
        self.number = number

    def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
        """See `Order`."""
        return np.arange(start, stop)

    def __repr__(self) -> str:
        return f"Mine({self.number})"


class Keyed(Mine):
    """A user's order with a key."""

    def key(self) -> dict[str, Any]:
        """See `Order`."""
        return {"name": "keyed", "version": 1, "numbers": (self.number, 2)}


class Nameless(Sequential):
    """A user's order that takes key and `repr` from one of the package's."""


@pytest.fixture
def slab(tmp_path: Path) -> Slab:
    """The slab that the states were saved with."""
    texts = ["x" * (row * 7 % 11) for row in range(ROWS)]
    columns = {"row": np.arange(ROWS), "text": texts}
    return open_slab(write_slab(tmp_path / "a.slab", columns, [15, 25]))


def resume(slab: Slab, order: Order, state: dict[str, Any], **options: Any) -> list[int]:
    """Rows that a loader has left after a state was loaded."""
    loader = Loader(slab, 5, order, prefetch=0, **options)
    loader.load_state_dict(json.loads(json.dumps(state)))
    return [row for batch in loader for row in batch.rows.tolist()]


def test_states_of_version_1_go_on(slab: Slab) -> None:
    """A state that named its order by `repr` gives the rows that were left, for every order."""
    for order, saved in zip(ORDERS, SAVED["orders"], strict=True):
        state = saved["state"]
        with case(state["order"]):
            assert resume(slab, order, state, seed=state.get("seed")) == saved["left"]


def test_states_of_version_1_of_other_orders_are_refused(slab: Slab) -> None:
    """A state is of one order; only `Blocked(3)` goes on with others of its seed."""
    for order in ORDERS:
        for other, saved in zip(ORDERS, SAVED["orders"], strict=True):
            recalled = repr(order) == "Blocked(seed=3)" and isinstance(other, Blocked)
            if other is order or recalled:
                continue
            with case(f"{order} and {other}"), pytest.raises(UsageError, match="another order"):
                resume(slab, order, saved["state"])


@pytest.mark.parametrize("text", ["Shuffled(seed=", "os.system('true')", "[" * 10_000, "3", ""])
def test_texts_that_are_no_order_are_refused(slab: Slab, text: str) -> None:
    """A state of version 1 is parsed, never evaluated; nonsense is another order."""
    with pytest.raises(UsageError, match="another order"):
        resume(slab, Shuffled(3), STATE | {"order": text})


def test_states_of_version_1_name_users_orders(slab: Slab) -> None:
    """An order of a user's is found again by its `repr`, with a key of its own or without."""
    rows = list(range(5, ROWS))
    for order in (Mine(3), Keyed(3)):
        assert resume(slab, order, STATE | {"order": "Mine(3)"}) == rows
        with pytest.raises(UsageError, match="another order"):
            resume(slab, order, STATE | {"order": "Mine(4)"})
    assert resume(slab, Nameless(), STATE | {"order": "Sequential()"}) == rows


def test_states_of_version_1_name_steps_for_images(tmp_path: Path) -> None:
    """Steps that a state named by `repr` are the same today, and no others are."""
    slab = pack_images(tmp_path, photographs(4, 60, 80))
    state = STATE | {"slab": slab.manifest.id, "view": [0, 4, 1], "position": 2}
    state["order"] = "Sequential()"
    for steps in IMAGES:
        for others, decode in zip(IMAGES, SAVED["decode"], strict=True):
            loader = Loader(slab, 2, Sequential(), decode={"image": steps})
            with case(decode["image"]):
                if steps is others:
                    loader.load_state_dict(state | {"decode": decode})
                    assert len(list(loader)) == 1
                else:
                    with pytest.raises(UsageError, match="another decode"):
                        loader.load_state_dict(state | {"decode": decode})


def test_a_users_order_is_told_by_its_key(slab: Slab) -> None:
    """With a key, a state holds it as JSON gives it back; other parameters are another order."""
    state = Loader(slab, 5, Keyed(3)).state_dict()
    assert state["order"] == {"name": "keyed", "version": 1, "numbers": [3, 2]}
    assert resume(slab, Keyed(3), state) == list(range(ROWS))
    with pytest.raises(UsageError, match="another order"):
        resume(slab, Keyed(4), state)


def test_a_users_order_without_a_key_is_told_by_its_repr(slab: Slab) -> None:
    """Without a key, class and `repr` stand for it, so that two of a package's orders differ."""
    state = Loader(slab, 5, Mine(3)).state_dict()
    assert state["order"] == {"name": "Mine", "version": 1, "repr": "Mine(3)"}
    assert resume(slab, Mine(3), state) == list(range(ROWS))
    for other in (Mine(4), Keyed(3), Sequential()):
        with pytest.raises(UsageError, match="another order"):
            resume(slab, other, state)
    with pytest.raises(UsageError, match="another order"):
        resume(slab, Nameless(), Loader(slab, 5, Sequential()).state_dict())


def test_an_order_that_nothing_tells_apart_has_no_state(slab: Slab) -> None:
    """Without key and `repr` no other process could know the order: the error asks for a key."""

    class Anonymous(Order):
        def rows(self, epoch: int, start: int, stop: int, total: int) -> np.ndarray:
            return np.arange(start, stop)

    loader = Loader(slab, 5, Anonymous(), prefetch=0)
    assert len(list(loader)) == len(loader)
    with pytest.raises(UsageError, match=r"Define key\(\)"):
        loader.state_dict()


@pytest.mark.parametrize(
    "key", [{"name": "x", "version": np.arange(2)}, {"name": "x"}, "x", {"name", "version"}]
)
def test_a_key_is_ready_for_json(slab: Slab, key: Any) -> None:
    """A key has a name and a version and goes into a JSON file; anything else is refused."""

    class Wrong(Mine):
        def key(self) -> dict[str, Any]:
            answer: dict[str, Any] = key
            return answer

    with pytest.raises(UsageError, match="key of an order"):
        Loader(slab, 5, Wrong(1)).state_dict()
