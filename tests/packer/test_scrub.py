"""A scrub reads every block, however often it is interrupted, and leaves no trace but its files."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from tests.naming import case
from tests.packer.commandline import start
from tests.slabs import array_path, flip, write_slab

from fieldslab.packer.check.page_cache import find_resident_pages, keep_page_cache
from fieldslab.packer.check.scrub import PIECE_BLOCKS, Scrub, ScrubReport
from fieldslab.packer.check.throttle import LOOK_SECONDS, Throttle
from fieldslab.packer.cli import run
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.folder import load_manifest

ROWS = 3 * PIECE_BLOCKS // 2


@pytest.fixture
def slab(tmp_path: Path) -> Path:
    """A slab of two shards, of a piece and a half each in its large field."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 256, (2 * ROWS, BLOCK), np.uint8)
    return write_slab(tmp_path / "a.slab", {"x": values, "y": np.arange(2 * ROWS)}, (ROWS, ROWS))


class _Stop(Exception):
    """Raised where a test interrupts."""


class _Interrupting(Throttle):
    """Interrupts in front of every n-th piece."""

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.left = pieces

    def wait(self, size: int) -> None:
        """Count one piece, and interrupt in front of it when none is left."""
        self.left -= 1
        if self.left < 0:
            raise _Stop


def _scrub_in_pieces(slab: Path, state: Path, pieces: int) -> tuple[ScrubReport, int, int]:
    """Scrub in as many runs as it takes; the report, the runs and the bytes that all of them read.

    Each run reads some pieces and is interrupted.
    """
    runs = read = 0

    def count(rows: int, bytes: int) -> None:
        nonlocal read
        read += bytes

    while True:
        runs += 1
        try:
            [report] = Scrub([slab], _Interrupting(pieces), state=state).run(count)
            return report, runs, read
        except _Stop:
            assert state.exists()


def test_an_interrupted_scrub_goes_on_at_the_block(slab: Path, tmp_path: Path) -> None:
    """Each block is read once, in however many runs, and what each run found is in the report."""
    flip(array_path(slab, "x"), 5 * BLOCK)
    flip(array_path(slab, "x", shard=1), 70 * BLOCK)
    total = 2 * ROWS * (BLOCK + 8)
    for pieces in (1, 3, 100):
        with case(pieces):
            report, runs, read = _scrub_in_pieces(slab, tmp_path / f"{pieces}.json", pieces)
            assert (runs > 1) == (pieces < 100)
            assert read == report.bytes == total
            assert (report.count, report.damaged_blocks, report.unreadable_blocks) == (2, 2, 0)
            assert report.blocks == 2 * (ROWS + 1)


def test_a_completed_scrub_begins_again(slab: Path, tmp_path: Path) -> None:
    """The run after a complete pass counts from zero, and keeps when the last one was done."""
    state = tmp_path / "state.json"
    for _ in range(2):
        [report] = Scrub([slab], Throttle(), state=state).run()
        assert report.ok
        assert report.bytes == 2 * ROWS * (BLOCK + 8)
    [entry] = json.loads(state.read_text())["slabs"]
    assert entry["done"]
    assert entry["completed"] <= time.time()
    with pytest.raises(_Stop):
        list(Scrub([slab], _Interrupting(1), state=state).run())
    [begun] = json.loads(state.read_text())["slabs"]
    assert begun["completed"] == entry["completed"]
    assert 0 < begun["next_block"] < begun["blocks"]


def test_damage_of_an_earlier_run_counts(slab: Path, tmp_path: Path) -> None:
    """The run that ends a pass fails where an earlier one found damage, in another slab as well."""
    whole, state = write_slab(tmp_path / "b.slab", {"x": np.arange(3)}), tmp_path / "state.json"
    flip(array_path(slab, "x"))
    with pytest.raises(_Stop):
        list(Scrub([slab, whole], _Interrupting(6), state=state).run())
    assert [each["done"] for each in json.loads(state.read_text())["slabs"]] == [True, False]
    command = ["verify", str(slab), str(whole), "--resume", str(state)]
    assert run(command) == 1
    flip(array_path(slab, "x"))
    assert run(command) == 0


def test_a_state_behind_the_last_block_is_refused(
    slab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No block is passed over for a number in the state that no block has."""
    state = tmp_path / "state.json"
    with pytest.raises(_Stop):
        list(Scrub([slab], _Interrupting(1), state=state).run())
    content = json.loads(state.read_text())
    for number in (-1, content["slabs"][0]["blocks"] + 1):
        content["slabs"][0]["next_block"] = number
        state.write_text(json.dumps(content))
        assert run(["verify", str(slab), "--resume", str(state)]) == 2
        assert f"found {number}" in capsys.readouterr().err


def test_metrics_name_damaged_manifests_and_earlier_passes(slab: Path, tmp_path: Path) -> None:
    """A slab that cannot be opened counts as a problem; the last pass is told during the next."""
    metrics = tmp_path / "slabs.prom"
    scrub = Scrub([slab], _Interrupting(7), metrics=metrics)
    list(scrub.run())
    with pytest.raises(_Stop):
        list(scrub.run())
    assert "fieldslab_scrub_last_completed_timestamp_seconds{" in metrics.read_text()
    manifest = slab / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    assert run(["verify", str(slab), "--metrics", str(metrics)]) == 1
    assert f'fieldslab_scrub_problems{{slab="{slab}"}} 1' in metrics.read_text().splitlines()


def test_what_cannot_be_read_is_counted_and_passed_over(slab: Path) -> None:
    """Missing and cut files, and a missing digest table, do not end the pass; all are counted."""
    cut = array_path(slab, "x")
    os.truncate(cut, cut.stat().st_size - 1)
    flip(array_path(slab, "x", shard=1))
    [report] = Scrub([slab], Throttle()).run()
    assert (report.damaged_blocks, report.unreadable_blocks) == (1, ROWS)
    assert [problem.problem for problem in report.problems] == [
        "wrong size",
        "a block does not match its digest",
    ]
    (slab / "shard-00001" / "digests.npy").unlink()
    [report] = Scrub([slab], Throttle()).run()
    assert "digests.npy" in str(report.problems[1])


def test_a_state_of_something_else_is_refused(
    slab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A state of another slab, of another id, or no state at all is named, and nothing is read."""
    state = tmp_path / "state.json"
    assert run(["verify", str(slab), "--resume", str(state)]) == 0
    other = write_slab(tmp_path / "other.slab", {"x": np.arange(3)})
    assert run(["verify", str(other), "--resume", str(state)]) == 2
    assert str(slab) in capsys.readouterr().err
    before = load_manifest(slab).id
    slab.rename(tmp_path / "moved.slab")
    other.rename(slab)
    assert run(["verify", str(slab), "--resume", str(state)]) == 2
    assert before in capsys.readouterr().err
    state.write_text("{}")
    assert run(["verify", str(slab), "--resume", str(state)]) == 2
    assert "is not the state of a scrub" in capsys.readouterr().err
    assert run(["verify", str(slab), "--rate", "1M", "--quick"]) == 2


def test_findings_are_lines_and_counters_are_metrics(
    slab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--json` each problem is a line, then the report; the metrics file counts the same."""
    flip(array_path(slab, "x"), 5 * BLOCK)
    metrics = tmp_path / "slabs.prom"
    assert run(["verify", str(slab), "--json", "--metrics", str(metrics)]) == 1
    problem, report = map(json.loads, capsys.readouterr().out.splitlines())
    assert problem["path"] == report["path"] == str(slab)
    assert problem["problem"] == report["problems"][0]
    assert (report["ok"], report["damaged_blocks"]) == (False, 1)
    lines = metrics.read_text().splitlines()
    assert f'fieldslab_scrub_damaged_blocks{{slab="{slab}"}} 1' in lines
    assert f'fieldslab_scrub_checked_blocks{{slab="{slab}"}} {report["blocks"]}' in lines
    assert sum(line.startswith("fieldslab_scrub_last_completed") for line in lines) == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_sigterm_saves_the_state(slab: Path, tmp_path: Path) -> None:
    """A scrub at a low rate that is terminated leaves the next block, and exits with 130."""
    state = tmp_path / "state.json"
    with start("verify", slab, "--rate", "10K", "--resume", state) as process:
        while not state.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 130
    [entry] = json.loads(state.read_text())["slabs"]
    assert 0 <= entry["next_block"] < entry["blocks"]
    assert run(["verify", str(slab), "--resume", str(state)]) == 0


def test_a_throttle_keeps_to_its_rate_and_waits_for_the_machine() -> None:
    """Time that was waited is that of the rate, no pause is caught up, and a high load is one."""
    now, waited, loads = 0.0, 0.0, [9.0, 9.0, 1.0]

    def sleep(seconds: float) -> None:
        nonlocal now, waited
        now += seconds
        waited += seconds

    def get_load() -> float:
        return loads.pop(0) if len(loads) > 1 else loads[0]

    throttle = Throttle(100, 4.0, get_load=get_load, clock=lambda: now, sleep=sleep)
    throttle.wait(100)
    assert waited == 2 * LOOK_SECONDS
    throttle.wait(300)
    assert waited == 2 * LOOK_SECONDS + 1
    now += 100  # the disk is slow
    for _ in range(3):
        throttle.wait(100)
    assert waited == 2 * LOOK_SECONDS + 3


def test_pages_of_others_stay_in_memory() -> None:
    """What was in memory before a read is there after it, and nothing else of the file is.

    The file is beside the tests: what lies in /dev/shm is in memory anyway.
    """
    path = Path(__file__).with_name(f"pages-{os.getpid()}.tmp")
    try:
        path.write_bytes(os.urandom(HEADER + 64 * BLOCK))
        with path.open("rb") as file:
            fd = file.fileno()
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            os.pread(fd, BLOCK, HEADER + 8 * BLOCK)
            before = find_resident_pages(fd, HEADER, HEADER + 64 * BLOCK)
            with keep_page_cache(fd, HEADER, HEADER + 64 * BLOCK):
                os.pread(fd, 64 * BLOCK, HEADER)
            after = find_resident_pages(fd, HEADER, HEADER + 64 * BLOCK)
        assert before.any()
        assert not (before & ~after).any()
        assert after.sum() <= before.sum() + 16
    finally:
        path.unlink(missing_ok=True)
