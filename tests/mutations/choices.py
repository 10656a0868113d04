"""Mutations, drawn at random: of bytes, files, manifests, and of all of them with right digests."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

from tests.mutations.subject import list_files

from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.fields import DtypeName, Kind
from fieldslab.schemas.manifest import MANIFEST

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
        actual = find_value(content, rng.choice(twins))
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


def find_value(value: Any, place: list[Any]) -> Any:
    """Find what lies at a place of a JSON value."""
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
            "lists",
            "codec",
        ]
    )
    arrays = [name for name in list_files(slab) if name != MANIFEST]
    files = [name for name in arrays if roles in name] or arrays
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
        counted = [
            name for name in ("elements", "nulls", "points") if find_value(content, shard).get(name)
        ]
        key = rng.choice([*MEMBERS, "kind", "shape", "rows", *counted])
        if key in MEMBERS:
            place, value = [*field, key], rng.choice(MEMBERS[key])
        elif key == "rows":
            place, value = [*shard, key], rng.choice([1, 2, 3, 5, 7, 4096, 2**14])
        else:
            position = rng.randrange(len(find_value(content, shard)[key]))
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
    "inner": ["ragged", "text", "binary"],
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
