"""`repack`: slabs written again, shuffled or without some rows and fields."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace as replace_struct
from tests.golden.make import FOLDER, SLABS
from tests.packer.killing import is_killed
from tests.packer.readback import Readback

from fieldslab.packer import pack, repack, verify
from fieldslab.packer.definition import fill_defaults
from fieldslab.packer.parts.part_number import PartNumber
from fieldslab.packer.rewrite import plan as plans
from fieldslab.packer.rewrite.options import RepackOptions
from fieldslab.packer.rewrite.runs import cut_runs, group_runs, list_rows, make_runs
from fieldslab.packer.rewrite.shuffle import compute_shuffle_keys, find_parts
from fieldslab.packer.unions.source_slabs import find_slabs
from fieldslab.packer.write import space
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import (
    DamagedArray,
    NoSpace,
    OutputError,
    OutputExists,
    RowOutOfRange,
    SlabChanged,
    UsageError,
)
from fieldslab.schemas.folder import get_partial_path, load_manifest
from fieldslab.schemas.manifest import create_manifest

PHOTOS = Path(__file__).parents[2] / "examples/photos.parquet"


def make_table(rows: int = 1200) -> pa.Table:
    """Rows of all kinds, some null, that tell their number."""
    rng = np.random.default_rng(0)
    numbers = np.arange(rows)
    return pa.table(
        {
            "number": numbers,
            "weight": pa.array(rng.random(rows), mask=numbers % 7 == 0),
            "text": pa.array([None if n % 11 == 0 else f"row {n} " * (n % 5) for n in numbers]),
            "tokens": [list(range(n % 9)) for n in numbers],
            "long": pa.array([f"text {n} " * 20 for n in numbers]),
            "category": pa.array([f"class {n % 70}" for n in numbers]).dictionary_encode(),
        }
    )


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A slab of six shards."""
    path = tmp_path_factory.mktemp("repack") / "a.slab"
    batches = make_table().to_batches(200)
    pack(iter(batches), path, nulls={"*": "mask"}, compress=["long"], shard_size=40_000)
    assert len(load_manifest(path).shards) > 4
    return path


def read_rows(path: Path) -> list[tuple[Any, ...]]:
    """All rows of a slab, by numpy and json alone where nothing is compressed."""
    slab = open_slab(path)
    return [tuple(map(_freeze, slab[row].values())) for row in range(len(slab))]


def _freeze(value: Any) -> Any:
    return value.tobytes() if isinstance(value, np.ndarray) else value


def list_files(path: Path) -> dict[str, bytes]:
    """The files of a slab but its manifest, which tells the time."""
    files = {str(file.relative_to(path)): file for file in path.rglob("*.npy")}
    return {name: file.read_bytes() for name, file in files.items()}


@pytest.mark.parametrize("name", sorted(SLABS))
def test_without_options_the_slab_stays_what_it_is(name: str, tmp_path: Path) -> None:
    """A slab of any kind of field is copied: same bytes, same id."""
    source, out = FOLDER / f"{name}.slab", tmp_path / "out.slab"
    packed = repack(source, out)
    assert packed.manifest.id == load_manifest(source).id
    assert list_files(out) == list_files(source)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("name", sorted(SLABS))
def test_any_slab_is_shuffled(
    name: str, direct: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row of a slab of any kind comes once, with all that belongs to it."""
    source, out = FOLDER / f"{name}.slab", tmp_path / "out.slab"
    if not direct:
        monkeypatch.setattr(plans, "DIRECT_SHARDS", 0)
        monkeypatch.setattr(plans, "CHUNK_BYTES", 1000)
    packed = repack(source, out, shuffle=3, shard_size=2000)
    assert verify(out).ok
    rows, shuffled = read_rows(source), read_rows(out)
    assert sorted(map(repr, rows)) == sorted(map(repr, shuffled))
    assert packed.manifest.rows < 8 or rows != shuffled
    assert packed.manifest.attributes["shuffle"] == {"seed": 3}


def test_a_shuffle_does_not_depend_on_how_it_is_done(
    slab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks, processes and direct reading give the same slab; another seed another one."""
    ids = [repack(slab, tmp_path / "a.slab", shuffle=1).manifest.id]
    ids.append(repack(slab, tmp_path / "b.slab", shuffle=1, jobs=2).manifest.id)
    monkeypatch.setattr(plans, "CHUNK_BYTES", 20_000)
    ids.append(repack(slab, tmp_path / "c.slab", shuffle=1).manifest.id)
    monkeypatch.setattr(plans, "DIRECT_SHARDS", 100)
    ids.append(repack(slab, tmp_path / "d.slab", shuffle=1).manifest.id)
    assert len(set(ids)) == 1
    assert repack(slab, tmp_path / "e.slab", shuffle=2).manifest.id != ids[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{c}.slab" for c in "abcde"]
    numbers = open_slab(tmp_path / "a.slab").gather(range(1200), ["number"])["number"]
    assert np.array_equal(np.sort(numbers), np.arange(1200))
    assert abs(np.corrcoef(numbers, np.arange(1200))[0, 1]) < 0.1


def test_the_shuffle_is_frozen() -> None:
    """Keys, which decide on the ids of slabs, are those of the first release; parts are equal."""
    keys = compute_shuffle_keys(7, np.array([0, 1, 2**40]))
    assert keys.tolist() == [9486622603782855354, 17298886203275925464, 15739584719183068727]
    parts = find_parts(compute_shuffle_keys(0, np.arange(100_000)), 10)
    counts = np.bincount(parts, minlength=10)
    assert parts.max() == 9
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 27.9  # chi-squared, 9 degrees, 0.1 %


def test_rows_are_kept_or_dropped(slab: Path, tmp_path: Path) -> None:
    """Only the rows that are asked for are left, in their order; files of both kinds are read."""
    kept = np.array([5, 1199, 17, 18, 19, 600])
    np.save(tmp_path / "kept.npy", kept)
    (tmp_path / "dropped.txt").write_text("18\n5\n")
    expected = [17, 19, 600, 1199]
    outs = [
        repack(slab, tmp_path / "a", rows_file=tmp_path / "kept.npy", drop_rows=[18, 5]).path,
        repack(slab, tmp_path / "b", rows_file=kept, drop_rows=str(tmp_path / "dropped.txt")).path,
    ]
    rows = read_rows(slab)
    for out in outs:
        assert read_rows(out) == [rows[number] for number in expected]
        assert verify(out).ok
    open_slab(slab).select(kept).save(tmp_path / "kept.rows")
    by_view = repack(slab, tmp_path / "d", rows_file=tmp_path / "kept.rows", drop_rows=[5, 18])
    assert by_view.manifest.id == repack(slab, tmp_path / "e", rows_file=expected).manifest.id
    other = repack(slab, tmp_path / "f", fields="category").path
    with pytest.raises(SlabChanged, match="another slab"):
        repack(other, tmp_path / "g", rows_file=tmp_path / "kept.rows")
    empty = repack(slab, tmp_path / "c", rows_file=[], shuffle=1)
    assert (empty.manifest.rows, len(empty.manifest.shards)) == (0, 0)


@pytest.mark.parametrize(
    "condition",
    ["category in ['class 3', 'class 69']", "length(long) > 50 and category != 'class 1'"],
)
def test_rows_are_kept_by_a_condition(slab: Path, tmp_path: Path, condition: str) -> None:
    """Those for which it is true are left: the rows that the reader finds, beside other options."""
    view = open_slab(slab).where(condition)
    assert 0 < len(view) < len(open_slab(slab))
    view.save(tmp_path / "x.rows")
    expected = repack(slab, tmp_path / "a", rows_file=tmp_path / "x.rows", drop_rows=[3, 69])
    packed = repack(slab, tmp_path / "b", where=condition, drop_rows=[3, 69])
    assert packed.manifest.id == expected.manifest.id
    with pytest.raises(UsageError, match="condition"):
        repack(slab, tmp_path / "c", where="category ==")


def test_dropped_rows_leave_nothing_behind(tmp_path: Path) -> None:
    """No byte of a row that was left out is in any file of the new slab."""
    texts = [f"secret-{n:06d}" for n in range(1000)]
    source = tmp_path / "a.slab"
    pack(pa.table({"text": texts}), source)
    dropped = list(range(0, 1000, 3))
    out = repack(source, tmp_path / "b.slab", drop_rows=dropped).path
    stored = b"".join(list_files(out).values())
    assert [texts[row] for row in dropped if texts[row].encode() in stored] == []
    assert texts[1].encode() in stored


def test_fields_are_chosen(slab: Path, tmp_path: Path) -> None:
    """Fields are kept by name or pattern; their tables stay with them."""
    repack(slab, tmp_path / "a", fields="number,cat*")
    repack(slab, tmp_path / "b", exclude=["text", "tokens", "long", "weight"])
    for name in "ab":
        read = Readback(tmp_path / name)
        assert list(read.fields) == ["number", "category"]
        assert read.column("category")[69] == "class 69"
    with pytest.raises(UsageError, match=r"no field 'numbr'.*number"):
        repack(slab, tmp_path / "c", fields="numbr")
    with pytest.raises(UsageError, match="no field is left"):
        repack(slab, tmp_path / "c", exclude="*")


def test_shards_are_cut_anew(slab: Path, tmp_path: Path) -> None:
    """A shard size decides on the number of shards, whose rows keep their order."""
    packed = repack(slab, tmp_path / "a", shard_size="10K")
    assert len(packed.manifest.shards) > len(load_manifest(slab).shards)
    assert read_rows(packed.path) == read_rows(slab)
    single = repack(slab, tmp_path / "b", shard_size="1G")
    assert len(single.manifest.shards) == 1
    assert read_rows(single.path) == read_rows(slab)


def test_images_keep_their_index(tmp_path: Path) -> None:
    """Photographs are moved as bytes, with the index that decoders use."""
    source = tmp_path / "a.slab"
    pack(PHOTOS, source, nulls={"weight": "mask"})
    out = repack(source, tmp_path / "b.slab", shuffle=0).path
    before, after = Readback(source), Readback(out)
    points = [before.array("image", "points.values", 0), after.array("image", "points.values", 0)]
    assert sorted(points[0].tolist()) == sorted(points[1].tolist())  # type: ignore[union-attr]
    assert sorted(before.column("image")) == sorted(after.column("image"))
    assert verify(out).ok


def test_a_killed_repack_goes_on(slab: Path, tmp_path: Path) -> None:
    """Killed at any time, it leaves no slab; a rerun gives the same one and no leftovers."""
    expected = repack(slab, tmp_path / "expected", shuffle=5).manifest.id
    out = tmp_path / "out"
    program = (
        "import sys, time; from fieldslab.packer.rewrite.repack import repack\n"
        "print('ready', flush=True)\n"
        "repack(sys.argv[1], sys.argv[2], shuffle=5, progress=lambda *_: time.sleep(0.01))"
    )
    for seconds in (0.0, 0.05, 0.1, 0.2):
        process = subprocess.Popen(
            [sys.executable, "-c", program, slab, out], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not out.exists() or load_manifest(out).id == expected
        if out.exists():
            break
    assert repack(slab, out, shuffle=5, force=out.exists()).manifest.id == expected
    assert not get_partial_path(out).exists()
    assert verify(out).ok


def test_impossible_repacks_are_refused(slab: Path, tmp_path: Path) -> None:
    """What cannot be done is an error that names it, and nothing is written."""
    for options, match in (
        ({"rows_file": [1200]}, r"rows_file.*1200"),
        ({"drop_rows": [-1]}, r"drop_rows.*no such row"),
    ):
        with pytest.raises(RowOutOfRange, match=match):
            repack(slab, tmp_path / "a", **options)  # type: ignore[arg-type]
    (tmp_path / "text.txt").write_text("1\nx\n")
    for rows in (tmp_path / "text.txt", tmp_path / "none.npy", [[1]], [0.5], "no.txt"):
        with pytest.raises(UsageError, match="rows_file"):
            repack(slab, tmp_path / "a", rows_file=rows)
    with pytest.raises(UsageError, match="shard_size must be positive"):
        repack(slab, tmp_path / "a", shard_size=0)
    for inside in (slab / "b", slab / "shard-00000" / "b"):
        with pytest.raises(UsageError, match="cannot lie within another"):
            repack(slab, inside)
        with pytest.raises(UsageError, match="cannot lie within another"):
            pack(make_table(3), inside, nulls={"*": "mask"})
    assert verify(slab).ok
    with pytest.raises(OutputExists):
        repack(slab, slab)
    with pytest.raises(UsageError, match="cannot replace itself"):
        repack(slab, slab, force=True)
    assert not (tmp_path / "a").exists()


def test_what_is_wrong_with_a_file_of_rows_is_said(slab: Path, tmp_path: Path) -> None:
    """An error names the line, the row or the reason; byte order marks are skipped."""
    out, file, mask = tmp_path / "a", tmp_path / "rows.txt", np.arange(1200) % 2 == 0
    file.write_bytes("\ufeff7\r\n\r\n 1100 \n".encode())
    assert repack(slab, out, rows_file=file).manifest.rows == 2
    file.write_text("1\n\n2,3\n")
    for rows, match in (
        (file, r"line 3 is not a row number: '2,3'"),
        (tmp_path / "none.txt", r"none.txt: rows_file: cannot be read: No such file"),
        (np.array([2**63 + 5], np.uint64), r"no such row \(row 9223372036854775813"),
        (mask, r"np\.flatnonzero"),
    ):
        with pytest.raises(UsageError, match=match):
            repack(slab, out, rows_file=rows, force=True)
    nothing = repack(slab, tmp_path / "b", rows_file=[]).path
    with pytest.raises(RowOutOfRange, match="the slab has no rows"):
        repack(nothing, out, drop_rows=[0], force=True)


def test_too_little_space_is_told_first(tmp_path: Path) -> None:
    """A slab that has no room, which its manifest tells, is refused before a byte is written."""
    source = tmp_path / "a.slab"
    pack(pa.table({"x": np.zeros((4, 8)).tolist()}), source)
    manifest = load_manifest(source)
    huge = 2**50
    plan = plans.RepackPlan(
        find_slabs(source),
        manifest,
        ((manifest.fields[0],) * 2,),
        {},
        {},
        np.array([[0, huge]]),
        None,
        "xxh3",
        1,
    )
    from fieldslab.packer.rewrite.repack import repack_plan

    with pytest.raises(NoSpace, match="nothing was written"):
        repack_plan(plan, tmp_path / "b.slab", False, 1, lambda *_: None)
    assert not (tmp_path / "b.slab").exists()


def test_damage_is_found(slab: Path, tmp_path: Path) -> None:
    """A flipped bit in the slab that is read is an error with the row; nothing is written."""
    copy = repack(slab, tmp_path / "copy").path
    file = sorted(copy.rglob("*long.values.npy"))[2]
    data = bytearray(file.read_bytes())
    data[5000] ^= 4
    file.write_bytes(data)
    for options in ({}, {"shuffle": 1}):
        with pytest.raises(DamagedArray, match="long"):
            repack(copy, tmp_path / "out", **options)  # type: ignore[arg-type]
        assert not (tmp_path / "out").exists()


def test_the_command_does_what_the_function_does(slab: Path, tmp_path: Path, cli: Any) -> None:
    """`fieldslab repack` gives the same slab, prints it, and verifies it if asked to."""
    expected = repack(slab, tmp_path / "expected", shuffle=9).manifest.id
    done = cli("repack", slab, tmp_path / "a", "--shuffle", 9, "--verify", "--json")
    assert done.json["verify"]["ok"], done
    assert load_manifest(tmp_path / "a").id == expected
    done = cli("repack", slab, "-o", tmp_path / "b", "--shuffle", 9, "--fields", "number")
    assert "1,200 rows" in done.out, done
    assert f"slab: {slab}\n" in cli("info", tmp_path / "b").out  # manifests hold no size of it
    assert cli("repack", slab).code == 2


def test_a_pack_is_shuffled(slab: Path, tmp_path: Path, cli: Any) -> None:
    """`pack` with a shuffle gives the rows of an ordered pack in the order of `repack`."""
    file = tmp_path / "a.parquet"
    pq.write_table(make_table(), file, row_group_size=100)
    options: dict[str, Any] = {"nulls": {"*": "mask"}, "shard_size": 20_000}
    ordered = pack(file, tmp_path / "ordered", **options)
    shuffled = pack(file, tmp_path / "a", shuffle=4, **options)
    again = repack(ordered.path, tmp_path / "again", shuffle=4)
    assert shuffled.manifest.id == again.manifest.id
    assert shuffled.manifest.made.options["shuffle"] == 4
    command = f"--shuffle 4 --nulls *=mask --shard-size 20000 -o {tmp_path / 'b'}"
    done = cli("pack", file, *command.split())
    assert load_manifest(tmp_path / "b").id == again.manifest.id, done
    streamed = pack(make_table(), tmp_path / "c", shuffle=4, **options)
    assert sorted(map(repr, read_rows(streamed.path))) == sorted(map(repr, read_rows(slab)))
    assert {path.name for path in tmp_path.iterdir()} == {*"abc", "ordered", "again", "a.parquet"}
    done = cli("verify", tmp_path / "a", "--against", file)
    assert done.code == 2
    assert "shuffled" in done.err


class _StopAfter:
    """Interrupts a pack, as a progress function, once more than so many rows were written."""

    def __init__(self, rows: int) -> None:
        self.left = rows

    def __call__(self, rows: int, bytes: int) -> None:
        self.left -= rows
        if self.left < 0:
            raise KeyboardInterrupt


def test_an_interrupted_shuffled_pack_goes_on(tmp_path: Path) -> None:
    """What was packed before the shuffle was interrupted is not packed again."""
    file, out = tmp_path / "a.parquet", tmp_path / "out"
    pq.write_table(make_table(), file, row_group_size=100)
    options: dict[str, Any] = {"nulls": {"*": "mask"}, "shard_size": 20_000, "shuffle": 4}
    expected = pack(file, tmp_path / "expected", **options).manifest.id
    for most in (300, 1500, 1000, 1800):  # while packed, scattered, scattered again, gathered
        stop = _StopAfter(most)
        with pytest.raises(KeyboardInterrupt):
            pack(file, out, progress=stop, **options)
        assert not out.exists()
    assert [path.name for path in (tmp_path / "out.unshuffled").iterdir()] == ["manifest.json"]
    assert pack(file, out, **options).manifest.id == expected
    with pytest.raises(KeyboardInterrupt):
        pack(file, out, force=True, progress=_StopAfter(2500), **options)
    other = pack(file, out, force=True, **options | {"shuffle": 5}).manifest
    assert other.id == pack(file, tmp_path / "other", **options | {"shuffle": 5}).manifest.id
    assert {path.name for path in tmp_path.iterdir()} == {"a.parquet", "expected", "out", "other"}


def test_a_shuffled_pack_whose_name_is_too_long(tmp_path: Path) -> None:
    """Where only what is built beside the slab has too long a name, it is an OutputError."""
    with pytest.raises(OutputError, match="File name too long"):
        pack(make_table(), tmp_path / ("x" * 240), nulls={"*": "mask"}, shuffle=4)


def test_a_shuffled_pack_killed_at_its_end(tmp_path: Path) -> None:
    """Killed while it removes what it packed first, or right behind its end, it leaves nothing."""
    file, place = tmp_path / "a.parquet", tmp_path / "place"
    place.mkdir()
    pq.write_table(make_table(100), file)
    options: dict[str, Any] = {"nulls": {"*": "mask"}, "shuffle": 4}
    expected = pack(file, tmp_path / "expected", **options).manifest.id
    for module, name, victim in ((os, "rename", "out"), (shutil, "rmtree", "out.unshuffled")):

        def pack_until_killed(module: Any = module, name: str = name, victim: str = victim) -> None:
            function = getattr(module, name)

            def die(*args: Any) -> None:
                if name == "rename":
                    function(*args)
                if args[-1] == place / victim:
                    os.kill(os.getpid(), signal.SIGKILL)
                if name == "rmtree":
                    function(*args)

            setattr(module, name, die)
            pack(file, place / "out", **options)

        assert is_killed(pack_until_killed)
        with suppress(OutputExists):
            pack(file, place / "out", **options)
        assert load_manifest(place / "out").id == expected
        assert [path.name for path in place.iterdir()] == ["out"]
        shutil.rmtree(place / "out")


def test_a_shuffled_pack_takes_its_space_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are there twice at most, and where there is no room for that, it is told first."""
    folder, peak = tmp_path / "place", 0
    folder.mkdir()

    def measure(rows: int, bytes: int) -> None:
        nonlocal peak
        peak = max(peak, sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()))

    options: dict[str, Any] = {"nulls": {"*": "mask"}, "shard_size": 20_000, "shuffle": 4}
    monkeypatch.setattr(plans, "CHUNK_BYTES", 50_000)
    size = pack(make_table(), folder / "a", progress=measure, **options).bytes
    assert peak < 2.2 * size
    numbers = tmp_path / "numbers.parquet"
    pq.write_table(pa.table({"x": np.arange(1000)}), numbers)
    monkeypatch.setattr(space, "get_free_bytes", lambda _: 12_000)
    pack(numbers, tmp_path / "b")
    with pytest.raises(NoSpace, match="nothing was written"):
        pack(numbers, tmp_path / "c", shuffle=1)


def test_runs_are_what_rows_are() -> None:
    """Runs list their rows, and are cut and grouped without losing or repeating one."""
    rng = np.random.default_rng(0)
    for total in (0, 1, 5, 100):
        rows = np.flatnonzero(rng.random(total) < 0.6)
        runs = make_runs(rows)
        assert np.array_equal(list_rows(runs), rows)
        cuts = [len(rows) // 3, 0, len(rows) - len(rows) // 3]
        parts = [list_rows(part) for part in cut_runs(runs, cuts)]
        assert list(map(len, parts)) == cuts
        assert np.array_equal(np.concatenate(parts), rows)
        for gap, most in ((0, 7), (2, 30), (50, 1)):
            groups = list(group_runs(runs, gap, most))
            joined = np.concatenate([*map(list_rows, groups), np.empty(0, np.int64)])
            assert np.array_equal(joined, rows)
            assert all(group[-1, 1] - group[0, 0] <= most for group in groups)


def test_deleted_rows_leave_no_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of the new slab has a byte string of a deleted row, dictionaries included."""
    marks = [f"<secret {number:06}>" for number in range(300)]
    random, words = np.random.default_rng(0), [f"word{number}" for number in range(50)]
    is_deleted = np.arange(600) % 2 == 0
    texts = [marks[row // 2] if row % 2 == 0 else f"kept row {row}" for row in range(600)]
    secret = np.array([0x5EC2E7, 0xFACADE, 0xDEC0DE], np.int64)
    table = pa.table(
        {
            "text": texts,
            "small": [f"{text} {' '.join(random.choice(words, 15))} {text}" for text in texts],
            "bytes": pa.array([text.encode() for text in texts], pa.binary()),
            "list": [secret.tolist() if deleted else [1, 2] for deleted in is_deleted],
            "number": np.where(is_deleted, secret[0], 7),
            "person": pa.array([text.ljust(130) for text in texts]).dictionary_encode(),
        }
    )
    source, out = tmp_path / "a.slab", tmp_path / "out.slab"
    pq.write_table(table, tmp_path / "a.parquet")
    pack(tmp_path / "a.parquet", source, compress="small", shard_size=20_000)
    (tmp_path / "a.parquet").unlink()
    patterns = [b"<secret", *(number.tobytes()[:4] for number in secret)]

    def count_marks(path: Path) -> list[int]:
        stored = [file.read_bytes() for file in path.rglob("*") if file.is_file()]
        return [sum(pattern in content for content in stored) for pattern in patterns]

    (dictionary,) = (source / "tables").glob("*.dictionary.npy")
    assert b"<secret" in dictionary.read_bytes()
    assert all(count_marks(source))
    forgotten = np.flatnonzero(is_deleted)
    monkeypatch.setattr(plans, "DIRECT_SHARDS", 1)
    choices: list[RepackOptions] = [
        {"drop_rows": forgotten},
        {"drop_rows": forgotten, "shuffle": 1, "force": True},
        {"where": "number == 7", "force": True},
        {"drop_rows": forgotten, "shard_size": "20K", "force": True},
    ]
    assert load_manifest(source).fields[-1].table is not None
    for options in choices:
        options["remove_unused_categories"] = "person"
        repack(source, out, **options)
        assert verify(out).ok
        people = open_slab(out).to_arrow()["person"].to_pylist()
        assert {person.strip() for person in people} == set(texts[1::2])
        assert len(open_slab(out)) == 300
        assert count_marks(out) == [0] * 4, options
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.slab", "out.slab"]


def test_a_shuffle_into_many_shards(tmp_path: Path) -> None:
    """It has as many shards as before, so each fits into memory; parts find their own alone."""
    manifest = load_manifest(pack({"x": np.arange(6)}, tmp_path / "x.slab").path)
    shards = tuple(replace_struct(manifest.shards[0], rows=5) for _ in range(1200))
    many = create_manifest(manifest.made, rows=6000, fields=manifest.fields, shards=shards)
    values = fill_defaults(RepackOptions, {"shuffle": 3}, "repack")
    plan = plans.make_repack_plan(find_slabs(tmp_path / "x.slab"), many, values)
    scattered = replace(plan, key_field=plans.make_key_field(many.fields), reads_keys=True)
    assert plan.shard_count == 1200
    for planned in (plan, scattered):
        tasks = planned.make_tasks()
        assert len(tasks) == planned.count_shuffled_shards() > 1024
        rows = np.concatenate([list_rows(task.runs) for task in tasks])
        assert np.array_equal(np.sort(rows), np.arange(6000))
        own = planned.make_tasks(PartNumber(2, 3).has_shard)
        assert [task.number for task in own] == list(range(1, len(tasks), 3))
        for task in own:
            assert np.array_equal(task.runs, tasks[task.number].runs)
