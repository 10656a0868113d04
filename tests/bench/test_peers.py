"""fieldslab beside its peers: a tiny run of those at hand, what it reports, and the guard."""

import json
import subprocess
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fieldslab.bench.peers import figures, guard, measure, tables
from fieldslab.bench.peers.__main__ import choose
from fieldslab.bench.peers.child import Session
from fieldslab.bench.peers.data import make_own, make_rows
from fieldslab.bench.peers.formats.memmap import Memmap
from fieldslab.bench.peers.peer import CEILING, PEERS, US, find
from fieldslab.bench.peers.records import RecordReader, encode
from fieldslab.bench.peers.rest import may_rest
from fieldslab.bench.peers.run import TINY, run
from fieldslab.bench.peers.source import Workload, save
from fieldslab.bench.peers.targets import reached
from fieldslab.schemas.errors import UsageError

ROOT = Path(__file__).parents[2]
PHOTOS = ROOT / "examples" / "photos.parquet"
AT_HAND = ["fieldslab", "numpy memmap"]
"""Peers that are measured in processes of their own; FFCV stands for those that are missing."""
BESIDE = ["LitData", "HuggingFace, Arrow", "Parquet, pyarrow", "h5py, contiguous"]
"""Others that `make test` installs and that start fast: measured in this process."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A tiny run over the photographs and rows of the example."""
    said: list[str] = []
    folder = tmp_path_factory.mktemp("peers")
    own = partial(make_own, file=PHOTOS)
    with pytest.MonkeyPatch.context() as patch:
        # In the running environment, which has no FFCV, whatever `make bench` built.
        patch.setitem(PEERS, "FFCV", replace(PEERS["FFCV"], environment=""))
        actual = run([*AT_HAND, "FFCV"], {"own": own}, TINY, folder, said.append)
    machine = {
        "processor": "P",
        "cores": 2,
        "memory_bytes": 1,
        "system": "S",
        "python": "3",
        "load": 0,
    }
    return {"machine": machine, "date": "2026-01-02", "quick": True, "said": said, **actual}


def test_every_peer_is_reported(results: dict[str, Any]) -> None:
    """Each peer is measured with versions and configuration, or missing with the reason."""
    assert set(results["peers"]) == {*AT_HAND, "FFCV", CEILING}
    assert results["peers"]["FFCV"]["status"] == "missing"
    assert "ffcv" in results["peers"]["FFCV"]["reason"]
    assert any("FFCV: missing" in line for line in results["said"])
    for name in (*AT_HAND, CEILING):
        about = results["peers"][name]
        assert about["status"] == "measured"
        assert about["versions"]
        assert about["configuration"]


def test_every_row_was_compared_before_timing(results: dict[str, Any]) -> None:
    """Every peer's rows in order, at random and in a shuffled epoch equal the source's."""
    own = results["workloads"]["own"]
    assert own["rows"] > 50
    for name in AT_HAND:
        checked = own["peers"][name]["checked"]
        assert checked["sequential"] == own["rows"], name
        assert checked["random"] >= min(own["batch"], own["rows"]), name
        assert checked["lost"] == checked["repeated"] == 0, name


def test_every_measure_has_a_positive_figure(results: dict[str, Any]) -> None:
    """Rates, conversion, bytes, time to the first batch and memory are there, and make sense."""
    for name in AT_HAND:
        actual = results["workloads"]["own"]["peers"][name]
        for what in ("random", "row", "sequential", "loader 0", "loader 2"):
            assert figures.rate(results, "own", name, what), (name, what, actual[what])
        ratio = figures.times_as_fast(results, "own", name, "random", against=CEILING)
        assert ratio is not None
        assert 0 < ratio.low <= ratio.median <= ratio.high
        assert actual["convert"]["seconds"] > 0
        assert actual["convert"]["bytes"] > results["workloads"]["own"]["bytes"] / 2
        assert (figures.first_batch(results, name) or 0) > 0
        assert figures.memory(results, "own", name) is not None
    assert figures.troubles(results) == [
        f"FFCV is missing: {results['peers']['FFCV']['reason']}",
    ]


@pytest.mark.filterwarnings("ignore")  # what these libraries warn of
@pytest.mark.parametrize("name", BESIDE)
def test_peers_are_compared_and_measured(name: str, tmp_path: Path) -> None:
    """The same of peers that no process is started for: right rows, a rate for each measure."""
    source = make_own(tmp_path / "source", TINY.size, PHOTOS)
    measure.write_digests(source)
    session = Session(find(name), 0.0)
    folders = {"source": str(tmp_path / "source"), "folder": str(tmp_path / "data")}
    about = session.hello()
    assert about["versions"]
    assert about["configuration"]
    converted = session.convert(**folders)
    assert converted["seconds"] > 0
    assert converted["bytes"] > source.nbytes / 2
    assert session.open(**folders)["batch"] > 0
    checked = session.check(TINY.checking)
    assert checked["sequential"] == len(source)
    assert checked["random"] >= min(source.batch, len(source))
    assert checked["lost"] == checked["repeated"] == 0
    for what in ("random", "row", "sequential", "loader 0"):
        figure = session.measure(what, TINY.seconds, 0)
        assert figure["rows"] > 0, what
        assert figure["seconds"] > 0, what


def test_tables_name_everybody(results: dict[str, Any], tmp_path: Path) -> None:
    """Tables state date and machine, have a row for every peer, and say who is missing."""
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- peers: start -->\nold\n<!-- peers: end -->\nafter\n")
    tables.write_readme(readme, results)
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "Measured on 2026-01-02 (P, 2 cores" in text
    assert "- FFCV is missing" in text
    everything = tables.everything(results)
    for name in (*AT_HAND, CEILING):
        assert everything.count(f"| {name} |") >= 3, name
    readme.write_text("no markers")
    with pytest.raises(UsageError, match="no place"):
        tables.write_readme(readme, results)


def made_up(seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Results with these seconds a row at random batches."""
    peers = {
        name: {"random": [{"rows": 1, "seconds": second} for second in actual]}
        for name, actual in seconds.items()
    }
    workload = {"title": "T", "rows": 1, "bytes": 1, "batch": 1, "peers": peers}
    about = {name: {"status": "measured"} for name in seconds}
    return {"quick": False, "date": "D", "peers": about, "workloads": {"rows": workload}}


def test_whoever_is_faster_is_named() -> None:
    """A peer that is faster at random batches is found, with the ratio below one."""
    outcome = made_up({US: [2.0, 2.0], "zarr": [1.0, 1.0], "bagz": [4.0, 4.0]})
    assert [(w, p, r.median) for w, p, r in figures.faster_than_us(outcome)] == [
        ("rows", "zarr", 0.5),
    ]


def test_guard_reports_what_moved_by_more_than_the_spread() -> None:
    """Ratios whose spreads overlap have not moved; others are reported, whatever the seconds."""
    before = made_up({US: [1.0, 1.0, 1.0], "zarr": [10, 11, 12], "bagz": [5, 5, 6]})
    same = made_up({US: [3.0, 3.0, 3.0], "zarr": [33, 30, 36], "bagz": [15, 15, 16]})
    assert guard.moves(before, same) == []
    assert "no ratio moved" in guard.report(before, same)
    slower = made_up({US: [2.0, 2.0, 2.0], "zarr": [10, 11, 12], "bagz": [10, 10, 11]})
    (move,) = guard.moves(before, slower)
    assert (move.workload, move.measure, move.peer) == ("rows", "random", "zarr")
    assert "slower: rows, random, against zarr" in guard.report(before, slower)
    assert "No committed" in guard.report(None, slower)


def test_guard_is_silent_without_a_spread() -> None:
    """Ratios of a single round are not compared: nobody knows what they would do in the next."""
    first, other = (made_up({US: [1.0], "zarr": [seconds]}) for seconds in (2.0, 9.0))
    assert guard.moves(first, other) == []


def test_guard_compares_with_what_is_committed(tmp_path: Path) -> None:
    """The last commit counts, not what a run left behind; without git, the file does."""
    file = tmp_path / "peers.json"
    assert guard.committed(file) is None
    file.write_text('{"date": "committed"}')
    assert guard.committed(file) == {"date": "committed"}
    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "m"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    file.write_text('{"date": "left behind"}')
    assert guard.committed(file) == {"date": "committed"}


def test_who_is_far_behind_rests_after_three_rounds() -> None:
    """Peers near to us, we and memcpy take part in every round; one that rested never returns.

    Loaders that are far behind rest after one.
    """
    times = {US: 3 * [1.0], CEILING: 3 * [99.0], "zarr": 3 * [99.0], "bagz": 3 * [2.0]}
    peers = made_up(times)["workloads"]["rows"]["peers"]
    assert not any(may_rest(peers, name, "random", turn=2) for name in peers)
    assert [name for name in peers if may_rest(peers, name, "random", turn=3)] == ["zarr"]
    peers[US]["random"].append({"rows": 1, "seconds": 1000.0})
    assert may_rest(peers, "zarr", "random", turn=4)
    loaders = {name: {"loader 0": actual["random"][:1]} for name, actual in peers.items()}
    assert [name for name in loaders if may_rest(loaders, name, "loader 0", turn=1)] == ["zarr"]


def test_the_slower_number_of_workers_rests_at_once() -> None:
    """Of a peer's two loaders, the one that is clearly slower is measured once, ours too."""
    figure: dict[str, Any] = {"rows": 1, "seconds": 1.0}
    own = {"loader 0": [figure], "loader 2": [figure | {"seconds": 9.0}]}
    assert may_rest({US: own}, US, "loader 2", turn=1)
    assert not may_rest({US: own}, US, "loader 0", turn=1)
    own["loader 2"] = [figure | {"seconds": 1.2}]
    assert not may_rest({US: own}, US, "loader 2", turn=1)


def test_rounds_of_one_ratio_are_the_same() -> None:
    """Where a peer rested, ratios are of the rounds that it took part in."""
    outcome = made_up({US: [1.0, 1.0, 100.0], "zarr": [10.0, 10.0]})
    ratio = figures.times_as_fast(outcome, "rows", "zarr", "random")
    assert ratio == (10.0, 10.0, 10.0)


def test_targets_are_held_or_not() -> None:
    """A target names its ratio, whether it is held, and what memcpy would reach."""
    outcome = made_up({US: [2.0], CEILING: [1.0], "HuggingFace, numpy": [19.0]})
    (target,) = reached(outcome)
    assert (target.times, target.ceiling, target.held) == (9.5, 19.0, False)
    assert "| 10x | **9.5x** | 19x |" in tables.targets(outcome)


class Wrong(Memmap):
    """A peer that returns one wrong number."""

    def random_batch(self, rows: np.ndarray) -> Any:
        """Rows with a flipped bit in the first label."""
        batch = super().random_batch(rows)
        batch["label"][0] ^= 1
        return batch


def test_a_wrong_bit_is_found(tmp_path: Path) -> None:
    """A peer that differs from the source in one bit is not timed."""
    source = make_rows(tmp_path / "source", 200_000)
    measure.write_digests(source)
    for kind in (Memmap, Wrong):
        peer = kind(tmp_path, source)
        peer.convert()
        peer.open()
        if kind is Memmap:
            assert measure.check(peer, 1)["random"] == len(source)
        else:
            with pytest.raises(measure.Mismatch, match="differs from the source"):
                measure.check(peer, 1)


def test_widened_numbers_are_equal_and_changed_ones_are_not(tmp_path: Path) -> None:
    """int64 for int32 is the same row, as long as the values are; so are lists."""
    rows = np.array([[1, 2], [3, 4]], np.int32)
    column = save(tmp_path / "s", "s", "s", 1, {"x": rows}).columns["x"]
    assert column.bytes_of(rows[0].astype(np.int64)) == rows[0].tobytes()
    assert column.bytes_of([1, 2]) == rows[0].tobytes()
    assert column.bytes_of([1.0, 2.5]) != rows[0].tobytes()
    assert column.bytes_of(np.array([1, 2 + 2**32])) != rows[0].tobytes()


def test_records_hold_their_row(tmp_path: Path) -> None:
    """A row encoded as one record comes back as it was."""
    source = make_rows(tmp_path / "source", 100_000)
    decode = RecordReader(source)
    for row in range(10):
        actual = decode(encode(source.row(row)))
        assert measure.digest(source, actual) == measure.digest(source, source.row(row))


def test_workloads_read_back_as_saved(tmp_path: Path) -> None:
    """Fixed, ragged and encoded columns come back from plain files, and as Arrow batches."""
    columns: dict[str, Any] = {
        "f": np.arange(12, dtype=np.float32).reshape(3, 4),
        "r": [np.arange(n, dtype=np.uint16) for n in (2, 0, 5)],
        "b": [b"one", b"", b"three"],
    }
    save(tmp_path / "s", "n", "t", 2, columns)
    source = Workload(tmp_path / "s")
    assert [source.row(i)["b"] for i in range(3)] == columns["b"]
    (batch,) = source.batches(rows=3)
    assert batch.column("r").to_pylist() == [row.tolist() for row in columns["r"]]
    assert batch.column("b").to_pylist() == columns["b"]
    assert batch.column("f").to_pylist() == columns["f"].tolist()
    assert not source.fixed


def test_mistakes_are_named(tmp_path: Path) -> None:
    """A peer that is not known and a file that is not Parquet are errors that say so."""
    assert choose("zarr; bagz", list(PEERS), "peer") == ["zarr", "bagz"]
    with pytest.raises(UsageError, match="no such peer"):
        choose("zarrr", list(PEERS), "peer")
    (tmp_path / "text").write_text("no Parquet")
    for name in ("text", "nothing"):
        with pytest.raises(UsageError, match="cannot be read"):
            make_own(tmp_path / "out", 1, tmp_path / name)


def test_committed_results_can_be_read() -> None:
    """What is committed still makes tables, of peers that there are."""
    committed = json.loads((ROOT / "bench" / "results" / "peers.json").read_text())
    assert set(committed["peers"]) == set(PEERS)
    assert "Random batches" in tables.everything(committed)
    assert guard.moves(committed, deepcopy(committed)) == []
