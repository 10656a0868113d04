"""Damage to the files of any peer, drawn from a seed: what disks do, and what strangers do."""

import hashlib
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HOSTILE = (0, 1, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
"""Numbers that overflow, are negative, or lie far behind the end of a file."""
PAGE = 4096
TAIL = 2048
"""Bytes at the end of a Lance or Vortex file, in which its index lies."""

Damage = Callable[[Path, str, random.Random], None]
"""Changes a copy of a peer's files: its folder, the peer's name, a source of random numbers."""


def flip_bit(folder: Path, _peer: str, rng: random.Random) -> None:
    """Flip one bit. The byte is one that is not zero, so that padding is left alone."""
    files = _weigh_files(folder)
    while True:
        path = rng.choices(*files)[0]
        data = bytearray(path.read_bytes())
        place = rng.randrange(len(data))
        if data[place]:
            data[place] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
            return


def lose_page(folder: Path, _peer: str, rng: random.Random) -> None:
    """Fill a page of 4 KiB with zeros, which is what a lost write leaves; one that has data."""
    files = _weigh_files(folder)
    while True:
        path = rng.choices(*files)[0]
        data = bytearray(path.read_bytes())
        start = rng.randrange(len(data)) // PAGE * PAGE
        if any(data[start : start + PAGE]):
            data[start : start + PAGE] = bytes(len(data[start : start + PAGE]))
            path.write_bytes(data)
            return


def cut_file(folder: Path, _peer: str, rng: random.Random) -> None:
    """Cut a file somewhere."""
    path = rng.choices(*_weigh_files(folder))[0]
    os.truncate(path, rng.randrange(path.stat().st_size))


def change_index(folder: Path, peer: str, rng: random.Random) -> None:
    """Put a hostile number into what says where rows lie, as somebody would who knows the format.

    fieldslab's digests and seals are computed anew, so that they do not give it away.
    """
    path, start, stop, width = rng.choice([*_list_indexes(folder, peer)])
    number = rng.choice(HOSTILE)
    if path.suffix in (".json", ".index"):
        _change_json(path, number, rng)
    else:
        data = bytearray(path.read_bytes())
        place = start + width * rng.randrange((stop - start) // width)
        data[place : place + width] = (number % 2 ** (8 * width)).to_bytes(width, "little")
        path.write_bytes(data)
    if peer == "fieldslab":
        _seal_slab(folder / "data.slab", path)


DAMAGE: dict[str, Damage] = {
    "a flipped bit": flip_bit,
    "a page of zeros": lose_page,
    "a truncated file": cut_file,
    "a hostile index": change_index,
}


def _weigh_files(folder: Path) -> tuple[list[Path], list[int]]:
    """List all files that hold something, and their sizes."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    return paths, [path.stat().st_size for path in paths]


def _list_indexes(folder: Path, peer: str) -> Iterator[tuple[Path, int, int, int]]:
    """Yield files with the range of bytes in which they say where rows lie, and a number's width.

    JSON files are changed by their numbers, whatever the range.
    """
    for path, size in zip(*_weigh_files(folder), strict=True):
        if path.suffix == ".json":
            yield path, 0, size, 1
        elif peer == "fieldslab" and path.name.endswith(".offsets.npy"):
            yield path, size - (size - 64) // 8 * 8, size, 8
        elif peer in ("LitData", "MosaicML Streaming"):  # a count, and offsets of so many rows
            count = int.from_bytes(path.read_bytes()[:4], "little")
            yield path, 0, 4 * (count + 2), 4
        elif peer == "FFCV":  # a header and the metadata of each row fill the first page
            head = path.read_bytes()[: 2**20].rstrip(b"\0")
            yield path, 0, len(head), 8
        elif peer in ("Lance", "Vortex"):
            yield path, max(0, size - TAIL), size, 4


def _change_json(path: Path, number: int, rng: random.Random) -> None:
    """Replace one of a JSON file's numbers."""
    content = json.loads(path.read_bytes())
    places = [*_list_numbers(content)]
    holder, key = rng.choice(places)
    holder[key] = number
    path.write_text(json.dumps(content))


def _list_numbers(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        if isinstance(inner, dict | list):
            yield from _list_numbers(inner)
        elif isinstance(inner, int) and not isinstance(inner, bool):
            yield value, key


def _seal_slab(slab: Path, changed: Path) -> None:
    """Compute the digests of a changed array anew, and the seal of the manifest."""
    from fieldslab.schemas import layout
    from fieldslab.schemas.arrays import HEADER, make_array_header
    from fieldslab.schemas.digest import BLOCK_DIGESTS
    from fieldslab.schemas.folder import load_manifest
    from fieldslab.schemas.manifest import MANIFEST, Content

    content = json.loads((slab / MANIFEST).read_bytes())
    if changed.name != MANIFEST:
        manifest, shard = load_manifest(slab), int(changed.parent.name.removeprefix("shard-"))
        files = [changed.parent / file.name for file in layout.list_shard_files(manifest, shard)]
        digest = BLOCK_DIGESTS[manifest.digest]
        table = digest.join_tables(
            digest.compute_blocks(memoryview(file.read_bytes())[HEADER:]) for file in files
        )
        head = make_array_header(*digest.describe_file(len(table)))
        (changed.parent / layout.DIGESTS).write_bytes(head + table.tobytes())
        content["shards"][shard]["root"] = digest.compute_root(table)
    content.pop("sha256")
    kept = {key: content[key] for key in Content.__struct_fields__ if key in content}
    text = json.dumps(kept, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    content["id"] = hashlib.sha256(text.encode()).hexdigest()
    body = json.dumps(content)[:-1].encode()
    seal = b',\n"sha256": "' + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'
    (slab / MANIFEST).write_bytes(body + seal)
