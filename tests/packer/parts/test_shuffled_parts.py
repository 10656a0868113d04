"""`--shuffle` by parts, in two passes: the slab of one process."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.jpegs import encode, photograph
from tests.packer.packing import content, listing

from fieldslab.packer import PackResult, pack
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.parts.packing import PartResult, finish_parts, pack_part
from fieldslab.packer.parts.part_number import parse_part
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.schemas.errors import DamagedArray, PartsMissing, UsageError

GROUPS = 6
GROUP = 200
OPTIONS: dict[str, Any] = {
    "shard_size": 1000,
    "nulls": ["weight=mask"],
    "compress": ["text"],
    "shuffle": 7,
}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A Parquet file that becomes six shards, with every kind of array, and a field of our name."""
    rng = np.random.default_rng(3)
    count = GROUPS * GROUP
    weight = rng.random(count).astype("f4").tolist()
    weight[GROUP + 3] = None
    columns = {
        "text": [f"a text like row {row} of them all, and {row % 17} more" for row in range(count)],
        "weight": pa.array(weight, pa.float32()),
        "name": pa.array([f"name {n}" for n in rng.integers(0, 50, count)]).dictionary_encode(),
        "long": pa.array([f"{i % 700}" * 70 for i in range(count)]).dictionary_encode(),
        "list": [list(range(n)) for n in rng.integers(0, 5, count)],
        "shuffle key": np.arange(count),
    }
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=GROUP)
    return path


@pytest.fixture
def plan(rows: Path, out: Path, tmp_path: Path) -> Path:
    """A plan of the rows."""
    return write_plan([rows], out, tmp_path / "x.plan", **OPTIONS)


def write_plan(sources: list[Path], out: Path, path: Path, **options: Any) -> Path:
    """Write a plan."""
    write_plan_file(sources, out, path, cast(PackOptions, options))
    return path


def run_part(plan: Path, part: str, **options: Any) -> tuple[int, int]:
    """Pack a part: the pass it came to, and the shards of this pass that it wrote."""
    result: PartResult = pack_part(plan, parse_part(part), **options)
    return result.pass_number, result.shards


def test_two_passes_in_any_order(plan: Path, rows: Path, out: Path, tmp_path: Path) -> None:
    """Parts of any number, in two passes, make the slab of one process and leave nothing."""
    expected = pack(rows, tmp_path / "expected.slab", **OPTIONS)
    assert [run_part(plan, part) for part in ("3/3", "1/3", "9/9")] == [(1, 2), (1, 2), (1, 0)]
    assert run_part(plan, "2/3") == (2, 2)
    assert [run_part(plan, part) for part in ("1/2", "2/3", "2/2")] == [(2, 2), (2, 0), (2, 2)]
    finished = finish_parts(plan)
    assert content(out) == content(expected.path)
    made, expected_made = finished.manifest.made, expected.manifest.made
    assert (made.options, made.sources) == (expected_made.options, expected_made.sources)
    assert (made.reasons, made.warnings) == (expected_made.reasons, expected_made.warnings)
    assert listing(out.parent) == ["x.slab"]
    assert finish_parts(plan).manifest.id == expected.manifest.id
    assert pack_part(plan, parse_part("1/2")).published


def test_what_is_missing_of_each_pass_is_named(plan: Path, out: Path) -> None:
    """A part that comes to the second pass too early, and finish, name the parts to run again."""
    for part in ("1/3", "3/3"):
        run_part(plan, part)
    for act in (lambda: run_part(plan, "3/3"), lambda: finish_parts(plan)):
        with pytest.raises(
            PartsMissing, match=r"2 of 6 shards of the first pass .*without part 2/3"
        ) as caught:
            act()
        assert caught.value.exit_code == 5
    run_part(plan, "2/3")
    with pytest.raises(
        PartsMissing, match=r"4 of 6 shards of the second pass .*without parts 1/3, 3/3"
    ):
        finish_parts(plan)
    assert not out.exists()


def test_several_at_once(plan: Path, rows: Path, out: Path, tmp_path: Path) -> None:
    """Parts that run at the same time, and several that finish, make the same slab."""
    expected = content(pack(rows, tmp_path / "expected.slab", **OPTIONS).path)
    parts = ["1/3", "2/3", "3/3"]
    with ThreadPoolExecutor(4) as threads:
        passes = [number for number, _ in threads.map(run_part, [plan] * 3, parts)]
        assert 2 in passes
        list(threads.map(run_part, [plan] * 6, parts * 2))
        ids = {result.manifest.id for result in threads.map(finish_parts, [plan] * 6)}
    assert ids == {expected["manifest.json"]}
    assert content(out) == expected
    assert listing(out.parent) == ["x.slab"]


def test_rows_with_damaged_images(tmp_path: Path, out: Path) -> None:
    """Where rows are left out, so that their numbers come late, the slab is the same, too."""
    photos = [encode(photograph(24 + number, 30, number)) for number in range(4)]
    images = [photos[n % 4] if n % 50 != 17 else photos[n % 4][:200] for n in range(120)]
    source = tmp_path / "photos.parquet"
    pq.write_table(pa.table({"image": images, "n": range(120)}), source, row_group_size=20)
    options: dict[str, Any] = {"on_error": "skip", "shard_size": "5K", "shuffle": 1}
    expected: PackResult = pack(source, tmp_path / "expected.slab", **options)
    assert len(expected.manifest.shards) > 4
    plan = write_plan([source], out, tmp_path / "x.plan", **options)
    for part in ("1/2", "2/2", "1/2"):
        run_part(plan, part)
    finished = finish_parts(plan)
    assert content(out) == content(expected.path)
    assert (finished.left_out, len(finished.left_out)) == (expected.left_out, 3)
    assert finished.manifest.made.warnings == expected.manifest.made.warnings


def test_damage_between_the_passes(plan: Path, out: Path) -> None:
    """What is damaged between the passes is told by the part that reads it."""
    run_part(plan, "1/2")
    run_part(plan, "2/2")
    (folder,) = (out.parent / "x.slab.parts").iterdir()
    victim = next((folder / "first-pass" / "shard-00001").glob("*text*"))
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    with pytest.raises(DamagedArray, match="first-pass"):
        run_part(plan, "1/2")


def test_the_commands(cli: Any, rows: Path, out: Path, tmp_path: Path) -> None:
    """The command line says that there are two passes, and which one a part came to."""
    plan = tmp_path / "cli.plan"
    options = ["--shard-size", "1000", "--nulls", "weight=mask", "--shuffle", "7"]
    assert "again" in cli("pack", rows, "-o", out, "--plan", plan, *options).out
    part = cli("pack", "--plan", plan, "--part", "1/2")
    assert part.out.startswith("part 1/2: pass 1 of 2: 3 shards, ")
    assert "run it again once" in part.out
    assert cli("pack", "--plan", plan, "--part", "1/2").code == 5
    last = cli("pack", "--plan", plan, "--part", "2/2", "--json").json
    assert (last["pass_number"], last["passes"]) == (2, 2)
    assert cli("pack", "--plan", plan, "--part", "1/2").code == 0
    assert cli("finish", plan).code == 0


def test_a_bucket_has_no_place_for_the_first_pass(rows: Path, tmp_path: Path) -> None:
    """To a URL, a shuffle is refused before anything is sent."""
    with pytest.raises(UsageError, match="needs a directory for temporary files"):
        write_plan([rows], cast(Path, "s3://nowhere/x.slab"), tmp_path / "x.plan", **OPTIONS)
