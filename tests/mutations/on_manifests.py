"""Carries mutations out on a manifest, and gives it the digests and the seal that fit the files."""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from tests.mutations.choices import Op, find_value
from tests.mutations.subject import MOST, own_file, read_file

from fieldslab.schemas import layout
from fieldslab.schemas.arrays import HEADER, make_array_header
from fieldslab.schemas.digest import BLOCK_DIGESTS
from fieldslab.schemas.errors import FieldslabError
from fieldslab.schemas.fields import VARIABLE_KINDS
from fieldslab.schemas.folder import load_manifest
from fieldslab.schemas.manifest import MANIFEST, Content


def edit(slab: Path, op: Op) -> None:
    """Set, remove or insert a value."""
    content = json.loads((slab / MANIFEST).read_bytes())
    *way, last = op["place"]
    with contextlib.suppress(LookupError, TypeError):
        inside = find_value(content, way)
        if op["kind"] == "remove":
            del inside[last]
        elif op["kind"] == "insert" and isinstance(inside, list):
            inside.insert(last, op["value"])
        else:
            inside[last] = op["value"]
    own_file(slab / MANIFEST).write_text(json.dumps(content))


def seal(slab: Path, op: Op) -> None:
    """Give the manifest the id and the seal that belong to what it says."""
    content = json.loads((slab / MANIFEST).read_bytes())
    content.pop("sha256", None)
    kept = {key: content[key] for key in Content.__struct_fields__ if key in content}
    text = json.dumps(kept, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    content["id"] = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    body = json.dumps(content)[:-1].encode()
    seal = b',\n"sha256": "' + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'
    own_file(slab / MANIFEST).write_bytes(body + seal)


def balance(slab: Path, op: Op) -> None:
    """Bring the members of a manifest into line, so that it passes for one that was packed."""
    content = json.loads((slab / MANIFEST).read_bytes())
    variable = nullable = indexed = 0
    for entry in content["fields"]:
        kind = entry["kind"]
        if kind == "nested":
            entry.setdefault("inner", "binary")
        else:
            entry.pop("inner", None)
        wanted = {
            "codec": kind == "image",
            "categories": kind == "categorical",
            "table": kind == "categorical",
            "inner": kind == "nested",
            "dtype": kind in ("fixed", "ragged") or entry.get("inner") == "ragged",
            "shape": kind in ("fixed", "ragged") or entry.get("inner") == "ragged",
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
        indexed += "index" in entry or kind == "nested"
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
    own_file(slab / MANIFEST).write_text(json.dumps(content))


def fit(slab: Path, op: Op) -> None:
    """Give every array the size and the header that the manifest demands."""
    with contextlib.suppress(FieldslabError):
        seal(slab, op)
        for folder, files in _folders(slab):
            folder.mkdir(exist_ok=True)
            for file in files:
                if file.data_bytes <= MOST:
                    path = folder / file.name
                    own_file(path) if path.exists() else path.touch()
                    os.truncate(path, HEADER + file.data_bytes)
                    with path.open("r+b") as opened:
                        opened.write(make_array_header(file.dtype, file.shape))


def digest(slab: Path, op: Op) -> None:
    """Make digest tables and roots anew, for the files as they are."""
    with contextlib.suppress(FieldslabError):
        seal(slab, op)
        kind = BLOCK_DIGESTS[load_manifest(slab).digest]
        roots = []
        for folder, files in _folders(slab):
            table = kind.join_tables(
                kind.compute_blocks(memoryview(read_file(folder / file.name))[HEADER:])
                for file in files
            )
            path = folder / layout.DIGESTS
            path.unlink(missing_ok=True)
            header = make_array_header(*kind.describe_file(len(table)))
            path.write_bytes(header + table.tobytes())
            roots.append(kind.compute_root(table))
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
