"""Damages slabs in every way that one can think of, and looks what reading them does.

As a program it is a worker: it takes mutations from stdin, a line of JSON each, and answers with
a line each. A crash of the reader then is the end of the worker, not of whoever counts them.
"""

import contextlib
import ctypes
import errno
import faulthandler
import hashlib
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from tests.contents import Row, as_row, gathered
from tests.golden.make import IMAGES, PHOTOS

from fieldslab.packer import pack, verify
from fieldslab.reader import Slab, open_slab
from fieldslab.schemas import layout
from fieldslab.schemas.arrays import HEADER, make_array_header
from fieldslab.schemas.digest import XXH3
from fieldslab.schemas.errors import FieldslabError
from fieldslab.schemas.fields import VARIABLE_KINDS, DtypeName, Kind
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.manifest import MANIFEST, Content

ROOT = Path(__file__).parents[1]
ROWS, SHARD = 8, 4
MEMORY = 8 * 2**30
"""A worker may map and allocate no more: whoever believes a giant number fails."""
SECONDS = 120
"""A mutation that takes longer counts as a crash."""

MOST = 2**22
"""Bytes of a file that is still changed: others are sparse, and made to be refused."""

Op = dict[str, Any]
Mutation = list[Op]

NUMBERS = [
    0,
    1,
    2,
    5,
    6,
    7,
    11,
    12,
    13,
    24,
    255,
    4096,
    65535,
    2**31 - 1,
    2**31,
    2**32,
    2**32 + 1,
    2**40,
    2**47,
    2**48 - 1,
    2**48,
    2**48 + 1,
    2**53,
    2**61,
    2**62,
    2**63 - 1,
    2**63,
    2**63 + 1,
    2**64 - 8,
    2**64 - 1,
]
VALUES = [
    *NUMBERS,
    -1,
    -(2**63),
    10**30,
    1.5,
    -0.0,
    1e300,
    True,
    False,
    None,
    "",
    "x",
    "..",
    "../x",
    "/etc/passwd",
    "00-x",
    "\x00",
    "a" * 300,
    [],
    [0],
    [1],
    [6],
    [2**48],
    [0, 2**48],
    [1] * 30,
    [2] * 48,
    {},
    {"type": "uuid"},
    {"type": "timestamp", "unit": "D"},
    {"type": "timestamp", "unit": "ns", "timezone": "Nowhere/Else"},
    {"type": "duration"},
    {"type": "class_label", "names": []},
    {"count": 1, "bytes": 1},
    {"count": 2**48, "bytes": 0},
    {"codec": "zstd", "decoded": 2**48},
    {"codec": "zstd", "decoded": 1, "dictionary": 5},
    "bool",
    "int8",
    "uint64",
    "float16",
    "float32",
    "complex128",
    "fixed",
    "ragged",
    "text",
    "binary",
    "image",
    "categorical",
    "jpeg",
    "ns",
    ["a"],
    ["a", "b", "c", "d"],
    "0" * 64,
]


# The slab


@dataclass(frozen=True)
class Subject:
    """A whole slab and the rows of each of its fields."""

    slab: Path
    rows: dict[str, list[Row]] = field(repr=False)


def make_subject(folder: Path) -> Subject:
    """Pack a small slab with arrays of every role, in two shards."""
    rng = random.Random(1)
    rows: dict[str, list[Row]] = {
        "x": [struct.pack("<f", row / 3) for row in range(ROWS)],
        "nd": [rng.randbytes(12) for _ in range(ROWS)],
        "n": [None if row in (5, 7) else struct.pack("<q", row << 40) for row in range(ROWS)],
        "r": [np.arange(row % 5, dtype="<i4").tobytes() for row in range(ROWS)],
        "t": ["größe" * (row % 3) for row in range(ROWS)],
        "b": [None if row == 2 else bytes(range(row)) for row in range(ROWS)],
        "i": [[*IMAGES.values()][row % 3] for row in range(ROWS)],
        "j": [PHOTOS["420.jpeg" if row in (0, 3, 7) else "grey.png"] for row in range(ROWS)],
        "c": ["abc"[row % 3] for row in range(ROWS)],
        "d": [f"name {row * 140}" for row in range(ROWS)],
        "ts": [struct.pack("<q", row * 10**15) for row in range(ROWS)],
        "z": [f"row {row} " * row for row in range(ROWS)],
        "zf": [struct.pack("<4d", row, 0, 0, 0) for row in range(ROWS)],
        "big": [rng.randbytes(70_000 if row == 6 else row) for row in range(ROWS)],
    }
    names = pa.array([f"name {row}" for row in range(1100)])
    columns = {
        name: pa.array(values, pa.string() if isinstance(values[0], str) else pa.binary())
        for name, values in rows.items()
    } | {
        "n": pa.array([None if row in (5, 7) else row << 40 for row in range(ROWS)]),
        "c": pa.array(rows["c"]).dictionary_encode(),
        "d": pa.DictionaryArray.from_arrays(pa.array([row * 140 for row in range(ROWS)]), names),
        "ts": pa.array([row * 10**15 for row in range(ROWS)], pa.timestamp("us", "UTC")),
    }
    grey = np.asarray(Image.open(io.BytesIO(PHOTOS["grey.png"]))).tobytes() + b"\x80" * 40
    rows["j"] = [grey if row == PHOTOS["grey.png"] else row for row in rows["j"]]
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=SHARD)
    pack(
        folder / "rows.parquet",
        folder / "whole.slab",
        shard_size=1,
        nulls={"*": "mask"},
        tensor={"x": "f4[]", "nd": "i2[2,3]", "r": "i4[*]", "zf": "f8[4]"},
        image={"i": None, "j": "yuv420,fraction=0.5"},
        compress=["z", "zf"],
    )
    return Subject(folder / "whole.slab", rows)


def list_files(slab: Path) -> list[str]:
    """Every file of a slab, by its path within."""
    return sorted(str(path.relative_to(slab)) for path in slab.rglob("*") if path.is_file())


# Choosing mutations


def change_bytes(rng: random.Random, slab: Path) -> Mutation:
    """Flip bits, overwrite bytes, cut files and make them longer."""
    files = list_files(slab)
    return [_change_bytes(rng, slab, rng.choice(files)) for _ in range(rng.choice([1, 1, 1, 2]))]


def _change_bytes(rng: random.Random, slab: Path, name: str) -> Op:
    size = (slab / name).stat().st_size
    first = HEADER if size > HEADER and rng.randrange(3) else 0
    offset = rng.randrange(first, size)
    kind = rng.choice(["flip", "flip", "flip", "write", "number", "truncate", "extend"])
    if kind == "flip":
        return {"do": "flip", "file": name, "at": offset, "bit": rng.randrange(8)}
    if kind == "write":
        data = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 20)))
        return {"do": "write", "file": name, "at": offset, "hex": data.hex()}
    if kind == "number":
        return _hostile_number(rng, slab, name)
    if kind == "truncate":
        return {"do": "truncate", "file": name, "size": offset}
    return {"do": "truncate", "file": name, "size": size + rng.choice([1, 8, 4096, 65536, 2**33])}


def _hostile_number(rng: random.Random, slab: Path, name: str) -> Op:
    width = rng.choice([4, 8])
    items = max(((slab / name).stat().st_size - HEADER) // width, 1)
    offset = HEADER + width * rng.randrange(items)
    data = (rng.choice(NUMBERS) % 2 ** (8 * width)).to_bytes(width, "little")
    return {"do": "write", "file": name, "at": offset, "hex": data.hex()}


def change_files(rng: random.Random, slab: Path) -> Mutation:
    """Swap, copy, remove, rename, add; put links, pipes and directories in the place of files."""
    files = list_files(slab)
    first, other = rng.choice(files), rng.choice(files)
    kind = rng.choice(
        [
            "swap",
            "swap",
            "copy",
            "remove",
            "rename",
            "add",
            "link",
            "hard link",
            "pipe",
            "directory",
            "folder link",
            "folder swap",
            "folder remove",
            "folder file",
            "folder copy",
        ]
    )
    if kind in ("swap", "copy") and rng.randrange(2):
        # Of the same dtype and shape, so that nothing but the digests can tell.
        twins = [file for file in files if _same_header(slab / file, slab / first)]
        other = rng.choice(twins)
    if kind.startswith("folder"):
        folders = [*sorted(path.name for path in slab.glob("shard-*")), "tables"]
        first, other = rng.choice(folders), rng.choice(folders)
    return [{"do": kind, "file": first, "other": other}]


def _same_header(first: Path, other: Path) -> bool:
    with first.open("rb") as a, other.open("rb") as b:
        return a.read(HEADER) == b.read(HEADER)


def change_manifest(rng: random.Random, slab: Path) -> Mutation:
    """Let the manifest say something else, with a right id and a right seal."""
    content = json.loads((slab / MANIFEST).read_bytes())
    places = [place for place in _places(content, []) if place[0] not in ("id", "made", "sha256")]
    edits = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        place = rng.choice(places)
        twins = [other for other in places if other[-1] == place[-1]]
        actual = _at(content, rng.choice(twins))
        near = [actual + rng.choice([-1, 1])] if isinstance(actual, int) else []
        alike = [value for value in VALUES if type(value) is type(actual)] or [actual]
        value = rng.choice(
            [actual, *near, rng.choice(alike), rng.choice(alike), rng.choice(VALUES)]
        )
        kind = rng.choice(["set", "set", "set", "set", "remove", "insert"])
        edits.append({"do": "edit", "kind": kind, "place": place, "value": value})
    return [*edits, {"do": "seal"}]


def _places(value: Any, way: list[Any]) -> Iterator[list[Any]]:
    """The way to every value inside a JSON value."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield [*way, key]
        yield from _places(inner, [*way, key])


def _at(value: Any, place: list[Any]) -> Any:
    for step in place:
        value = value[step]
    return value


def remake(rng: random.Random, slab: Path) -> Mutation:
    """Change data, headers and manifest, and make all digests anew, as a hostile writer would."""
    roles = rng.choice(
        [
            "offsets",
            "offsets",
            "lengths",
            "valid",
            "size",
            "values",
            "categories",
            "points",
            "codec",
        ]
    )
    files = [name for name in list_files(slab) if roles in name]
    ops = []
    for _ in range(rng.choice([1, 1, 2, 4])):
        name = rng.choice(files)
        number = _hostile_number(rng, slab, name)
        ops.append(number if rng.randrange(3) else _change_bytes(rng, slab, name))
    edits = change_manifest(rng, slab)[:-1] if not rng.randrange(4) else []
    fit = [{"do": "fit"}] if rng.randrange(2) else []
    return [*ops, *edits, *fit, {"do": "digest"}, {"do": "seal"}]


def lie(rng: random.Random, slab: Path) -> Mutation:
    """Let the manifest tell of other fields and counts, and let every file agree with it."""
    content = json.loads((slab / MANIFEST).read_bytes())
    edits: Mutation = []
    for _ in range(rng.choice([1, 1, 2, 3, 5])):
        field = ["fields", rng.randrange(len(content["fields"]))]
        shard = ["shards", rng.randrange(len(content["shards"]))]
        key = rng.choice([*MEMBERS, "kind", "shape", "rows", "elements", "nulls", "points"])
        if key in MEMBERS:
            place, value = [*field, key], rng.choice(MEMBERS[key])
        elif key == "rows":
            place, value = [*shard, key], rng.choice([1, 2, 3, 5, 7, 4096, 2**14])
        else:
            position = rng.randrange(len(_at(content, shard)[key]))
            place, value = [*shard, key, position], rng.choice([0, 1, 3, 4, 5, 100, 2**16])
        edits.append({"do": "edit", "kind": "set", "place": place, "value": value})
    edits.append({"do": "balance"})
    # Kept data means something else now; new numbers in it go through the same checks.
    numbers = [_hostile_number(rng, slab, rng.choice(list_files(slab))) for _ in range(2)]
    numbers = [op for op in numbers if op["file"] != MANIFEST]
    return [*edits, {"do": "fit"}, *numbers, {"do": "digest"}, {"do": "seal"}]


MEMBERS: dict[str, list[Any]] = {
    "kind": list(get_args(Kind)),
    "dtype": list(get_args(DtypeName)),
    "shape": [[], [0], [1], [3], [2, 3], [0, 2**40], [2**20, 0, 2**20], [1] * 30, [65536], [7, 1]],
    "nullable": [True, False],
    "codec": ["jpeg", "mixed", "none", "rgb", "yuv420"],
    "index": [None, 0, 1, 8, 8192],
    "coded": [True, False],
    "logical": [
        None,
        {"type": "timestamp", "unit": "s", "timezone": "?"},
        {"type": "uuid"},
        {"type": "timestamp", "unit": "D"},
        {"type": "duration", "unit": "ns"},
        {"type": "bfloat16"},
        {"type": "json"},
        {"type": "date", "unit": "D"},
        {"type": "class_label", "names": ["a"]},
        {"type": "enum", "names": ["a"], "codes": [7]},
        {"type": "audio"},
        {"type": "time", "unit": "us"},
    ],
    "categories": [None, [], ["a"], ["", "\x00"], [str(number) for number in range(2000)]],
    "table": [None, *({"count": n, "bytes": size} for n, size in ((0, 0), (5, 3), (1100, 9)))],
    "compression": [
        None,
        {"codec": "zstd", "decoded": 0},
        {"codec": "zstd", "decoded": 9, "dictionary": 7},
        {"codec": "zstd", "decoded": 2**40, "dictionary": 300},
    ],
    "name": ["", "x", "\n", "a/b", "💥"],
}

FAMILIES: dict[str, Callable[[random.Random, Path], Mutation]] = {
    "bytes": change_bytes,
    "files": change_files,
    "manifest": change_manifest,
    "remade": remake,
    "lies": lie,
}


def is_accident(mutation: Mutation) -> bool:
    """Whether digests and manifest were left as they are, so that reading must notice."""
    return not any(op["do"] in ("edit", "balance", "seal", "digest", "fit") for op in mutation)


# Carrying them out


def copy_whole(whole: Path, slab: Path) -> None:
    """A copy in which every file is a hard link, until it is changed."""
    shutil.copytree(whole, slab, copy_function=os.link)


def mutate(slab: Path, mutation: Mutation) -> None:
    """Carry out a mutation on a copy; steps that cannot be taken are left out."""
    for op in mutation:
        with contextlib.suppress(OSError, shutil.Error, IndexError):
            _OPS[op["do"]](slab, op)


def _own(path: Path) -> Path:
    """Make a file one of its own, no longer a link to the whole slab's."""
    if path.stat().st_size > MOST:
        raise OSError(errno.EFBIG, "too large to be changed", path)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    return path


def _flip(slab: Path, op: Op) -> None:
    path = _own(slab / op["file"])
    data = bytearray(path.read_bytes())
    data[op["at"]] ^= 1 << op["bit"]
    path.write_bytes(data)


def _write(slab: Path, op: Op) -> None:
    with _own(slab / op["file"]).open("r+b") as file:
        file.seek(op["at"])
        file.write(bytes.fromhex(op["hex"]))


def _truncate(slab: Path, op: Op) -> None:
    os.truncate(_own(slab / op["file"]), op["size"])


def _swap(slab: Path, op: Op) -> None:
    first, other, aside = slab / op["file"], slab / op["other"], slab.with_name("aside")
    first.rename(aside)
    if other.exists():
        other.rename(first)
    aside.rename(other)


def _copy(slab: Path, op: Op) -> None:
    data = (slab / op["file"]).read_bytes()
    (slab / op["other"]).unlink()
    (slab / op["other"]).write_bytes(data)


def _add(slab: Path, op: Op) -> None:
    shutil.copyfile(slab / op["file"], (slab / op["file"]).with_suffix(".extra"))


def _link(slab: Path, op: Op) -> None:
    aside = slab.with_name("aside.npy")
    (slab / op["file"]).rename(aside)
    (slab / op["file"]).symlink_to(aside)


def _hard_link(slab: Path, op: Op) -> None:
    (slab / op["other"]).unlink()
    os.link(slab / op["file"], slab / op["other"])


def _pipe(slab: Path, op: Op) -> None:
    (slab / op["file"]).unlink()
    os.mkfifo(slab / op["file"])


def _directory(slab: Path, op: Op) -> None:
    (slab / op["file"]).unlink()
    (slab / op["file"]).mkdir()


def _folder_file(slab: Path, op: Op) -> None:
    shutil.rmtree(slab / op["file"])
    (slab / op["file"]).write_bytes(b"")


def _folder_copy(slab: Path, op: Op) -> None:
    if op["file"] != op["other"]:
        shutil.rmtree(slab / op["other"])
        shutil.copytree(slab / op["file"], slab / op["other"])


def _edit(slab: Path, op: Op) -> None:
    content = json.loads((slab / MANIFEST).read_bytes())
    *way, last = op["place"]
    with contextlib.suppress(LookupError, TypeError):
        inside = _at(content, way)
        if op["kind"] == "remove":
            del inside[last]
        elif op["kind"] == "insert" and isinstance(inside, list):
            inside.insert(last, op["value"])
        else:
            inside[last] = op["value"]
    _own(slab / MANIFEST).write_text(json.dumps(content))


def _seal(slab: Path, op: Op) -> None:
    """Give the manifest the id and the seal that belong to what it says."""
    content = json.loads((slab / MANIFEST).read_bytes())
    content.pop("sha256", None)
    kept = {key: content[key] for key in Content.__struct_fields__ if key in content}
    text = json.dumps(kept, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    content["id"] = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    body = json.dumps(content)[:-1].encode()
    seal = b',\n"sha256": "' + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'
    _own(slab / MANIFEST).write_bytes(body + seal)


def _balance(slab: Path, op: Op) -> None:
    """Bring the members of a manifest into line, so that it passes for one that was packed."""
    content = json.loads((slab / MANIFEST).read_bytes())
    variable = nullable = indexed = 0
    for entry in content["fields"]:
        kind = entry["kind"]
        wanted = {
            "codec": kind == "image",
            "categories": kind == "categorical",
            "table": kind == "categorical",
            "dtype": kind in ("fixed", "ragged"),
            "shape": kind in ("fixed", "ragged"),
            "compression": kind not in ("image", "categorical"),
            "index": kind == "image",
            "coded": kind == "image",
        }
        for key, allowed in wanted.items():
            if not allowed or entry.get(key) is None:
                entry.pop(key, None)
        if kind == "categorical":
            entry["dtype"] = "int32"
            if "table" not in entry:
                entry.setdefault("categories", ["a"])
            elif "categories" in entry:
                del entry["table"]
        if kind == "image":
            entry.setdefault("codec", "mixed")
        time = entry.get("logical") or {}
        if time.get("type") in ("timestamp", "duration") and entry.get("dtype") != "int64":
            del entry["logical"]
        defaults: dict[str, Any] = {
            "nullable": False,
            "logical": None,
            "shape": [],
            "dtype": "uint8",
            "coded": False,
        }
        for key, default in defaults.items():
            if entry.get(key) == default:
                entry.pop(key, None)
        variable += kind in VARIABLE_KINDS or "compression" in entry
        nullable += entry.get("nullable", False)
        indexed += "index" in entry
    for shard in content["shards"]:
        shard["elements"] = [*shard["elements"], *[3] * 20][:variable]
        shard["nulls"] = [min(n, shard["rows"]) for n in [*shard["nulls"], *[1] * 20]][:nullable]
        shard["points"] = [*shard.get("points", []), *[2] * 20][:indexed]
        if not indexed:
            del shard["points"]
    content["rows"] = sum(shard["rows"] for shard in content["shards"])
    content.pop("tables", None)
    if any("table" in f or f.get("compression", {}).get("dictionary") for f in content["fields"]):
        content["tables"] = "0" * 64
    _own(slab / MANIFEST).write_text(json.dumps(content))


def _fit(slab: Path, op: Op) -> None:
    """Give every array the size and the header that the manifest demands."""
    with contextlib.suppress(FieldslabError):
        _seal(slab, op)
        for folder, files in _folders(slab):
            folder.mkdir(exist_ok=True)
            for file in files:
                if file.data_bytes <= MOST:
                    path = folder / file.name
                    _own(path) if path.exists() else path.touch()
                    os.truncate(path, HEADER + file.data_bytes)
                    with path.open("r+b") as opened:
                        opened.write(make_array_header(file.dtype, file.shape))


def _digest(slab: Path, op: Op) -> None:
    """Make digest tables and roots anew, for the files as they are."""
    with contextlib.suppress(FieldslabError):
        _seal(slab, op)
        roots = []
        for folder, files in _folders(slab):
            tables = [
                XXH3.compute_blocks(memoryview(_own(folder / file.name).read_bytes())[HEADER:])
                for file in files
            ]
            table = np.concatenate([np.empty(0, "<u8"), *tables]).astype("<u8")
            path = folder / layout.DIGESTS
            path.unlink(missing_ok=True)
            path.write_bytes(make_array_header(table.dtype, table.shape) + table.tobytes())
            roots.append(hashlib.sha256(table.tobytes()).hexdigest())
        content = json.loads((slab / MANIFEST).read_bytes())
        if "tables" in content:
            content["tables"] = roots.pop(0)
        for shard, root in zip(content["shards"], roots, strict=True):
            shard["root"] = root
        (slab / MANIFEST).write_text(json.dumps(content))


def _folders(slab: Path) -> list[tuple[Path, list[layout.ArrayFile]]]:
    """Folders and their arrays, as the manifest has them."""
    manifest = load_manifest(slab)
    results = []
    if manifest.tables is not None:
        results.append((slab / layout.TABLES, layout.list_table_files(manifest)))
    for index in range(len(manifest.shards)):
        results.append((slab / layout.name_shard(index), layout.list_shard_files(manifest, index)))
    return results


_OPS: dict[str, Callable[[Path, Op], None]] = {
    "flip": _flip,
    "write": _write,
    "truncate": _truncate,
    "swap": _swap,
    "folder swap": _swap,
    "copy": _copy,
    "add": _add,
    "link": _link,
    "folder link": _link,
    "hard link": _hard_link,
    "pipe": _pipe,
    "directory": _directory,
    "folder file": _folder_file,
    "folder copy": _folder_copy,
    "edit": _edit,
    "seal": _seal,
    "balance": _balance,
    "fit": _fit,
    "digest": _digest,
    "remove": lambda slab, op: (slab / op["file"]).unlink(),
    "rename": lambda slab, op: (slab / op["file"]).rename(slab / (op["file"] + "x")) and None,
    "folder remove": lambda slab, op: shutil.rmtree(slab / op["file"]),
    "crash": lambda slab, op: os.kill(os.getpid(), signal.SIGSEGV),
}


# Looking what reading does


def examine(slab: Path, subject: Subject, accident: bool) -> None:
    """Read a mutated slab in every way. Raises AssertionError where that gives a wrong row.

    Whatever else is raised, but FieldslabError, is a bug; it is not caught here.
    """
    for checked in (True, False):
        with contextlib.suppress(FieldslabError):
            _read(open_slab(slab, verify=checked), subject if accident and checked else None)
    changed = accident and not _same(slab, subject.slab)
    try:
        report = verify(slab)
    except FieldslabError:
        return
    assert not (changed and report.ok), "verify finds nothing wrong"


def _read(slab: Slab, expected: Subject | None) -> None:
    """Read rows and columns; each error ends one way of reading, not all of them."""
    count = len(slab)
    order = [(7 * row + 5) % count for row in range(count)] if count else []
    if count > 40:
        order = [0, 1, count // 2, count - 2, count - 1]
    assert repr(slab)
    assert len(pickle.loads(pickle.dumps(slab))) == count
    for name in list(slab.fields)[:30]:
        rows = None if expected is None else [expected.rows[name][row] for row in order]
        with contextlib.suppress(FieldslabError):
            told = gathered(slab, order, name)
            assert rows is None or told == rows, f"{name}: a gather gives other rows"
            for way in (_by_row, _by_slice, _into_buffers):
                with contextlib.suppress(FieldslabError):
                    actual = way(slab, order, name, told)
                    assert rows is None or actual == rows, f"{name}: {way.__name__} gives others"
        with contextlib.suppress(FieldslabError):
            _touch(slab, order, name)
    with contextlib.suppress(FieldslabError):
        slab.gather(order)
    with contextlib.suppress(FieldslabError):
        for row in order:
            found_row = slab[row]
            if expected is not None:
                for name, value in found_row.items():
                    assert as_row(value) == expected.rows[name][row], f"{name}: slab[i] is wrong"


def _by_row(slab: Slab, order: list[int], name: str, told: list[Row]) -> list[Row]:
    column = slab[name]
    return [as_row(column[row]) for row in order]


def _by_slice(slab: Slab, order: list[int], name: str, told: list[Row]) -> list[Row]:
    """Slices do not tell nulls and categories: those are taken from a gather."""
    column = slab[name]
    if column.kind == "categorical":
        return told
    parts = [column[row : min(row + 3, len(slab))] for row in order]
    return [None if row is None else as_row(part[0]) for part, row in zip(parts, told, strict=True)]


def _into_buffers(slab: Slab, order: list[int], name: str, told: list[Row]) -> list[Row]:
    batch = slab.gather(order, out=slab.buffers(len(order) + 1, [name]))
    if slab.fields[name].kind == "categorical":
        return told
    return [None if row is None else as_row(batch[name][index]) for index, row in enumerate(told)]


def _touch(slab: Slab, order: list[int], name: str) -> None:
    """Read what lies at the addresses of rows, where a field has them."""
    addresses, lengths = slab.addresses(order, name)
    for address, length in zip(addresses.tolist(), lengths.tolist(), strict=True):
        ctypes.string_at(address, length)


def _same(slab: Path, whole: Path) -> bool:
    """Whether a mutation changed nothing, as when a file was swapped with itself."""
    if any(path.is_symlink() for path in [slab, *slab.iterdir(), *slab.glob("*/*")]):
        return False
    actual = sorted(path.relative_to(slab) for path in slab.rglob("*"))
    if actual != sorted(path.relative_to(whole) for path in whole.rglob("*")):
        return False
    for path in actual:
        first, other = slab / path, whole / path
        if first.is_file() != other.is_file() or first.is_dir() != other.is_dir():
            return False
        if first.is_file() and not first.samefile(other) and first.stat().st_size < 2**30:
            if first.read_bytes() != other.read_bytes():
                return False
        elif first.is_file() and first.stat().st_size != other.stat().st_size:
            return False
    return True


# Workers


def environment() -> dict[str, str]:
    """Environment of a process that imports fieldslab and these tests from the checkout."""
    return {"PYTHONPATH": f"{ROOT / '.ns'}:{ROOT}", "PATH": os.environ["PATH"]}


@dataclass
class Worker:
    """A process that examines mutations; another one takes its place when it crashes."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        with (self.folder / "stderr").open("w") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.mutations", self.folder],
                cwd=ROOT,
                env=environment(),
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )

    def examine(self, mutation: Mutation) -> str:
        """What is wrong with how a mutation is read, '' if nothing is."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(mutation) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if answer:
            return str(json.loads(answer))
        ended = self._process.wait()
        self.close()
        told = (self.folder / "stderr").read_text()[-3000:]
        self._process = self._start()
        return f"the process ended with {ended}: {told}"

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def _work(folder: Path) -> None:
    faulthandler.enable()
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for name in ("whole.slab", "mutated"):
        shutil.rmtree(folder / name, ignore_errors=True)
    subject = make_subject(folder)
    for line in sys.stdin:
        signal.alarm(SECONDS)
        sys.stdout.write(json.dumps(_examine(folder, subject, json.loads(line))) + "\n")
        sys.stdout.flush()
        signal.alarm(0)


def _examine(folder: Path, subject: Subject, mutation: Mutation) -> str:
    slab = folder / "mutated" / "x.slab"
    if not slab.exists():
        slab.parent.mkdir(exist_ok=True)
        copy_whole(subject.slab, slab)
    mutate(slab, mutation)
    try:
        examine(slab, subject, is_accident(mutation))
    except BaseException as error:  # noqa: BLE001  # whatever it is, it is told
        return "".join(traceback.format_exception(error))
    finally:
        _repair(subject.slab, slab, mutation)
    return ""


def _repair(whole: Path, slab: Path, mutation: Mutation) -> None:
    """Undo a mutation: by linking the files anew that it changed, or else by starting over."""
    if not all(op["do"] in ("flip", "write", "truncate", "edit", "seal") for op in mutation):
        shutil.rmtree(slab.parent)
        return
    for name in {op.get("file", MANIFEST) for op in mutation}:
        (slab / name).unlink()
        os.link(whole / name, slab / name)


if __name__ == "__main__":
    _work(Path(sys.argv[1]))
