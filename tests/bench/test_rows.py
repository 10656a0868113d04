"""`fieldslab rows`: the rows of any step, from the text of an order or from a state."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.naming import case
from tests.reader.images.packing import pack_images, photographs

from fieldslab.bench.commands.rows import rows as command
from fieldslab.reader import (
    Balanced,
    Blocked,
    ByLength,
    Loader,
    Mixed,
    Near,
    Order,
    Sequential,
    Shuffled,
    Slab,
    Strided,
    Subset,
    Windows,
)
from fieldslab.reader.orders.ordertext import ORDERS, parse_order, recall_order
from fieldslab.schemas.errors import UsageError

ROWS = 12


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Small photographs."""
    return pack_images(tmp_path_factory.mktemp("images"), photographs(ROWS, 6, 8))


def run(capsys: pytest.CaptureFixture[str], slab: Slab, *options: Any) -> str:
    """What the command prints."""
    command.main([str(slab.path), *map(str, options)], standalone_mode=False)
    return capsys.readouterr().out


TEXTS: dict[str, Order] = {
    "Shuffled(seed=3)": Shuffled(3),
    "  Shuffled( 3 ) ": Shuffled(3),
    "Shuffled": Shuffled(),
    "Sequential()": Sequential(),
    "Strided(n=2)": Strided(2),
    "Blocked(-1, 8, 2, spread=True)": Blocked(-1, 8, 2, spread=True),
    "Near(2)": Near(2),
    "ByLength('text', bucket=8)": ByLength("text", bucket=8),
    "Subset([5, -1, 2], seed=None)": Subset([5, -1, 2], seed=None),
    "Subset(range(0, 9, 2))": Subset(range(0, 9, 2)),
    "Windows(16, within='episode')": Windows(16, within="episode"),
    "Windows(delta_indices={'x': [-1, 0], 'y': range(3)}, edges='zeros')": Windows(
        delta_indices={"x": [-1, 0], "y": range(3)}, edges="zeros"
    ),
    "Balanced('label', length=9)": Balanced("label", length=9),
    "Mixed({'a': 0.7, 'b': 1}, groups={'a': range(5), 'b': [7, 8]}, schedule={9: {'b': 1}})": Mixed(
        {"a": 0.7, "b": 1}, groups={"a": range(5), "b": [7, 8]}, schedule={9: {"b": 1}}
    ),
}


def test_texts_describe_orders() -> None:
    """A text is the order that Python would make of it; all orders have names."""
    for text, order in TEXTS.items():
        with case(text):
            assert parse_order(text).key() == order.key()
    assert {type(order).__name__ for order in TEXTS.values()} < set(ORDERS.built_in)
    assert all(issubclass(ORDERS.load(name), Order) for name in ORDERS.built_in)


def test_nothing_of_a_text_is_executed(capfd: pytest.CaptureFixture[str]) -> None:
    """What is no order with plain arguments is refused, and says what to write."""
    for text in (
        "",
        "Shuffled(",
        "Shuffled(__import__('os').system('echo ran'))",
        "Subset([print('ran')])",
        "Subset(range(*print('ran')))",
        "Subset(range(stop=3))",
        "Mixed({**print('ran')})",
        "reader.Shuffled()",
        "(lambda: print('ran'))()",
        "Shuffled()()",
        "Shuffled(*[1])",
        "Shuffled(**{'seed': 1})",
        "[" * 500 + "]" * 500,
        "3",
    ):
        with case(text), pytest.raises(UsageError, match=r"order: not an order.*'Shuffled\(seed"):
            parse_order(text)
    for text, match in (
        ("Shufled()", "no such order.*Did you mean 'Shuffled'"),
        ("Order()", "no such order"),
        ("Shuffled(1, 2)", r"Write Shuffled\(seed: int = 0\)\."),
        ("Shuffled(sed=1)", "sed"),
        ("Shuffled('x')", "seed. must be an integer"),
        ("Strided(0)", "too small"),
        ("Weighted('x')", r"could not convert.*Write Weighted\(weights"),
    ):
        with case(text), pytest.raises(UsageError, match=match):
            parse_order(text)
    assert "ran" not in capfd.readouterr().out


def test_orders_of_states() -> None:
    """The key of an order makes it again, but where it holds a digest only."""
    for text, order in TEXTS.items():
        with case(text):
            key = json.loads(json.dumps(order.key()))
            if text.startswith(("Subset", "Mixed")):
                with pytest.raises(UsageError, match="Give order, as"):
                    recall_order(key)
            else:
                assert recall_order(key).key() == order.key()
    mixed = Mixed({"a": 1, "b": 2}, by="x", schedule={9: {"b": 1.5}})
    assert recall_order(json.loads(json.dumps(mixed.key()))).key() == mixed.key()
    ranges = Mixed({"a": 1, "b": 2}, groups={"a": range(9, 2, -1), "b": range(3)})
    assert recall_order(json.loads(json.dumps(ranges.key()))).key() == ranges.key()
    for groups in ({"a": [1, 2, 0]}, {"a": ["x"]}, {"a": 3}, [1]):
        with case(groups), pytest.raises(UsageError):
            recall_order(json.loads(json.dumps(ranges.key())) | {"groups": groups})
    for key in ({}, {"name": "Shuffled"}, {"name": "Shuffled", "version": 2, "seed": 1}):
        with case(key), pytest.raises(UsageError):
            recall_order(key)


def test_the_rows_of_a_step(slab: Slab, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The command lists what a loader visits: by rank, of all ranks, and behind a state."""
    loaders = [Loader(slab, 2, Shuffled(5), rank=rank, world_size=2) for rank in (0, 1)]
    loaders[1].set_epoch(3)
    steps = [batch.rows.tolist() for batch in loaders[1]]
    options = ["--order", "Shuffled(5)", "--batch-size", 2, "--world-size", 2]
    step = [*options, "--epoch", 3, "--step", 2]
    assert run(capsys, slab, *step, "--rank", 1).split() == [*map(str, steps[2])]
    printed = json.loads(run(capsys, slab, *step, "--json"))
    assert printed["rows"][2:] == steps[2]
    assert (printed["epoch"], printed["step"], printed["rank"]) == (3, 2, None)

    batches = iter(loaders[0])
    next(batches)
    state = tmp_path / "state.json"
    state.write_text(json.dumps(loaders[0].state_dict()))
    expected = [*map(str, Shuffled(5).rows(0, 4, 12, ROWS))]
    assert run(capsys, slab, "--state", state, "--batch-size", 8).split() == expected
    assert (
        run(capsys, slab, "--state", state, "--batch-size", 4, "--step", 1).split()
        == (expected[4:])
    )
    for wrong, text in (("[]", "state"), ("{", "JSON"), ('{"order": {}}', "order")):
        state.write_text(wrong)
        with case(wrong), pytest.raises(UsageError, match=text):
            run(capsys, slab, "--state", state, "--batch-size", 8)
    for wrong_options in ([], ["--step", 99], ["--world-size", 2, "--rank", 2]):
        batch_size = ["--batch-size", 4] if wrong_options else []
        with case(wrong_options), pytest.raises(UsageError):
            run(capsys, slab, *batch_size, *wrong_options)


def test_the_content_of_a_step(
    slab: Slab, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With `--show`, rows are printed as `head` prints them, and images are written."""
    options = ["--batch-size", 3, "--order", "Subset([4, 7, 4], seed=None)"]
    lines = run(capsys, slab, *options, "--show").splitlines()
    assert [line.split()[0] for line in lines if line[:3].strip().isdigit()] == ["4", "7", "4"]
    rows = run(capsys, slab, *options, "--show", "--json", "--fields", "row").splitlines()
    assert [json.loads(line) for line in rows] == [
        {"row": row, "values": {"row": row}} for row in (4, 7, 4)
    ]
    assert run(capsys, slab, *options, "--images", tmp_path / "out") == ""
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert [name[:2] for name in names] == ["04", "07"]
