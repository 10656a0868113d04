"""Slabs in Lightning: real trainers on the CPU, stopped and resumed; Fabric.

Tests import it themselves: that takes longer than they do, and every process of the suite would do
it that merely collects them.
"""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.forking import run_python
from tests.slabs import ragged, write_slab
from torch.utils.data import DataLoader

from fieldslab.reader import Loader, Sequential, Shuffled, TokenBudget, Windows, open_slab
from fieldslab.reader.torch import SlabDataset, TensorBatch, collate
from fieldslab.schemas.errors import NotASlab, UsageError
from fieldslab.schemas.notices import FieldslabWarning

# Of Lightning itself, its dependencies and this machine; none speaks of a fault.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*tensorboardX.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
]

ROWS = 100
BATCH = 8
STEPS = 13  # in an epoch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A slab of points and what to predict from them."""
    rng = np.random.default_rng(0)
    x = rng.random((ROWS, 3)).astype("f4")
    columns = {"x": x, "y": x @ np.array([1, -2, 3], "f4"), "id": np.arange(ROWS)}
    return write_slab(tmp_path / "train.slab", columns, [60, 40])


@pytest.mark.parametrize("step", [3, STEPS + 5, 2 * STEPS])
def test_a_resumed_run_equals_an_uninterrupted_one(path: Path, tmp_path: Path, step: int) -> None:
    """From a checkpoint in mid-epoch or at its end, rows and losses go on as they would have."""
    from tests.reader.training import Line, SaveAt, data, trainer

    whole = Line()
    trainer(tmp_path, max_epochs=3).fit(whole, data(path))
    assert len(whole.seen) == 3 * STEPS

    saved = tmp_path / "run.ckpt"
    stopped = Line()
    trainer(tmp_path, max_steps=step, callbacks=[SaveAt(step, saved)]).fit(stopped, data(path))
    resumed = Line()
    trainer(tmp_path, max_epochs=3).fit(resumed, data(path), ckpt_path=saved, weights_only=True)
    assert stopped.seen == whole.seen[:step]
    assert resumed.seen == whole.seen[step:]


def test_every_epoch_has_an_order_of_its_own(path: Path, tmp_path: Path) -> None:
    """The trainer's epochs are the loader's: all rows once each, and never in the same order."""
    from tests.reader.training import Line, data, trainer

    model = Line()
    trainer(tmp_path, max_epochs=3).fit(model, data(path))
    epochs = [
        [row for epoch, rows, _ in model.seen if epoch == number for row in rows]
        for number in range(3)
    ]
    assert all(sorted(epoch) == list(range(ROWS)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_short_epochs_move_on(path: Path, tmp_path: Path) -> None:
    """With `limit_train_batches`, epochs differ; one resumed at its end starts the next."""
    from tests.reader.training import Line, SaveAtEnd, data, trainer

    whole, first, second = Line(), Line(), Line()
    options: dict[str, Any] = {"limit_train_batches": 4}
    trainer(tmp_path, max_epochs=3, **options).fit(whole, data(path))
    assert len({str(rows) for _, rows, _ in whole.seen}) == 12
    saved = tmp_path / "epoch.ckpt"
    trainer(tmp_path, max_epochs=2, callbacks=[SaveAtEnd(saved)], **options).fit(first, data(path))
    trainer(tmp_path, max_epochs=3, **options).fit(
        second, data(path), ckpt_path=saved, weights_only=True
    )
    assert first.seen + second.seen == whole.seen


def test_a_checkpoint_of_a_stopped_fit_is_told(path: Path, tmp_path: Path) -> None:
    """Lightning ends an epoch where `fit` returns: the batches that are left out are counted."""
    from tests.reader.training import Line, data, trainer

    saved = tmp_path / "run.ckpt"
    runner = trainer(tmp_path, max_steps=STEPS - 2)
    runner.fit(Line(), data(path))
    runner.save_checkpoint(saved)
    resumed = Line()
    options: dict[str, Any] = {"ckpt_path": saved, "weights_only": True}
    with pytest.warns(FieldslabWarning, match="other 2 batches .* with epoch 1"):
        trainer(tmp_path, max_epochs=2).fit(resumed, data(path), **options)
    assert [epoch for epoch, _, _ in resumed.seen] == [1] * STEPS


def test_every_stage_has_its_rows(path: Path, tmp_path: Path) -> None:
    """Validation, test and prediction read their slab once, in stored order."""
    from tests.reader.training import Line, trainer

    from fieldslab.reader.lightning import SlabDataModule

    module = SlabDataModule(val=path, test=open_slab(path)[:30], predict=path, batch_size=BATCH)
    model = Line()
    runner = trainer(tmp_path)
    runner.validate(model, module, verbose=False)
    assert model.evaluated == list(range(ROWS))
    runner.test(model, module, verbose=False)
    assert model.evaluated[ROWS:] == list(range(30))
    predicted: Any = runner.predict(model, module)
    assert torch.cat(predicted).tolist() == list(range(ROWS))


def test_training_does_without_validation(path: Path, tmp_path: Path) -> None:
    """Only the slabs that are given are read."""
    from tests.reader.training import Line, trainer

    from fieldslab.reader.lightning import SlabDataModule

    model = Line()
    module = SlabDataModule(train=path, batch_size=50, fields=["x", "y", "id"])
    trainer(tmp_path, max_epochs=1).fit(model, module)
    assert len(model.seen) == 2
    assert model.evaluated == []


def test_slabs_elsewhere_are_read_through_a_cache(path: Path, tmp_path: Path) -> None:
    """Options of `open_slab` go with each path; credentials are never pickled."""
    import pickle

    from tests.reader.training import data

    from fieldslab.reader.lightning import SlabDataModule

    module = data(path, cache_dir=tmp_path / "cache", cache_limit="1G")
    module.setup("fit")
    seen = [row for batch in module.train_dataloader() for row in batch["id"].tolist()]
    assert sorted(seen) == list(range(ROWS))
    assert list((tmp_path / "cache").glob("*.mirror"))
    module.teardown("fit")
    assert pickle.loads(pickle.dumps(module)).opening == module.opening
    secret = {"secret_access_key": "never-shown"}
    with pytest.raises(UsageError, match="not pickled with credentials") as caught:
        pickle.dumps(data(path, storage_options=secret))
    assert "never-shown" not in str(caught.value)
    with pytest.raises(UsageError, match="all slabs are open already"):
        SlabDataModule(open_slab(path), batch_size=BATCH, cache_dir=tmp_path / "cache")


def test_mistakes_are_named(path: Path, tmp_path: Path) -> None:
    """A slab that is missing, not given or a wrong option is an error before the first step."""
    from tests.reader.training import Line, data, trainer

    from fieldslab.reader.lightning import SlabDataModule

    with pytest.raises(UsageError, match="no slab given"):
        SlabDataModule(batch_size=4)
    with pytest.raises(UsageError, match="sharing"):
        SlabDataModule(train=path, batch_size=4, sharing=True)
    with pytest.raises(UsageError, match="`test`"):
        trainer(tmp_path).test(Line(), data(path), verbose=False)
    with pytest.raises(NotASlab):
        trainer(tmp_path, max_epochs=1).fit(
            Line(), SlabDataModule(train=tmp_path / "no.slab", batch_size=4)
        )


def test_advice_is_measured_and_printed(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`advise` recommends for the batch size, fields and transforms of the data module."""
    from tests.reader.training import data

    from fieldslab.reader.lightning import SlabDataModule

    seen = []

    def note(batch: Any) -> dict[str, Any]:
        seen.append(list(batch))
        return {}

    actual = data(path, fields=["x"], transforms=[note]).advise(step_ms=5)
    assert actual.batch_size == BATCH
    assert actual.batch_bytes == 12 * BATCH
    assert str(actual) in capsys.readouterr().out
    assert seen[0] == ["x"]
    with pytest.raises(UsageError, match="`train`"):
        SlabDataModule(val=path, batch_size=4).advise()


def test_a_failed_run_leaves_no_thread(path: Path, tmp_path: Path) -> None:
    """When a step raises, the threads of the loaders are stopped."""
    from tests.reader.training import Line, data, trainer

    class Failing(Line):
        def training_step(self, batch: TensorBatch) -> torch.Tensor:
            raise ArithmeticError("stop")

    before = threading.active_count()
    with pytest.raises(ArithmeticError):
        trainer(tmp_path, max_epochs=1).fit(Failing(), data(path))
    assert threading.active_count() <= before


DISTRIBUTED = """
import json, sys, torch
from pathlib import Path
import torch.distributed as distributed
from lightning.pytorch import Trainer
from tests.reader.training import Line, SaveAt, data, trainer

class Noting(Line):
    def on_fit_end(self):
        noted = [None, None]
        distributed.all_gather_object(noted, self.seen)
        if self.global_rank == 0:
            print(json.dumps(noted), flush=True)

path, folder = map(Path, sys.argv[1:])
saved = folder / "ddp.ckpt"
def fit(checkpoint=None, **options):
    torch.set_num_threads(1)
    runner = trainer(folder, strategy="ddp_fork", devices=2, num_sanity_val_steps=0,
                     limit_val_batches=0, **options)
    runner.fit(Noting(), data(path), ckpt_path=checkpoint, weights_only=True)
fit(max_epochs=2)
fit(max_steps=10, callbacks=[SaveAt(10, saved)])
fit(saved, max_epochs=2)
"""


def test_two_processes_share_every_epoch_and_resume(path: Path, tmp_path: Path) -> None:
    """Under DDP both ranks have disjoint, complete shares; resumed in mid-epoch, the same ones."""
    printed = run_python("-c", DISTRIBUTED, path, tmp_path)
    runs = [json.loads(line) for line in printed.splitlines() if line.startswith("[[")]
    whole, stopped, resumed = runs
    steps = -(-ROWS // (2 * BATCH))
    for epoch in range(2):
        parts = [
            [row for number, rows, _ in rank if number == epoch for row in rows] for rank in whole
        ]
        assert sorted(parts[0] + parts[1]) == list(range(ROWS))
        assert len(parts[0]) == len(parts[1])
    for rank in range(2):
        assert len(whole[rank]) == 2 * steps
        assert stopped[rank] == whole[rank][:10]
        assert resumed[rank] == whole[rank][10:]


def steps(fabric: Any, batches: Iterator[Any], count: int) -> list[list[int]]:
    """Rows of the next batches, as they reach the device."""
    return [fabric.to_device(next(batches))["id"].tolist() for _ in range(count)]


def test_fabric_saves_and_loads_a_loader(path: Path, tmp_path: Path) -> None:
    """A loader in Fabric's checkpoint goes on with the next batch."""
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)

    def make() -> Loader:
        return Loader(open_slab(path), BATCH, Shuffled(9), output="torch")

    loader, other = make(), make()
    batches = iter(loader)
    steps(fabric, batches, 5)
    fabric.save(tmp_path / "fabric.ckpt", {"loader": loader})
    wanted = steps(fabric, batches, STEPS - 5)
    fabric.load(tmp_path / "fabric.ckpt", {"loader": other})
    assert steps(fabric, iter(other), STEPS - 5) == wanted
    loader.close()
    other.close()


def test_fabric_sets_up_a_dataloader(path: Path) -> None:
    """Fabric takes a DataLoader over a slab."""
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    dataset = SlabDataset(open_slab(path), ["id"])
    loader: Any = fabric.setup_dataloaders(DataLoader(dataset, 25, collate_fn=collate))
    assert [row for batch in loader for row in batch["id"].tolist()] == list(range(ROWS))


def test_sequential_training_is_possible(path: Path, tmp_path: Path) -> None:
    """`order` decides how training rows come."""
    from tests.reader.training import Line, trainer

    from fieldslab.reader.lightning import SlabDataModule

    model = Line()
    module = SlabDataModule(train=path, batch_size=BATCH, order=Sequential())
    trainer(tmp_path, max_epochs=1).fit(model, module)
    assert [row for _, rows, _ in model.seen for row in rows] == list(range(ROWS))


def test_windows_are_validated_as_they_are_stored(path: Path) -> None:
    """Validation takes the windows of training, in sequence."""
    from fieldslab.reader.lightning import SlabDataModule

    module = SlabDataModule(path, path, batch_size=4, order=Windows(10, 10))
    (first, *_), (stored, *_) = module.train_dataloader(), module.val_dataloader()
    assert first["x"].shape == stored["x"].shape == (4, 10, 3)
    assert stored["id"].tolist() == np.arange(40).reshape(4, 10).tolist()
    module.teardown()


def test_an_order_may_decide_how_many_rows_a_batch_has(tmp_path: Path) -> None:
    """Batches by tokens train and validate: those of a Loader, and each row once."""
    from fieldslab.reader.lightning import SlabDataModule

    tokens = ragged([range(row % 9) for row in range(ROWS)], "int32")
    path = write_slab(tmp_path / "a.slab", {"id": np.arange(ROWS), "tokens": tokens})
    order = TokenBudget(64, "tokens", seed=1)
    module = SlabDataModule(path, path, order=order)
    batches = [batch.rows.tolist() for batch in module.train_dataloader()]
    assert batches == [batch.rows.tolist() for batch in Loader(open_slab(path), order=order)]
    validated = [row for batch in module.val_dataloader() for row in batch.rows.tolist()]
    assert sorted(validated) == list(range(ROWS))
    module.teardown()
