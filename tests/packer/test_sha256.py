"""Slabs whose blocks have SHA-256 digests: on every path, and beside slabs with XXH3."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.forging import make_twins
from tests.naming import case
from tests.repairs import read_content
from tests.servers.web import WebServer
from tests.slabs import flip

from fieldslab.packer import concat, copy_slab, pack, repack, repair, verify
from fieldslab.packer.parts.packing import finish_parts
from fieldslab.reader import open_slab
from fieldslab.schemas.arrays import HEADER, make_array_header
from fieldslab.schemas.digest import BLOCK, XXH3
from fieldslab.schemas.errors import DamagedArray, DamagedManifest, UsageError
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.manifest import MANIFEST, Manifest, create_manifest, encode_manifest

ROWS, WIDTH = 60, 3000
OPTIONS: dict[str, Any] = {"shard_size": "256K", "compress": ["story"], "digest": "sha256"}
VALUES = "00-x.values.npy"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of several kinds, for several shards and tables."""
    rng = np.random.default_rng(0)
    values = pa.array(rng.random(ROWS * WIDTH).astype("f4"))
    columns = {
        "x": pa.FixedSizeListArray.from_arrays(values, WIDTH),
        "text": [f"row {row} " * (row % 7) for row in range(ROWS)],
        "city": pa.array([f"{row % 40} " * 900 for row in range(ROWS)]).dictionary_encode(),
        "story": [f"once upon a time, {row}, there was a slab " * 20 for row in range(ROWS)],
    }
    path = tmp_path_factory.mktemp("sha256") / "rows.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=20)
    return path


@pytest.fixture(scope="module")
def packed(source: Path) -> Path:
    """The rows, packed with SHA-256: do not write to it."""
    return pack(source, source.with_name("sha256.slab"), **OPTIONS).path


@pytest.fixture
def slab(packed: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return Path(shutil.copytree(packed, tmp_path / "x.slab"))


def reseal(slab: Path, **changes: Any) -> Manifest:
    """Give a slab a sound manifest with changes."""
    manifest = load_manifest(slab)
    members = {name: getattr(manifest, name) for name in ("rows", "fields", "shards", "tables")}
    members |= {"attributes": manifest.attributes, "digest": manifest.digest} | changes
    changed = create_manifest(manifest.made, **members)
    (slab / MANIFEST).write_bytes(encode_manifest(changed))
    return changed


def test_the_table_holds_sha256_of_each_block(packed: Path) -> None:
    """A table is uint8 (blocks, 32), in the order of the arrays; its root is in the manifest."""
    manifest = load_manifest(packed)
    assert len(manifest.shards) == 3
    assert manifest.tables is not None
    for folder, root in [("shard-00000", manifest.shards[0].root), ("tables", manifest.tables)]:
        table = np.load(packed / folder / "digests.npy")
        files = sorted(path for path in (packed / folder).iterdir() if path.name != "digests.npy")
        roles = ["categories.values", "categories.offsets", "dictionary"]
        roles += ["values", "offsets", "lengths"]
        files.sort(key=lambda path: (path.name[:2], roles.index(path.name.split(".", 1)[1][:-4])))
        data = [path.read_bytes()[HEADER:] for path in files]
        blocks = [
            each[start : start + BLOCK] for each in data for start in range(0, len(each), BLOCK)
        ]
        assert len(blocks) > 2
        assert [row.tobytes() for row in table] == [hashlib.sha256(b).digest() for b in blocks]
        assert hashlib.sha256(table.tobytes()).hexdigest() == root


def test_digests_change_nothing_but_tables(source: Path, packed: Path, tmp_path: Path) -> None:
    """`repack` changes digests to and fro, and gives the slab that pack gives; arrays stay."""
    other = pack(source, tmp_path / "xxh3.slab", **OPTIONS | {"digest": "xxh3"})
    assert b'"digest"' not in (other.path / MANIFEST).read_bytes().partition(b'"made"')[0]
    forth = repack(packed, tmp_path / "forth.slab", digest="xxh3")
    assert forth.manifest.id == other.manifest.id != load_manifest(packed).id
    back = repack(forth.path, tmp_path / "back.slab", digest="sha256")
    assert back.manifest.id == repack(packed, tmp_path / "same.slab").manifest.id
    assert back.manifest.id == load_manifest(packed).id
    ours, theirs = read_content(packed), read_content(other.path)
    assert {name for name in ours if ours[name] != theirs[name]} == {
        name for name in ours if name.endswith("digests.npy") or name == MANIFEST
    }
    shuffled = repack(packed, tmp_path / "shuffled.slab", shuffle=1, shard_size="64K")
    assert shuffled.manifest.digest == "sha256"
    assert verify(shuffled.path).ok
    for name in ("md5", "", "SHA256"):
        with case(name), pytest.raises(UsageError, match="xxh3, sha256"):
            pack(source, tmp_path / "no.slab", digest=name)


def test_parts_give_the_same_slab(source: Path, packed: Path, tmp_path: Path, cli: Any) -> None:
    """A plan keeps the kind of digests: the parts of many machines are the slab of one."""
    plan, out = tmp_path / "rows.plan", tmp_path / "x.slab"
    words = ("--digest", "sha256", "--compress", "story", "--shard-size", "256K")
    assert cli("pack", source, "-o", out, "--plan", plan, *words).code == 0
    for part in ("1/2", "2/2"):
        assert cli("pack", "--plan", plan, "--part", part).code == 0
    assert finish_parts(plan).manifest.id == load_manifest(packed).id


def test_every_reader_finds_a_flipped_bit(
    slab: Path, packed: Path, tmp_path: Path, serve: Callable[..., WebServer], cli: Any
) -> None:
    """Gathers, mirrors, copies, verify and exports name the block; what is whole is read."""
    server = serve(tmp_path)
    whole = open_slab(packed)
    rows = np.arange(ROWS)
    expected = whole.gather(rows)
    for place in (slab, f"{server.url}/x.slab"):
        read = open_slab(place, cache_dir=None if place is slab else tmp_path / "cache")
        batch = read.gather(rows)
        assert np.array_equal(batch["x"], expected["x"])
        for name in ("text", "city", "story"):
            assert list(batch[name]) == list(expected[name])
    flip(slab / "shard-00001" / VALUES, BLOCK + 9)
    wrong = hashlib.sha256((slab / "shard-00001" / VALUES).read_bytes()[HEADER + BLOCK :][:BLOCK])
    for place in (slab, f"{server.url}/x.slab"):
        read = open_slab(place, cache_dir=None if place is slab else tmp_path / "other")
        assert np.array_equal(read.gather([0])["x"][0], expected["x"][0])
        with case(place), pytest.raises(DamagedArray, match=wrong.hexdigest()):
            read.gather(rows)
        with case(place), pytest.raises(DamagedArray, match=wrong.hexdigest()):
            copy_slab(place, tmp_path / "copy.slab")
        problems = verify(place).problems
        assert [problem.found for problem in problems] == [wrong.hexdigest()]
    assert cli("export", slab, "-o", tmp_path / "x.parquet").code == 1
    with pytest.raises(DamagedArray, match=wrong.hexdigest()):
        repack(slab, tmp_path / "y.slab")


def test_a_forged_block_is_found(tmp_path: Path) -> None:
    """Of two blocks made to have one XXH3, a slab with XXH3 takes both, one with SHA-256 one."""
    ours, theirs = make_twins(bytes(range(256)) * 256)
    assert ours != theirs
    assert XXH3.compute(ours) == XXH3.compute(theirs)
    table = pa.table({"x": pa.array(list(ours), pa.uint8())})
    for digest, is_whole in (("xxh3", True), ("sha256", False)):
        path = pack(table, tmp_path / f"{digest}.slab", digest=digest).path
        with (path / "shard-00000" / VALUES).open("r+b") as file:
            file.seek(HEADER)
            file.write(theirs)
        with case(digest):
            assert verify(path).ok is is_whole


def test_tables_that_do_not_fit_are_refused(slab: Path, packed: Path) -> None:
    """A table of another width, another root or an unknown kind is a named error at once."""
    folder = slab / "shard-00001"
    data = (folder / "digests.npy").read_bytes()[HEADER:]
    blocks = len(data) // 32
    narrow = np.zeros(blocks, "<u8").tobytes()
    wide = make_array_header(np.dtype("<u8"), (blocks * 4,)) + data
    for content, words in (
        (make_array_header(np.dtype("<u8"), (blocks,)) + narrow, "wrong size"),
        (wide, "wrong header"),
        (make_array_header(np.dtype("u1"), (blocks, 32)) + bytes(len(data)), "table is damaged"),
    ):
        (folder / "digests.npy").write_bytes(content)
        with case(words):
            with pytest.raises(DamagedArray, match=words):
                open_slab(slab).gather(range(ROWS))
            assert words in verify(slab).problems[0].problem
    shutil.rmtree(slab)
    shutil.copytree(packed, slab)
    reseal(slab, digest="xxh3")
    with pytest.raises(DamagedArray, match=r"digests\.npy: wrong size"):
        open_slab(slab).gather([0])
    text = (packed / MANIFEST).read_text()
    for old, new, words in (
        ('"digest": "sha256",\n"made"', '"digest": "md5",\n"made"', "digest"),
        ('"rows": 20, ', '"rows": 20, "digest": "xxh3", ', "unknown field `digest`"),
    ):
        assert text.count(old) >= 1, old
        body = text.replace(old, new, 1).rpartition(',\n"sha256"')[0]
        seal = hashlib.sha256(body.encode()).hexdigest()
        (slab / MANIFEST).write_text(f'{body},\n"sha256": "{seal}"\n}}\n')
        with case(new), pytest.raises(DamagedManifest, match=words):
            open_slab(slab)


def test_slabs_of_both_kinds_together(source: Path, packed: Path, tmp_path: Path) -> None:
    """A union reads and checks each member by its own kind; `concat` wants one kind."""
    fast = pack(source, tmp_path / "xxh3.slab", **OPTIONS | {"digest": "xxh3"}).path
    both = open_slab([packed, fast])
    rows = np.array([3, ROWS + 3, ROWS - 1, 2 * ROWS - 1])
    batch = both.gather(rows)
    assert np.array_equal(batch["x"][0::2], batch["x"][1::2])
    flip(fast / "shard-00000" / VALUES, 9)
    with pytest.raises(DamagedArray, match=r"xxh3\.slab"):
        open_slab([packed, fast]).gather(rows)
    flip(fast / "shard-00000" / VALUES, 9)
    joined = repack([packed, fast], tmp_path / "joined.slab")
    assert (joined.manifest.digest, joined.manifest.rows) == ("sha256", 2 * ROWS)
    with pytest.raises(UsageError, match=r"another kind of digest.*expected sha256, found xxh3"):
        concat([packed, fast], tmp_path / "concat.slab")
    twice = concat([packed, packed], tmp_path / "concat.slab")
    assert twice.digest == "sha256"
    assert verify(tmp_path / "concat.slab").ok


def test_repairs(source: Path, packed: Path, slab: Path) -> None:
    """Blocks, headers and tables come back from a copy or the source, with the same bytes."""
    expected = read_content(packed)
    helpers: list[dict[str, Any]] = [{"against": source}, {"from_": packed}]
    for helper in helpers:
        flip(slab / "shard-00001" / VALUES, BLOCK + 9)
        flip(slab / "shard-00000" / "01-text.values.npy", 9 - HEADER)
        (slab / "shard-00002" / "digests.npy").unlink()
        flip(slab / "tables" / "digests.npy", 40)
        with case(helper):
            assert repair(slab, **helper).ok
            assert read_content(slab) == expected


def test_info_says_the_kind(source: Path, packed: Path, tmp_path: Path, cli: Any) -> None:
    """`info` names the kind of digests, as text and as JSON; of a union all kinds."""
    assert "digest  sha256" in cli("info", packed).out
    assert json.loads(cli("info", packed, "--json").out)["digest"] == "sha256"
    fast = pack(source, tmp_path / "xxh3.slab", **OPTIONS | {"digest": "xxh3"}).path
    assert cli("union", tmp_path / "all.slabs", "add", packed, fast).code == 0
    assert "digests sha256, xxh3" in cli("info", tmp_path / "all.slabs").out
    assert json.loads(cli("info", tmp_path / "all.slabs", "--json").out)["digests"] == [
        "sha256",
        "xxh3",
    ]
