"""Slabs in PyTorch: tensors, DataLoader, samplers, workers, two ranks."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.forking import run_python, start_python
from tests.reader.conftest import ROWS, Example
from tests.slabs import Column, write_slab
from torch.utils.data import DataLoader, DistributedSampler, Subset, random_split
from torchdata.stateful_dataloader import StatefulDataLoader

from fieldslab.reader import Slab, open_slab
from fieldslab.reader.torch import Jagged, SlabDataset, TensorBatch, collate
from fieldslab.schemas.errors import RowOutOfRange, UnknownField
from fieldslab.schemas.fields import Logical

# Python 3.12 warns of every fork in a process with threads, and torch has some.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")

RANK = """
import json, sys, torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from fieldslab.reader import Loader, open_slab
from fieldslab.reader.torch import SlabDataset, collate
path, store, rank, odd = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
ours = Loader(open_slab(odd), 10)
assert (ours.rank, ours.world_size) == (0, 1)
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
data = SlabDataset(open_slab(path), ["label"])
sampler = DistributedSampler(data, seed=3)
loader = DataLoader(data, batch_size=32, sampler=sampler, collate_fn=collate)
epochs = []
for epoch in range(2):
    sampler.set_epoch(epoch)
    mine = torch.cat([batch["label"] for batch in loader])
    both = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(both, mine)
    epochs.append([part.tolist() for part in both])
assert (ours.rank, ours.world_size) == (rank, 2)
share = [row for batch in ours for row in batch["row"].tolist()]
dist.destroy_process_group()
print(json.dumps([epochs, share]))
"""

MEMORY = """
import sys, numpy as np
from pathlib import Path
from torch.utils.data import DataLoader, Dataset
import fieldslab.reader.gather  # numba and the kernels are imports too
from fieldslab.reader import open_slab
from fieldslab.reader.torch import collate

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

class Idle(Dataset):
    def __len__(self): return 4 * 64
    def __getitems__(self, rows): return rows

def weigh(samples):
    if not isinstance(samples, list):
        collate(samples)
    return anonymous()

def peak(data, batch_size):
    loader = DataLoader(data, batch_size, shuffle=True, num_workers=4, collate_fn=weigh)
    return max(loader)

if __name__ == "__main__":
    slab = open_slab(sys.argv[1])
    print(peak(Idle(), 64), peak(slab, 64))
"""


def test_a_batch_is_tensors_of_every_kind(slab: Slab, example: Example) -> None:
    """`collate` gives every field's values, dtypes and lengths as they were written."""
    rows = [250, 3, 3, 299, 7]
    batch = collate(slab.__getitems__(rows))
    for name in ("label", "box", "flag", "colour", "place", "score"):
        wanted = np.array(example.values(name, rows))
        assert batch[name].numpy().dtype == wanted.dtype
        assert np.array_equal(batch[name].numpy(), wanted)
    for name in ("tokens", "points"):
        values, offsets = batch[name]
        for index, row in enumerate(example.values(name, rows)):
            assert np.array_equal(values[offsets[index] : offsets[index + 1]].numpy(), row)
    for name in ("caption", "blob", "photo", "remark"):
        assert batch[name].tolist() == example.values(name, rows)
    assert batch.rows.tolist() == rows
    assert batch.valid["score"].tolist() == [row % 10 != 4 for row in rows]
    assert batch.sizes["photo"].tolist() == [[row, row + 1] for row in rows]
    assert batch["time"].dtype == torch.int64
    assert batch["time"].tolist() == rows


def test_tensors_share_the_memory_of_the_batch(slab: Slab) -> None:
    """Between gather and tensor nothing is copied."""
    samples = slab.__getitems__([5, 6])
    batch: Any = samples.batch
    tensors = collate(samples)
    assert tensors["box"].data_ptr() == batch["box"].ctypes.data
    assert tensors["tokens"].values.data_ptr() == batch["tokens"].values.ctypes.data


def test_batches_stay_the_callers_own(tmp_path: Path) -> None:
    """Every batch of an epoch that is held still has its rows when the epoch is over."""
    data = np.arange(64 * 16384, dtype=np.int32).reshape(64, 16384)  # large enough to be pooled
    slab = open_slab(write_slab(tmp_path / "a.slab", {"x": data}))
    held = list(DataLoader(slab, batch_size=4, collate_fn=collate))  # type: ignore[arg-type]
    assert np.array_equal(torch.cat([batch["x"] for batch in held]).numpy(), data)


def test_bfloat16_and_unsigned_numbers_keep_their_type(tmp_path: Path) -> None:
    """bfloat16, which is stored as uint16, comes back as bfloat16; uint16 stays what it is."""
    wanted = torch.tensor([1.5, -2.0, 3.25], dtype=torch.bfloat16)
    bits = wanted.view(torch.uint16).numpy()
    columns = {"half": Column(bits, "fixed", "uint16", logical=Logical("bfloat16")), "count": bits}
    slab = open_slab(write_slab(tmp_path / "a.slab", columns))
    batch = collate(slab.__getitems__([0, 1, 2]))
    assert torch.equal(batch["half"], wanted)
    assert batch["count"].dtype == torch.uint16
    assert np.array_equal(batch["count"].numpy(), bits)


def test_ragged_tensors_become_nested_ones(slab: Slab, example: Example) -> None:
    """`nested()` is a jagged tensor over the same memory."""
    ragged = collate(slab.__getitems__(range(20, 30)))["points"]
    nested = ragged.nested()
    assert nested.values().data_ptr() == ragged.values.data_ptr()
    for row, wanted in zip(nested.unbind(), example.values("points", range(20, 30)), strict=True):
        assert np.array_equal(row.numpy(), wanted)


def test_samples_are_the_rows_of_the_slab(slab: Slab) -> None:
    """What `__getitems__` returns is a sequence of the rows that `slab[row]` gives."""
    samples = slab.__getitems__([4, -1, 0])
    assert [row["label"] for row in samples] == [4, ROWS - 1, 0]
    assert [row["label"] for row in samples[1:]] == [ROWS - 1, 0]
    assert samples[0]["score"] is None
    assert samples[-1].keys() == slab[0].keys()
    with pytest.raises(IndexError):
        samples[3]


def test_a_dataset_has_the_fields_asked_for(slab: Slab) -> None:
    """`SlabDataset` gives chosen fields, row by row and as a batch; a wrong name is an error."""
    data = SlabDataset(slab[100:], ["label", "colour"])
    assert len(data) == ROWS - 100
    assert data[1] == {"label": 101, "colour": ["red", "", "größe"][101 % 3]}
    assert data.__getitems__([1, 0])[0] == data[1]
    batch = collate(data.__getitems__([1, 0]))
    assert list(batch) == ["label", "colour"]
    assert batch["label"].tolist() == [101, 100]
    with pytest.raises(UnknownField, match="lable"):
        SlabDataset(slab, ["lable"])
    with pytest.raises(RowOutOfRange):
        collate(data.__getitems__([ROWS]))


def test_other_samples_go_to_pytorch(slab: Slab) -> None:
    """`collate` joins what does not come from a slab as PyTorch does."""
    assert torch.equal(collate([1, 2]), torch.tensor([1, 2]))
    rows = [{"label": slab[row]["label"]} for row in (3, 4)]
    assert collate(rows)["label"].tolist() == [3, 4]


def test_the_default_collate_works(slab: Slab) -> None:
    """Without `collate`, PyTorch joins the rows one by one, with the same result."""
    data = SlabDataset(slab, ["label", "box", "caption"])
    slow, fast = (next(iter(DataLoader(data, 8, collate_fn=how))) for how in (None, collate))
    assert torch.equal(slow["box"], fast["box"])
    assert slow["caption"] == fast["caption"].tolist()


@pytest.mark.parametrize(
    ("workers", "method"), [(0, None), (2, "fork"), (1, "spawn"), (1, "forkserver")]
)
def test_every_row_comes_once_from_workers(
    slab: Slab, example: Example, workers: int, method: str | None
) -> None:
    """A shuffled epoch has every row once, with its own values, however workers start."""
    slab.gather([0])  # so that a forked worker inherits maps, marks and memory in use
    loader: DataLoader[Any] = DataLoader(
        SlabDataset(slab, ["label", "tokens", "caption"]),
        batch_size=32,
        shuffle=True,
        num_workers=workers,
        multiprocessing_context=method,
        collate_fn=collate,
    )
    seen = []
    for batch in loader:
        assert isinstance(batch["tokens"], Jagged)
        values, offsets = batch["tokens"]
        for index, row in enumerate(batch["label"].tolist()):
            assert batch["caption"][index] == example.value("caption", row)
            wanted = example.value("tokens", row)
            assert np.array_equal(values[offsets[index] : offsets[index + 1]].numpy(), wanted)
            seen.append(row)
    assert seen != sorted(seen)
    assert sorted(seen) == list(range(ROWS))


def labels(loader: Any) -> list[int]:
    """Labels of all batches, in order."""
    return [label for batch in loader for label in batch["label"].tolist()]


def test_subsets_and_splits_are_gathered(slab: Slab) -> None:
    """`Subset` and `random_split` choose rows, and still hand over whole batches."""
    data = SlabDataset(slab, ["label"])
    subset = Subset(data, [9, 2, 200])
    assert labels(DataLoader(subset, 2, collate_fn=collate)) == [9, 2, 200]
    parts = random_split(data, [0.7, 0.3], torch.Generator().manual_seed(0))
    actual = [labels(DataLoader(part, 32, collate_fn=collate)) for part in parts]
    assert [len(part) for part in actual] == [210, 90]
    assert sorted(actual[0] + actual[1]) == list(range(ROWS))


def test_the_distributed_sampler_reshuffles(slab: Slab) -> None:
    """`set_epoch` changes the order; both ranks together have every row of each epoch."""
    data = SlabDataset(slab, ["label"])
    orders = []
    for epoch in range(2):
        both = []
        for rank in range(2):
            sampler: DistributedSampler[Any] = DistributedSampler(
                data, num_replicas=2, rank=rank, seed=1
            )
            sampler.set_epoch(epoch)
            both.append(labels(DataLoader(data, 16, sampler=sampler, collate_fn=collate)))
        assert sorted(both[0] + both[1]) == list(range(ROWS))
        orders.append(both)
    assert orders[0] != orders[1]


def test_two_ranks_have_disjoint_complete_shares(example: Example, tmp_path: Path) -> None:
    """Two processes of a real process group read each row once an epoch between them.

    A loader takes rank and world size from the group; of an odd number of rows, both have as many.
    """
    store = tmp_path / "store"
    odd = write_slab(tmp_path / "odd.slab", {"row": np.arange(103)})
    ranks = [
        start_python("-c", RANK, example.path, store, rank, odd, OMP_NUM_THREADS="1")
        for rank in range(2)
    ]
    (epochs, share), (same, other_share) = (json.loads(rank.read()) for rank in ranks)
    assert epochs == same
    for first, second in epochs:
        assert len(first) == len(second) == ROWS // 2
        assert sorted(first + second) == list(range(ROWS))
    assert epochs[0] != epochs[1]
    assert len(share) == len(other_share) == 52
    assert set(share + other_share) == set(range(103))


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_resumes_in_mid_epoch(slab: Slab, workers: int) -> None:
    """torchdata's loader goes on after the batch at which its state was taken."""

    def make() -> Any:
        data = SlabDataset(slab, ["label"])
        return StatefulDataLoader(
            data, batch_size=32, shuffle=True, num_workers=workers, collate_fn=collate
        )

    torch.manual_seed(7)
    loader = make()
    batches = iter(loader)
    before = labels(next(batches) for _ in range(4))
    state = loader.state_dict()
    wanted = labels(batches)
    resumed = make()
    resumed.load_state_dict(state)
    assert labels(resumed) == wanted
    assert sorted(before + wanted) == list(range(ROWS))


def test_batches_can_be_pinned(slab: Slab) -> None:
    """`pin_memory=True` hands over whole batches; pinned, where there is an accelerator.

    Without one PyTorch warns and leaves memory as it is.
    """
    data = SlabDataset(slab, ["box", "tokens", "caption", "score"])
    loader: DataLoader[Any] = DataLoader(data, batch_size=5, pin_memory=True, collate_fn=collate)
    if torch.accelerator.is_available():
        batch = next(iter(loader))
        pinned = [batch["box"], *batch["tokens"], batch.rows, batch.valid["score"]]
        assert all(tensor.is_pinned() for tensor in pinned)
    else:
        with pytest.warns(UserWarning, match="pin_memory"):
            batch = next(iter(loader))
    assert isinstance(batch, TensorBatch)
    wanted = collate(data.__getitems__(range(5)))
    assert torch.equal(batch["box"], wanted["box"])
    assert torch.equal(batch["tokens"].values, wanted["tokens"].values)
    assert torch.equal(batch.valid["score"], wanted.valid["score"])


def test_workers_do_not_multiply_memory(tmp_path: Path) -> None:
    """Each of four workers over a slab of 130 MB needs less than 60 MB beside its imports."""
    data = np.arange(32_000 * 1024, dtype=np.int32).reshape(32_000, 1024)
    path = write_slab(tmp_path / "a.slab", {"x": data}, [16_000, 16_000])
    idle, reading = map(float, run_python("-c", MEMORY, path).split())
    assert reading - idle < 60
