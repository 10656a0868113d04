"""Windows of rows and of elements: what a gather of their rows gives, at edges and in any order."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.reader.conftest import ROWS, Example
from tests.reader.windowing import EPISODES, ORDERS, as_lists
from tests.slabs import array_path, categorical, flip, poke, ragged, redigest, write_slab

from fieldslab.reader import (
    Loader,
    Runs,
    Slab,
    VarLenValues,
    Windows,
    open_slab,
)
from fieldslab.schemas.episodes import Episodes
from fieldslab.schemas.errors import DamagedArray, RowOutOfRange, UnknownField, UsageError


def gather_rows(slab: Slab, rows: np.ndarray) -> dict[str, Any]:
    """What a gather of the rows of windows gives, (windows, length), in the shape of windows."""
    batch = slab.gather(rows.reshape(-1))
    for parts in (batch._columns, batch.valid, batch.sizes):
        columns: Any = parts
        for name, each in columns.items():
            if not isinstance(each, VarLenValues):
                columns[name] = each.reshape(*rows.shape, *each.shape[1:])
    return as_lists(batch)


def test_windows_have_the_rows_of_a_gather(example: Example, tmp_path: Path) -> None:
    """Of every kind of field, over shards, slabs and views, cast, mirrored, and into buffers."""
    slab = open_slab(example.path)
    other = {
        name: column for name, column in example.columns.items() if name not in ("place", "colour")
    }
    other["colour"] = categorical(np.arange(ROWS) % 2, ["blue", "red"])
    other["place"] = example.columns["place"]
    views = {
        "slab": slab,
        "range": slab[5:290],
        "steps": slab[::-3],
        "chosen": slab.select(np.random.default_rng(0).permutation(ROWS)[:90]),
        "union": slab + open_slab(write_slab(tmp_path / "b.slab", other, [150, 150])),
        "cast": slab.cast({"label": "float32", "tokens": "float16", "box": "bfloat16"}),
        "mirror": open_slab(example.path, cache_dir=tmp_path / "cache"),
        "unverified": open_slab(example.path, verify=False),
    }
    random = np.random.default_rng(1)
    for name, view in views.items():
        with case(name):
            room = ROWS if name == "union" else len(view)
            for windows, length in ((6, 20), (1, 1), (0, 3), (40, 2), (1, room)):
                starts = random.integers(0, room - length + 1, windows)
                starts[::2] += len(view) - room
                batch = view.gather_windows(starts, length)
                expected = gather_rows(view, starts[:, None] + np.arange(length))
                assert as_lists(batch) == expected
                assert batch.rows.tolist() == starts.tolist()
                plain = view.gather_windows(starts - len(view), length, ["box", "flag"])
                assert as_lists(plain) == {field: expected[field] for field in ("box", "flag")}
                assert plain.rows.tolist() == starts.tolist()
    out = slab.buffers(60, ["box", "caption"])
    assert slab.gather_windows([3, -30], 30, out=out) is out
    expected = gather_rows(slab, np.array([[3], [270]]) + np.arange(30))
    assert as_lists(out) == {name: expected[name] for name in ("box", "caption")}


def test_each_field_has_rows_of_its_own(series: Slab) -> None:
    """`delta_indices` counts from the start, with gaps; other fields have the row at the start."""
    starts = np.array([8, 100, 201])
    indices = {"state": [-6, -3, 0], "x": range(-1, 7), "tokens": [0, 1]}
    batch = series.gather_windows(starts, delta_indices=indices)
    rows = starts[:, None]
    assert batch["x"].tolist() == (rows + np.arange(-1, 7)).tolist()
    assert batch["state"][..., 0].tolist() == (rows + np.array([-6, -3, 0])).tolist()
    assert batch["episode"].tolist() == EPISODES[starts].tolist()
    assert batch["tokens"].lengths.tolist() == ((rows + np.arange(2)) % 4).reshape(-1).tolist()
    assert [*batch] == [*series.fields]


def test_edges_are_filled(series: Slab) -> None:
    """Rows beyond a run are the nearest one, or zeros, and the mask tells them."""
    starts, indices = np.array([0, 10, 11, 299]), {"x": range(-2, 3), "tokens": [0, 1], "arm": [9]}
    lows, highs = np.array([0, 0, 11, 270]), np.array([11, 11, 12, 300])
    for within in (
        "episode",
        "name",
        Episodes(np.array([11, 1, 150, 108, 30])),
    ):
        options: Any = {"delta_indices": indices, "within": within}
        repeat = series.gather_windows(starts, edges="repeat", **options)
        zeros = series.gather_windows(starts, edges="zeros", **options)
        rows = starts[:, None] + np.arange(-2, 3)
        padded = (rows < lows[:, None]) | (rows >= highs[:, None])
        nearest = np.clip(rows, lows[:, None], highs[:, None] - 1)
        assert repeat["x"].tolist() == nearest.tolist()
        assert zeros["x"].tolist() == np.where(padded, 0, rows).tolist()
        assert repeat["x_is_pad"].tolist() == zeros["x_is_pad"].tolist() == padded.tolist()
        assert zeros["arm"].tolist() == [[0], [-1], [-1], [-1]]
        lengths = (starts[:, None] + np.arange(2)).clip(None, highs[:, None] - 1) % 4
        assert repeat["tokens"].lengths.tolist() == lengths.reshape(-1).tolist()
        lengths[zeros["tokens_is_pad"]] = 0
        assert zeros["tokens"].lengths.tolist() == lengths.reshape(-1).tolist()
        with pytest.raises(RowOutOfRange, match="edges="):
            series.gather_windows(starts, 2, within=within)
    whole = series.gather_windows([-1], 3, ["x"], edges="repeat")
    assert (whole["x"].tolist(), whole["is_pad"].tolist()) == ([[299] * 3], [[False, True, True]])


def test_notebooks_show_windows(slab: Slab) -> None:
    """Where rows differ in length, the first of each window."""
    html = slab.gather_windows([1, 7], 2)._repr_html_()
    assert "Batch(2 rows)" in html
    assert "row 7: größe" in html
    assert "row 2: größe" not in html


def test_padded_rows_are_null(slab: Slab) -> None:
    """With zeros, padded rows are not valid; with the nearest row, they are as valid as that."""
    score = [
        slab.gather_windows([296], 8, edges=edges).valid["score"] for edges in ("zeros", "repeat")
    ]
    assert score[0].tolist() == [[True] * 4 + [False] * 4]
    assert score[1].tolist() == [[True] * 8]


def test_runs_end_where_values_change(series: Slab, slab: Slab, tmp_path: Path) -> None:
    """Of any kind of field, over batches, in views, and where a slab of a union ends."""
    for name in ("episode", "name"):
        runs = series.find_runs(name)
        assert runs.starts.tolist() == [0, 11, 12, 162, 270]
        assert runs.lengths.tolist() == [11, 1, 150, 108, 30]
    assert series.find_runs("arm").starts.tolist() == [0, 11, 12, 270]
    assert series[12:170].find_runs("episode").lengths.tolist() == [150, 8]
    assert series[:0].find_runs("episode").starts.tolist() == []
    assert (series + open_slab(series.path)).find_runs("arm").starts.tolist() == [
        *(0, 11, 12, 270),
        *(300, 311, 312, 570),
    ]
    assert slab.find_runs("score").lengths.tolist() == [1] * ROWS
    assert slab.find_runs("remark").lengths.tolist() == [1] * ROWS
    assert slab[15:28].find_runs("flag").lengths.tolist() == [1, 2] * 4 + [1]
    long = np.repeat(np.arange(3), [70_000, 1, 60_000])
    many = open_slab(write_slab(tmp_path / "long.slab", {"x": long}))
    assert many.find_runs("x").starts.tolist() == [0, 70_000, 70_001]
    for wrong in (([0, 5], [6, 1]), ([0], [1, 2]), ([-1], [1]), ([[0]], [[1]])):
        with case(wrong), pytest.raises(UsageError):
            Runs(*wrong)
    for numbers in ([0.5], [2**63 - 1], [2**63]):
        with case(numbers), pytest.raises(UsageError):
            Runs([1], numbers)
    assert not series.find_runs("episode").lengths.flags.writeable
    with pytest.raises(UsageError, match="another slab or view"):
        series[:100].gather_windows([0], 2, within=series.find_runs("episode"))
    for edges in ("drop", "repeat"):
        with case(edges), pytest.raises(UsageError, match="another slab or view"):
            Windows(2, within=series.find_runs("episode"), edges=edges).attach(series[:100])
    with pytest.raises(UsageError, match="in no run"):
        series.gather_windows([0], 2, within=Runs([5], [10]))


def test_elements_are_one_stream(series: Slab, tmp_path: Path) -> None:
    """Tokens of all rows follow each other, whatever the rows and shards; so do those of views."""
    tokens = np.concatenate([np.arange(row, row + row % 4) for row in range(ROWS)])
    mirror = open_slab(series.path, cache_dir=tmp_path / "cache")
    for view, first in ((series, 0), (mirror, 0), (series[9:208], 12), (series[300:], 450)):
        total = int((view["x"][:] % 4).sum())
        length = min(33, max(total, 1))
        starts = np.arange(0, total - length + 1)
        batch = view.gather_windows(starts, length, of="tokens")
        rows = first + starts[:, None] + np.arange(length)
        assert batch["tokens"].tolist() == tokens[rows].tolist()
        assert batch["tokens"].dtype == np.int32
    packed = series[1:].gather_windows([0, 7], 9, of="packed")
    assert packed["packed"].tolist() == (np.array([[5], [12]]) + np.arange(9)).tolist()
    order = Windows(9, 2, of="packed")
    windows = order.attach(mirror[1:]).windows
    assert windows.list_rows(np.array([0, 7])).tolist() == [0, 1, 1, 2, 3]
    elements = [batch["packed"][:, 0] - 5 for batch in Loader(mirror[1:], 64, order)]
    assert sorted(np.concatenate(elements).tolist()) == [*range(0, 1487, 2)]
    text = series.gather_windows([3], 6, of="name")["name"].tobytes()
    assert text == b"sode 4"
    halves = series.cast({"tokens": "float16"}).gather_windows([5], 40, of="tokens")
    assert halves["tokens"].tolist() == [tokens[5:45].tolist()]
    assert halves["tokens"].dtype == np.float16


def test_elements_have_the_shape_of_their_parts(
    example: Example, slab: Slab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any inner shape, cast or not, and no byte is written beside the batch."""
    behind = []

    def allocate(key: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        size = math.prod(shape) * dtype.itemsize
        room = np.full(size + 4096, 0xEE, np.uint8)
        behind.append(room[size:])
        return room[:size].view(dtype).reshape(shape)

    monkeypatch.setattr(slab.storage.pool, "allocate_array", allocate)
    for name in ("points", "box", "label", "score", "caption"):
        values = [np.atleast_1d(value) for value in example.values(name, range(ROWS))]
        if name == "caption":
            values = [np.frombuffer(value[0].encode(), np.uint8) for value in values]
        stream = np.concatenate(values)
        starts = np.array([-4, 0, len(stream) - 4, -len(stream), 9])
        batch = slab.gather_windows(starts.copy(), 4, of=name)
        places = starts % len(stream)
        expected = stream[places[:, None] + np.arange(4)]
        with case(name):
            assert batch[name].tolist() == expected.tolist()
            assert batch.rows.tolist() == places.tolist()
            assert [*batch.valid] == (["score"] if name == "score" else [])
            assert (np.concatenate(behind) == 0xEE).all()
        for wrong in (len(stream) - 3, -len(stream) - 1, 2**63 - 1, -(2**63), -1):
            with case((name, wrong)), pytest.raises(RowOutOfRange):
                slab.gather_windows([0, wrong], 4, of=name)
    halves = slab.cast({"points": "float16", "box": "bfloat16"})
    assert halves.gather_windows([3], 5, of="points")["points"].shape == (1, 5, 2)
    assert halves.gather_windows([3], 5, of="box")["box"].shape == (1, 5, 3)
    mirror = open_slab(example.path, cache_dir=tmp_path / "cache")
    nulls = mirror.gather_windows([2, 13], 4, of="score")
    assert nulls.valid["score"].tolist() == [[True, True, False, True], [True, False, True, True]]


def test_no_window_goes_on_into_the_next_slab(series: Slab, tmp_path: Path) -> None:
    """Of a union, by rows, by elements, in views and with runs that say otherwise."""

    def write(name: str, rows: int, shards: list[int]) -> Slab:
        pairs = np.arange(2 * rows).reshape(rows, 2)
        columns = {"x": np.arange(rows), "pair": pairs}
        return open_slab(write_slab(tmp_path / "parts" / name, columns, shards))

    union = write("a.slab", 30, [10, 20]) + write("b.slab", 5, [5]) + write("c.slab", 30, [30])
    members = np.repeat([0, 1, 2], [30, 5, 30])
    views = {
        "union": (union, members),
        "range": (union[3:40], members[3:40]),
        "steps": (union[::-2], members[::-2]),
        "chosen": (union.select([64, 3, 4, 31, 32, 33, 5]), np.array([2, 0, 0, 1, 1, 1, 0])),
        "one name": (open_slab({"all": str(tmp_path / "parts" / "*")})[20:], members[20:]),
    }
    for name, (view, member) in views.items():
        rows = np.arange(len(member))
        crosses = member[:-2] != member[2:]
        crosses |= member[:-2] != member[1:-1]
        for within in (None, Runs([0], [len(member)])):
            with case((name, within)):
                attached = Windows(3, within=within, seed=None).attach(view)
                starts = attached.rows(0, 0, attached.length(0), 0)
                assert starts.tolist() == rows[:-2][~crosses].tolist()
                for start in rows[:-2][crosses][:2].tolist():
                    with pytest.raises(RowOutOfRange, match="goes beyond"):
                        view.gather_windows([start], 3, within=within)
                    for edges in ("repeat", "zeros"):
                        batch = view.gather_windows([start], 3, within=within, edges=edges)
                        padded = member[start : start + 3] != member[start]
                        padded = np.maximum.accumulate(padded)
                        assert batch["is_pad"].tolist() == [padded.tolist()]
    assert union.gather_windows([29], 2, edges="repeat")["x"].tolist() == [[29, 29]]
    before = union.gather_windows([30], delta_indices={"x": [-1, 0]}, edges="repeat")
    assert before["x"].tolist() == [[0, 0]]
    zeros = union.gather_windows([30], delta_indices={"x": [-1, 0]}, edges="zeros")
    assert zeros["x_is_pad"].tolist() == [[True, False]]
    tokens = Windows(4, of="pair", seed=None).attach(union)
    starts = tokens.rows(0, 0, tokens.length(0), 0)
    assert starts.tolist() == [*range(57), *range(60, 67), *range(70, 127)]
    assert union.gather_windows([-3, 60], 3, of="pair")["pair"].tolist() == [
        [57, 58, 59],
        [0, 1, 2],
    ]
    for start in (57, 58, 59, 67):
        with pytest.raises(RowOutOfRange, match="goes beyond"):
            union.gather_windows([start], 4, of="pair")


def test_nothing_unverified_is_returned(tmp_path: Path) -> None:
    """A flipped bit and a wrong offset under any row of a window are errors."""
    path = write_slab(tmp_path / "a.slab", {"x": np.arange(200_000)})
    flip(array_path(path, "x"), offset=8 * 100_000)
    slab = open_slab(path)
    assert slab.gather_windows([0], 1000, ["x"])["x"].sum() == 499_500
    for damaged in ([50_000], [99_500]):
        with pytest.raises(DamagedArray, match="x"):
            slab.gather_windows(damaged, 60_000, ["x"])
    with pytest.raises(DamagedArray, match="x"):
        slab.gather_windows([100_000], 1, of="x")
    tokens = ragged([range(row % 3) for row in range(20)], "int64")
    path = write_slab(tmp_path / "b.slab", {"tokens": tokens})
    poke(array_path(path, "tokens", "offsets"), np.array([2**50], "<u8"), 8 * 7)
    redigest(path)
    slab = open_slab(path)
    for start in (2, 6):
        with pytest.raises(DamagedArray, match="offset"):
            slab.gather_windows([start], 5, ["tokens"])


def test_what_makes_no_windows_is_refused(series: Slab, slab: Slab) -> None:
    """Arguments, fields and views are checked before anything is read."""
    wrong: list[dict[str, Any]] = [
        {},
        {"length": 0},
        {"length": 2, "delta_indices": {"x": [0]}},
        {"length": 2, "stride": 0},
        {"length": 2, "edges": "wrap"},
        {"length": 2**62},
        {"length": 2, "stride": 2**70},
        {"delta_indices": {"x": [-(2**62), 0]}},
        {"delta_indices": {"x": [1, 0]}},
        {"delta_indices": {"x": []}},
        {"delta_indices": {"x": 4}},
        {"length": 2, "of": "tokens", "within": "episode"},
        {"delta_indices": {"x": [0]}, "of": "tokens"},
    ]
    for options in wrong:
        with case(options), pytest.raises(UsageError):
            Windows(**options)
    with pytest.raises(UsageError, match="attach"):
        Windows(2).rows(0, 0, 1, ROWS)
    for order in (
        Windows(2, within="none"),
        Windows(2, of="none"),
        Windows(delta_indices={"y": [0]}),
    ):
        with case(order), pytest.raises(UnknownField):
            order.attach(series)
    with pytest.raises(UsageError, match="as one stream"):
        Windows(2, of="photo").attach(slab)
    with pytest.raises(UsageError, match="not neighbours"):
        Windows(2, of="tokens").attach(series[::2])
    for single in (series[3:4:2], series[3:2:-1]):  # one row has no step
        alone = Windows(1, of="tokens", seed=None).attach(single)
        expected = Windows(1, of="tokens", seed=None).attach(series[3:4])
        assert alone.length(1) == expected.length(1) > 0
    with pytest.raises(UsageError, match="one field"):
        Loader(series, 2, ORDERS["elements"], fields=["x"])
    with pytest.raises(UsageError, match="name of a field"):
        Windows(2, within=7).attach(series)
    for none in (series.episodes, series[5:].episodes, Runs([], [])):
        with pytest.raises(UsageError, match="no runs"):
            Windows(2, within=none).attach(series)
        with pytest.raises(UsageError, match="no runs"):
            series.gather_windows([3], 2, within=none)
    for starts, options in (
        ([300], {"length": 1}),
        ([299], {"length": 2}),
        ([449], {"length": 2, "of": "tokens"}),
    ):
        with case(starts), pytest.raises(RowOutOfRange):
            series.gather_windows(starts, **options)
    for of in (None, "tokens"):
        series.gather_windows([0], 1, of=of)  # which is remembered
        for length in (1.0, "1", [1]):
            with case((of, length)), pytest.raises(UsageError, match="integer"):
                series.gather_windows([0], length, of=of)  # type: ignore[arg-type]
    for options in ({"length": 2, "edges": "drop"}, {"of": "tokens"}, {"length": 2, "out": {}}):
        with case(options), pytest.raises(UsageError):
            series.gather_windows([0], **options)
