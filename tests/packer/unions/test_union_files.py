"""Union files: what is listed is what is read, and each change is whole or an error."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.servers.s3 import Bucket
from tests.slabs import array_path, categorical, flip, lie, write_slab

from fieldslab.packer.check.verify import verify
from fieldslab.packer.copying.copy_slab import copy_slab
from fieldslab.packer.unions.concat import concat
from fieldslab.packer.unions.union_changes import add_slabs, read_union_file, remove_slabs
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import (
    DamagedManifest,
    OutputChanged,
    SlabChanged,
    SlabNotFound,
    UsageError,
)
from fieldslab.schemas.stores.directory import DirectoryStore


@pytest.fixture
def slabs(tmp_path: Path) -> list[Path]:
    """Three slabs of four rows, beside each other."""
    return [
        write_slab(
            tmp_path / "parts" / f"{name}.slab",
            {
                "x": np.arange(4) + 10 * index,
                "c": categorical([0, 1, 0, 1], ["p", "q"], table=True),
            },
            [3, 1],
        )
        for index, name in enumerate("abc")
    ]


def test_a_union_file_is_opened_as_one_slab(slabs: list[Path], tmp_path: Path) -> None:
    """Slabs are found beside the file, wherever it is moved; readers stay on their generation."""
    place = str(tmp_path / "all.slabs")
    assert add_slabs(place, [str(slabs[0])]).generation == 1
    before = open_slab(place)
    added = add_slabs(place, [str(slabs[2])], name="last")
    union = open_slab(place)
    assert union.members == {"parts/a.slab": range(4), "last": range(4, 8)}
    assert union["x"][:].tolist() == [0, 1, 2, 3, 20, 21, 22, 23]
    assert added.id == union.manifest.id == open_slab([slabs[0], slabs[2]]).manifest.id
    assert remove_slabs(place, [str(slabs[0])]).generation == 3
    assert before["x"][:].tolist() == [0, 1, 2, 3]
    assert list(open_slab({"all": place, "b": slabs[1]}).members) == ["all", "b"]
    assert (
        add_slabs(str(tmp_path / "more.slabs"), [place, str(slabs[1])]).id
        == open_slab([slabs[2], slabs[1]]).manifest.id
    )
    moved = tmp_path.rename(tmp_path.with_name(tmp_path.name + "-moved"))
    try:
        assert open_slab(moved / "all.slabs")["x"][0] == 20
    finally:
        moved.rename(tmp_path)


def test_what_does_not_fit_is_refused(slabs: list[Path], tmp_path: Path) -> None:
    """Not two slabs of one name, other fields, a slab that was replaced, or a damaged file."""
    place = str(tmp_path / "all.slabs")
    with pytest.raises(SlabNotFound, match="fieldslab union"):
        open_slab(place)
    add_slabs(place, [str(slab) for slab in slabs[:2]])
    content = Path(place).read_bytes()
    with pytest.raises(UsageError, match=r"another slab of this name.*remove parts/b\.slab.*name"):
        add_slabs(place, [str(slabs[2])], name="parts/b.slab")
    other = write_slab(tmp_path / "other.slab", {"x": ["text"]})
    with pytest.raises(UsageError, match="field x"):
        add_slabs(place, [str(other)])
    with pytest.raises(UsageError, match="no such slab"):
        remove_slabs(place, [str(slabs[2])])
    assert Path(place).read_bytes() == content
    lie(slabs[1], attributes={"changed": True})
    with pytest.raises(SlabChanged, match=r"b\.slab.*lists"):
        open_slab(place)
    with pytest.raises(SlabChanged, match=r"b\.slab.*lists"):
        add_slabs(str(tmp_path / "more.slabs"), [place])
    Path(place).write_bytes(content.replace(b'"generation": 1', b'"generation": 2'))
    with pytest.raises(DamagedManifest, match="checksum"):
        open_slab(place)


def test_a_pattern_adds_what_is_new(slabs: list[Path], tmp_path: Path) -> None:
    """Slabs that are listed already stay in their place; without new ones, nothing is written."""
    place, pattern = str(tmp_path / "all.slabs"), str(slabs[0].parent / "*.slab")
    add_slabs(place, [str(slabs[1])])
    added = add_slabs(place, [pattern, str(slabs[0])])
    assert added.generation == 2
    assert [member.path for member in added.members] == [
        "parts/b.slab",
        "parts/a.slab",
        "parts/c.slab",
    ]
    content = Path(place).read_bytes()
    assert add_slabs(place, [pattern]) == added
    assert Path(place).read_bytes() == content


def test_of_two_writers_one_is_told(
    slabs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever read a generation that is no longer there writes nothing."""
    place = str(tmp_path / "all.slabs")
    add_slabs(place, [str(slabs[0])])
    replace = DirectoryStore.replace

    def replace_late(store: DirectoryStore, key: str, data: bytes, expected: bytes) -> None:
        monkeypatch.setattr(DirectoryStore, "replace", replace)
        add_slabs(place, [str(slabs[1])])
        replace(store, key, data, expected)

    monkeypatch.setattr(DirectoryStore, "replace", replace_late)
    with pytest.raises(OutputChanged, match=r"all\.slabs.*another writer"):
        add_slabs(place, [str(slabs[2])])
    union = read_union_file(place)
    assert [member.path for member in union.members] == ["parts/a.slab", "parts/b.slab"]


def test_a_union_in_a_bucket(slabs: list[Path], bucket: Bucket, tmp_path: Path) -> None:
    """The file and its slabs are found by URL, and opened through mirrors."""
    for slab in slabs[:2]:
        copy_slab(slab, f"{bucket.url}/parts/{slab.name}", destination_options=bucket.options)
    place = f"{bucket.url}/all.slabs"
    for slab in slabs[:2]:
        remote = f"{bucket.url}/parts/{slab.name}"
        add_slabs(place, [remote], storage_options=bucket.options)
    union = open_slab(place, cache_dir=tmp_path / "cache", storage_options=bucket.options)
    assert list(union.members) == ["parts/a.slab", "parts/b.slab"]
    assert union.gather([7, 0])["x"].tolist() == [13, 0]
    assert [union[row]["c"] for row in (0, 5)] == ["p", "q"]


def test_the_command(
    cli: Any, slabs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slabs are added, listed, verified and removed; other commands take the union's name."""
    monkeypatch.chdir(tmp_path)
    names = [f"parts/{slab.name}" for slab in slabs]
    assert "generation 1, 3 slabs" in cli("union", "all.slabs", "add", *names).out
    assert "generation 2, 2 slabs" in cli("union", "all.slabs", "remove", names[0]).out
    listed = cli("union", "all.slabs", "list", "--json").json
    assert [member["path"] for member in listed["members"]] == names[1:]
    assert listed["rows"] == [4, 4]
    shown = cli("info", "all.slabs", "--json").json
    assert (shown["rows"], shown["id"]) == (8, listed["id"])
    assert "all.slabs: 8 rows in 2 slabs" in cli("info", "all.slabs").out
    assert cli("info", "parts/[bc].slab", "--json").json["id"] == listed["id"]
    rows = cli("head", "all.slabs", "--rows", "3,4", "--json").out.splitlines()
    assert [json.loads(row)["values"]["x"] for row in rows] == [13, 20]
    assert cli("export", "all.slabs", "-o", "all.parquet").code == 0
    assert pq.read_table("all.parquet").num_rows == 8
    assert cli("repack", "parts/[bc].slab", "-o", "one.slab", "--where", "c == 'p'").code == 0
    assert open_slab("one.slab")["x"][:].tolist() == [10, 12, 20, 22]
    assert cli("concat", "all.slabs", "-o", "both.slab").code == 0
    assert cli("verify", "all.slabs", "--against", "all.parquet").code == 2
    refused = cli("copy", "all.slabs", "copy.slab")
    assert refused.code == 2
    assert "fieldslab concat" in refused.err
    assert "parts/c.slab" in cli("union", "all.slabs", "verify").out
    assert cli("verify", "all.slabs", "--progress", "none").out.count("OK") == 2
    assert "generation 1, 2 slabs" in cli("union", "some.slabs", "add", "parts/[ab].slab").out
    slabs[1].rename(tmp_path / "elsewhere")
    for command in ("head", "verify"):
        lost = cli(command, "some.slabs")
        assert lost.code == 3
        assert "b.slab: does not exist" in lost.err
        assert "fieldslab union NAME.slabs remove parts/b.slab" in lost.err
    lost = cli("union", "some.slabs", "list")
    assert (lost.code, lost.err.count("b.slab: does not exist")) == (3, 1)
    assert [line.split()[:2] for line in lost.out.splitlines()[1:3]] == [
        ["parts/a.slab", "4"],
        ["parts/b.slab", "-"],
    ]
    lost = cli("union", "some.slabs", "list", "--json")
    assert (lost.code, lost.json["rows"]) == (3, [4, None])
    assert [(each["name"], each["error"]) for each in lost.json["problems"]] == [
        ("parts/b.slab", "SlabNotFound")
    ]
    assert "1 slab" in cli("union", "some.slabs", "remove", "parts/b.slab").out
    assert cli("head", "some.slabs").code == 0


def test_concat_keeps_bytes_and_digests(slabs: list[Path], tmp_path: Path) -> None:
    """Linked or copied, the new slab has the rows and roots of the others, and is verified."""
    for copy in (False, True):
        out = tmp_path / f"all-{copy}.slab"
        manifest = concat(slabs, out, copy=copy)
        union, slab = open_slab(slabs), open_slab(out)
        assert verify(out).ok
        assert [shard.root for shard in manifest.shards] == [
            shard.root for shard in union.manifest.shards
        ]
        rows = np.random.default_rng(0).permutation(12)
        assert slab.gather(rows)["x"].tolist() == union.gather(rows)["x"].tolist()
        assert [slab[row]["c"] for row in range(4)] == ["p", "q", "p", "q"]
        linked = array_path(out, "x", shard=2).samefile(array_path(slabs[1], "x"))
        assert linked is not copy
    with_links, copied = (open_slab(tmp_path / f"all-{copy}.slab") for copy in (False, True))
    assert with_links.manifest.id == copied.manifest.id


def test_concat_refuses_what_is_stored_differently(slabs: list[Path], tmp_path: Path) -> None:
    """Other categories, an order of fields, or damage leave nothing behind."""
    out = tmp_path / "all.slab"
    codes = categorical([1], ["q", "p"])
    cases = {
        "other codes": {"x": np.arange(1), "c": codes},
        "another order": {"c": categorical([1], ["p", "q"]), "x": np.arange(1)},
    }
    first = write_slab(tmp_path / "first", {"x": np.arange(1), "c": categorical([1], ["p", "q"])})
    for match, columns in cases.items():
        other = write_slab(tmp_path / match, columns)
        with pytest.raises(UsageError, match=match):
            concat([first, other], out)
    wider = write_slab(tmp_path / "wider", {"x": np.arange(1), "c": codes, "y": np.arange(1)})
    for pair in ([first, wider], [wider, first]):
        with pytest.raises(UsageError, match=r"lacks fields.*y.*fieldslab repack.*missing"):
            concat(pair, out)
    flip(array_path(slabs[1], "x"))
    with pytest.raises(Exception, match="digest"):
        concat(slabs, out, copy=True)
    assert not out.exists()
