"""Slabs in Grain and JAX: rows, batches, resuming, processes, devices."""

import copy
import json
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import grain
import numpy as np
import pytest
from absl import flags
from tests.reader.conftest import ROWS, Example
from tests.slabs import Column, write_slab

from fieldslab.reader import Pad, Sequential, Slab, open_slab
from fieldslab.reader.grain import grain_batches
from fieldslab.schemas.errors import UnknownField, UsageError

DEVICES = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"
import grain, jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from fieldslab.reader import Sequential, open_slab
from fieldslab.reader.grain import grain_batches
assert len(jax.devices()) == 4
slab = open_slab(sys.argv[1])
source = grain_batches(slab, 32, order=Sequential(), fields=["label", "box", "score"])
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
total = jax.jit(lambda batch: batch["label"].sum())
for batch in grain.MapDataset.source(source):
    placed = jax.device_put(batch, sharding)
    assert all(len(array.addressable_shards) == 4 for array in placed.values())
    assert placed["box"].addressable_shards[0].data.shape == (8, 2, 3)
    for name, array in placed.items():
        assert np.array_equal(np.asarray(array), batch[name])
    print(int(total(placed)))
"""


PROCESS = """
import sys, jax
path, address, process = sys.argv[1:]
jax.distributed.initialize(address, num_processes=2, process_id=int(process))
from fieldslab.reader import open_slab
from fieldslab.reader.grain import grain_batches
source = grain_batches(open_slab(path), 50, seed=1, fields=["label"])
print([label for batch in source for label in batch["label"].tolist()])
jax.distributed.shutdown()
"""


def labels(dataset: Any) -> list[int]:
    """Labels of all batches, in order."""
    return [label for batch in dataset for label in batch["label"].tolist()]


def test_a_slab_is_a_source_of_rows(slab: Slab, example: Example) -> None:
    """Grain takes a slab as it is, shuffles and batches its rows."""
    assert isinstance(slab, grain.sources.RandomAccessDataSource)
    rows = grain.MapDataset.source(slab).shuffle(seed=0).map(lambda row: int(row["label"]))
    assert sorted(rows) == list(range(ROWS))
    row: Any = grain.MapDataset.source(slab)[7]
    assert row["caption"] == example.value("caption", 7)


def test_batches_have_every_row_once_an_epoch(slab: Slab, example: Example) -> None:
    """Each epoch visits all rows, in an order of its own, with their own values."""
    source = grain_batches(slab, 32, seed=5, epochs=3, drop_last=False)
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    batches = list(grain.MapDataset.source(source))
    assert len(batches) == 3 * 10
    epochs = [labels(batches[10 * epoch : 10 * epoch + 10]) for epoch in range(3)]
    assert all(sorted(epoch) == list(range(ROWS)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    rows = batches[0]["label"].tolist()
    assert np.array_equal(batches[0]["box"], np.array(example.values("box", rows)))
    assert list(batches[0]["caption"]) == example.values("caption", rows)
    assert batches[0]["score.valid"].tolist() == [row % 10 != 4 for row in rows]


def test_batches_have_one_shape(slab: Slab) -> None:
    """Smaller batches are left out, and padded fields are arrays of one shape."""
    source = grain_batches(slab, 32, fields=["label", "tokens"], transforms=[Pad("tokens", 4)])
    batches = list(grain.MapDataset.source(source))
    assert len(batches) == ROWS // 32
    assert {batch["tokens"].shape for batch in batches} == {(32, 4)}


def test_processes_share_an_epoch(slab: Slab) -> None:
    """Each process has its part of every step; together they have every row once."""
    parts = [
        labels(grain_batches(slab, 25, fields=["label"], rank=rank, world_size=3))
        for rank in range(3)
    ]
    assert [len(part) for part in parts] == [100, 100, 100]
    assert sorted(parts[0] + parts[1] + parts[2]) == list(range(ROWS))


def test_processes_of_jax_are_used(example: Example) -> None:
    """Two processes of `jax.distributed` have disjoint shares, which are all rows of an epoch."""
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, example.path, f"localhost:{port}", str(number)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    parts = [json.loads(process.communicate(timeout=100)[0]) for process in processes]
    assert len(parts[0]) == len(parts[1])
    assert sorted(parts[0] + parts[1]) == list(range(ROWS))


def test_an_iterator_resumes_where_it_stood(slab: Slab) -> None:
    """State saved in mid-epoch goes on with the very next batch, in a new dataset."""

    def iterate() -> Any:
        source = grain_batches(open_slab(slab.path), 32, seed=1, epochs=2, fields=["label"])
        return iter(grain.MapDataset.source(source).to_iter_dataset())

    iterator = iterate()
    for _ in range(13):  # in the second epoch
        next(iterator)
    state = copy.deepcopy(iterator.get_state())
    wanted = labels(iterator)
    assert len(wanted) == 5 * 32
    resumed = iterate()
    resumed.set_state(state)
    assert labels(resumed) == wanted


def test_grains_loader_reads_in_processes(slab: Slab) -> None:
    """Grain's DataLoader with a worker process delivers the same batches."""
    flags.FLAGS.mark_as_parsed()  # as absl's `app.run` does in programs
    source = grain_batches(slab, 50, fields=["label"], seed=2)
    sampler = grain.samplers.SequentialSampler(len(source))
    loader = grain.DataLoader(data_source=source, sampler=sampler, worker_count=1)
    assert labels(loader) == labels(source)
    copied = pickle.loads(pickle.dumps(source))
    assert labels(copied) == labels(source)
    assert repr(copied) == repr(source)


def test_batches_lie_across_devices(example: Example) -> None:
    """`jax.device_put` with a NamedSharding splits every array among four simulated devices."""
    done = subprocess.run(
        [sys.executable, "-c", DEVICES, str(example.path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(map(int, done.stdout.split())) == [
        sum(range(first, first + 32)) for first in range(0, 9 * 32, 32)
    ]


def test_a_mask_takes_no_fields_name(tmp_path: Path) -> None:
    """A field named like the mask of another is an error, not overwritten."""
    numbers = np.arange(3)
    columns = {"a": Column(numbers, "fixed", "int64", valid=numbers > 0), "a.valid": numbers}
    slab = open_slab(write_slab(tmp_path / "a.slab", columns))
    with pytest.raises(UsageError, match=r"a\.valid"):
        grain_batches(slab, 3)[0]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"batch_size": 0}, UsageError),
        ({"epochs": 0}, UsageError),
        ({"fields": ["lable"]}, UnknownField),
        ({"rank": 2, "world_size": 2}, UsageError),
        ({"rank": 0}, UsageError),
        ({"seed": 1.5}, UsageError),
    ],
)
def test_wrong_arguments_are_named(slab: Slab, wrong: Any, error: type[Exception]) -> None:
    """What contradicts itself or the slab is refused before anything is read."""
    with pytest.raises(error):
        grain_batches(slab, **{"batch_size": 4, "order": None} | wrong)


def test_an_order_may_be_given(slab: Slab) -> None:
    """Any order does; batches are asked for by number, from either end."""
    source = grain_batches(slab[10:], 20, order=Sequential(), fields=["label"])
    assert source[1]["label"].tolist() == list(range(30, 50))
    assert source[-1]["label"].tolist() == list(range(270, 290))
    with pytest.raises(IndexError):
        source[len(source)]
