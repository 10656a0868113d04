"""A LitData stream's `index.json`: its chunks, and the name and format of every leaf.

Parsed here and not by the library, which imports what the tree of a `defaultdict` names.
"""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, NoReturn

from fieldslab.packer.column_names import make_names_unique
from fieldslab.schemas.errors import SourceUnreadable, SourceUnsupported

INDEX = "index.json"
TOKENS = "TokensLoader"
PARQUET = "ParquetLoader"

_LOADERS = ("PyTreeLoader", TOKENS, PARQUET)
_MAX_COUNT = 2**32 - 1  # a chunk counts its items in 32 bits
_MAX_BYTES = 2**48
_COMPRESSIONS = (None, "", "chunk", "batch", "sample")


class Chunk(NamedTuple):
    """A file of items. `bytes` is its size before compression, `tokens` None where unknown."""

    name: str
    rows: int
    bytes: int
    tokens: int | None


class LeafFormat(NamedTuple):
    """A part of every item: its name, LitData's name of its format, and what `types` says."""

    name: str
    format: str
    type: Any

    @property
    def kind(self) -> str:
        """The format without its parameter: `no_header_tensor` of `no_header_tensor:17`."""
        return self.format.partition(":")[0]


@dataclass(frozen=True)
class Index:
    """What `index.json` says, checked.

    `types` is what litdata found in the rows by column; `empty` names the lists and dicts that
    are empty in every row, of which litdata stores nothing.
    """

    path: str
    loader: str
    chunks: tuple[Chunk, ...]
    leaves: tuple[LeafFormat, ...]
    compression: str | None
    level: str
    encryption: dict[str, Any] | None
    types: dict[str, Any]
    empty: tuple[str, ...] = ()


def is_index(path: Path) -> bool:
    """Return whether a file is an index of chunks or shards, or too damaged to tell.

    Raises OSError where the disk fails.
    """
    if not os.path.isfile(path):  # a pipe would block forever
        return False
    try:
        content = json.loads(path.read_bytes())
    except PermissionError:
        return False  # the last source that is asked reports it
    except (ValueError, RecursionError):
        return True
    return isinstance(content, dict) and ("chunks" in content or "shards" in content)


def parse_index(data: bytes, path: str) -> Index:
    """Parse the bytes of an `index.json`; `path` is for messages.

    Raises
    ------
    SourceUnreadable
        It is damaged or says what cannot be.
    SourceUnsupported
        It was written for a loader whose layout fieldslab does not read.
    """
    try:
        content = json.loads(data)
        if isinstance(content, dict) and "shards" in content:
            raise SourceUnsupported(
                "an index of MosaicML shards, not of LitData chunks",
                file=path,
                hint="Write it again with litdata.optimize, or export it to Parquet.",
            )
        return _parse_content(content, path)
    except (ValueError, RecursionError) as error:
        text = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        _refuse_damaged(path, f"not JSON: {text}")


def _parse_content(content: Any, path: str) -> Index:
    config = content.get("config") if isinstance(content, dict) else None
    if not isinstance(config, dict):
        _refuse_damaged(path, "no `config` in it")
    formats = config.get("data_format")
    if not isinstance(formats, list) or not all(isinstance(text, str) for text in formats):
        _refuse_damaged(path, "`data_format` is not a list of names")
    loader = config.get("item_loader") or _infer_loader(formats)
    if loader not in _LOADERS:
        raise SourceUnsupported(
            "written for a loader whose layout fieldslab does not read",
            file=path,
            expected=" or ".join(_LOADERS[:2]),
            found=loader,
        )
    level, encryption = config.get("compression_level"), config.get("encryption")
    if level not in _COMPRESSIONS:
        _refuse_damaged(path, "unknown `compression_level`", level)
    if encryption is not None and not isinstance(encryption, dict):
        _refuse_damaged(path, "`encryption` is not an object")
    compression = config.get("compression")
    if compression is not None and not isinstance(compression, str):
        _refuse_damaged(path, "`compression` is not a name")
    types = config.get("types")
    leaves, empty = ((), ()) if loader == PARQUET else _parse_leaves(config, formats, loader, path)
    return Index(
        path,
        loader,
        _parse_chunks(content.get("chunks"), path),
        leaves,
        compression or None,
        level or "chunk",
        encryption,
        types if isinstance(types, dict) else {},
        empty,
    )


def _infer_loader(formats: list[str]) -> str:
    """Infer the loader of an index that does not name it, as litdata itself does."""
    tokens = len(formats) == 1 and formats[0].startswith("no_header_tensor")
    return TOKENS if tokens else "PyTreeLoader"


def _parse_chunks(entries: Any, path: str) -> tuple[Chunk, ...]:
    if not isinstance(entries, list):
        _refuse_damaged(path, "`chunks` is not a list")
    chunks = []
    for number, entry in enumerate(entries):
        where = f"chunk {number}"
        if not isinstance(entry, dict):
            _refuse_damaged(path, f"{where} is not an object")
        name, tokens = entry.get("filename"), entry.get("dim")
        if not isinstance(name, str) or not _is_plain_name(name):
            _refuse_damaged(path, f"{where}: `filename` is not a path inside the directory", name)
        rows = _parse_count(entry.get("chunk_size"), _MAX_COUNT, path, f"{where}: `chunk_size`")
        size = _parse_count(entry.get("chunk_bytes"), _MAX_BYTES, path, f"{where}: `chunk_bytes`")
        if tokens is not None:
            tokens = _parse_count(tokens, _MAX_BYTES, path, f"{where}: `dim`")
        chunks.append(Chunk(name, rows, size, tokens))
    return tuple(chunks)


def _is_plain_name(name: str) -> bool:
    """Return True if a file name has no folders, and so stays in the directory of the index."""
    parts = PurePosixPath(name).parts
    return bool(parts) and ".." not in parts and not os.path.isabs(name) and name.isprintable()


def _parse_count(value: Any, most: int, path: str, what: str) -> int:
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        _refuse_damaged(path, f"{what} is not a count", value)
    return value


def _parse_leaves(
    config: dict[str, Any], formats: list[str], loader: str, path: str
) -> tuple[tuple[LeafFormat, ...], tuple[str, ...]]:
    """Parse the leaves of every item, and the names of lists and dicts that have none."""
    spec = config.get("data_spec")
    try:
        protocol, tree = json.loads(spec) if isinstance(spec, str) else (None, None)
        if protocol != 1:
            _refuse_damaged(path, "`data_spec` is not of a known form", spec)
        nodes = list(_walk_leaves(tree, (), config.get("types")))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _refuse_damaged(path, f"`data_spec` cannot be understood: {error!r}")
    leaf_nodes = [(keys, kind) for keys, kind, is_leaf in nodes if is_leaf]
    if len(leaf_nodes) != len(formats):
        _refuse_damaged(path, f"{len(formats)} formats for {len(leaf_nodes)} leaves")
    alone = "tokens" if loader == TOKENS else "value"
    names = make_names_unique([".".join(keys) or alone for keys, _ in leaf_nodes])
    leaves = tuple(
        LeafFormat(name, text, kind)
        for name, text, (_, kind) in zip(names, formats, leaf_nodes, strict=True)
    )
    return leaves, tuple(".".join(keys) or alone for keys, _, is_leaf in nodes if not is_leaf)


def _walk_leaves(node: Any, keys: tuple[str, ...], kind: Any) -> Any:
    """Yield keys and entry in `types` of each leaf below a node, in the order of the formats.

    The third of each is True for a leaf, False for a list or dict without any.
    """
    if node["type"] is None:
        yield keys, kind, True
        return
    children, context = node["children_spec"], node["context"]
    if not children:
        yield keys, kind, False
        return
    names = [str(number) for number in range(len(children))]
    if node["type"] in ("builtins.dict", "collections.OrderedDict"):
        names = [str(key) for key in json.loads(context)]
    elif node["type"] == "collections.defaultdict":
        names = [str(key) for key in context["dict_context"]]
    if isinstance(kind, dict) and kind.get("type") == "struct":
        kind = kind.get("fields")
    for name, child in zip(names, children, strict=True):
        inner = kind.get(name) if isinstance(kind, dict) else None
        yield from _walk_leaves(child, (*keys, name), inner)


def _refuse_damaged(path: str, problem: str, value: Any = None) -> NoReturn:
    raise SourceUnreadable(
        f"damaged LitData index: {problem}",
        file=path,
        found=None if value is None else str(value)[:200],
        hint="Restore it from a copy, or run litdata.optimize again.",
    )
