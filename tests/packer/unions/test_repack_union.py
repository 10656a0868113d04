"""`repack` of many slabs as one: a slab with the rows of the union."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.jpegs import encode, photograph
from tests.naming import case
from tests.reader.test_unions import draw_columns
from tests.servers.s3 import Bucket
from tests.slabs import array_path, categorical, images, lie_about, write_slab

from fieldslab.packer import pack, repack, verify
from fieldslab.packer.copying.copy_slab import copy_slab
from fieldslab.packer.rewrite import plan as plans
from fieldslab.packer.unions.union_changes import add_slabs
from fieldslab.reader import Decode, open_slab
from fieldslab.schemas.errors import DamagedArray, SlabNotFound, UsageError
from fieldslab.schemas.folder import load_manifest


def to_rows(place: Any) -> list[Any]:
    """List the rows of a slab or union as Python values."""
    rows: list[Any] = open_slab(place, missing="null").to_arrow().to_pylist()
    return rows


def test_rows_are_those_of_the_union(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the members hold, rows come whole: in their order, shuffled, chosen, in parts."""
    random = np.random.default_rng(3)
    for trial in range(8):
        places = []
        for member in range(int(random.integers(1, 4))):
            rows = int(random.integers(0, 9))
            columns, _ = draw_columns(random, rows)
            if random.random() < 0.3 and member:
                del columns[str(random.choice(list(columns)[:-2]))]
            cut = int(random.integers(0, rows + 1))
            shards = [size for size in (cut, rows - cut) if size]
            places.append(write_slab(tmp_path / f"{trial}-{member}", columns, shards))
        expected = to_rows(places)
        kept = np.flatnonzero(random.random(len(expected)) < 0.5)
        options: list[dict[str, Any]] = [
            {},
            {"shard_size": 200, "shuffle": 1},
            {"rows_file": kept, "where": "city != 'ant'", "fields": ["city", "text"]},
        ]
        for number, chosen in enumerate(options):
            out = tmp_path / f"{trial}-out{number}"
            if number == 1:
                monkeypatch.setattr(plans, "DIRECT_SHARDS", 0)
            packed = repack(places, out, missing="null", **chosen)
            monkeypatch.undo()
            with case(trial, number):
                assert verify(out).ok
                read, wanted = to_rows(out), expected
                if number == 1:
                    read, wanted = sorted(read, key=repr), sorted(wanted, key=repr)
                if number == 2:
                    wanted = [
                        {name: expected[row][name] for name in ("text", "city")}
                        for row in kept
                        if expected[row]["city"] not in (None, "ant")
                    ]
                assert read == wanted
                sources = packed.manifest.made.sources
                assert [source["path"] for source in sources] == list(map(str, places))


def test_stored_bytes_are_copied(tmp_path: Path) -> None:
    """Images keep their bytes and index points, whatever codec each slab has; frames are right."""
    places, random = [], np.random.default_rng(0)
    for index, name in enumerate(("red", "green", "blue")):
        words = [f"{name}{number}" for number in range(50)]
        pictures = [encode(photograph(24, 32, row)) for row in range(4)] * 50
        table = pa.table(
            {
                "text": [" ".join(random.choice(words, 15)) for _ in range(200)],
                "image": pa.array(pictures, pa.binary()),
            }
        )
        image: Any = [{"image": "rgb"}, ["image"], ["image"]][index]
        places.append(tmp_path / name)
        pq.write_table(table, tmp_path / "source.parquet")
        pack(tmp_path / "source.parquet", places[-1], compress="text", image=image)
        assert load_manifest(places[-1]).fields[0].list_arrays_in_tables()
    for chosen in (places, places[1:]):
        out, union = tmp_path / f"out{len(chosen)}", open_slab(chosen)
        repack(chosen, out, jobs=len(chosen) - 1)
        assert verify(out).ok
        slab = open_slab(out)
        assert slab.fields["image"].index == union.fields["image"].index
        rows = random.permutation(len(union))[:40]
        copied, stored = slab.gather(rows), union.gather(rows)
        assert list(copied["text"]) == list(stored["text"])
        assert list(copied["image"]) == list(stored["image"])
        steps = {"image": [Decode()]}
        decoded = slab.gather(rows, decode=steps)["image"]
        for index, pixels in enumerate(union.gather(rows, decode=steps)["image"]):
            assert np.array_equal(decoded[index], pixels)
    points = [array_path(place, "image", "points.values") for place in (places[1], out)]
    assert points[1].read_bytes()[4096:].startswith(points[0].read_bytes()[4096:])


def test_places_and_what_is_wrong_with_them(tmp_path: Path, bucket: Bucket) -> None:
    """A union file, also with members in a bucket, is a source; errors say what to do instead."""
    for index, name in enumerate("ab"):
        columns = {"x": np.arange(4) + 10 * index, "c": categorical([0, 1, 0, 1], [name, "z"])}
        write_slab(tmp_path / f"{name}.slab", columns)
    copy_slab(tmp_path / "b.slab", f"{bucket.url}/b.slab", destination_options=bucket.options)
    union, out = tmp_path / "all.slabs", tmp_path / "out.slab"
    add_slabs(str(union), [str(tmp_path / "a.slab")])
    add_slabs(str(union), [f"{bucket.url}/b.slab"], storage_options=bucket.options)
    expected = to_rows([tmp_path / "a.slab", tmp_path / "b.slab"])
    mirrored = open_slab(union, cache_dir=tmp_path / "cache", storage_options=bucket.options)
    assert mirrored.to_arrow().to_pylist() == expected
    assert mirrored.categories("c") == ("a", "z", "b")
    view = open_slab([tmp_path / "a.slab", tmp_path / "b.slab"]).where("c == 'z'")
    view.save(tmp_path / "z.rows")
    for number, options in enumerate(({}, {"rows_file": tmp_path / "z.rows"})):
        path = tmp_path / f"out{number}"
        repack(union, path, storage_options=bucket.options, **options)  # type: ignore[arg-type]
        assert to_rows(path) == [row for row in expected if not number or row["c"] == "z"]
    lacking = write_slab(tmp_path / "c.slab", {"x": np.arange(2)})
    with pytest.raises(UsageError, match=r'lack a field.*missing="null"'):
        repack([tmp_path / "a.slab", lacking], out)
    with pytest.raises(UsageError, match="cannot replace itself"):
        repack(str(tmp_path / "[ab].slab"), tmp_path / "a.slab", force=True)
    with pytest.raises(SlabNotFound, match="rows_file"):
        repack(tmp_path / "z.rows", out)


def test_a_code_that_a_member_lacks_is_damage(tmp_path: Path) -> None:
    """A code beyond the categories of its slab is an error, and nothing is written."""
    first = write_slab(tmp_path / "a", {"c": categorical([0], ["x", "y", "z"])})
    second = write_slab(tmp_path / "b", {"c": categorical([0, 2], ["z", "x", "y"])})
    lie_about(second, "c", categories=("z", "x"))
    with pytest.raises(DamagedArray, match=r"field c.*0\.\.1.*found 2"):
        repack([first, second], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_images_without_codes_get_them(tmp_path: Path) -> None:
    """Where slabs of pixels and of files are joined, each image has the code of its codec."""
    jpeg, size = encode(photograph(8, 8, 0)), np.full((2, 2), 8, np.uint32)
    encoded = write_slab(tmp_path / "a", {"i": images([jpeg, b""], size)})
    lie_about(encoded, "i", codec="mixed")
    pixels = write_slab(tmp_path / "b", {"i": images([bytes(192)] * 2, size)})
    lie_about(pixels, "i", codec="rgb")
    repack([encoded, pixels], tmp_path / "out")
    files = [array_path(tmp_path / "out", "i", "codec", shard) for shard in (0, 1)]
    assert [np.load(file).tolist() for file in files] == [[1, 0], [4, 4]]
