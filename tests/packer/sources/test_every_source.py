"""What every kind of source must do: one battery. Kinds of files have `test_battery`, too."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.naming import case
from tests.packer.packing import content, listing
from tests.packer.readback import Readback, difference
from tests.packer.sources.every_source import CASES, Case

from fieldslab.packer import pack, verify
from fieldslab.packer.options import parse_options
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.pack_source import pack_plan
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import PartNumber
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.packer.plan import Plan, make_plan
from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import Damaged, FieldslabError, SourceChanged, SourceUnreadable

SHARD = 1000


@dataclass
class Dataset:
    """A dataset on a disk."""

    case: Case
    folder: Path
    source: Any

    @property
    def options(self) -> Any:
        """Options of `pack`."""
        return dict(self.case.options)

    def plan(self, **more: Any) -> Plan:
        """Plan a pack of it."""
        values = {**self.options, **more}
        source = find_source(self.source, values.pop("from_", None), values.pop("settings", None))
        return make_plan(source, parse_options(**values))

    def files(self) -> list[Path]:
        """All files."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file())


@pytest.fixture(params=CASES)
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Dataset:
    """A dataset of each kind."""
    folder = tmp_path / "raw"
    folder.mkdir()
    chosen = CASES[request.param]
    return Dataset(chosen, folder, chosen.write(folder))


def check_rows(slab: Path, rows: Mapping[str, list[Any]], chosen: slice = slice(None)) -> None:
    """Every value of some rows is as expected, bit for bit."""
    back = Readback(slab)
    for name, values in rows.items():
        with case(name):
            assert difference(back.column(name), values[chosen]) is None


def test_rows_slices_and_fields(tmp_path: Path, dataset: Dataset) -> None:
    """All rows in their order, some rows, one field; `verify` finds no difference."""
    rows = dataset.case.rows()
    total = len(next(iter(rows.values())))
    packed = pack(dataset.source, tmp_path / "slab", **dataset.options)
    assert bool(packed.warnings) == dataset.case.warns
    assert Readback(tmp_path / "slab").rows == total
    check_rows(tmp_path / "slab", rows)
    assert verify(tmp_path / "slab", against=dataset.source).ok
    start, stop = total // 3, total - 7
    pack(dataset.source, tmp_path / "some", rows=f"{start}:{stop}", **dataset.options)
    check_rows(tmp_path / "some", rows, slice(start, stop))
    name = list(rows)[-1]
    pack(dataset.source, tmp_path / "one", fields=name, **dataset.options)
    assert list(Readback(tmp_path / "one").fields) == [name]
    check_rows(tmp_path / "one", {name: rows[name]})


def test_resume_and_parts(tmp_path: Path, dataset: Dataset) -> None:
    """A pack that goes on, and parts of a plan, make the slab of one process."""
    options = {**dataset.options, "shard_size": SHARD}
    expected = content(pack(dataset.source, tmp_path / "expected", **options).path)
    finished = 0

    def stop(rows: int, bytes: int) -> None:
        nonlocal finished
        finished += rows
        if finished > len(next(iter(dataset.case.rows().values()))) // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(dataset.source, tmp_path / "slab", progress=stop, **options)
    pack(dataset.source, tmp_path / "slab", **options)
    assert content(tmp_path / "slab") == expected
    plan = tmp_path / "x.plan"
    write_plan_file([dataset.source], tmp_path / "parts", plan, cast(PackOptions, options))
    for number in (2, 1):
        pack_part(plan, PartNumber(number, 2))
    finish_parts(plan)
    assert content(tmp_path / "parts") == expected


def test_change(tmp_path: Path, dataset: Dataset) -> None:
    """What is changed behind the plan is named, or what was planned is packed."""
    plans = [dataset.plan() for _ in range(2)]
    for file in dataset.files():
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2])
    for plan in plans:
        with pytest.raises((SourceChanged, Damaged)) as caught:
            pack_plan(plan, tmp_path / "slab")
        assert str(dataset.folder) in str(caught.value)
        assert listing(tmp_path) == ["raw"]


def _pack_damaged(dataset: Dataset, out: Path) -> SourceUnreadable | None:
    """Pack what may be damaged: the error if its files cannot be read."""
    try:
        pack(dataset.source, out, force=True, **dataset.options)
    except SourceUnreadable as error:
        return error
    except FieldslabError:
        pass
    return None


def test_damage(tmp_path: Path, dataset: Dataset) -> None:
    """A damaged source is an error that names file and remedy, or is read; nothing is left."""
    rng = np.random.default_rng(0)
    files = dataset.files()
    for number in range(12):
        file = files[int(rng.integers(len(files)))]
        data = file.read_bytes()
        place = int(rng.integers(len(data))) if data else 0
        changed = bytearray(data[:place] if number % 3 == 0 else data)
        if place < len(changed):
            changed[place] ^= 1 << int(rng.integers(8))
        file.write_bytes(changed)
        with case(f"{file} at {place}"):
            error = _pack_damaged(dataset, tmp_path / "slab")
            assert error is None or str(dataset.folder) in str(error.context["file"]), error
            assert error is None or error.hint, error
        assert listing(tmp_path) in (["raw"], ["raw", "slab"])
        file.write_bytes(data)
