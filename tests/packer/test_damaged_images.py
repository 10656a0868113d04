"""Rows whose images cannot be decoded, left out: which, how they are told, and what is compared."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.jpegs import encode, photograph
from tests.packer.readback import Readback

from fieldslab.packer import PackResult, pack, verify
from fieldslab.packer.cli import run
from fieldslab.schemas.errors import SourceInconsistent, SourceUnsupported, UsageError

ROWS = 40
GOOD = [encode(photograph(40 + index, 60 - index, index)) for index in range(8)]


def png() -> bytes:
    """A photograph as PNG."""
    stream = io.BytesIO()
    Image.fromarray(photograph(30, 20, 9)).save(stream, "png")
    return stream.getvalue()


BOMB = png()[:16] + b"\0\0\x7f\xff" * 2 + png()[24:]
PROGRESSIVE = encode(photograph(50, 50, 3), progressive=True)
BAD = {
    0: GOOD[0][:-300],
    5: png()[:-60],
    6: b"no picture",
    7: b"",
    19: BOMB,
    20: PROGRESSIVE[:500],
    39: GOOD[1][:100],
}
"""Row -> what cannot be decoded; 39 is the last row, and 6, 7, 19 and 20 have neighbours."""
KEPT = [row for row in range(ROWS) if row not in BAD]


def images() -> list[bytes | None]:
    """Photographs of several kinds, damaged ones, and a null."""
    kinds = [*GOOD, png(), PROGRESSIVE]
    rows: list[bytes | None] = [BAD.get(row, kinds[row % len(kinds)]) for row in range(ROWS)]
    rows[11] = None
    return rows


def table() -> pa.Table:
    """Images with their row, a ragged column, and a category that only a damaged row has."""
    names = ["odd" if row == 6 else f"name {row % 3}" for row in range(ROWS)]
    return pa.table(
        {
            "name": pa.array(names).dictionary_encode(),
            "i": pa.array(images(), pa.binary()),
            "row": np.arange(ROWS),
            "list": [list(range(row % 5)) for row in range(ROWS)],
        }
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The table as Parquet, in row groups of ten."""
    pq.write_table(table(), tmp_path / "i.parquet", row_group_size=10)
    return tmp_path / "i.parquet"


def packed(source: Any, out: Path, spec: str | None = None, **options: Any) -> PackResult:
    """Pack without the damaged images."""
    return pack(
        source,
        out,
        image={"i": spec},
        nulls="i=mask",
        on_error="skip",
        force=True,
        **options,
    )


def check(out: Path, against: Path, done: PackResult) -> Readback:
    """The slab has exactly the rows that are whole, and agrees with its source."""
    report = verify(out, against=against)
    assert report.ok, report.problems
    back = Readback(out)
    assert [int(row) for row in back.column("row")] == KEPT
    assert [len(row) for row in back.column("list")] == [row % 5 for row in KEPT]
    assert back.column("name") == [f"name {row % 3}" for row in KEPT]
    assert [left_out.row for left_out in done.left_out] == list(BAD)
    return back


@pytest.mark.parametrize("index", [8, None])
def test_files(source: Path, tmp_path: Path, index: int | None) -> None:
    """Images that stay files are left out where they cannot be decoded, with index or without."""
    out = tmp_path / "x.slab"
    done = packed(source, out, jpeg_index=index)
    assert check(out, source, done).column("i") == [images()[row] for row in KEPT]
    assert {left_out.field for left_out in done.left_out} == {"i"}
    reasons = {left_out.row: left_out.reason for left_out in done.left_out}
    assert "truncated" in reasons[0]
    assert reasons[6] == "cannot be decoded: not an image of a known format"
    assert "too many pixels" in reasons[19]
    assert done.warnings[0].startswith("7 of 40 rows left out, since their images cannot be")
    assert done.warnings[1].startswith("left out row 0 of the source: i cannot be decoded: ")


@pytest.mark.parametrize("spec", ["rgb", "yuv420,short-side=16,fraction=0.5", "jpeg,long-side=20"])
def test_forms_shards_and_jobs(source: Path, tmp_path: Path, spec: str) -> None:
    """The slab is the same for any number of jobs, and a fraction has the same rows as ever."""
    single = packed(source, tmp_path / "x.slab", spec, shard_size=1)
    assert [shard.rows for shard in single.manifest.shards] == [6, 9, 9, 9]
    check(tmp_path / "x.slab", source, single)
    two = packed(
        source, tmp_path / "y.slab", spec, shard_size=1, jobs=2 if "fraction" in spec else 1
    )
    whole = packed(source, tmp_path / "z.slab", spec)
    assert single.manifest.id == two.manifest.id
    assert single.left_out == two.left_out == whole.left_out
    assert Readback(tmp_path / "z.slab").column("i") == Readback(tmp_path / "x.slab").column("i")


@pytest.mark.parametrize("shard_size", [1, 4000, 30_000, 2**30])
@pytest.mark.parametrize("size", [1, 7, ROWS])
def test_streams(source: Path, tmp_path: Path, shard_size: int, size: int) -> None:
    """Wherever batches and shards of a stream end, the same rows are left out, each told once."""
    batches: Iterator[pa.RecordBatch] = iter(table().to_batches(max_chunksize=size))
    done = packed(batches, tmp_path / "x.slab", shard_size=shard_size)
    check(tmp_path / "x.slab", source, done)


def test_going_on(source: Path, tmp_path: Path) -> None:
    """What an interrupted pack left out is told by the one that goes on, too."""
    out = tmp_path / "x.slab"
    done = 0

    def progress(rows: int, bytes: int) -> None:
        nonlocal done
        done += rows
        if done > 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packed(source, out, shard_size=1, progress=progress)
    again = packed(source, out, shard_size=1)
    assert again.reused_shards == 2
    check(out, source, again)


def test_rows_are_those_of_the_source(source: Path, tmp_path: Path) -> None:
    """With `--rows`, rows are still counted from the beginning of the source."""
    done = packed(source, tmp_path / "x.slab", rows="4:30")
    assert [left_out.row for left_out in done.left_out] == [5, 6, 7, 19, 20]
    assert verify(tmp_path / "x.slab", against=source).ok


def test_comparing_stays_truthful(source: Path, tmp_path: Path) -> None:
    """A source that changed is found: in a kept row, in a row left out, and in other fields."""
    out = tmp_path / "x.slab"
    packed(source, out)
    assert verify(out, against=source, fields=["row"]).ok
    for row, image in ((8, GOOD[7]), (6, GOOD[7]), (8, b"damaged")):
        rows = images()
        rows[row] = image
        changed = table().set_column(1, "i", pa.array(rows, pa.binary()))
        pq.write_table(changed, tmp_path / "other.parquet", row_group_size=10)
        assert not verify(out, against=tmp_path / "other.parquet").ok
    numbers = np.arange(ROWS)
    numbers[8] = -1
    pq.write_table(table().set_column(2, "row", [numbers]), tmp_path / "other.parquet")
    (problem,) = verify(out, against=tmp_path / "other.parquet", fields=["row"]).problems
    assert problem.rows == (KEPT.index(8),) * 2


def test_files_are_named(tmp_path: Path) -> None:
    """Of a folder of images the files are named, empty ones and those that are no images, too."""
    folder = tmp_path / "f"
    (folder / "a").mkdir(parents=True)
    for row, image in enumerate(images()):
        (folder / "a" / f"{row:02}.jpg").write_bytes(GOOD[0] if image is None else image)
    with pytest.raises(SourceUnsupported, match='on_error="skip"'):
        pack(folder, tmp_path / "x.slab")
    done = pack(folder, tmp_path / "x.slab", on_error="skip")
    assert [left_out.file for left_out in done.left_out] == [
        f"{folder}/a/{row:02}.jpg" for row in BAD
    ]
    assert verify(tmp_path / "x.slab", against=folder).ok
    for row in (6, 7):
        (folder / "a" / f"{row:02}.jpg").unlink()
    with pytest.raises(SourceInconsistent, match="cannot be decoded") as caught:
        pack(folder, tmp_path / "y.slab", image="image:rgb", rows="1:")
    assert caught.value.context["file"] == f"{folder}/a/05.jpg"


def test_nothing_else_is_left_out(source: Path, tmp_path: Path) -> None:
    """Without the option a damaged image is an error, with it a null still is one."""
    with pytest.raises(SourceInconsistent, match='on_error="skip"') as caught:
        pack(source, tmp_path / "x.slab", image="i:rgb", nulls="i=mask")
    assert caught.value.context["row"] == 0
    with pytest.raises(Exception, match="1 null"):
        pack(source, tmp_path / "x.slab", image="i", on_error="skip")


def test_nothing_left(tmp_path: Path) -> None:
    """A shard, or a stream, of nothing but damaged images is an error: no shard is empty."""
    rows = pa.table({"i": pa.array([*GOOD[:2], b"x", b"y", *GOOD[2:4]], pa.binary())})
    pq.write_table(rows, tmp_path / "i.parquet", row_group_size=2)
    with pytest.raises(SourceInconsistent, match="none of 2 images can be decoded") as caught:
        packed(tmp_path / "i.parquet", tmp_path / "x.slab", shard_size=1)
    assert "shard_size" in str(caught.value.hint)
    assert packed(tmp_path / "i.parquet", tmp_path / "x.slab").manifest.rows == 4
    with pytest.raises(SourceInconsistent, match="none of 2 images"):
        packed(rows[2:4], tmp_path / "y.slab")


def test_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first twenty rows are named by warnings, all of them by `--json`."""
    rows = [GOOD[0], *[b"x"] * 23]
    pq.write_table(pa.table({"i": pa.array(rows, pa.binary())}), tmp_path / "i.parquet")
    options = ["--image", "i", "--on-error", "skip", "--json"]
    assert run(["pack", str(tmp_path / "i.parquet"), "-o", str(tmp_path / "x.slab"), *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [left_out["row"] for left_out in told["left_out"]] == list(range(1, 24))
    assert told["left_out"][0]["reason"] == "cannot be decoded: not an image of a known format"
    assert (
        len([warning for warning in told["warnings"] if warning.startswith("left out row")]) == 20
    )
    assert "... and 3 more: the result names all of them in `left_out`" in told["warnings"]


def test_the_command(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows are counted in the summary, and named on stderr; wrong words are refused."""
    out = tmp_path / "x.slab"
    options = ["--image", "i", "--nulls", "i=mask", "--on-error", "skip"]
    assert run(["pack", str(source), "-o", str(out), *options]) == 0
    told = capsys.readouterr()
    assert "33 rows (7 left out)" in told.out
    assert told.err.count("warning: left out row ") == 7
    assert run(["pack", str(source), "-o", str(out), "--on-error", "fill"]) == 2
    assert "raise or skip" in capsys.readouterr().err
    with pytest.raises(UsageError, match="no field is an image"):
        pack(source, tmp_path / "y.slab", exclude="i", on_error="skip")
