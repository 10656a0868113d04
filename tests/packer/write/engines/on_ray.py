"""What every engine must do, on Ray; and what becomes of lost workers, nodes and drivers.

Run by test_ray.py, or by `pytest tests/packer/write/engines/on_ray.py -W ignore`.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from ray.cluster_utils import Cluster
from tests.jpegs import encode, photograph
from tests.packer.packing import ROOT, content, listing
from tests.packer.write.engines.test_engines import (
    start_waiting,
    test_a_failing_shard,
    test_a_second_attempt_while_the_first_is_there,
    test_cancellation,
    test_each_record_and_each_row_comes_once,
    test_the_slab_does_not_depend_on_the_engine,
    work,
)
from tests.packer.write.engines.waiting import SHARDS, Deadly, pack_waiting
from tests.servers.s3 import KEY, SECRET, Bucket

from fieldslab.packer import copy_slab, pack
from fieldslab.packer.options import parse_options
from fieldslab.packer.pack_source import pack_plan
from fieldslab.packer.plan import make_plan
from fieldslab.schemas.errors import SourceUnreadable
from fieldslab.schemas.folder import get_partial_path
from fieldslab.schemas.stores.store import open_store

__all__ = [
    "test_a_failing_shard",
    "test_a_second_attempt_while_the_first_is_there",
    "test_cancellation",
    "test_each_record_and_each_row_comes_once",
    "test_the_slab_does_not_depend_on_the_engine",
    "work",
]

STORE = 80 * 2**20
CREDENTIALS = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.fixture(scope="session", autouse=True)
def cluster() -> Iterator[Any]:
    """Two nodes with a core each, and no process that nothing here needs."""
    os.environ["PYTHONPATH"] = f"{ROOT / '.ns'}:{ROOT}"  # of all workers, and of other drivers
    os.environ.update(CREDENTIALS)
    unneeded = {"include_dashboard": False, "include_log_monitor": False}
    head = {"num_cpus": 1, "object_store_memory": STORE, **unneeded}
    nodes: Any = Cluster(initialize_head=True, head_node_args=head)
    nodes.add_node(num_cpus=1, object_store_memory=STORE)
    os.environ["RAY_ADDRESS"] = nodes.address
    yield nodes
    ray.shutdown()
    nodes.shutdown()


@pytest.fixture
def engine() -> str:
    """The engine that all tests are about."""
    return "ray"


@pytest.fixture
def way() -> str:
    """The same."""
    return "ray"


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, Any]:
    """What one process makes of the rows of `Waiting`."""
    folder = tmp_path / "alone"
    folder.mkdir()
    (folder / "go").touch()
    pack_waiting(folder, folder / "expected.slab", "here")
    return content(folder / "expected.slab")


def pack_deadly(folder: Path, out: Path) -> None:
    """Pack those rows on Ray."""
    plan = make_plan(Deadly(folder), parse_options(shard_size=1))
    pack_plan(plan, out, engine="ray")


def test_a_killed_worker_costs_its_shard(tmp_path: Path, out: Path, expected: Any) -> None:
    """A shard whose worker was killed is packed again by another one."""
    (tmp_path / "go").touch()
    pack_deadly(tmp_path, out)
    assert (tmp_path / "died").read_text() == "xx"
    assert content(out) == expected
    assert listing(out.parent) == ["x.slab"]


def test_a_file_that_kills_every_worker(
    tmp_path: Path, out: Path, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named after its retries, the other shards are finished, and a rerun goes on."""
    monkeypatch.setattr("fieldslab.packer.write.engines.ray.RETRIES", 1)  # each takes a worker
    (tmp_path / "go").touch()
    (tmp_path / "always").touch()
    with pytest.raises(SourceUnreadable, match=r"died 2 times .* shard 3") as caught:
        pack_deadly(tmp_path, out)
    assert caught.value.context["file"] == "unit 3"
    assert listing(get_partial_path(out) / "slab") == [
        f"shard-{number:05}" for number in range(SHARDS) if number != 3
    ]
    (tmp_path / "always").unlink()
    pack_deadly(tmp_path, out)
    assert content(out) == expected
    assert listing(out.parent) == ["x.slab"]


def test_a_lost_node(tmp_path: Path, out: Path, expected: Any, cluster: Any) -> None:
    """Where a node is lost in mid-pack, its shards are packed elsewhere."""
    failures: list[BaseException] = []

    def pack_all() -> None:
        try:
            pack_waiting(tmp_path, out, "ray")
        except BaseException as error:  # noqa: BLE001  # shown by the test
            failures.append(error)

    packing = threading.Thread(target=pack_all)
    packing.start()
    while not (tmp_path / "waiting").exists() and packing.is_alive():
        time.sleep(0.01)
    victim = next(node for node in cluster.list_all_nodes() if node is not cluster.head_node)
    cluster.remove_node(victim, allow_graceful=False)
    (tmp_path / "go").touch()
    cluster.add_node(num_cpus=1, object_store_memory=STORE)
    packing.join(240)
    assert not failures
    assert content(out) == expected
    assert listing(out.parent) == ["x.slab"]


def test_a_dataset_of_ray(tmp_path: Path) -> None:
    """Rows are packed in the order of blocks, whichever of them is computed first."""

    def delay(table: pa.Table) -> pa.Table:
        time.sleep(0.5 if table["x"][0].as_py() == 0 else 0)
        return table

    tables = [pa.table({"x": range(start, start + 10)}) for start in range(0, 60, 10)]
    dataset = ray.data.from_arrow(tables).map_batches(delay, batch_format="pyarrow")
    packed = pack(dataset, tmp_path / "dataset.slab")
    expected = pack(pa.concat_tables(tables), tmp_path / "table.slab")
    assert packed.manifest.id == expected.manifest.id
    empty = ray.data.from_arrow([tables[0].slice(0, 0)])
    assert pack(empty, tmp_path / "empty.slab").manifest.rows == 0


def test_to_a_bucket(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers upload shards; rows with damaged images are left out as in one process."""
    photos = [encode(photograph(24 + number, 30, number)) for number in range(3)]
    images = [photos[n % 3] if n % 20 != 7 else photos[n % 3][:200] for n in range(60)]
    source = tmp_path / "photos.parquet"
    pq.write_table(pa.table({"image": images}), source, row_group_size=20)
    options: dict[str, Any] = {"shard_size": 1000, "on_error": "skip"}
    expected = pack(source, tmp_path / "x.slab", **options)
    assert len(expected.manifest.shards) == len(expected.left_out) == 3
    place = {name: bucket.options[name] for name in ("endpoint", "region")}
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    url = f"{bucket.url}/x.slab"
    packed = pack(source, url, engine="ray", storage_options=place, **options)
    assert packed.manifest.id == expected.manifest.id
    assert packed.left_out == expected.left_out
    names = {info.key.split("/")[0] for info in open_store(bucket.url, place).list_keys()}
    assert names == {"x.slab"}
    assert copy_slab(url, tmp_path / "copy.slab", source_options=place).id == packed.manifest.id


def test_a_shuffle(tmp_path: Path) -> None:
    """Packed and shuffled by the cluster, a slab is that of one process."""
    source = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": range(600)}), source, row_group_size=100)
    options: dict[str, Any] = {"shard_size": 500, "shuffle": 1}
    expected = pack(source, tmp_path / "here.slab", **options).manifest
    assert len(expected.shards) > 4  # so rows are sorted by shard first
    assert pack(source, tmp_path / "ray.slab", engine="ray", **options).manifest.id == expected.id


def test_a_driver_that_ends_early(tmp_path: Path, out: Path, expected: Any) -> None:
    """After Ctrl-C, and after a kill, the same command goes on with what is finished."""
    partial = get_partial_path(out)
    for number in (signal.SIGINT, signal.SIGKILL):
        with start_waiting(tmp_path, out, "ray") as process:
            process.send_signal(number)
            _, stderr = process.communicate(timeout=60)
        assert not out.exists()
        if number == signal.SIGINT:
            assert "KeyboardInterrupt" in stderr, stderr
            assert not partial.exists() or listing(partial) == ["journal.jsonl", "slab"]
        (tmp_path / "waiting").unlink()
    (tmp_path / "go").touch()
    pack_waiting(tmp_path, out, "ray")
    assert content(out) == expected
    assert listing(out.parent) == ["x.slab"]
