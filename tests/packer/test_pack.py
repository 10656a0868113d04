"""Pack: what lies in a slab, how it is cut into shards, and what it is called."""

import io
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fieldslab.packer import PackResult, pack, verify
from fieldslab.packer.options import parse_options
from fieldslab.packer.plan import make_plan
from fieldslab.packer.source import find_source
from fieldslab.packer.write import finish
from fieldslab.schemas import layout, manifest
from fieldslab.schemas.access import find_table_folder, iterate_folders
from fieldslab.schemas.errors import SourceUnsupported, UsageError
from fieldslab.schemas.folder import load_manifest, open_slab_files

ROWS = 1000


def table(seed: int = 0, rows: int = ROWS) -> pa.Table:
    """Rows of several kinds; nulls from row 400 to 499."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 5, rows)
    weight = [None if 400 <= i < 500 else i / 7 for i in range(rows)]
    return pa.table(
        {
            "id": pa.array(rng.integers(-(2**62), 2**62, rows)),
            "text": [f"{'ä' * int(n)}{i}" for i, n in enumerate(lengths)],
            "tokens": pa.array([list(range(n)) for n in lengths.tolist()], pa.list_(pa.int16())),
            "weight": pa.array(weight, pa.float32()),
            "city": pa.array([f"city {n}" for n in lengths]).dictionary_encode(),
        }
    )


NULLS = {"weight": "mask"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The table as Parquet, 100 rows in a row group."""
    path = tmp_path / "rows.parquet"
    pq.write_table(table(), path, row_group_size=100)
    return path


def batches(rows: pa.Table, size: int) -> Iterator[pa.RecordBatch]:
    """A table as a stream."""
    return iter(rows.to_batches(max_chunksize=size))


def arrays(slab: Path, name: str) -> list[np.ndarray]:
    """One array of every shard that has it."""
    return [np.load(path) for path in sorted(slab.glob(f"shard-*/{name}.npy"))]


def texts(slab: Path, stem: str) -> list[bytes]:
    """The rows of a field of bytes, over all shards."""
    results = []
    pairs = zip(arrays(slab, f"{stem}.values"), arrays(slab, f"{stem}.offsets"), strict=True)
    for values, offsets in pairs:
        data = values.tobytes()
        cuts = offsets.tolist()
        results += [data[a:b] for a, b in pairwise(cuts)]
    return results


def check_content(packed: PackResult, rows: pa.Table) -> None:
    """Check a slab of `table()` against it, by numpy alone, and all its digests."""
    slab, wanted = packed.path, rows.to_pydict()
    assert np.concatenate(arrays(slab, "00-id.values")).tolist() == wanted["id"]
    assert [text.decode() for text in texts(slab, "01-text")] == wanted["text"]
    tokens = [np.frombuffer(row, "<i2").tolist() for row in tokens_of(slab)]
    assert tokens == wanted["tokens"]
    weight = np.concatenate(arrays(slab, "03-weight.values"))
    expected = np.array([w or 0 for w in wanted["weight"]], "f4")
    assert weight.tobytes() == expected.tobytes()
    categories = packed.manifest.fields[4].categories
    assert categories is not None
    codes = np.concatenate(arrays(slab, "04-city.values"))
    assert [categories[code] for code in codes] == wanted["city"]
    with open_slab_files(slab) as files:
        for folder in iterate_folders(files):
            folder.load_digests()
            names = {file.name for file in folder.files} | {layout.DIGESTS}
            assert names == set(os.listdir(folder.path))


def tokens_of(slab: Path) -> list[bytes]:
    """The bytes of each row of `tokens`."""
    results = []
    values, offsets = arrays(slab, "02-tokens.values"), arrays(slab, "02-tokens.offsets")
    for part, cuts in zip(values, offsets, strict=True):
        results += [part[a:b].tobytes() for a, b in pairwise(cuts)]
    return results


@pytest.mark.parametrize("shard_size", [1, 5000, "1G"])
def test_parquet_comes_back(shard_size: int | str, source: Path, tmp_path: Path) -> None:
    """Whatever the shards, the arrays hold the rows of the file, in order."""
    packed = pack(source, tmp_path / "x.slab", nulls=NULLS, shard_size=shard_size)
    check_content(packed, table())
    assert all(shard.rows % 100 == 0 for shard in packed.manifest.shards)
    count = {1: range(10, 11), 5000: range(2, 10), "1G": range(1, 2)}[shard_size]
    assert len(packed.manifest.shards) in count


@pytest.mark.parametrize(("shard_size", "count"), [(5000, 6), ("1G", 1)])
def test_streams_are_cut_by_rows(shard_size: int | str, count: int, tmp_path: Path) -> None:
    """The shards of a stream and its id do not depend on the batches it comes in."""
    packs = [
        pack(batches(table(), size), tmp_path / f"{size}.slab", nulls=NULLS, shard_size=shard_size)
        for size in (1, 77, 999, 1000)
    ]
    for packed in packs:
        check_content(packed, table())
        assert packed.manifest.rows == ROWS
        assert len(packed.manifest.shards) == count
    assert len({packed.manifest.id for packed in packs}) == 1


def test_what_offers_an_arrow_stream(tmp_path: Path) -> None:
    """Anything with `__arrow_c_stream__` is a source, whatever its class."""

    class Frame:
        def __arrow_c_stream__(self, schema: object = None) -> Any:
            return table().__arrow_c_stream__(schema)

    check_content(pack(Frame(), tmp_path / "x.slab", nulls=NULLS), table())


def test_what_pack_returns(source: Path, tmp_path: Path) -> None:
    """`pack` tells the path, the manifest, the bytes of all files and the time it took."""
    packed = pack(source, tmp_path / "x.slab", nulls=NULLS)
    assert packed.path == tmp_path / "x.slab"
    assert packed.manifest == load_manifest(packed.path)
    files = [path for path in packed.path.rglob("*") if path.is_file()]
    assert packed.bytes == sum(path.stat().st_size for path in files)
    assert packed.seconds > 0
    assert packed.reused_shards == 0
    assert packed.warnings == ()


# The id


def test_id_does_not_depend_on_place_or_time(source: Path, tmp_path: Path) -> None:
    """The same source has the same id, wherever it lies, however often it is packed."""
    first = pack(source, tmp_path / "1.slab", nulls=NULLS).manifest
    moved = source.rename(tmp_path / "moved.parquet")
    os.utime(moved, ns=(0, 0))
    second = pack(moved, tmp_path / "2.slab", nulls=NULLS).manifest
    assert first.id == second.id
    assert first.made != second.made


def test_id_does_not_depend_on_jobs(source: Path, tmp_path: Path) -> None:
    """Several processes write the same slab, byte for byte; progress is told of each row once."""
    packed = []
    for jobs in (1, 2):
        told: list[int] = []
        packed.append(
            pack(
                source,
                tmp_path / f"{jobs}.slab",
                nulls=NULLS,
                shard_size=5000,
                jobs=jobs,
                progress=lambda rows, bytes, told=told: told.append(rows),
            )
        )
        assert sum(told) == ROWS
    first, two = packed
    assert first.manifest.id == two.manifest.id
    for path in first.path.glob("shard-*/*"):
        assert path.read_bytes() == (two.path / path.relative_to(first.path)).read_bytes()


def test_id_depends_on_the_content(source: Path, tmp_path: Path) -> None:
    """One other value, name or option that shows in the data is another id."""
    other = tmp_path / "other.parquet"
    pq.write_table(table(1), other, row_group_size=100)
    choices: list[tuple[Path, dict[str, Any]]] = [
        (source, {}),
        (other, {}),
        (source, {"limit": 999}),
        (source, {"exclude": "id"}),
        (source, {"rename": {"id": "key"}}),
        (source, {"cast": {"tokens": "int32"}}),
    ]
    actual = {
        pack(choice, tmp_path / f"{number}.slab", nulls=NULLS, **options).manifest.id
        for number, (choice, options) in enumerate(choices)
    }
    assert len(actual) == 6


# Nulls, categories, images


def test_valid_arrays_where_there_are_nulls(source: Path, tmp_path: Path) -> None:
    """Only the shard with nulls has a validity array, and the manifest counts them."""
    packed = pack(source, tmp_path / "x.slab", nulls=NULLS, shard_size=1)
    assert [field.nullable for field in packed.manifest.fields] == [0, 0, 0, 1, 0]
    assert [shard.nulls for shard in packed.manifest.shards] == [
        (100 if index == 4 else 0,) for index in range(10)
    ]
    (valid,) = packed.path.glob("shard-*/03-weight.valid.npy")
    assert valid.parent.name == "shard-00004"
    assert not np.load(valid).any()


def test_masks_without_nulls(tmp_path: Path) -> None:
    """A field that may have nulls but has none is not nullable."""
    packed = pack(table().slice(0, 400), tmp_path / "x.slab", nulls={"*": "mask"})
    assert not any(field.nullable for field in packed.manifest.fields)
    assert packed.manifest.shards[0].nulls == ()


def test_nulls_that_come_late(tmp_path: Path) -> None:
    """A null in the last batch makes a validity array for all rows of the shard."""
    packed = pack(batches(table(), 10), tmp_path / "x.slab", nulls=NULLS, rows="0:401")
    (valid,) = arrays(packed.path, "03-weight.valid")
    assert valid.tolist() == [True] * 400 + [False]


def categorical(count: int, length: int = 8) -> pa.Table:
    """A column of so many categories, each of so many characters."""
    names = [f"{i:0{length}d}" for i in range(count)]
    return pa.table({"c": pa.array(names * 2).dictionary_encode()})


@pytest.mark.parametrize(
    ("count", "length", "inline"),
    [(1024, 8, True), (1025, 8, False), (64, 1024, True), (64, 1025, False), (1, 65536, True)],
)
def test_where_categories_stand(count: int, length: int, inline: bool, tmp_path: Path) -> None:
    """Few categories stand in the manifest, many or long ones in arrays of their own."""
    packed = pack(categorical(count, length), tmp_path / "x.slab")
    (field,) = packed.manifest.fields
    names = [f"{i:0{length}d}" for i in range(count)]
    if inline:
        assert field.categories == tuple(names)
        assert packed.manifest.tables is None
        assert not (packed.path / "tables").exists()
    else:
        assert field.table is not None
        assert (field.table.count, field.table.bytes) == (count, count * length)
        tables = packed.path / "tables"
        assert np.load(tables / "00-c.categories.values.npy").tobytes() == "".join(names).encode()
        offsets = np.load(tables / "00-c.categories.offsets.npy")
        assert offsets.tolist() == list(range(0, count * length + 1, length))
        with open_slab_files(packed.path) as files:
            folder = find_table_folder(files)
            assert folder is not None
            folder.load_digests()


def test_categories_of_many_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the manifest has held enough categories, the other fields get tables."""
    monkeypatch.setattr(finish, "MAX_ALL_INLINE_BYTES", 1000)
    columns = {name: categorical(50)["c"] for name in "abcd"}
    packed = pack(pa.table(columns), tmp_path / "x.slab")
    assert [field.table is None for field in packed.manifest.fields] == [True, True, False, False]


def picture(codec: str) -> bytes:
    """A small image."""
    stream = io.BytesIO()
    Image.new("RGB", (6, 4)).save(stream, codec)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("rows", "codec", "warned"),
    [
        (["jpeg", "jpeg"], "jpeg", False),
        (["png", "webp"], "mixed", False),
        (["png", None, "png"], "mixed", True),
    ],
)
def test_codec_of_images(rows: list[str | None], codec: str, warned: bool, tmp_path: Path) -> None:
    """`codec` is that of all images, or 'mixed'; what is no image is warned of, and kept."""
    values = [picture(row) if row else b"no image" for row in rows]
    packed = pack(pa.table({"i": values}), tmp_path / "x.slab", image="i")
    assert packed.manifest.fields[0].codec == codec
    assert texts(packed.path, "00-i") == values
    assert np.load(packed.path / "shard-00000" / "00-i.size.npy").tolist() == [
        [4, 6] if row else [0, 0] for row in rows
    ]
    assert [warning[:12] for warning in packed.warnings] == (["i: 1 of 3 va"] if warned else [])


# Nothing, and too much


@pytest.mark.parametrize("from_", ["parquet", "table", "reader", "limit"])
def test_no_rows(from_: str, source: Path, tmp_path: Path) -> None:
    """A source without rows makes a slab without shards."""
    empty = table().slice(0, 0)
    pq.write_table(empty, tmp_path / "empty.parquet")
    columns = {
        "parquet": tmp_path / "empty.parquet",
        "table": empty,
        "reader": pa.RecordBatchReader.from_batches(empty.schema, []),
        "limit": source,
    }[from_]
    limit = 0 if from_ == "limit" else None
    packed = pack(columns, tmp_path / "x.slab", nulls=NULLS, limit=limit)
    assert (packed.manifest.rows, packed.manifest.shards) == (0, ())
    assert len(packed.manifest.fields) == 5
    assert os.listdir(packed.path) == ["manifest.json"]


def test_empty_row_groups_and_batches(tmp_path: Path) -> None:
    """Row groups and batches without rows leave no trace."""
    empty, full = table().slice(0, 0), table().slice(0, 10)
    with pq.ParquetWriter(tmp_path / "x.parquet", full.schema) as writer:
        for part in (empty, full, empty, empty, full, empty):
            writer.write_table(part)
    packed = pack(tmp_path / "x.parquet", tmp_path / "1.slab", shard_size=1)
    assert [shard.rows for shard in packed.manifest.shards] == [10, 10]
    parts = [*empty.to_batches(), *full.to_batches(), *empty.to_batches(), *full.to_batches()]
    assert pack(iter(parts), tmp_path / "2.slab").manifest.rows == 20


def test_rows_in_the_middle(source: Path, tmp_path: Path) -> None:
    """`rows` takes a range over row groups and shards."""
    packed = pack(source, tmp_path / "x.slab", nulls=NULLS, rows="150:951", shard_size=1)
    check_content(packed, table().slice(150, 801))


def test_many_shards_are_avoided(tmp_path: Path) -> None:
    """However small the shard size, a process can map the arrays of all shards."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": np.arange(20_000)}), path, row_group_size=1)
    plan = make_plan(find_source(path), parse_options(shard_size=1))
    assert 8_000 <= len(plan.tasks) <= 16_384
    assert plan.rows == 20_000


def test_a_manifest_that_no_reader_would_take_is_not_published(tmp_path: Path) -> None:
    """Where the manifest would be larger than readers allow, pack says so and leaves nothing."""
    schema = pa.schema([("x", pa.int64())], {"note": "n" * manifest.MAX_BYTES})
    pq.write_table(pa.table({"x": [1]}, schema), tmp_path / "x.parquet")
    with pytest.raises(SourceUnsupported, match="manifest is too large"):
        pack(tmp_path / "x.parquet", tmp_path / "x.slab")
    assert not (tmp_path / "x.slab").exists()


def test_sources_in_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest names the first of many source files, and counts the others."""
    monkeypatch.setattr(finish, "MAX_SOURCES", 3)
    for number in range(5):
        pq.write_table(pa.table({"x": [number]}), tmp_path / f"{number}.parquet")
    provenance = pack(str(tmp_path / "*.parquet"), tmp_path / "x.slab").manifest.made
    assert [Path(source["path"]).name for source in provenance.sources[:3]] == [
        "0.parquet",
        "1.parquet",
        "2.parquet",
    ]
    assert provenance.sources[3:] == ({"more": 2},)


def test_how_it_was_made(source: Path, tmp_path: Path) -> None:
    """The manifest tells tool, options and reasons, for people."""
    provenance = pack(source, tmp_path / "x.slab", nulls=NULLS, shard_size="5k").manifest.made
    assert provenance.tool.startswith("fieldslab ")
    assert provenance.options["from"] == "parquet"
    assert provenance.options["shard_size"] == 5 * 1024
    assert list(provenance.reasons) == ["id", "text", "tokens", "weight", "city"]
    (source_entry,) = provenance.sources
    assert source_entry["path"].endswith("rows.parquet")
    assert source_entry["bytes"] == source.stat().st_size


@pytest.mark.parametrize("jobs", [0, -1])
def test_jobs_must_be_positive(jobs: int, source: Path, tmp_path: Path) -> None:
    """A number of processes below one is a usage error, found before the source is read."""
    for nulls in (NULLS, {}):
        with pytest.raises(UsageError, match="at least 1"):
            pack(source, tmp_path / "x.slab", nulls=nulls, jobs=jobs)
    assert os.listdir(tmp_path) == ["rows.parquet"]


@pytest.mark.parametrize("wrong", [None, "", 5, b"out.slab", ["out.slab"]])
def test_a_slab_is_named_by_a_path(wrong: Any) -> None:
    """Whatever is no path is refused by name, by pack and by verify."""
    for call in (lambda: pack([pa.record_batch({"x": [1]})], wrong), lambda: verify(wrong)):
        with pytest.raises(UsageError, match="by its path"):
            call()
