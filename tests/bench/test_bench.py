"""`fieldslab bench` as its users meet it."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.slabs import array_path, flip, images, ragged, write_slab

from fieldslab.bench.machine import Watch
from fieldslab.bench.slab.decode import WAYS
from fieldslab.bench.slab.strategies import ORDERS, STRATEGIES
from fieldslab.packer.cli import run
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.images import read_image_size

ROWS = 600


def columns(rows: int) -> dict[str, Any]:
    """Fields of several kinds."""
    rng = np.random.default_rng(0)
    return {
        "x": rng.random((rows, 16), np.float32),
        "label": np.arange(rows),
        "tokens": ragged([np.arange(row % 9) for row in range(rows)], "int32"),
        "text": [f"row {row}" for row in range(rows)],
    }


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small slab of three shards."""
    path = tmp_path_factory.mktemp("slab") / "a.slab"
    return write_slab(path, columns(ROWS), [200, 300, 100])


@pytest.fixture(scope="module")
def document(slab: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `--json` writes about it, after some tenths of a second."""
    file = tmp_path_factory.mktemp("json") / "bench.json"
    assert run(["bench", str(slab), "--seconds", "0.4", "--seed", "5", "--json", str(file)]) == 0
    return json.loads(file.read_text())


def numbers(value: Any) -> Iterator[float]:
    """Every number in a JSON value."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers(item)
    elif isinstance(value, int | float):
        yield value


def test_it_says_what_was_measured(document: Any, slab: Path) -> None:
    """Machine, versions, slab id, seed, warm-up and what is timed stand beside the numbers."""
    assert document["format"] == 1
    assert document["slab"]["id"] == load_manifest(slab).id
    assert document["slab"]["rows"] == document["slab"]["measured_rows"] == ROWS
    assert [field["name"] for field in document["slab"]["fields"]] == list(columns(1))
    assert document["machine"]["cores"] >= 1
    assert set(document["machine"]["libraries"]) == {"fieldslab", "numpy", "numba"}
    assert document["method"]["seed"] == 5
    assert f"{ROWS} rows read once" in document["method"]["warm_up"]
    assert "fetch included" in document["method"]["timed"]


def test_every_measure_is_there(document: Any) -> None:
    """Rows, batches by size and order, subsets by strategy, and threads up to all cores."""
    assert [loader["name"] for loader in document["latency"]["ahead"]] == ["0", "1", "4", "16"]
    assert [batch["rows"] for batch in document["batches"]] == [16, 32, 64, 256]
    for batch in document["batches"]:
        assert [order["name"] for order in batch["orders"]] == list(ORDERS)
    assert [strategy["name"] for strategy in document["subsets"]["strategies"]] == list(STRATEGIES)
    assert document["subsets"]["rows"] <= ROWS
    threads = [group["threads"] for group in document["threads"]]
    assert threads[0] == 1
    assert threads[-1] == document["machine"]["cores"]


def test_numbers_are_sane(document: Any) -> None:
    """All numbers are finite, spreads are in order, and rates go with times."""
    assert all(math.isfinite(number) for number in numbers(document))
    row_bytes = document["slab"]["row_bytes"]
    exact = 64 + 8 + 4 * sum(row % 9 for row in range(ROWS)) / ROWS
    exact += sum(len(f"row {row}") for row in range(ROWS)) / ROWS
    assert row_bytes == pytest.approx(exact)
    for batch in document["batches"]:
        for speed in (*batch["orders"], batch["memcpy"]):
            seconds = speed["seconds"]
            assert 0 < seconds["low"] <= seconds["median"] <= seconds["high"]
            assert seconds["high"] <= seconds["p95"] <= seconds["p99"]
            assert seconds["calls"] >= 3
            assert speed["rows_per_second"] == pytest.approx(batch["rows"] / seconds["median"])
            assert speed["bytes"] == pytest.approx(batch["rows"] * row_bytes)
    assert 0 <= document["machine"]["others"] <= 1
    assert 0 <= document["score"] <= 100
    assert document["score"] == round(sum(target["points"] for target in document["targets"]))
    assert document["advice"]


def test_memory_is_told_apart(document: Any) -> None:
    """Own and mapped memory are two series of the same length, and growth is of the first."""
    memory = document["memory"]
    assert len(memory["batches"]) == len(memory["anonymous"]) == len(memory["mapped"]) > 1
    assert memory["batches"] == sorted(memory["batches"])
    assert memory["growth"] == max(memory["anonymous"]) - memory["anonymous"][0]


def test_tables_and_report(slab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results are printed, nothing else is on stderr; the report is where it is said to be.

    `--fields` reads those alone; the slab stays as it is.
    """
    before = sorted((file, file.stat().st_mtime_ns) for file in slab.rglob("*"))
    folder = tmp_path / "new" / "report"
    options = ["--fields", "label,x", "--seconds", "0.2", "--report", str(folder)]
    assert run(["bench", str(slab), *options]) == 0
    done = capsys.readouterr()
    assert done.err == ""
    assert f"report  {folder / 'index.html'}" in done.out
    for part in ("slab[field][row]", "256 stratified", "repeated", "score", "72 B a row"):
        assert part in done.out
    assert (folder / "index.html").stat().st_size > 100_000
    assert len(list(folder.glob("*.png"))) >= 6
    assert sorted((file, file.stat().st_mtime_ns) for file in slab.rglob("*")) == before


def test_one_row(tmp_path: Path) -> None:
    """A slab of one row is measured like any other."""
    path = write_slab(tmp_path / "one.slab", columns(1))
    file = tmp_path / "one.json"
    assert run(["bench", str(path), "--seconds", "0.1", "--json", str(file)]) == 0
    assert json.loads(file.read_text())["subsets"]["rows"] == 1


def test_json_on_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--json -` prints one JSON value and no table, errors too; no file is named `-`."""
    monkeypatch.chdir(tmp_path)
    write_slab(tmp_path / "one.slab", columns(1))
    assert run(["bench", "one.slab", "--seconds", "0.1", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["slab"]["rows"] == 1
    assert run(["bench", "nothing.slab", "--json=-"]) == 3
    assert json.loads(capsys.readouterr().out)["error"] == "SlabNotFound"
    assert [entry.name for entry in tmp_path.iterdir()] == ["one.slab"]


def test_images(tmp_path: Path) -> None:
    """Image fields are decoded in several ways, those that cannot be are counted and told of."""
    folder = Path(__file__).parents[1] / "golden" / "images"
    files = [folder / "tiny.jpeg", folder / "tiny.png", folder / "tiny.webp"]
    encoded = [file.read_bytes() for file in files] + [b"no image"]
    sizes = [read_image_size(memoryview(image))[1:] for image in encoded]
    path = write_slab(
        tmp_path / "a.slab", {"image": images(encoded * 4, np.array(sizes * 4)), "x": np.arange(16)}
    )
    file = tmp_path / "a.json"
    assert run(["bench", str(path), "--seconds", "0.2", "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    (actual,) = document["decode"]
    assert actual["field"] == "image"
    assert [way["name"] for way in actual["ways"][:-1]] == list(WAYS)
    assert all(way["rows_per_second"] > 0 for way in actual["ways"])
    assert actual["ways"][-1]["seconds"]["calls"] >= 2, "stretches of the loader, behind the first"
    assert 0 < actual["failed"] < 1
    assert any("cannot be decoded here" in note for note in document["notes"])


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nothing.slab"], 3, "does not exist"),
        (["."], 3, "without manifest.json"),
        (["a.slab", "--fields", "z"], 2, "no field 'z'"),
        (["a.slab", "--quick", "--seconds", "3"], 2, "exclude each other"),
        (["a.slab", "--seconds", "nan"], 2, "not a time"),
        (["a.slab", "--report", "file"], 5, "cannot be made a folder"),
        (["a.slab", "--json", "no/such.json"], 5, "no such folder"),
        (["a.slab", "--json", "."], 5, "cannot be written"),
        (["empty.slab"], 2, "nothing to measure"),
        (["hurt.slab", "--seconds", "1"], 1, "does not match its digest"),
    ],
)
def test_exit_codes(
    arguments: list[str],
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What cannot be measured is an error in words, on stderr, with the code of its kind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    write_slab(tmp_path / "a.slab", columns(5))
    write_slab(tmp_path / "empty.slab", {"x": np.zeros(0)})
    write_slab(tmp_path / "hurt.slab", columns(50))
    flip(array_path(tmp_path / "hurt.slab", "x"), 8)
    assert run(["bench", *arguments]) == code
    done = capsys.readouterr()
    assert done.out == ""
    assert words in done.err


def test_a_watch_sees_other_programs() -> None:
    """What another process uses is found while it runs, and is not of this one's own work."""
    spin = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        watch = Watch()
        for _ in range(5):
            watch.look()
    finally:
        spin.kill()
        spin.wait()
    actual = watch.found()
    if Path("/proc/stat").exists():
        assert 0 < (actual["others"] or 0) <= 1
        assert 0 <= (actual["stolen"] or 0) <= 1
    else:
        assert actual["others"] is actual["stolen"] is None


def test_slabs_elsewhere_are_measured_from_their_cache(
    slab: Path, tmp_path: Path, serve: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slab at a URL is measured once its rows are there, and notes say what was left out."""
    url, cache = serve(slab).url, str(tmp_path / "cache")
    assert run(["bench", url, "--cache-dir", cache, "--seconds", "0.2", "--json", "-"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["slab"]["path"] == url
    assert results["slab"]["stored_bytes"] == sum(
        file.stat().st_size for file in slab.glob("*/*.npy")
    )
    assert "Cold pages and memory were not measured" in " ".join(results["notes"])
    assert results["batches"]


def test_links_are_followed_where_asked(slab: Path, tmp_path: Path) -> None:
    """A slab whose files are links, as caches have them, is refused unless `--follow-links`."""
    linked = tmp_path / "linked.slab"
    for file in slab.rglob("*.*"):
        if file.is_file():
            link = linked / file.relative_to(slab)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file)
    assert run(["bench", str(linked), "--seconds", "0.2"]) != 0
    assert run(["bench", str(linked), "--seconds", "0.2", "--follow-links"]) == 0
