"""Damaged slabs and sources: always a right row or a named error, never a crash.

`make campaign` runs more of these, for as long as one likes.
"""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.golden.make import PHOTOS
from tests.mutations.choices import FAMILIES, is_accident
from tests.mutations.examining import examine
from tests.mutations.subject import Subject, list_files, make_subject
from tests.mutations.worker import Worker, environment

from fieldslab.packer import pack, verify
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.layout import DIGESTS
from fieldslab.schemas.manifest import MANIFEST


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """A whole slab, to be copied and damaged."""
    return make_subject(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A process that reads damaged slabs, so that a crash is a finding and not the end."""
    worker = Worker(tmp_path_factory.mktemp("worker"))
    yield worker
    worker.close()


def test_the_whole_slab_is_read(subject: Subject) -> None:
    """Without damage every way of reading gives every row, so that the tests below say a lot."""
    examine(subject.slab, subject, accident=True)
    wrong = replace(subject, rows=subject.rows | {"x": subject.rows["x"][::-1]})
    with pytest.raises(AssertionError, match="x: a gather gives other rows"):
        examine(subject.slab, wrong, accident=True)


def test_a_crash_is_noticed(worker: Worker) -> None:
    """A worker that crashes answers with the signal, and another one takes over."""
    assert "ended with -11" in worker.examine([{"do": "crash"}])
    assert worker.examine([]) == ""


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**64 - 1))
def test_any_damage(family: str, seed: int, subject: Subject, worker: Worker) -> None:
    """A damaged slab gives the right rows or FieldslabError; `verify` finds each accident.

    Where a hostile writer made digests and manifest anew, rows may be other ones, but nothing
    crashes, and no number in a file decides how much is allocated.
    """
    mutation = FAMILIES[family](random.Random(seed), subject.slab)
    note(json.dumps(mutation))
    assert is_accident(mutation) == (family in ("bytes", "files"))
    assert worker.examine(mutation) == ""


# Every byte

ROLES = ["offsets", "lengths", "size", "valid", "points.values", "points.offsets", "codec"]


def find_unnoticed_flips(slab: Path, choose: Callable[[str, int], Iterable[int]]) -> Iterator[str]:
    """Flip a bit of each chosen byte, of many files at a time, and tell which are not noticed.

    One call of `verify` must name every array that was changed, or every table of digests. What it
    says of those does not depend on others; the manifest is changed alone.
    """
    wholes = {name: (slab / name).read_bytes() for name in list_files(slab)}
    groups: dict[str, list[str]] = {}
    for name in wholes:
        is_array = name.endswith(".npy") and not name.endswith(DIGESTS)
        groups.setdefault("arrays" if is_array else Path(name).name, []).append(name)
    for names in groups.values():
        chosen = [choose(name, len(wholes[name])) for name in names]
        for positions in zip_longest(*chosen):
            flips = {
                name: position
                for name, position in zip(names, positions, strict=True)
                if position is not None
            }
            for name, position in flips.items():
                changed = bytearray(wholes[name])
                changed[position] ^= 1 << position * 5 % 8
                (slab / name).write_bytes(changed)
            noticed = {problem.file for problem in verify(slab, max_errors=1000).problems}
            for name, position in flips.items():
                if str(slab / name) not in noticed:
                    yield f"{name}: byte {position}, bit {position * 5 % 8}"
                (slab / name).write_bytes(wholes[name])
    assert verify(slab).ok


def test_verify_finds_a_flip_in_every_byte(tmp_path: Path) -> None:
    """Whichever byte of a slab has a wrong bit, padding included, `verify` says so.

    Arrays differ in their numbers only, so each of them has its share of the bytes.
    """
    shards = 8
    table = pa.table({"x": pa.array(np.linspace(-2, 1.5, 2 * shards), pa.float32())})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=2)
    slab = pack(tmp_path / "x.parquet", tmp_path / "x.slab", shard_size=1).path
    assert len(list(slab.glob("*/*.values.npy"))) == shards

    def choose(name: str, size: int) -> Iterable[int]:
        if name == MANIFEST:
            return range(size)
        return range(int(name.split("/")[0].removeprefix("shard-")), size, shards)

    assert list(find_unnoticed_flips(slab, choose)) == []


def test_verify_finds_a_flip_in_every_role(tmp_path: Path) -> None:
    """The same for every byte of data, in arrays of every role, nulls and tables included."""
    columns = {
        "n": pa.array([1, None, 3]),
        "i": pa.array([b"\xff\xd8\xff\xc0\0\x11\x08\0\x01\0\x02", b"", None]),
        "c": pa.array([f"{'c' * 40_000}{row}" for row in range(3)]).dictionary_encode(),
        "z": pa.array(["compressed " * row for row in range(3)]),
        "p": pa.array([PHOTOS["420.jpeg"], PHOTOS["grey.png"], PHOTOS["grey.png"]]),
    }
    packed = pack(
        pa.table(columns),
        tmp_path / "x.slab",
        nulls={"*": "mask"},
        compress="z",
        image={"i": None, "p": "rgb,fraction=0.5"},
    )
    roles = {name.split(".", 1)[1] for name in list_files(packed.path) if "-" in name}
    assert roles >= {f"{role}.npy" for role in ROLES}

    def choose(name: str, size: int) -> Iterable[int]:
        if name.endswith("-p.values.npy"):
            return range(97 * (HEADER // 97 + 1), size, 97)
        return range(HEADER, size, 1 if size < 2 * HEADER else 1999)

    assert list(find_unnoticed_flips(packed.path, choose)) == []


# Damaged Parquet

PACK = """
import json, sys
from pathlib import Path
from fieldslab.packer import pack
from fieldslab.schemas.errors import FieldslabError

for number, line in enumerate(sys.stdin):
    data = bytearray(Path(sys.argv[1]).read_bytes())
    for at, value in json.loads(line):
        if value is None:
            del data[at:]
        elif at < len(data):
            data[at] ^= value
    path = Path(sys.argv[2])
    path.write_bytes(data)
    try:
        pack(path, path.with_name(f"{number}.slab"), nulls={"*": "mask"})
        print("packed", flush=True)
    except FieldslabError as error:
        assert str(error)
        print(type(error).__name__, flush=True)
"""


def write_parquet(path: Path) -> None:
    """A small file with several encodings, compressions and nestings."""
    rows = 60
    columns = {
        "i": pa.array(np.arange(rows)),
        "f": pa.array(np.linspace(0, 1, rows), pa.float32()),
        "s": pa.array([f"text {row % 7}" for row in range(rows)]),
        "b": pa.array([None if row % 5 == 0 else bytes([row]) * row for row in range(rows)]),
        "l": pa.array([list(range(row % 4)) for row in range(rows)], pa.list_(pa.int16())),
        "d": pa.array([f"{row % 3}" for row in range(rows)]).dictionary_encode(),
        "t": pa.array(range(rows), pa.timestamp("us", "UTC")),
        "n": pa.array([{"a": row, "b": str(row)} for row in range(rows)]),
    }
    pq.write_table(
        pa.table(columns),
        path,
        row_group_size=20,
        write_page_checksum=True,
        compression={"i": "zstd", "s": "snappy"},
        use_dictionary=["s", "d"],
    )


def test_any_damage_to_parquet(tmp_path: Path) -> None:
    """A damaged Parquet file is packed or refused by name; it never takes the process along."""
    write_parquet(tmp_path / "whole.parquet")
    size = (tmp_path / "whole.parquet").stat().st_size
    footer = int.from_bytes((tmp_path / "whole.parquet").read_bytes()[-8:-4], "little") + 8
    rng = random.Random(6)
    damages: list[list[tuple[int, int | None]]] = []
    for _ in range(120):
        first = rng.choice([0, size - footer, size - footer])
        flips: list[tuple[int, int | None]] = [
            (rng.randrange(first, size), 1 << rng.randrange(8))
            for _ in range(rng.choice([1, 1, 3]))
        ]
        damages.append(flips if rng.randrange(8) else [(rng.randrange(size), None)])
    lines = "".join(json.dumps(damage) + "\n" for damage in damages)
    done = subprocess.run(
        [sys.executable, "-c", PACK, tmp_path / "whole.parquet", tmp_path / "x.parquet"],
        env=environment(),
        input=lines,
        capture_output=True,
        text=True,
        check=False,
    )
    answers = done.stdout.split()
    offset = json.dumps(damages[min(len(answers), 119)])
    assert done.returncode == 0, f"{done.returncode} at {offset}: {done.stderr[-3000:]}"
    assert len(answers) == 120
    assert {"packed", "SourceUnreadable"} <= set(answers)
