"""Mutations of slabs by somebody who knows the format, and makes digests and roots anew."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tests.jpegdamage import damaged
from tests.mutations.choices import NUMBERS, Mutation, Op, change_manifest, lie, remake
from tests.mutations.subject import list_files

from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.layout import DIGESTS
from fieldslab.schemas.manifest import MANIFEST

_SEALED: Mutation = [{"do": "digest"}, {"do": "seal"}]
_ZSTD = b"\x28\xb5\x2f\xfd"


class _Array(NamedTuple):
    """An array of a slab, as it is stored."""

    name: str
    items: np.ndarray


def _load(slab: Path, name: str) -> _Array:
    return _Array(name, np.load(slab / name, allow_pickle=False).reshape(-1))


def _list_arrays(slab: Path) -> list[str]:
    return [name for name in list_files(slab) if name.endswith(".npy") and DIGESTS not in name]


def _write_item(array: _Array, place: int, number: int) -> Op:
    width = array.items.dtype.itemsize
    data = (number % 2 ** (8 * width)).to_bytes(width, "little")
    return {"do": "write", "file": array.name, "at": HEADER + place * width, "hex": data.hex()}


def change_numbers(rng: random.Random, slab: Path) -> Mutation:
    """Let offsets, lengths, codes, sizes and points be others, most of them near the right ones."""
    names = [name for name in _list_arrays(slab) if ".values" not in name] or _list_arrays(slab)
    ops: Mutation = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        array = _load(slab, rng.choice(names if rng.randrange(4) else _list_arrays(slab)))
        if not len(array.items):
            continue
        place = rng.randrange(len(array.items))
        width = array.items.dtype.itemsize
        bits = array.items.tobytes()
        before = int.from_bytes(bits[place * width : (place + 1) * width], "little")
        other = rng.randrange(len(array.items))
        number = rng.choice(
            [
                before + rng.choice([-1, 1]),
                before + rng.choice([-(2**8), 2**8, 2**16, 2**32, 2**63]),
                int.from_bytes(bits[other * width : (other + 1) * width], "little"),
                len(array.items) + rng.choice([-2, -1, 0, 1]),
                rng.choice(NUMBERS),
            ]
        )
        ops.append(_write_item(array, place, number))
    return [*ops, *_SEALED]


def change_rows(rng: random.Random, slab: Path) -> Mutation:
    """Let the bytes of variable rows be others: images, frames, text, lists."""
    arrays = set(_list_arrays(slab))
    names = sorted(name for name in arrays if name.replace("values", "offsets") in arrays)
    if not names:
        return change_numbers(rng, slab)
    name = rng.choice(names)
    values, ends = _load(slab, name).items, _load(slab, name.replace("values", "offsets")).items
    row = rng.randrange(max(len(ends) - 1, 1))
    width = values.dtype.itemsize
    start, stop = (int(end) for end in ends[row : row + 2])
    data = values[start:stop].tobytes()
    if not data:
        return change_numbers(rng, slab)
    made = _change_frame(rng, data) if data.startswith(_ZSTD) else damaged(rng, [data])[1]
    made = (made + bytes(len(data)))[: len(data)]
    change: Op = {"do": "write", "file": name, "at": HEADER + start * width, "hex": made.hex()}
    return [change, *_SEALED]


def _change_frame(rng: random.Random, data: bytes) -> bytes:
    """Change a frame of zstd, every other time its header."""
    frame = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        end = min(14, len(frame)) if rng.randrange(2) else len(frame)
        frame[rng.randrange(4, max(end, 5))] = rng.choice(
            [0, 1, 0x20, 0x60, 0x80, 0xFF, rng.randrange(256)]
        )
    return bytes(frame)


def change_counts(rng: random.Random, slab: Path) -> Mutation:
    """Let a count of the manifest be another, and files as long as it says."""
    content = json.loads((slab / MANIFEST).read_bytes())
    shard = rng.randrange(len(content["shards"])) if content["shards"] else 0
    members = [(key, value) for key, value in content["shards"][shard].items() if key != "root"]
    key, value = rng.choice(members)
    place = ["shards", shard, key]
    if isinstance(value, list):
        if not value:
            return change_numbers(rng, slab)
        place.append(rng.randrange(len(value)))
        value = value[place[-1]]
    number = max(0, value + rng.choice([-2, -1, 1, 2, 7, 100, 2**16]))
    edits: Mutation = [{"do": "edit", "kind": "set", "place": place, "value": number}]
    if key == "rows" or rng.randrange(3) == 0:
        edits.append({"do": "balance"})
    return [*edits, {"do": "fit"}, *change_numbers(rng, slab)[: rng.choice([0, 1])], *_SEALED]


FORGERIES: dict[str, Callable[[random.Random, Path], Mutation]] = {
    "numbers": change_numbers,
    "rows": change_rows,
    "counts": change_counts,
    "bytes": remake,
    "manifest": change_manifest,
    "lies": lie,
}
