"""One slab from many parts: any order, any number, repeated, killed, at once."""

import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.naming import case
from tests.packer.packing import PYTHON, ROOT, content, listing

from fieldslab.packer import pack
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import parse_part
from fieldslab.packer.parts.plan_file import read_plan_file, write_plan_file
from fieldslab.schemas.errors import OutputExists, PartsMissing, SourceChanged, UsageError

GROUPS = 6
GROUP = 200
OPTIONS: dict[str, Any] = {"shard_size": 1000, "nulls": ["weight=mask"], "compress": ["text"]}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A Parquet file that becomes six shards, with categories, a dictionary, nulls and a table."""
    rng = np.random.default_rng(3)
    count = GROUPS * GROUP
    weight = rng.random(count).astype("f4").tolist()
    weight[GROUP + 3] = None
    columns = {
        "text": [f"a text like row {row} of them all, and {row % 17} more" for row in range(count)],
        "weight": pa.array(weight, pa.float32()),
        "name": pa.array([f"name {n}" for n in rng.integers(0, 50, count)]).dictionary_encode(),
        "long": pa.array([f"{i % 700}" * 70 for i in range(count)]).dictionary_encode(),
    }
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=GROUP)
    return path


@pytest.fixture
def plan(rows: Path, out: Path, tmp_path: Path) -> Path:
    """A plan of the rows."""
    path = tmp_path / "x.plan"
    write_plan_file([rows], out, path, cast(PackOptions, OPTIONS))
    return path


@pytest.fixture
def expected(rows: Path, tmp_path: Path) -> dict[str, Any]:
    """What one process packs."""
    return content(pack(rows, tmp_path / "expected.slab", **OPTIONS).path)


def pack_parts(plan: Path, *parts: str, **options: Any) -> list[int]:
    """Pack parts one after the other; the shards that each wrote."""
    return [pack_part(plan, parse_part(part), **options).shards for part in parts]


def test_parts_in_any_order(plan: Path, out: Path, expected: dict[str, Any]) -> None:
    """Parts, also of another number, and more than needed, make the slab of one process."""
    assert pack_parts(plan, "3/3", "1/3", "7/9", "3/3") == [2, 2, 0, 0]
    assert listing(out.parent) == ["x.slab.parts"]
    assert pack_parts(plan, "1/1", jobs=2) == [2]
    finish_parts(plan)
    assert content(out) == expected
    assert listing(out.parent) == ["x.slab"]


def test_a_slab_that_is_finished(plan: Path, out: Path, expected: dict[str, Any]) -> None:
    """Finishing again, or a part that comes late, changes nothing and leaves nothing."""
    pack_parts(plan, "1/1")
    finish_parts(plan)
    assert finish_parts(plan).manifest.id == expected["manifest.json"]
    assert pack_part(plan, parse_part("1/2")).published
    assert content(out) == expected
    assert listing(out.parent) == ["x.slab"]


def test_missing_parts_are_named(plan: Path, out: Path) -> None:
    """Finishing too early names the parts to run again, and changes nothing."""
    with pytest.raises(PartsMissing, match=r"6 of 6 shards .*without shards 0, 1, 2, 3, 4, 5"):
        finish_parts(plan)
    pack_parts(plan, "2/4", "3/4")
    with pytest.raises(PartsMissing, match=r"3 of 6 shards .*without parts 1/4, 4/4") as caught:
        finish_parts(plan)
    assert caught.value.exit_code == 5
    assert 'part="1/4"' in str(caught.value)
    assert not out.exists()
    pack_parts(plan, "1/3")
    with pytest.raises(PartsMissing, match=r"1 of 6 shards .*without shard 4"):
        finish_parts(plan)


def test_finished_shards_are_looked_at(plan: Path, out: Path, expected: dict[str, Any]) -> None:
    """A shard that is cut off, or that another hand removed, is packed again."""
    pack_parts(plan, "1/1")
    (folder,) = (out.parent / "x.slab.parts").iterdir()
    victim = next((folder / "slab" / "shard-00001").glob("*text*"))
    victim.write_bytes(victim.read_bytes()[:-1])
    (folder / "records" / "00004.json").write_text("{")
    assert pack_parts(plan, "1/1") == [2]
    finish_parts(plan)
    assert content(out) == expected


def test_all_parts_at_once(plan: Path, out: Path, expected: dict[str, Any]) -> None:
    """Parts in processes that run at the same time, each of them twice, make the same slab."""
    arguments = [(plan, f"{number}/3") for number in (1, 2, 3, 3, 2, 1)]
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        pool.starmap(pack_parts, arguments, chunksize=1)
    finish_parts(plan)
    assert content(out) == expected
    assert listing(out.parent) == ["x.slab"]


def test_several_finish_at_once(plan: Path, out: Path, expected: dict[str, Any]) -> None:
    """Of several that finish at once each returns the one slab, and nothing is left."""
    pack_parts(plan, "1/1")
    with ThreadPoolExecutor(4) as pool:
        ids = {result.manifest.id for result in pool.map(finish_parts, [plan] * 8)}
    assert ids == {expected["manifest.json"]}
    assert content(out) == expected
    assert listing(out.parent) == ["x.slab"]


def test_other_clocks_and_slow_names(
    plan: Path, out: Path, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines whose clocks differ share a folder on which a rename takes its time."""
    rename = os.rename

    def rename_slowly(*args: Any, **kwargs: Any) -> None:
        time.sleep(0.005)
        rename(*args, **kwargs)
        time.sleep(0.005)

    monkeypatch.setattr(os, "rename", rename_slowly)
    pack_parts(plan, "1/3")
    for stamp in (1, 2**62):
        for path in (out.parent / "x.slab.parts").rglob("*"):
            os.utime(path, ns=(stamp, stamp))
        pack_parts(plan, "2/3")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(pack_parts, [plan] * 2, ["3/3"] * 2))
        ids = {result.manifest.id for result in pool.map(finish_parts, [plan] * 2)}
    assert ids == {expected["manifest.json"]}
    assert content(out) == expected
    assert listing(out.parent) == ["x.slab"]


def test_killed_parts_go_on(tmp_path: Path) -> None:
    """Killed at any step, a rerun makes the same slab and leaves nothing beside it."""
    program = Path(__file__).with_name("killing_parts.py")
    done = subprocess.run(
        [sys.executable, program, tmp_path, "11"], env=PYTHON, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["killed"] for line in lines] == [True] * (len(lines) - 1) + [False]
    assert len(lines) > 8
    for line in lines:
        assert (line["right"], line["left"]) == (True, ["x.slab"]), line


def test_a_short_campaign_of_kills(tmp_path: Path) -> None:
    """Parts that join texts or shuffle, and finish, are killed at a few random moments."""
    command = [sys.executable, "-m", "tests.campaign_cluster", "--parts", "6", "--ray", "0"]
    command += ["--kind", "texts", "--kind", "shuffled"]
    place = PYTHON | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=place, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "0 problems" in done.stdout


def test_a_source_that_changes_between_parts(plan: Path, rows: Path, out: Path) -> None:
    """Neither a part nor finish goes on with a file that changed since the plan was made."""
    pack_parts(plan, "1/1")
    os.utime(rows, ns=(1, 1))
    for act in (lambda: pack_parts(plan, "1/2"), lambda: finish_parts(plan)):
        with pytest.raises(SourceChanged, match="changed since the plan was made") as caught:
            act()
        assert caught.value.context["file"] == str(rows)
    assert not out.exists()


def test_something_stands_in_the_way(plan: Path, out: Path) -> None:
    """What stands where the slab is to be stays, and is told before anything is packed."""
    out.mkdir()
    (out / "mine").touch()
    for act in (lambda: pack_parts(plan, "1/1"), lambda: finish_parts(plan)):
        with pytest.raises(OutputExists):
            act()
    assert listing(out) == ["mine"]
    assert listing(out.parent) == ["x.slab"]


def test_categories_are_read_about_once(plan: Path, out: Path) -> None:
    """What one part found of the categories, the others take over."""
    pack_parts(plan, "1/2")
    (folder,) = (out.parent / "x.slab.parts").iterdir()
    files = sorted((folder / "categories").iterdir())
    assert [path.name for path in files] == [f"{index:05}.json" for index in range(GROUPS)]
    stamps = [path.stat().st_mtime_ns for path in files]
    pack_parts(plan, "2/2")
    assert [path.stat().st_mtime_ns for path in files] == stamps


def test_the_commands(cli: Any, rows: Path, out: Path, tmp_path: Path, expected: Any) -> None:
    """The command line writes and shows a plan, packs parts, and finishes."""
    plan = tmp_path / "cli.plan"
    options = ["--shard-size", "1000", "--nulls", "weight=mask", "--compress", "text"]
    written = cli("pack", rows, "-o", out, "--plan", plan, *options)
    assert (written.code, written.err) == (0, "")
    assert f"fieldslab finish {plan}" in written.out
    assert "1,200 rows, 4 fields" in cli("pack", "--plan", plan, "--dry-run").out
    early = cli("finish", plan)
    assert (early.code, early.out) == (5, "")
    assert "6 of 6 shards are not packed yet" in early.err
    part = cli("pack", "--plan", plan, "--part", "1/2", "--json").json
    assert (part["part"], part["shards"], part["published"]) == ("1/2", 3, False)
    assert cli("pack", "--plan", plan, "--part", "2/2").out.startswith("part 2/2: 3 shards, ")
    assert cli("finish", plan, "--json").json["id"] == expected["manifest.json"]
    assert re.search(r"in 6 shards \(6 packed before\), [\d.]+ m?s\n", cli("finish", plan).out)
    assert "nothing to do" in cli("pack", "--plan", plan, "--part", "2/2").out
    assert content(out) == expected


def test_wrong_commands(cli: Any, plan: Path, rows: Path, out: Path) -> None:
    """What does not go together is refused before anything is done."""
    for name, arguments, message in (
        ("no sources", ["-o", out], "missing argument 'SRC...'"),
        ("an output only", ["-o", out, "--plan", plan], "missing argument 'SRC...'"),
        ("a part of no plan", [rows, "--part", "1/2"], "--part needs --plan"),
        ("an option of the plan", ["--plan", plan, "--part", "1/2", "--exclude", "text"],
         "--exclude belongs to the plan"),
        ("no part", ["--plan", plan], "--part is missing"),
        ("a plan without output", [rows, "--plan", plan], "no output given"),
    ):  # fmt: skip
        with case(name):
            done = cli("pack", *arguments)
            assert (done.code, done.out) == (UsageError.exit_code, "")
            assert message in done.err
    assert read_plan_file(plan).out == str(out)
    assert listing(out.parent) == []
