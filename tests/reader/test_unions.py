"""Many slabs as one: rows are those of the members, one behind the other."""

import pickle
from collections.abc import Callable, Mapping
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.jpegs import encode, photograph
from tests.naming import case
from tests.servers.web import WebServer
from tests.slabs import Column, categorical, images, lie_about, ragged, write_slab

from fieldslab.packer import pack
from fieldslab.reader import Decode, Loader, Shuffled, Slab, open_slab
from fieldslab.schemas.errors import DamagedArray, SlabNotFound, UsageError
from fieldslab.schemas.fields import Logical
from fieldslab.schemas.unions.members import compute_union_id

NAMES = ("ant", "bee", "cat", "dog", "eel")


def draw_columns(random: np.random.Generator, rows: int) -> tuple[dict[str, Any], list[Any]]:
    """Draw columns of every kind, and the rows that a slab must give back."""
    lengths = random.integers(0, 4, rows)
    names = random.permutation(NAMES)[: random.integers(1, 6)].tolist()
    codes = random.integers(0, len(names), rows)
    classes = random.permutation(NAMES)[: random.integers(1, 6)].tolist()
    labels = random.integers(-1, len(classes), rows)
    valid = random.random(rows) < 0.7 if random.random() < 0.5 else None
    text = ["".join(random.choice(list("äbc"), length)) for length in lengths]
    blobs = [random.bytes(int(length)) for length in lengths]
    parts = [random.integers(0, 99, (length, 2)) for length in lengths]
    wide = random.standard_normal((rows, 3)).astype(np.float32)
    wide[[] if valid is None else ~valid] = 0
    columns = {
        "wide": Column(wide, "fixed", "float32", (3,), valid),
        "text": Column(text, "text"),
        "blob": Column(blobs, "binary"),
        "parts": ragged(parts, "int64", (2,)),
        "city": categorical(codes, names, table=bool(random.random() < 0.3)),
        "label": Column(
            labels, "fixed", "int64", logical=Logical("class_label", names=tuple(classes))
        ),
        "image": images(blobs, np.zeros((rows, 2), np.uint32)),
    }
    present = np.ones(rows, bool) if valid is None else valid
    expected = [
        {
            "wide": wide[row].tolist() if present[row] else None,
            "text": text[row],
            "blob": blobs[row],
            "parts": parts[row].tolist(),
            "city": names[codes[row]],
            "label": classes[labels[row]] if labels[row] >= 0 else labels[row],
            "image": blobs[row],
        }
        for row in range(rows)
    ]
    return columns, expected


def to_rows(slab: Slab, rows: list[int]) -> list[dict[str, Any]]:
    """Gather rows, and name codes as people read them."""
    batch = slab.gather(rows)
    logical = slab.fields["label"].logical
    classes = logical.names if logical is not None and logical.names else ()
    read = []
    for index in range(len(rows)):
        row = {name: batch[name][index] for name in slab.fields}
        for name in slab.fields:
            if name in batch.valid and not batch.valid[name][index]:
                row[name] = None
        if row["city"] is not None:
            row["city"] = slab.categories("city")[int(row["city"])]
        read.append(_to_plain(row, classes))
    return read


def _to_plain(row: Mapping[str, Any], classes: Any) -> dict[str, Any]:
    plain = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in row.items()
    }
    if plain["label"] is not None and plain["label"] >= 0:
        plain["label"] = classes[plain["label"]]
    return plain


def test_rows_are_those_of_the_members(tmp_path: Path) -> None:
    """Whatever the members hold, gathers, rows, columns, views and copies give their rows."""
    random = np.random.default_rng(7)
    for trial in range(12):
        places, expected = [], []
        for member in range(int(random.integers(1, 5))):
            rows = int(random.integers(0, 9))
            columns, stored = draw_columns(random, rows)
            if random.random() < 0.3 and member:
                lacking = str(random.choice(list(columns)[:-2]))
                del columns[lacking]
                stored = [row | {lacking: None} for row in stored]
            cut = int(random.integers(0, rows + 1))
            shards = [size for size in (cut, rows - cut) if size]
            places.append(write_slab(tmp_path / f"{trial}-{member}", columns, shards))
            expected.append(stored)
        union, joined = open_slab(places, missing="null"), list(chain.from_iterable(expected))
        ends = [0, *accumulate(map(len, expected))]
        ranges = [range(*pair) for pair in pairwise(ends)]
        with case(trial, [list(map(len, expected))]):
            assert union.members == dict(zip(map(str, places), ranges, strict=True))
            drawn = random.integers(0, len(joined), 12).tolist() if joined else []
            assert to_rows(union, drawn) == [joined[row] for row in drawn]
            owners = np.searchsorted(ends[1:], drawn, side="right")
            assert union.member_of(drawn).tolist() == owners.tolist()
            again = pickle.loads(pickle.dumps(union[::-1]))
            assert to_rows(again, drawn) == [joined[::-1][row] for row in drawn]
            logical = union.fields["label"].logical
            for row in drawn[:3]:
                assert _to_plain(union[row], logical and logical.names) == joined[row]
            for row in drawn[:1]:
                assert list(union["text"][row:]) == [each["text"] or "" for each in joined[row:]]


def test_fields_that_contradict_are_refused(tmp_path: Path) -> None:
    """A field of another kind, dtype or shape is named, with both slabs."""
    first = write_slab(tmp_path / "a.slab", {"x": np.arange(3), "y": np.arange(3)})
    cases = {
        "dtype": (np.arange(3, dtype=np.int32), "int64"),
        "shape": (np.zeros((3, 2), np.int64), "int64"),
        "kind": (["a", "b", "c"], "text"),
        "meaning": (Column(np.arange(3), "fixed", "int64", logical=Logical("time", "s")), "time"),
    }
    for name, (values, found) in cases.items():
        other = write_slab(tmp_path / f"{name}.slab", {"x": values, "y": np.arange(3)})
        with case(name), pytest.raises(UsageError, match=rf"a.slab.*field x.*{found}") as caught:
            open_slab([first, other])
        assert str(other) in str(caught.value)
    lacking = write_slab(tmp_path / "lacking.slab", {"x": np.arange(3)})
    with pytest.raises(UsageError, match=r'1 of the slabs lack.*field y.*lacking.*missing="null"'):
        open_slab([first, lacking])
    with pytest.raises(UsageError, match="only whole slabs"):
        open_slab(first)[:2] + open_slab(first)


def test_places_of_slabs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns, names and sums give the same union; its `id` follows from those of its members."""
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        write_slab(tmp_path / f"{name}.slab", {"x": np.arange(3)})
    slabs = [open_slab(name) for name in ("a.slab", "b.slab")]
    union = open_slab(["a.slab", "b.slab"])
    assert union.manifest.id == compute_union_id([slab.manifest.id for slab in slabs])
    assert union.members == {"a.slab": range(3), "b.slab": range(3, 6)}
    assert open_slab("[ab].slab").members == union.members
    named = open_slab({"web": ["a.slab", "b.slab"], "code": str(tmp_path / "a.slab")})
    assert named.members == {"web": range(6), "code": range(6, 9)}
    assert named[2:8:2].members == {"web": range(2), "code": range(2, 3)}
    total = sum(slabs)
    assert isinstance(total, Slab)
    assert list(total.members.values()) == list(union.members.values())
    assert total.manifest.id == union.manifest.id
    with pytest.raises(UsageError, match="do not follow each other"):
        open_slab(["a.slab", "b.slab", "a.slab"])
    with pytest.raises(SlabNotFound, match="no directory matches"):
        open_slab("c*.slab")
    with pytest.raises(UsageError, match="no slab in the list"):
        open_slab([])


def test_codes_that_no_member_has_are_damage(tmp_path: Path) -> None:
    """A code beyond the categories of its own slab is an error, not one of another slab."""
    first = write_slab(tmp_path / "a", {"c": categorical([0], ["x", "y", "z"])})
    second = write_slab(tmp_path / "b", {"c": categorical([0, 2], ["z", "x", "y"])})
    lie_about(second, "c", categories=("z", "x"))
    union = open_slab([first, second])
    assert union.gather([0, 1])["c"].tolist() == [0, 2]
    for read in (lambda: union.gather([2]), lambda: union[2]):
        with pytest.raises(DamagedArray, match=r"b/shard-00000.*row 2.*0\.\.1, found 2"):
            read()
    with pytest.raises(UsageError, match="no addresses"):
        union.addresses([0], "c")


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Slabs with zstd dictionaries of their own, and with images as pixels, JPEG, or both."""
    folder, places = tmp_path_factory.mktemp("compressed"), []
    random = np.random.default_rng(0)
    for index, name in enumerate(("red", "green", "blue")):
        words = [f"{name}{number}" for number in range(50)]
        text = [" ".join(random.choice(words, 15)) for _ in range(400)]
        pictures = [encode(photograph(24, 32, row)) for row in range(4)] * 100
        table = pa.table({"text": text, "image": pa.array(pictures, pa.binary())})
        image = [{"image": "rgb"}, ["image"], {"image": "rgb,fraction=0.5"}][index]
        pq.write_table(table, folder / f"{name}.parquet")
        pack(folder / f"{name}.parquet", folder / name, compress="text", image=image)
        places.append(folder / name)
    return places


def test_each_member_has_its_own_dictionary_and_codec(compressed: list[Path]) -> None:
    """Frames and images are decoded as their slab has them, alone and in batches."""
    slabs, union = [open_slab(path) for path in compressed], open_slab(compressed)
    assert len({slab.manifest.tables for slab in slabs}) == 3
    rows = np.random.default_rng(0).permutation(1200)[:60]
    steps = {"image": [Decode()]}
    batch = union.gather(rows, decode=steps)
    for index, row in enumerate(rows.tolist()):
        alone = slabs[row // 400].gather([row % 400], decode=steps)
        assert batch["text"][index] == alone["text"][0] == union[row]["text"]
        assert np.array_equal(batch["image"][index], alone["image"][0])


def test_a_loader_goes_on_over_slabs_here_and_elsewhere(
    tmp_path: Path, serve: Callable[..., WebServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches over a mirror and a directory are right, resumed and in a process of their own."""
    paths = [
        write_slab(tmp_path / "web" / name, {"x": np.arange(200) + 1000 * index, "t": [name] * 200})
        for index, name in enumerate("ab")
    ]
    server = serve(tmp_path / "web")
    places: dict[str, str | Path] = {
        "far": f"{server.url}/a",
        "near": paths[1],
        "again": f"{server.url}/b",
    }
    monkeypatch.setenv("FIELDSLAB_CACHE_DIR", str(tmp_path / "cache"))
    slab = open_slab(places, verify=False)
    assert slab.members == {"far": range(200), "near": range(200, 400), "again": range(400, 600)}
    x = np.concatenate([np.arange(200), np.arange(200) + 1000, np.arange(200) + 1000])
    text = ["a"] * 200 + ["b"] * 400
    loader = Loader(slab, batch_size=32, order=Shuffled(seed=1))
    batches = iter(loader)
    seen = [next(batches) for _ in range(5)]
    state = loader.state_dict()
    expected = [batch.rows.tolist() for batch in batches]
    other = Loader(
        pickle.loads(pickle.dumps(slab)), batch_size=32, order=Shuffled(seed=1), isolate=True
    )
    other.load_state_dict(state)
    rest = list(other)
    assert [batch.rows.tolist() for batch in rest] == expected
    for batch in seen + rest:
        assert batch["x"].tolist() == x[batch.rows].tolist()
        assert list(batch["t"]) == [text[row] for row in batch.rows]
    assert slab[0]["t"] == "a"
    assert slab.lengths([0, 300], "t").tolist() == [1, 1]
    other.close()
    loader.close()
