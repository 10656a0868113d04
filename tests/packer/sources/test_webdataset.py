"""WebDataset tars as a source: samples as rows, compared with what wrote them."""

import contextlib
import io
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image
from tests.naming import case
from tests.packer.packing import content, listing, pack_shards
from tests.packer.readback import Readback
from tests.packer.sources.test_battery import damage
from tests.servers.web import WebServer

from fieldslab.packer import pack, verify
from fieldslab.packer.options import parse_options
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.pack_source import pack_plan
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import PartNumber
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.packer.plan import make_plan
from fieldslab.packer.source import find_source
from fieldslab.packer.sources.webdataset import expand_braces
from fieldslab.schemas.errors import (
    NullsFound,
    SourceChanged,
    SourceError,
    SourceUnreadable,
    SourceUnsupported,
)

Serve = Callable[..., WebServer]
ROWS, FILES = 20, 4


def make_samples(seed: int, rows: int = ROWS) -> list[dict[str, Any]]:
    """Samples as WebDataset takes them: an image, a class, a text, JSON, an array."""
    rng = np.random.default_rng(seed)
    samples = []
    for row in range(rows):
        image = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (4, 5, 3), np.uint8)).save(image, "PNG")
        samples.append(
            {
                "__key__": f"{seed}/ü{row:04d}",
                "png": image.getvalue(),
                "cls": int(rng.integers(-9, 1000)),
                "txt": f"row {row} 漢\n",
                "json": {"a": row, "b": ["x", None]},
                "emb.npy": rng.random((2, 3)).astype(np.float32),
                "bin": rng.bytes(int(rng.integers(0, 30))),
            }
        )
    return samples


def encode(extension: str, value: Any) -> bytes:
    """Encode a value as `webdataset.TarWriter` does."""
    if extension == "emb.npy":
        stream = io.BytesIO()
        np.save(stream, value)
        return stream.getvalue()
    if extension == "json":
        return json.dumps(value).encode()
    return value if isinstance(value, bytes) else str(value).encode()


def write(path: Path, samples: list[dict[str, Any]]) -> Path:
    """Write samples as WebDataset does: members side by side, sorted by extension."""
    members = {
        f"{sample['__key__']}.{extension}": encode(extension, sample[extension])
        for sample in samples
        for extension in sorted(sample.keys() - {"__key__"})
    }
    return write_members(path, members)


def write_members(path: Path, members: dict[str, bytes]) -> Path:
    """Write a tar with members of these names, in this order; compressed where the name says so."""
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture(params=[".tar", ".tar.gz"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Some tars."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for number in range(FILES):
        write(folder / f"{number:03d}{request.param}", make_samples(number))
    return folder


def check_values(slab: Path, samples: list[dict[str, Any]]) -> None:
    """Every value is that of the samples, and every type that of its extension."""
    back = Readback(slab)
    assert back.fields["png"]["kind"] == "image"
    assert back.column("__key__") == [sample["__key__"] for sample in samples]
    assert back.values("cls").dtype == np.int64
    assert back.values("cls").tolist() == [sample["cls"] for sample in samples]
    assert back.column("txt") == [sample["txt"] for sample in samples]
    assert [json.loads(text) for text in back.column("json")] == [s["json"] for s in samples]
    arrays = np.stack([sample["emb.npy"] for sample in samples])
    assert back.values("emb.npy").tobytes() == arrays.tobytes()
    assert back.values("emb.npy").shape == arrays.shape
    for name in ("png", "bin"):
        assert [bytes(value) for value in back.column(name)] == [s[name] for s in samples]


def test_values_and_slices(tmp_path: Path, folder: Path) -> None:
    """All samples of all tars, some of them, some fields, and the check against the tars."""
    samples = [sample for number in range(FILES) for sample in make_samples(number)]
    packed = pack(folder, tmp_path / "slab")
    assert not packed.warnings
    check_values(tmp_path / "slab", samples)
    assert verify(tmp_path / "slab", against=folder).ok
    suffix = listing(folder)[0][3:]
    braces = f"{folder}/{{000..003}}{suffix}"
    assert pack(braces, tmp_path / "braces").manifest.id == packed.manifest.id
    pack(braces, tmp_path / "some", rows="15:50")
    check_values(tmp_path / "some", samples[15:50])
    pack(folder, tmp_path / "one", fields="cls")
    assert list(Readback(tmp_path / "one").fields) == ["cls"]
    pack(folder, tmp_path / "cast", fields="cls", cast={"cls": "text"})
    assert Readback(tmp_path / "cast").column("cls") == [str(s["cls"]) for s in samples]


def test_resume_and_parts(tmp_path: Path, folder: Path) -> None:
    """An interrupted pack goes on, and parts of a plan make the slab of one process."""
    expected = content(pack_shards(folder, tmp_path / "expected").path)
    done = []

    def progress(rows: int, bytes: int) -> None:
        done.append(rows)
        if sum(done) > 2 * ROWS:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack_shards(folder, tmp_path / "slab", progress=progress)
    assert pack_shards(folder, tmp_path / "slab").reused_shards
    assert content(tmp_path / "slab") == expected
    options, plan = cast(PackOptions, {"shard_size": 1000}), tmp_path / "x.plan"
    write_plan_file([folder], tmp_path / "parts", plan, options)
    for number in (2, 1):
        assert pack_part(plan, PartNumber(number, 2)).shards
    finish_parts(plan)
    assert content(tmp_path / "parts") == expected


def test_urls(tmp_path: Path, folder: Path, serve: Serve) -> None:
    """Objects give the values of the files, and one that is replaced meanwhile is named."""
    web = serve(folder)
    suffix = listing(folder)[0][3:]
    pack(f"{web.url}/{{000..003}}{suffix}", tmp_path / "slab")
    samples = [sample for number in range(FILES) for sample in make_samples(number)]
    check_values(tmp_path / "slab", samples)
    urls = [f"{web.url}/{name}" for name in listing(folder)]
    plan = make_plan(find_source(urls), parse_options())
    victim = folder / listing(folder)[3]
    web.replaced[victim.name] = victim.read_bytes() + b"?"
    with pytest.raises(SourceChanged) as caught:
        pack_plan(plan, tmp_path / "other")
    assert caught.value.context["file"] == urls[3]


def test_change(tmp_path: Path, folder: Path) -> None:
    """A tar that is another one when it is read is named, whatever the new one is."""
    victim = folder / listing(folder)[2]
    original = victim.read_bytes()
    for other in (original[:600], original + b"?", b""):
        victim.write_bytes(original)
        plan = make_plan(find_source(folder), parse_options())
        victim.write_bytes(other)
        with case(other), pytest.raises(SourceChanged) as caught:
            pack_plan(plan, tmp_path / "slab")
        assert caught.value.context["file"] == str(victim)


def test_damage(tmp_path: Path, folder: Path) -> None:
    """A damaged tar is a named error, or is read with all of its rows; nothing is left behind."""
    path = folder / listing(folder)[0]
    for name, data in damage(write(path, make_samples(0, 5)).read_bytes()):
        path.write_bytes(data)
        with case(name), contextlib.suppress(SourceError):
            assert pack(path, tmp_path / "slab", force=True).manifest.rows == 5
        assert listing(tmp_path) in (["raw"], ["raw", "slab"])


def test_cut_off_tars(tmp_path: Path) -> None:
    """What `tarfile` takes for the end of a tar is an error with its offset."""
    path = write_members(tmp_path / "a.tar", {"0.txt": b"zero", "1.txt": b"one"})
    data = path.read_bytes()
    broken = {
        "the end of the tar is missing": (data[:2048], 2048),
        "unexpected end of data": (data[:1538], 1024),
        "bad checksum": (data[:1030] + b"?" + data[1031:], 1024),
        "there is data behind the end": (data + data, 2048),
    }
    for problem, (other, offset) in broken.items():
        path.write_bytes(other)
        with case(problem), pytest.raises(SourceUnreadable, match=problem) as caught:
            pack(path, tmp_path / "slab")
        assert caught.value.context["file"] == f"{path} byte {offset}"


def test_samples(tmp_path: Path) -> None:
    """A key ends at the first dot of the name; links and names without one are passed over."""
    members = {"./a.b/x.seg.TXT": b"1", "./a.b/x.cls": b" 7\n", "./a.b/._x.txt": b"", "README": b""}
    path = write_members(tmp_path / "a.tar", members)
    with tarfile.open(path, "a") as tar:
        link = tarfile.TarInfo("y.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    warnings = " ".join(pack(path, tmp_path / "slab").warnings)
    assert re.search(r"2 members .*no name with an extension.*\._x\.txt", warnings)
    assert re.search(r"1 member .*no plain file.*y\.txt", warnings)
    back = Readback(tmp_path / "slab")
    rows = [back.column(name) for name in ("__key__", "seg.txt", "cls")]
    assert rows == [["./a.b/x"], ["1"], [7]]
    for order, problem in (
        (["a.x", "b.x", "a.y"], "not side by side"),
        (["a.x", "a.X"], "have one extension"),
    ):
        write_members(path, dict.fromkeys(order, b""))
        with case(order), pytest.raises(SourceUnreadable, match=problem) as caught:
            find_source(path)
        assert caught.value.context["found"] == order[-1]


def test_missing_and_misfits(tmp_path: Path) -> None:
    """What a sample lacks is null; a value that does not fit its extension shows the cast."""
    samples: list[dict[str, Any]] = [
        {"__key__": "a", "cls": 1, "txt": "x"},
        {"__key__": "b", "txt": "y"},
    ]
    path = write(tmp_path / "a.tar", samples)
    with pytest.raises(NullsFound):
        pack(path, tmp_path / "slab")
    pack(path, tmp_path / "slab", nulls={"cls": "mask"})
    assert Readback(tmp_path / "slab").column("cls") == [1, None]
    write_members(path, {"0.id": b"4", "1.id": b"four"})
    with pytest.raises(SourceUnreadable, match="does not fit") as caught:
        pack(path, tmp_path / "other")
    assert caught.value.context["file"] == f"{path} byte 1024"
    assert 'cast={"id": "text"}' in str(caught.value)
    pack(path, tmp_path / "other", cast={"id": "text"})
    assert Readback(tmp_path / "other").column("id") == ["4", "four"]


def test_pickles(tmp_path: Path) -> None:
    """Members that only unpickling reads are refused by name, left out, or kept as bytes."""
    objects = io.BytesIO()
    np.save(objects, np.array([{}], object), allow_pickle=True)
    for name, data in (("pkl", b"\x80"), ("a.pyd", b"\x80"), ("pth", b""), ("npy", objects)):
        value = data if isinstance(data, bytes) else data.getvalue()
        path = write_members(tmp_path / "a.tar", {f"0.{name}": value, "0.txt": b"x"})
        with case(name), pytest.raises(SourceUnsupported, match="pickled") as caught:
            pack(path, tmp_path / "slab", force=True)
        assert caught.value.context["field"] == name
        pack(path, tmp_path / "slab", exclude=[name], force=True)
        assert list(Readback(tmp_path / "slab").fields) == ["__key__", "txt"]
        pack(path, tmp_path / "slab", cast={name: "binary"}, force=True)
        assert [bytes(item) for item in Readback(tmp_path / "slab").column(name)] == [value]


def test_json_as_fields(tmp_path: Path) -> None:
    """On request, keys of JSON are fields; other keys and types are errors that show the cast."""
    rows: list[dict[str, Any]] = [
        {"a": row, "b": {"c": "ü", "d": [row, 0.5]}, "e": [{}, row]} for row in range(80)
    ]
    path = write(tmp_path / "a.tar", [{"__key__": f"{r['a']:02}", "json": r} for r in rows])
    settings = {"json_fields": True}
    pack(path, tmp_path / "slab", settings=settings)
    back = Readback(tmp_path / "slab")
    assert list(back.fields) == ["__key__", "json.a", "json.b.c", "json.b.d", "json.e"]
    assert list(back.column("json.a")) == list(range(80))
    assert back.column("json.b.c") == ["ü"] * 80
    assert [list(value) for value in back.column("json.b.d")] == [r["b"]["d"] for r in rows]
    assert [json.loads(text) for text in back.column("json.e")] == [r["e"] for r in rows]
    assert verify(tmp_path / "slab", against=path).ok
    for value in ({"a": 1, "new": 2}, {"a": "x"}, {"a": 0.5}, [1]):
        samples = [{"__key__": f"{row:02}", "json": {"a": row}} for row in range(80)]
        write(path, [*samples[:70], samples[70] | {"json": value}, *samples[71:]])
        with case(value), pytest.raises(SourceUnreadable, match="does not fit") as caught:
            pack(path, tmp_path / "other", settings=settings)
        assert caught.value.context["file"] == f"{path} byte {70 * 1024}"
        assert 'cast={"json": "json"}' in str(caught.value)
    pack(path, tmp_path / "other", settings=settings, cast={"json": "json"})
    assert json.loads(Readback(tmp_path / "other").column("json")[70]) == [1]


def test_braces(tmp_path: Path) -> None:
    """Ranges keep their zeros, lists and several braces multiply, names with braces stay."""
    assert expand_braces("{08..10}.tar") == ["08.tar", "09.tar", "10.tar"]
    assert expand_braces("{9..10}.tar") == ["9.tar", "10.tar"]
    assert expand_braces("s3://b/{a,b}-{0..1}.tar") == [
        f"s3://b/{name}-{number}.tar" for name in "ab" for number in "01"
    ]
    path = str(write_members(tmp_path / "{0..1}.tar", {"0.txt": b""}))
    assert expand_braces(path) == [path]
