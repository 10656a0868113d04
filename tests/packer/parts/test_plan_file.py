"""Plan files: what they hold, and what is refused."""

import os
import platform
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from tests.naming import case
from tests.packer.packing import SHARDS, listing

from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.parts.plan_file import read_plan_file, remake_plan, write_plan_file
from fieldslab.schemas.errors import (
    Damaged,
    OutputExists,
    SourceChanged,
    UnsupportedVersion,
    UsageError,
)

MANY = 10_000


def write_plan(source: Path, out: Path, path: Path, **options: Any) -> None:
    """Plan a shard for each row group."""
    write_plan_file([source], out, path, cast(PackOptions, {"shard_size": 1000, **options}))


@pytest.fixture
def plan(source: Path, out: Path, tmp_path: Path) -> Path:
    """A plan of the source."""
    path = tmp_path / "x.plan"
    write_plan(source, out, path)
    return path


def test_a_plan_says_what_must_be_the_same(plan: Path, source: Path, out: Path) -> None:
    """It names files with size and time, fields, shards, the machine and its versions."""
    planned = read_plan_file(plan)
    info = source.stat()
    assert planned.files == [
        {"path": str(source), "bytes": info.st_size, "modified": info.st_mtime_ns}
    ]
    assert [field.name for field in planned.fields] == ["x", "s"]
    assert planned.shards == ((0, 100), (100, 100), (200, 100), (300, 100))
    assert (planned.machine, planned.out) == (platform.node(), str(out))
    assert {"fieldslab", "numpy", "pyarrow"} <= planned.versions.keys()
    assert listing(out.parent) == []
    assert len(remake_plan(planned).tasks) == SHARDS


def test_the_same_plan_can_be_written_again(plan: Path, source: Path, out: Path) -> None:
    """A file that holds the same plan stays; one that holds another is not overwritten."""
    before = plan.read_bytes()
    write_plan(source, out, plan)
    assert plan.read_bytes() == before
    with pytest.raises(OutputExists, match="another plan"):
        write_plan(source, out, plan, exclude="s")


def test_relative_paths_become_absolute(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts find source and output from any working directory."""
    monkeypatch.chdir(tmp_path)
    write_plan(Path("rows.parquet"), Path("x.slab"), Path("x.plan"))
    monkeypatch.chdir("/")
    planned = read_plan_file(tmp_path / "x.plan")
    assert (planned.sources, planned.out) == ((str(source),), str(tmp_path / "x.slab"))
    assert len(remake_plan(planned).tasks) == SHARDS


def test_a_plan_of_many_files_is_small(plan: Path) -> None:
    """A plan of 10,000 files with long names takes less than 1 MB."""
    planned = read_plan_file(plan)
    file = planned.files[0]
    files = [
        file
        | {
            "path": f"/datasets/a-name/train-{number:05}-of-10000-{os.urandom(8).hex()}.parquet",
            "modified": file["modified"] + number * 7919,
        }
        for number in range(MANY)
    ]
    shards = tuple((number * 1000, 1000) for number in range(MANY))
    sizes = np.random.default_rng(0).integers(10**6, 10**9, MANY).tolist()
    summary = {**planned.summary, "groups": [[[1000 + size % 1009, size]] for size in sizes]}
    many = msgspec.structs.replace(planned, files=files, shards=shards, summary=summary)
    text = msgspec.json.encode(many)
    assert len(zstandard.ZstdCompressor(level=10).compress(text)) < 1_000_000


def test_a_source_that_changed(source: Path, out: Path, tmp_path: Path) -> None:
    """A file that changed, is gone, is new or is cut off since the plan is named."""
    folder = tmp_path / "rows"
    folder.mkdir()

    def start(name: str) -> Path:
        for file in folder.iterdir():
            file.unlink()
        for file_name in ("a.parquet", "b.parquet"):
            (folder / file_name).write_bytes(source.read_bytes())
        path = tmp_path / f"{name}.plan"
        write_plan(folder, out, path)
        return path

    def rewrite(file: Path) -> None:
        pq.write_table(pa.table({"x": [1.5], "s": ["a"]}), file)

    changes: dict[str, tuple[Any, str]] = {
        "changed since": (rewrite, "b.parquet"),
        "not there any more": (Path.unlink, "b.parquet"),
        "is new since": (rewrite, "c.parquet"),
        "changed since the": (lambda file: file.write_bytes(b"PAR1 cut off"), "a.parquet"),
    }
    for message, (change, name) in changes.items():
        with case(message):
            planned = read_plan_file(start(message))
            change(folder / name)
            with pytest.raises(SourceChanged, match=message) as caught:
                remake_plan(planned)
            assert caught.value.context["file"] == str(folder / name)


def test_another_version_of_a_library(plan: Path) -> None:
    """A machine with another pyarrow is refused, and named along with both versions."""
    planned = read_plan_file(plan)
    versions = planned.versions | {"pyarrow": "1.2.3"}
    other = msgspec.structs.replace(planned, versions=versions, machine="elsewhere")
    with pytest.raises(
        UsageError, match=rf"{platform.node()} has other.*elsewhere.*pyarrow 1\.2\.3"
    ):
        remake_plan(other)


def test_damaged_plans(plan: Path, tmp_path: Path, source: Path) -> None:
    """What is no plan, a damaged one, or one of a newer version, is said to be so."""
    data = plan.read_bytes()
    flipped = data[:-1] + bytes([data[-1] ^ 1])
    newer = data.replace(b"plan 1 ", b"plan 2 ", 1)
    for name, content, kind in (
        ("nothing", b"", UsageError),
        ("another file", source.read_bytes(), UsageError),
        ("a flipped bit", flipped, Damaged),
        ("cut off", data[:-9], Damaged),
        ("newer", newer, UnsupportedVersion),
    ):
        with case(name):
            path = tmp_path / "damaged.plan"
            path.write_bytes(content)
            with pytest.raises(kind):
                read_plan_file(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_plan_file(tmp_path / "none.plan")


def test_what_parts_cannot_do(source: Path, out: Path, tmp_path: Path) -> None:
    """Replacing a slab needs one process, and says so."""
    path = tmp_path / "x.plan"
    with pytest.raises(UsageError, match="plan and force cannot be used"):
        write_plan(source, out, path, force=True)
    assert not path.exists()
