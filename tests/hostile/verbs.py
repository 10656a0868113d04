"""Everything that one does with a slab: where two ways lead to the same rows, they must agree."""

import contextlib
import io
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.contents import Row, as_row, gathered
from tests.mutations.examining import examine_columns
from tests.turbojpegs import library_of

from fieldslab.packer import concat, copy_slab, repack, repair, verify
from fieldslab.packer.cli import program
from fieldslab.reader import (
    Decode,
    ImageSteps,
    Loader,
    RandomResizedCrop,
    Resize,
    Slab,
    open_slab,
)
from fieldslab.reader.decoders.turbojpeg import TurboJpeg
from fieldslab.schemas.errors import FieldslabError


@dataclass(frozen=True)
class Case:
    """A forged slab, the one that it was made of, and a place for what is made of it."""

    slab: Path
    whole: Path
    scratch: Path
    rng: random.Random

    def open(self) -> Slab:
        """Open the forged slab, with digests compared or not."""
        return open_slab(self.slab, verify=self.rng.random() < 0.5)

    def draw_rows(self, slab: Slab, most: int = 7) -> list[int]:
        """Draw rows: some from the ends, in any order, some of them twice."""
        count = len(slab)
        ends = [row for row in (0, 1, count - 1, count // 2) if 0 <= row < count]
        return [self.rng.choice(ends) for _ in range(self.rng.randrange(most))] if ends else []


def _open(case: Case) -> None:
    slab = case.open()
    assert repr(slab)
    assert len(slab) >= 0
    for field in slab.fields.values():
        assert field.describe()


def _gather(case: Case) -> None:
    examine_columns(case.open(), None)


def _look(case: Case) -> None:
    """Slices, lengths, categories, views."""
    slab = case.open()
    rows = case.draw_rows(slab)
    for name in slab.fields:
        for look in (
            lambda name=name: slab[name][: min(len(slab), 40)],
            lambda name=name: slab[name][:40:3],
            lambda name=name: slab.lengths(rows, name),
            lambda name=name: slab.find_runs(name),
            lambda name=name: slab.gather(rows, out=slab.buffers(7, [name])),
            lambda name=name: [as_row(category) for category in slab.categories(name)],
            lambda name=name: [slab[name].row_bytes(row) for row in rows],
            lambda name=name: slab.cast({name: "float16"}).gather(rows, [name]),
            lambda name=name: slab.split({"a": 0.5, "b": 0.5}, by=name) if len(slab) < 100 else 0,
        ):
            with contextlib.suppress(FieldslabError):
                look()
    with contextlib.suppress(FieldslabError):
        chosen = slab.select(rows)
        assert chosen.gather(range(len(chosen))).rows.tolist() == list(range(len(chosen)))


def _windows(case: Case) -> None:
    slab, rng = case.open(), case.rng
    length = rng.randrange(1, 4)
    for name, field in slab.fields.items():
        starts = [row for row in case.draw_rows(slab) if row + length <= len(slab)]
        with contextlib.suppress(FieldslabError):
            batch = slab.gather_windows(starts, length, [name])
            rows = [start + place for start in starts for place in range(length)]
            expected = slab.gather(rows, [name])
            if field.kind in ("fixed", "categorical"):
                assert batch[name].tobytes() == expected[name].tobytes(), f"{name}: other windows"
            else:
                for place in range(len(rows)):
                    window, row = batch[name][place], expected[name][place]
                    assert as_row(window) == as_row(row), f"{name}: other windows"
        with contextlib.suppress(FieldslabError):
            deltas = {name: [-1, 0, 2]}
            edges: Any = rng.choice(["repeat", "zeros"])
            slab.gather_windows(case.draw_rows(slab), delta_indices=deltas, edges=edges)
        with contextlib.suppress(FieldslabError):
            slab.gather_windows(starts, length, [name], within=name)
        for start in (0, 1, 5):
            with contextlib.suppress(FieldslabError):
                batch = slab.gather_windows([start], rng.choice([1, 2, 7]), of=name)
                assert batch[name].tobytes() is not None


def _where(case: Case) -> None:
    slab = case.open()
    for name, field in slab.fields.items():
        quoted = '"' + name.replace('"', '""') + '"'
        value = {"fixed": "1", "text": "'é1'", "categorical": "'a'"}.get(field.kind, "'x'")
        for condition in (
            f"{quoted} == {value}",
            f"not is_null({quoted})",
            f"{quoted} in [{value}]",
        ):
            with contextlib.suppress(FieldslabError):
                view = slab.where(condition)
                assert len(view) <= len(slab)


def _decode(case: Case) -> None:
    slab, rng = case.open(), case.rng
    images = [name for name, field in slab.fields.items() if field.kind == "image"]
    rows = case.draw_rows(slab)
    steps: list[Any] = rng.choice([[RandomResizedCrop(20)], [Resize((17, 9))], [Decode()]])
    for name in images:
        for decoder in (
            "auto",
            "roi",
            "pillow",
            "turbojpeg",
            _get_turbojpeg("2"),
            _get_turbojpeg("3"),
        ):
            error: Any = rng.choice(["raise", "skip", "fill"])
            with contextlib.suppress(FieldslabError):
                made = ImageSteps(steps, decoder=decoder, on_error=error, max_pixels=2**22)
                slab.gather(rows, [name], decode={name: made})


def _get_turbojpeg(generation: str) -> TurboJpeg:
    return TurboJpeg(library_of(generation))


def _arrow(case: Case) -> None:
    slab = case.open()
    if len(slab) < 2000:
        table = slab.to_arrow()
        table.validate()
        assert table.num_rows == (len(slab) if slab.fields else 0)  # no columns, no rows


def _load(case: Case) -> None:
    slab = case.open()
    loader = Loader(slab, 3, threads=case.rng.choice([1, 2]), prefetch=1)
    for number, _ in enumerate(loader):
        if number > 3:
            break


def _verify(case: Case) -> None:
    for problem in verify(case.slab).problems:
        assert str(problem)


def run_program(*words: object) -> str:
    """Run a command of fieldslab in this process: what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        program.main([str(word) for word in words], standalone_mode=False)
    return printed.getvalue()


def _info(case: Case) -> None:
    run_program("info", case.slab, *case.rng.choice([(), ("--json",)]))


def _head(case: Case) -> None:
    pictures = ("--images", case.scratch / "pictures")
    run_program("head", case.slab, *case.rng.choice([(), ("--json",), pictures]))


def _export(case: Case) -> None:
    run_program("export", case.slab, "-o", case.scratch / "x.parquet", "-q")


def check_verified(case: Case, made: Path) -> None:
    """Check that what was made of a slab is as whole as that: bytes are copied as they are."""
    report = verify(made)
    assert report.ok or not verify(case.slab).ok, report.problems


def _check_made(case: Case, made: Path, first: int = 0) -> None:
    """Check that a slab that was made of the forged one is whole, and has its rows."""
    check_verified(case, made)
    forged, written = open_slab(case.slab), open_slab(made)
    rows = range(min(len(forged), 20))
    for name in forged.fields:
        expected: list[Row] | None = None
        with contextlib.suppress(FieldslabError):
            expected = gathered(forged, rows, name)
        if expected is not None:
            actual = gathered(written, [first + row for row in rows], name)
            assert actual == expected, f"{name}: other rows were written"


def _repack(case: Case) -> None:
    out = case.scratch / "repacked.slab"
    if case.rng.randrange(3) == 0:
        repack(case.slab, out, shuffle=1, jobs=1)
        check_verified(case, out)
    else:
        small = len(open_slab(case.slab)) < 100  # a shard for each of many rows would take minutes
        size = case.rng.choice([100, 2**26]) if small else 2**26
        repack(case.slab, out, jobs=1, shard_size=size)
        _check_made(case, out)


def _union(case: Case) -> None:
    slab = open_slab([case.slab, case.whole], missing="null")
    count, whole = len(slab), open_slab(case.whole)
    for name in whole.fields:
        with contextlib.suppress(FieldslabError):
            rows = range(len(whole))
            actual = gathered(slab, [count - len(whole) + row for row in rows], name)
            if slab.fields[name] == whole.fields[name]:
                assert actual == gathered(whole, rows, name), f"{name}: other rows of a union"
    with contextlib.suppress(FieldslabError):
        slab.gather(case.draw_rows(slab))


def _concat(case: Case) -> None:
    out = case.scratch / "concat.slab"
    concat([case.slab, case.whole], out, copy=case.rng.random() < 0.5)
    check_verified(case, out)


def _repair(case: Case) -> None:
    slab = case.scratch / "damaged.slab"
    if case.rng.randrange(2):
        shutil.copytree(case.slab, slab)
        repair(slab, from_=case.whole)
    else:
        shutil.copytree(case.whole, slab)
        with next(slab.glob("*/*.npy")).open("r+b") as file:
            file.seek(4096)
            file.write(b"damage")
        with contextlib.suppress(FieldslabError):
            repair(slab, from_=case.slab)
        files = {path: path.read_bytes() for path in slab.glob("*/*.npy")}
        for path, data in files.items():
            whole = (case.whole / path.relative_to(slab)).read_bytes()
            assert data == whole or data[4096:4102] == b"damage", f"{path.name} was not repaired"


def _copy(case: Case) -> None:
    out = case.scratch / "copy.slab"
    copy_slab(case.slab, out)
    check_verified(case, out)


VERBS: dict[str, tuple[Callable[[Case], None], int]] = {
    "open": (_open, 4),
    "gather": (_gather, 12),
    "look": (_look, 6),
    "windows": (_windows, 6),
    "where": (_where, 4),
    "decode": (_decode, 4),
    "arrow": (_arrow, 4),
    "load": (_load, 1),
    "verify": (_verify, 4),
    "info": (_info, 2),
    "head": (_head, 2),
    "export": (_export, 1),
    "repack": (_repack, 2),
    "union": (_union, 3),
    "concat": (_concat, 1),
    "repair": (_repair, 1),
    "copy": (_copy, 1),
}
"""Each verb, and how often it is chosen."""


def try_verb(name: str, case: Case) -> str:
    """Do it: '' or the name of the error that the caller gets. Whatever else is raised is a bug."""
    try:
        VERBS[name][0](case)
    except FieldslabError as error:
        return type(error).__name__ if str(error) else "an error without words"
    return ""
