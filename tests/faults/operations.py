"""Everything that writes slabs, each from a state of its own, and what may be there afterwards.

Campaigns and tests carry these out under faults: they kill them, fail their system calls, and lose
their writes. `Scene.look` says what is wrong with what is left, `Scene.run_again` what is wrong
after the same command ran once more.
"""

import json
import os
import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fieldslab.packer import add_slabs, concat, copy_slab, pack, repack, repair
from fieldslab.packer.check.stored import StoredSlab
from fieldslab.packer.parquet_export import export_parquet
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import parse_part
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.schemas.errors import FieldslabError, OutputExists, UsageError
from fieldslab.schemas.folder import load_manifest, open_slab_files
from fieldslab.schemas.manifest import MANIFEST
from fieldslab.schemas.notices import FieldslabWarning
from fieldslab.schemas.rowfile import write_row_file

OPTIONS: dict[str, Any] = {"shard_size": 1000, "nulls": ["weight=mask"]}
GROUP = 40
ROWS = 3 * GROUP
OUT = "x.slab"
UNION = "all.slabs"

Content = dict[str, bytes | str]
"""The bytes of each file by its path; of a manifest only the id, since it says when it was made."""


def write_source(path: Path, seed: int) -> Path:
    """A Parquet file that becomes three shards; nulls in one of them, categories in a table."""
    rng = np.random.default_rng(seed)
    weight = rng.random(ROWS).astype("f4").tolist()
    weight[GROUP + 3] = None
    columns = {
        "text": [f"row {i} of {seed}" for i in range(ROWS)],
        "weight": pa.array(weight, pa.float32()),
        "long": pa.array([f"{i % 70}" * 700 for i in range(ROWS)]).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), path, row_group_size=GROUP)
    return path


def read_tree(place: Path) -> Content:
    """Read all files below a folder."""
    content: Content = {}
    for path in sorted(place.rglob("*")):
        if path.is_file():
            name = str(path.relative_to(place))
            content[name] = path.read_bytes()
            if path.name == MANIFEST:
                content[name] = load_manifest(path.parent).id
            elif path.parent.name == "records":  # of a part: they say when and where it was packed
                content[name] = b""
    return content


@dataclass(frozen=True)
class Operation:
    """How a place is prepared, what runs there, and whether files are changed one by one."""

    prepare: Callable[["World", Path], None]
    run: Callable[["World", Path, bool, int], Any]
    by_file: bool = False
    then: Callable[["World", Path], Any] | None = None
    """What else has to run until nothing is left beside the slab."""


class World:
    """Sources and slabs that operations read, made once."""

    def __init__(self, folder: Path) -> None:
        """Write them below `folder`."""
        self.folder = folder
        self.source = write_source(folder / "new.parquet", 1)
        self.old, self.whole = folder / "old.slab", folder / "whole.slab"
        pack(write_source(folder / "old.parquet", 2), self.old, **OPTIONS)
        pack(self.source, self.whole, **OPTIONS)

    def plan(self, place: Path) -> Path:
        """Where the plan of the slab at this place lies."""
        return self.folder / f"{place.parent.name}.plan"

    def make_plan(self, place: Path) -> None:
        """Plan the slab at this place, with nothing packed."""
        self.plan(place).unlink(missing_ok=True)
        write_plan_file([self.source], place / OUT, self.plan(place), OPTIONS)  # type: ignore[arg-type]


def _nothing(_world: World, _place: Path) -> None:
    """Nothing is there before."""


def _old_slab(world: World, place: Path) -> None:
    shutil.copytree(world.old, place / OUT)


def _packed_parts(world: World, place: Path) -> None:
    world.make_plan(place)
    pack_part(world.plan(place), parse_part("1/1"))


def _union_of_one(world: World, place: Path) -> None:
    shutil.copytree(world.old, place / "old.slab")
    shutil.copytree(world.whole, place / "whole.slab")
    add_slabs(str(place / UNION), [str(place / "old.slab")])


def _damaged(world: World, place: Path) -> None:
    shutil.copytree(world.whole, place / OUT)
    for shard, name in ((0, "text"), (2, "weight")):
        [path] = sorted((place / OUT / f"shard-{shard:05}").glob(f"*{name}*values*.npy"))[:1]
        data = bytearray(path.read_bytes())
        data[-3] ^= 4
        path.write_bytes(data)
    next((place / OUT / "shard-00001").glob("*text*offsets*.npy")).unlink()


def _pack(world: World, place: Path, again: bool, jobs: int) -> None:
    pack(world.source, place / OUT, force=again, jobs=jobs, **OPTIONS)


def _replace(world: World, place: Path, _again: bool, jobs: int) -> None:
    pack(world.source, place / OUT, force=True, jobs=jobs, **OPTIONS)


def _shuffle(world: World, place: Path, again: bool, jobs: int) -> None:
    pack(world.source, place / OUT, force=again, jobs=jobs, shuffle=7, **OPTIONS)


def _part(world: World, place: Path, _again: bool, _jobs: int) -> None:
    pack_part(world.plan(place), parse_part("1/1"))


def _finish(world: World, place: Path, _again: bool = False, _jobs: int = 1) -> None:
    finish_parts(world.plan(place))


def _union(_world: World, place: Path, again: bool, _jobs: int) -> None:
    try:
        add_slabs(str(place / UNION), [str(place / "whole.slab")])
    except UsageError:
        if not again:
            raise


def _concat(world: World, place: Path, again: bool, _jobs: int) -> None:
    concat([world.old, world.whole], place / OUT, force=again)


def _repack(world: World, place: Path, again: bool, jobs: int) -> None:
    repack(world.whole, place / OUT, force=again, jobs=jobs, shuffle=3)


def _repair_source(world: World, place: Path, _again: bool, _jobs: int) -> None:
    report = repair(place / OUT, against=world.source)
    if not report.ok:
        raise FieldslabError(f"not repaired: {report}")


def _repair_copy(world: World, place: Path, _again: bool, _jobs: int) -> None:
    report = repair(place / OUT, from_=world.whole)
    if not report.ok:
        raise FieldslabError(f"not repaired: {report}")


def _old_export(world: World, place: Path) -> None:
    _export_slab(world.old, place / "x.parquet")


def _export(world: World, place: Path, _again: bool, _jobs: int) -> None:
    _export_slab(world.whole, place / "x.parquet")


def _export_slab(slab: Path, file: Path) -> None:
    with open_slab_files(slab) as files:
        export_parquet(StoredSlab(files), file, files.manifest.fields, force=True)


def _plan_alone(world: World, place: Path, _again: bool, _jobs: int) -> None:
    write_plan_file([world.source], place / OUT, place / "x.plan", OPTIONS)  # type: ignore[arg-type]


def _old_rows(_world: World, place: Path) -> None:
    write_row_file(place / "x.rows", "of another slab", ROWS, np.arange(9))


def _rows(_world: World, place: Path, _again: bool, _jobs: int) -> None:
    write_row_file(place / "x.rows", "of this slab", ROWS, np.arange(ROWS))


def _copy(world: World, place: Path, again: bool, _jobs: int) -> None:
    copy_slab(world.whole, place / OUT, force=again)


OPERATIONS = {
    "pack": Operation(_nothing, _pack),
    "replace": Operation(_old_slab, _replace),
    "shuffle": Operation(_nothing, _shuffle),
    "part": Operation(World.make_plan, _part, then=_finish),
    "finish": Operation(_packed_parts, _finish),
    "union": Operation(_union_of_one, _union),
    "concat": Operation(_nothing, _concat),
    "repack": Operation(_nothing, _repack),
    "repair from source": Operation(_damaged, _repair_source, by_file=True),
    "repair from copy": Operation(_damaged, _repair_copy, by_file=True),
    "copy": Operation(_nothing, _copy),
    "export": Operation(_old_export, _export, by_file=True),
    "plan": Operation(_nothing, _plan_alone, by_file=True),
    "rows": Operation(_old_rows, _rows, by_file=True),
}
PARALLEL = ("pack", "shuffle", "repack")
"""Operations that take `jobs`."""


class Scene:
    """An operation at a place, the state before it, and the state that it makes."""

    def __init__(self, world: World, name: str, jobs: int = 1, folder: Path | None = None) -> None:
        """Prepare the place in a folder, or the world's, and carry the operation out, unharmed."""
        self.world, self.name, self.jobs = world, name, jobs
        self.operation = OPERATIONS[name]
        self.folder = (folder or world.folder) / f"{name}-{jobs}".replace(" ", "-")
        shutil.rmtree(self.folder, ignore_errors=True)  # of an earlier scene
        self.place, self.start = self.folder / "place", self.folder / "start"
        self.place.mkdir(parents=True)
        self.operation.prepare(world, self.place)
        shutil.copytree(self.place, self.start, symlinks=True)
        self.before = read_tree(self.place)
        self._run_all()
        self.after = read_tree(self.place)
        assert self.before != self.after, name

    def reset(self) -> None:
        """Make the place what it was before the operation."""
        shutil.rmtree(self.place)
        shutil.copytree(self.start, self.place, symlinks=True)

    def run(self, again: bool = False) -> None:
        """Carry the operation out; `again`: what it made already is no error."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FieldslabWarning)
            try:
                self.operation.run(self.world, self.place, False, self.jobs)
            except (OutputExists, UsageError):
                if not again:
                    raise
                self.operation.run(self.world, self.place, True, self.jobs)

    def check_done(self) -> str:
        """What is wrong with the new state, where an operation said that it made it."""
        if self.operation.then is not None:
            return ""
        seen = read_tree(self.place)
        missing = {name for name, data in self.after.items() if seen.get(name) != data}
        return f"these are not as they should be: {sorted(missing)[:6]}" if missing else ""

    def _run_all(self, again: bool = False) -> None:
        self.run(again)
        if self.operation.then is not None:
            self.operation.then(self.world, self.place)

    def look(self) -> str:
        """What is wrong with what is there; nothing if it is the old state, the new one, or none.

        What has a manifest is a slab: all of it must be that of the state before, or of the new
        one. Of a repaired slab, each file is.
        """
        out = self.place / OUT
        if self.name == "union":
            data = (self.place / UNION).read_bytes()
            return "" if data in (self.before[UNION], self.after[UNION]) else "another union"
        if self.operation.by_file:
            return self._look_at_files(out)
        if not (out / MANIFEST).exists():
            was_there = f"{OUT}/{MANIFEST}" in self.before
            return "the old slab is gone" if was_there else ""
        try:
            seen = read_tree(out)
        except FieldslabError as error:
            return f"looks like a slab: {error}"
        wanted = [cut_prefix(state, OUT) for state in (self.before, self.after)]
        return "" if seen in wanted else f"neither old nor new: {compare(wanted[1], seen)}"

    def _look_at_files(self, out: Path) -> str:
        for name in {*self.before, *self.after}:
            path = self.place / name
            data = path.read_bytes() if path.exists() else None
            if path.name == MANIFEST:
                data = load_manifest(out).id  # type: ignore[assignment]
            if data not in (self.before.get(name), self.after.get(name)):
                return f"{name} is neither old nor new"
        return ""

    def run_again(self) -> str:
        """Run the operation again; what is wrong then, with the slab or beside it."""
        try:
            self._run_all(again=True)
        except FieldslabError as error:
            return f"the next run failed: {type(error).__name__}: {error}"
        seen = read_tree(self.place)
        if seen != self.after:
            return f"after the next run: {compare(self.after, seen)}"
        folders = {str(path.relative_to(self.place)) for path in self.place.rglob("*")}
        extra = folders - {str(p) for name in self.after for p in (Path(name), *Path(name).parents)}
        return f"left behind: {sorted(extra)}" if extra else ""


def cut_prefix(content: Content, prefix: str) -> Content:
    """The part of a tree below a folder."""
    start = prefix + "/"
    return {name[len(start) :]: data for name, data in content.items() if name.startswith(start)}


def compare(wanted: Content, seen: Content) -> str:
    """Say how two trees differ."""
    missing, extra = sorted(wanted.keys() - seen.keys()), sorted(seen.keys() - wanted.keys())
    other = sorted(name for name in wanted.keys() & seen.keys() if wanted[name] != seen[name])
    return json.dumps({"missing": missing[:6], "extra": extra[:6], "other": other[:6]})


def end_child(work: Callable[[], Any]) -> None:
    """Do some work in a forked child and leave it: 0, or 3 with the error's text on stderr.

    A named error is 3, any other 4.
    """
    code = 0
    try:
        work()
    except FieldslabError as error:
        code = 3
        _report(f"{type(error).__name__}: {error}")
    except BaseException as error:  # noqa: BLE001 - told by the exit status
        import traceback

        code = 4
        _report(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    finally:
        os._exit(code)


def _report(text: str) -> None:
    with suppress(OSError):  # this write may be the one that fails
        os.write(2, text.encode())
