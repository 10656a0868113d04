"""Views of a slab by number, by condition and by hash; files of rows."""

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.naming import case
from tests.slabs import Column, write_slab

from fieldslab.packer import pack, repack
from fieldslab.reader import Loader, Sequential, Shuffled, Slab, open_slab
from fieldslab.reader.orders.near import Near
from fieldslab.reader.rowfiles import is_ascending
from fieldslab.schemas.errors import RowOutOfRange, SlabChanged, UsageError
from fieldslab.schemas.fields import Logical

ROWS = 5000
DRAWN = np.random.default_rng(0)
TABLE = pa.table(
    {
        "x": pa.array(DRAWN.integers(0, 1000, ROWS)),
        "user": pa.array(DRAWN.integers(0, 300, ROWS)),
        "score": pa.array(DRAWN.random(ROWS), mask=DRAWN.random(ROWS) < 0.1),
        "name": pa.array([f"row {row % 97}" for row in range(ROWS)]),
        "label": pa.array(
            [["cat", "dog", "cow"][row % 7 % 3] for row in range(ROWS)]
        ).dictionary_encode(),
        "when": pa.array(np.arange(ROWS), pa.timestamp("s")),
        "tokens": pa.array([list(range(row % 5)) for row in range(ROWS)], pa.list_(pa.int32())),
    }
)


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """A slab of several shards with fields of every kind that can be compared."""
    path = tmp_path_factory.mktemp("slabs") / "x.slab"
    pack(TABLE, path, nulls="score=mask", shard_size="64K")
    return open_slab(path)


def check_view(view: Slab, rows: np.ndarray) -> None:
    """Compare all ways of reading a view with the table."""
    expected = TABLE.take(rows)
    assert len(view) == len(rows)
    values = expected["x"].to_numpy()
    assert np.array_equal(view.gather(np.arange(len(rows)))["x"], values)
    assert np.array_equal(view.gather([-1, 0])["x"], values[[-1, 0]])
    assert np.array_equal(np.asarray(view["x"]), values)
    assert np.array_equal(view["x"][3:50:2], values[3:50:2])
    assert np.array_equal(view[10:40].gather([5])["x"], values[[15]])
    assert view[7]["name"] == expected["name"][7].as_py()
    assert view["name"][-2] == expected["name"][-2].as_py()
    assert view.lengths([0, -1], "tokens").tolist() == [len(expected["tokens"][k]) for k in (0, -1)]
    with pytest.raises(RowOutOfRange):
        view.gather([len(rows)])


@pytest.mark.parametrize("order", ["ascending", "any"])
def test_chosen_rows_are_a_view(slab: Slab, order: str) -> None:
    """Whatever reads a slab reads chosen rows of it, in their order, and views of those."""
    rows = np.random.default_rng(1).permutation(ROWS)[:700]
    rows = np.sort(rows) if order == "ascending" else rows
    view = slab.select(rows)
    check_view(view, rows)
    check_view(view.select(np.arange(0, 700, 3)), rows[::3])
    check_view(slab[::-1].select(rows), ROWS - 1 - rows)
    check_view(pickle.loads(pickle.dumps(view)), rows)
    finder = view.addresses([4], "x")
    assert finder[0][0] == slab.addresses([rows[4]], "x")[0][0]
    assert (view.member_of([0, 1]) == 0).all()
    assert view.preload() > 0


def test_bfloat16_is_compared_by_value(slab: Slab) -> None:
    """A condition compares numbers of bfloat16, not the integers that hold them."""
    numbers = TABLE["x"].to_numpy()
    view = slab.cast({"x": "bfloat16"}).where("x < 100")
    assert np.array_equal(
        np.flatnonzero(numbers < 100), np.array([view.view[row] for row in range(len(view))])
    )


@pytest.mark.parametrize("isolate", [False, True])
def test_loaders_resume_over_a_view(slab: Slab, isolate: bool) -> None:
    """A loader's state knows the rows of its view; that of another view is refused."""
    rows = np.random.default_rng(2).permutation(ROWS)[:700]

    def make(view: Slab) -> Loader:
        return Loader(view, 64, order=Shuffled(seed=3), isolate=isolate)

    view = slab.select(rows)
    with make(view) as loader:
        batches = [batch["x"].copy() for batch in loader]
        assert sorted(np.concatenate(batches)) == sorted(TABLE["x"].to_numpy()[rows])
    with make(view) as loader:
        iterator = iter(loader)
        for _ in range(4):
            next(iterator)
        state = loader.state_dict()
    with make(slab.select(rows.copy())) as loader:
        loader.load_state_dict(state)
        assert np.array_equal(next(iter(loader))["x"], batches[4])
    with make(slab.select(rows[::-1])) as loader, pytest.raises(UsageError, match="view"):
        loader.load_state_dict(state)


def test_orders_by_shard_take_views(slab: Slab) -> None:
    """`Near` visits each row of a view once, whether its rows ascend or not."""
    for rows in (np.arange(0, ROWS, 3), np.random.default_rng(3).permutation(ROWS)[:999]):
        view = slab.select(rows)
        with Loader(view, 50, order=Near(2, 4, seed=0)) as loader:
            seen = np.concatenate([batch["when"] for batch in loader])
        assert np.array_equal(np.sort(seen.astype(np.int64)), np.sort(rows))


def test_members_of_a_union_keep_their_rows(tmp_path: Path) -> None:
    """Of an ascending view, each member of a union has the rows it had; of any other, an error."""
    for name, first in (("a", 0), ("b", 100)):
        pack(pa.table({"x": np.arange(first, first + 100)}), tmp_path / f"{name}.slab")
    union = open_slab({"a": tmp_path / "a.slab", "b": tmp_path / "b.slab"})
    view = union.select(np.arange(50, 180, 10))
    assert dict(view.members) == {"a": range(5), "b": range(5, 13)}
    assert view.member_of([4, 5]).tolist() == [0, 1]
    with pytest.raises(UsageError, match="scattered"):
        _ = union.select([150, 3]).members


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("x < 100", pc.field("x") < 100),
        (
            "100 <= x < 200 or x == 7",
            ((pc.field("x") >= 100) & (pc.field("x") < 200)) | (pc.field("x") == 7),
        ),
        ("label == 'cat'", pc.field("label") == "cat"),
        (
            "label in ['cat', 'cow'] and not x > 5",
            pc.field("label").isin(["cat", "cow"]) & ~(pc.field("x") > 5),
        ),
        ("is_null(score)", pc.field("score").is_null()),
        (
            "score is not None and score > 0.5",
            ~pc.field("score").is_null() & (pc.field("score") > 0.5),
        ),
        ("contains(name, '42')", pc.match_substring(pc.field("name"), "42")),
        ("length(name) == 5", pc.binary_length(pc.field("name")) == 5),
        ("x * 2 + user > 1500", pc.field("x") * 2 + pc.field("user") > 1500),
        ("score != -1.5", pc.field("score") != -1.5),
        (None, pc.field("when") < pa.scalar(100, pa.timestamp("s"))),
    ],
)
def test_where_chooses_what_arrow_does(
    slab: Slab, text: str | None, expression: pc.Expression
) -> None:
    """A condition, as text or expression, gives the rows that pyarrow filters from the table."""
    plain = TABLE.set_column(4, "label", TABLE["label"].cast(pa.string()))
    numbered = plain.append_column("row", pa.array(np.arange(ROWS)))
    expected = numbered.filter(expression)["row"].to_numpy()
    assert 0 < len(expected) < ROWS
    for condition in (expression, expression if text is None else text):
        assert np.array_equal(np.asarray(slab.where(condition)["when"]).astype(np.int64), expected)
    half = slab[1000:3000].where(expression)
    kept = expected[(expected >= 1000) & (expected < 3000)]
    assert np.array_equal(np.asarray(half["when"]).astype(np.int64), kept)


@pytest.mark.parametrize(
    "condition",
    [
        "x <",
        "__import__('os').system('true')",
        "x.__class__ == 3",
        "nothing == 3",
        "tokens == 3",
        "name > 3",
        "[x for x in y]",
        "matches(name, '(')",
        "x in user",
        "is_null()",
        "(" * 5000 + "x" + ")" * 5000,
        3,
    ],
)
def test_a_condition_that_does_not_fit(slab: Slab, condition: object) -> None:
    """It is refused with a name; nothing in it is executed."""
    with pytest.raises(UsageError):
        slab.where(condition)


def test_classes_are_compared_by_name(tmp_path: Path) -> None:
    """In a condition as text, `==`, `!=` and `in` take names of classes; others are refused."""
    classes = Logical("class_label", names=("cat", "dog", "cow"))
    labels = np.arange(30) % 4 - 1  # -1 is no class
    coded = Logical("class_label", names=("cat", "dog", "cow"), codes=(7, 0, 2))
    columns = {
        "label": Column(labels, dtype="int64", logical=classes),
        "coded": Column(labels, dtype="int64", logical=coded),
        "x": np.arange(30),
    }
    slab = open_slab(write_slab(tmp_path / "x.slab", columns))
    for condition, numbers in (
        ("coded == 'dog' or coded in ['cat', 'cow']", [0, 2]),
        ("label == 'dog'", [1]),
        ("'dog' != field('label') and x > -1", [-1, 0, 2]),
        ("label in ['cow', 0]", [0, 2]),
        ("label not in ('cat', 'dog') or x == 0", [-1, 2]),
        ("label > 1", [2]),
    ):
        with case(condition):
            expected = np.flatnonzero(np.isin(labels, numbers))
            assert np.array_equal(slab.where(condition)["x"][:], expected)
    for wrong, match in (
        ("label == 'dig'", r"'dig', which is no class.*cat, dog, cow.*Did you mean 'dog'"),
        ("lable == 'dog'", r"'lable', which is no field.*Did you mean 'label'"),
        ("label > 'cat'", "conditions as text"),
        (pc.field("label") == "cat", "conditions as text"),
    ):
        with case(wrong), pytest.raises(UsageError, match=match):
            slab.where(wrong)


def test_split_is_stable_and_whole(slab: Slab, tmp_path: Path) -> None:
    """Each row is in one part, groups stay together, and added or moved rows change no part."""
    parts = slab.split({"train": 0.8, "val": 0.2}, by="user")
    rows = {name: np.asarray(part["when"]).astype(np.int64) for name, part in parts.items()}
    assert np.array_equal(np.sort(np.concatenate(list(rows.values()))), np.arange(ROWS))
    users = {name: set(np.asarray(part["user"]).tolist()) for name, part in parts.items()}
    assert not users["train"] & users["val"]
    assert 0.1 < len(rows["val"]) / ROWS < 0.3
    assert len(slab.split({"a": 0.5, "b": 0.5}, by="user", seed=1)["a"]) != len(
        slab.split({"a": 0.5, "b": 0.5}, by="user")["a"]
    )
    narrow = TABLE.set_column(1, "user", TABLE["user"].cast(pa.int16()))
    moved = pa.concat_tables([narrow.slice(3000), narrow.slice(0, 3000), narrow.slice(0, 100)])
    other = open_slab(pack(moved, tmp_path / "other.slab", nulls="score=mask").path)
    again = other.split({"train": 0.8, "val": 0.2}, by="user")
    assert set(np.asarray(again["val"]["user"]).tolist()) == users["val"]
    whole = slab.split({"a": 0.5, "b": 0.5})
    assert abs(len(whole["a"]) - ROWS / 2) < 200
    by_label = slab.split({"a": 0.5, "b": 0.5}, by=["label", "name", "score"])
    assert len(by_label["a"]) + len(by_label["b"]) == ROWS


def test_categories_that_are_all_null_are_split(tmp_path: Path) -> None:
    """A categorical field without a category hashes like any other null."""
    labels = pa.array([None] * 100, pa.string()).dictionary_encode()
    table = pa.table({"x": np.arange(100), "label": labels})
    path = pack(table, tmp_path / "x.slab", nulls="label=mask").path
    parts = open_slab(path).split({"a": 0.5, "b": 0.5}, by=["x", "label"])
    assert len(parts["a"]) + len(parts["b"]) == 100


def test_stratified_parts_have_equal_shares(slab: Slab) -> None:
    """Of each label, parts get their fraction, exact to a row, or to what `by` keeps together."""
    labels = slab.split({"a": 0.75, "b": 0.25}, stratify="label", by="when")
    for code in range(3):
        counts = [int((np.asarray(part["label"]) == code).sum()) for part in labels.values()]
        assert abs(counts[1] - sum(counts) * 0.25) <= 1
    groups = slab.split({"a": 0.75, "b": 0.25}, stratify="label", by="user")
    users = [set(np.asarray(part["user"]).tolist()) for part in groups.values()]
    assert not users[0] & users[1]


def test_many_small_strata_are_split_by_the_fractions(tmp_path: Path) -> None:
    """Of classes with a few rows each, parts get their fraction all together; seeds differ."""
    slab = open_slab(write_slab(tmp_path / "x.slab", {"label": np.repeat(np.arange(1000), 4)}))
    parts = [
        slab.split({"train": 0.9, "val": 0.1}, stratify="label", by="label", seed=seed)
        for seed in (0, 1)
    ]
    assert all(300 < len(part["val"]) < 500 for part in parts)
    assert len(set(parts[0]["val"]["label"][:]) & set(parts[1]["val"]["label"][:])) < 40
    slab = open_slab(
        write_slab(tmp_path / "y.slab", {"label": np.arange(4000) // 4, "x": np.arange(4000)})
    )
    part = slab.split({"train": 0.9, "val": 0.1}, stratify="label", by="x")["val"]
    assert 300 < len(part) < 500
    assert np.bincount(part["label"][:]).max() == 1


@pytest.mark.parametrize("parts", [{}, {"a": 0.5}, {"a": 1.5, "b": -0.5}, {"a": "x"}, ["a"]])
def test_fractions_must_make_sense(slab: Slab, parts: object) -> None:
    """They are positive, and their sum is 1."""
    with pytest.raises(UsageError, match="fraction"):
        slab.split(parts, by="x")  # type: ignore[arg-type]


def test_a_saved_view_is_opened_again(slab: Slab, tmp_path: Path) -> None:
    """A file of rows gives the same view of the same slab, and of no other."""
    rows = np.random.default_rng(5).permutation(ROWS)[:300]
    file = tmp_path / "clean.rows"
    slab.select(rows).save(file)
    view = slab.select(file)
    check_view(view, rows)
    assert view.view == slab.select(rows).view
    slab[100:200].save(file)
    check_view(slab.select(file), np.arange(100, 200))
    np.save(tmp_path / "rows.npy", rows.astype(np.uint32))
    check_view(slab.select(tmp_path / "rows.npy"), rows)
    other = open_slab(pack(pa.table({"x": np.arange(9)}), tmp_path / "other.slab").path)
    with pytest.raises(SlabChanged, match="another slab"):
        other.select(file)
    with pytest.raises(UsageError, match=r"\.rows"):
        slab.save(tmp_path / "x.npy")
    with pytest.raises(UsageError, match="view"):
        slab[1:].select(file)


def test_a_damaged_file_of_rows(slab: Slab, tmp_path: Path) -> None:
    """A flipped bit anywhere, or a missing end, is told; nothing but rows of the slab comes out."""
    file = tmp_path / "x.rows"
    slab.select(np.arange(50)).save(file)
    content = file.read_bytes()
    for place in [*range(0, 200, 7), *range(512, len(content), 11)]:
        file.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises((UsageError, SlabChanged)):
            slab.select(file)
    file.write_bytes(content[:-1])
    with pytest.raises(UsageError, match="damaged"):
        slab.select(file)


def test_unsigned_rows_that_fall_do_not_ascend() -> None:
    """Differences of unsigned integers are never negative, so they decide nothing."""
    assert not is_ascending(np.array([3, 1], np.uint32))
    assert is_ascending(np.array([1, 3], np.uint32))


def test_an_order_of_a_view_is_sequential(slab: Slab) -> None:
    """Sequential reads the rows of a view as they were chosen."""
    with Loader(slab.select([5, 3, 4]), 3, order=Sequential()) as loader:
        assert next(iter(loader))["when"].astype(np.int64).tolist() == [5, 3, 4]


def test_conditions_and_tables_agree_on_what_is_null(tmp_path: Path) -> None:
    """The moment that numpy calls NaT is a value, as it was packed; nulls are nulls in both."""
    least = np.iinfo(np.int64).min
    times = pa.array([None, least, 0], pa.int64()).cast(pa.timestamp("us"))
    pack(pa.table({"time": times}), tmp_path / "a.slab", nulls="*=mask")
    slab = open_slab(tmp_path / "a.slab")
    nulls = slab.to_arrow()["time"].is_null().to_pylist()
    assert nulls == times.is_null().to_pylist() == [True, False, False]
    assert list(slab.where("is_null(time)").view) == [0]
    assert (
        repack(tmp_path / "a.slab", tmp_path / "b.slab", where="is_null(time)").manifest.rows == 1
    )
