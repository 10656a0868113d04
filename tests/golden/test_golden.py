"""Frozen slabs of format version 1: they can be read for ever, by numpy alone too."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from tests.contents import Row, as_row, gathered, nested_row
from tests.golden.make import FOLDER, SLABS, plain
from tests.schemas.codecs.reference import index_points

from fieldslab.packer import verify
from fieldslab.reader import open_slab
from fieldslab.schemas import layout
from fieldslab.schemas.digest import BLOCK_DIGESTS
from fieldslab.schemas.fields import DtypeName, Field, Kind, Logical
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.images import read_image_size
from fieldslab.schemas.manifest import Manifest

NAMES = sorted(SLABS)


def slab_path(name: str) -> Path:
    """Directory of a frozen slab."""
    return FOLDER / f"{name}.slab"


def expected_rows(name: str) -> dict[str, list[Row]]:
    """What a frozen slab holds: see `Golden.rows` in make.py."""
    document = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return {field: [_row(row) for row in rows] for field, rows in document.items()}


def _row(told: Any) -> Row:
    if not isinstance(told, dict):
        return None if told is None else str(told)
    return bytes.fromhex(told["hex"]) * told.get("times", 1)


class NumpyReader:
    """Reads rows with `numpy.load` and the manifest as plain JSON: nothing of ours."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = json.loads((path / "manifest.json").read_bytes())

    def rows(self, field: dict[str, Any]) -> Iterator[Row]:
        """Every row of a field, in order."""
        for index, shard in enumerate(self.manifest["shards"]):
            folder = self.path / f"shard-{index:05d}"
            yield from self._shard(field, folder, shard["rows"])

    def _load(self, folder: Path, field: dict[str, Any], role: str) -> np.ndarray:
        loaded = np.load(folder / f"{field['stem']}.{role}.npy", mmap_mode="r", allow_pickle=False)
        assert isinstance(loaded, np.memmap)
        return loaded

    def _shard(self, field: dict[str, Any], folder: Path, count: int) -> Iterator[Row]:
        values = self._load(folder, field, "values")
        valid = np.ones(count, bool)
        if (folder / f"{field['stem']}.valid.npy").exists():
            valid = self._load(folder, field, "valid")
        for row in range(count):
            data = self._bytes(field, folder, values, row)
            if valid[row] and field["kind"] == "nested":
                yield self._lists(field, folder, row, data)
            else:
                yield self._meaning(field, data) if valid[row] else None

    def _lists(self, field: dict[str, Any], folder: Path, row: int, data: bytes) -> Row:
        lengths = self._load(folder, field, "lists.values")
        offsets = self._load(folder, field, "lists.offsets")
        width = np.dtype(field.get("dtype", "uint8")).itemsize
        size, start, rows = width * int(np.prod(field.get("shape", []))), 0, list[Row]()
        for length in lengths[offsets[row] : offsets[row + 1]].tolist():
            part = data[start : start + size * max(length, 0)]
            rows.append(None if length < 0 else self._meaning({"kind": field["inner"]}, part))
            start += len(part)
        assert start == len(data)
        return nested_row(rows)

    def _bytes(self, field: dict[str, Any], folder: Path, values: np.ndarray, row: int) -> bytes:
        if "compression" not in field and field["kind"] in ("fixed", "categorical"):
            return bytes(values[row].tobytes())
        offsets = self._load(folder, field, "offsets")
        data = bytes(values[offsets[row] : offsets[row + 1]].tobytes())
        if "compression" not in field or not data:
            return data
        dictionary = None
        if field["compression"].get("dictionary"):
            stored = self._load(self.path / "tables", field, "dictionary")
            dictionary = zstandard.ZstdCompressionDict(stored.tobytes())
        return bytes(zstandard.ZstdDecompressor(dict_data=dictionary).decompress(data))

    def _meaning(self, field: dict[str, Any], data: bytes) -> Row:
        if field["kind"] == "text":
            return data.decode()
        if field["kind"] != "categorical":
            return data
        code = int(np.frombuffer(data, "<i4")[0])
        if "categories" in field:
            return str(field["categories"][code])
        names = self._load(self.path / "tables", field, "categories.values")
        offsets = self._load(self.path / "tables", field, "categories.offsets")
        return bytes(names[offsets[code] : offsets[code + 1]].tobytes()).decode()


@pytest.mark.parametrize("name", NAMES)
def test_numpy_alone_reads_them(name: str) -> None:
    """`numpy.load(mmap_mode="r")` and a JSON parser are enough to get every row of every field."""
    reader, expected = NumpyReader(slab_path(name)), expected_rows(name)
    fields = reader.manifest["fields"]
    assert [field["name"] for field in fields] == list(expected)
    for field in fields:
        assert list(reader.rows(field)) == expected[field["name"]], field["name"]


@pytest.mark.parametrize("verify_blocks", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_slab_gives_every_row(name: str, verify_blocks: bool) -> None:
    """`slab[i]` gives what was packed, with digests checked or not."""
    slab, expected = open_slab(slab_path(name), verify=verify_blocks), expected_rows(name)
    assert len(slab) == len(next(iter(expected.values())))
    for index in range(len(slab)):
        row = slab[index]
        assert {key: as_row(value) for key, value in row.items()} == {
            key: rows[index] for key, rows in expected.items()
        }


@pytest.mark.parametrize("name", NAMES)
def test_gather_gives_every_row(name: str) -> None:
    """A batch of all rows, in disorder and some of them twice, gives what was packed."""
    slab, expected = open_slab(slab_path(name)), expected_rows(name)
    order = np.random.default_rng(4).integers(0, max(len(slab), 1), 2 * len(slab)).tolist()
    for field in expected:
        assert gathered(slab, order, field) == [expected[field][row] for row in order], field


@pytest.mark.parametrize("name", NAMES)
def test_they_verify(name: str) -> None:
    """`verify` finds nothing wrong with them."""
    report = verify(slab_path(name))
    assert report.ok, report.problems


@pytest.mark.parametrize("name", NAMES)
def test_expected_content_is_that_of_the_maker(name: str) -> None:
    """The JSON beside each slab still is what make.py would write."""
    told = {field: [plain(row) for row in rows] for field, rows in SLABS[name]().rows.items()}
    assert json.loads((FOLDER / f"{name}.json").read_text("utf-8")) == told


@pytest.mark.parametrize("name", [name for name in NAMES if SLABS[name]().reproducible])
def test_the_same_content_has_the_same_id(name: str, tmp_path: Path) -> None:
    """Packed again, from the same values, a slab has the id that it had when it was frozen."""
    frozen = load_manifest(slab_path(name)).id
    assert SLABS[name]().pack(tmp_path, tmp_path / "again.slab") == frozen


@pytest.mark.parametrize("name", NAMES)
def test_nothing_else_lies_there(name: str) -> None:
    """Each folder has the files that the manifest tells of, and no other."""
    path, manifest = slab_path(name), load_manifest(slab_path(name))
    expected = {"manifest.json"}
    for index in range(len(manifest.shards)):
        folder, files = layout.name_shard(index), layout.list_shard_files(manifest, index)
        expected |= {f"{folder}/{name}" for name in [layout.DIGESTS, *(f.name for f in files)]}
    if manifest.tables is not None:
        files = layout.list_table_files(manifest)
        expected |= {f"tables/{name}" for name in [layout.DIGESTS, *(f.name for f in files)]}
    assert {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()} == expected


def manifests() -> list[Manifest]:
    """The manifests of all frozen slabs."""
    return [load_manifest(slab_path(name)) for name in NAMES]


def fields() -> list[Field]:
    """The fields of all frozen slabs."""
    return [field for manifest in manifests() for field in manifest.fields]


def test_everything_is_frozen_once() -> None:
    """Every kind, dtype, logical type and role that the format has occurs in some frozen slab."""
    kinds, dtypes = Kind.__args__, DtypeName.__args__  # type: ignore[attr-defined]
    logical = Logical.__annotations__["type"].__args__
    assert {field.kind for field in fields()} == set(kinds)
    assert {field.dtype for field in fields()} == set(dtypes)
    assert {field.logical.type for field in fields() if field.logical} == set(logical)
    assert {field.codec for field in fields() if field.codec} == {"jpeg", "mixed", "rgb", "yuv420"}
    roles = {path.name.split(".", 1)[1] for path in FOLDER.rglob("*.npy") if "-" in path.name}
    assert {role.removesuffix(".npy") for role in roles} == set(layout.Role.__args__)  # type: ignore[attr-defined]
    assert {len(manifest.shards) > 1 for manifest in manifests()} == {True, False}
    assert any(max(shard.nulls, default=0) == shard.rows for m in manifests() for shard in m.shards)


def test_every_kind_of_digest_is_frozen() -> None:
    """Both kinds of digests occur; in tables they are as the manifest's `digest` says."""
    assert {manifest.digest for manifest in manifests()} == set(BLOCK_DIGESTS)
    for name, manifest in zip(NAMES, manifests(), strict=True):
        tables = [np.load(path) for path in slab_path(name).glob("*/digests.npy")]
        widths = {"xxh3": ("<u8", ()), "sha256": ("|u1", (32,))}[manifest.digest]
        assert {(table.dtype.str, table.shape[1:]) for table in tables} <= {widths}


def test_sizes_of_images_are_right() -> None:
    """Stored heights and widths are those of the frozen images."""
    slab = open_slab(slab_path("kinds"))
    images = [image for image in expected_rows("kinds")["image"] if isinstance(image, bytes)]
    assert {read_image_size(memoryview(image)) for image in images} == {
        ("jpeg", 16, 24),
        ("png", 16, 24),
        ("webp", 16, 24),
    }
    sizes = np.concatenate([np.load(p) for p in sorted(slab.path.glob("*/*-image.size.npy"))])
    rows = expected_rows("kinds")["image"]
    assert sizes.tolist() == [[0, 0] if row is None else [16, 24] for row in rows]


def load_all(name: str, array: str) -> np.ndarray:
    """One array of a field, of all shards."""
    actual = [np.load(path) for path in sorted(slab_path(name).glob(f"*/*-{array}.npy"))]
    return np.concatenate(actual)


@pytest.mark.parametrize(
    ("name", "field", "every"), [("indexed", "photo", 8), ("pixels", "some", 0)]
)
def test_index_points_are_right(name: str, field: str, every: int) -> None:
    """Frozen points are those that reading the bits one by one gives; other images have none."""
    manifest = load_manifest(slab_path(name))
    assert {field.name: field.index for field in manifest.fields}[field] == every
    expected, counts = [], []
    for data in expected_rows(name)[field]:
        data = data if isinstance(data, bytes) else b""
        whole = data.startswith(b"\xff\xd8") and data.endswith(b"\xff\xd9")
        actual = index_points(data, every) if whole and b"\xff\xc2" not in data else []
        expected += [
            [bit & 0xFFFF, bit >> 16, *(predictor % 2**16 for predictor in [*p, 0, 0][:3])]
            for bit, p in actual
        ]
        counts.append(len(actual))
    assert load_all(name, f"{field}.points.values").tolist() == expected
    ends = [np.load(p) for p in sorted(slab_path(name).glob(f"*/*-{field}.points.offsets.npy"))]
    assert np.concatenate([np.diff(row_ends) for row_ends in ends]).tolist() == counts
    assert len(expected) == {0: 9, 8: 42}[every]
    assert 0 in counts


def test_pixels_are_told() -> None:
    """Sizes are those of the pixels; codes stand where rows hold pixels beside others."""
    assert set(map(tuple, load_all("pixels", "rgb.size").tolist())) == {(7, 9)}
    assert load_all("pixels", "yuv420.size").tolist() == [[7, 9], [0, 0]] * 4
    codes = [4 if row in (1, 2, 4, 5, 6) else 1 for row in range(8)]
    assert load_all("pixels", "some.codec").tolist() == codes
    assert not list(slab_path("pixels").glob("*/*-rgb.codec.npy"))
