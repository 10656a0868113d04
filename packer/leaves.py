"""The columns of a source with structs flattened, and what HuggingFace says of them."""

import difflib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fieldslab.packer.options import Options
from fieldslab.packer.source import matching
from fieldslab.schemas.errors import UnknownField, UsageError

_ARROW_METADATA = (b"ARROW:", b"PARQUET:")


@dataclass(frozen=True)
class Leaf:
    """A column that may become a field: `a.b` for child `b` of a struct `a`.

    `feature` is the HuggingFace feature of the column, `role` says which part of a HuggingFace
    Image or Audio struct this is.
    """

    name: str
    path: tuple[int, ...]
    type: pa.DataType
    feature: dict[str, Any]
    attributes: dict[str, Any]
    role: str | None = None


def find_leaves(schema: pa.Schema, options: Options) -> list[Leaf]:
    """Every leaf of a schema. A struct that `--cast STRUCT=json` names stays whole."""
    features = _features(schema)
    leaves: list[Leaf] = []
    for index, field in enumerate(schema):
        feature = features.get(field.name.partition("#")[0], {})
        leaves += _flatten(field, field.name, (index,), feature, options)
    return leaves


def choose(leaves: list[Leaf], options: Options) -> list[Leaf]:
    """The leaves that `--fields` and `--exclude` leave, in the order of the source.

    Raises UnknownField where an option names a column that is not there.
    """
    chosen = leaves
    if options.fields is not None:
        wanted = _expand("--fields", options.fields, leaves)
        chosen = [leaf for leaf in leaves if leaf.name in wanted]
    dropped = _expand("--exclude", options.exclude, leaves)
    chosen = [leaf for leaf in chosen if leaf.name not in dropped]
    if not chosen:
        raise UsageError("no field is left to pack", hint="Look at --fields and --exclude.")
    for option in ("rename", "cast", "tensor", "image", "nulls"):
        _expand(f"--{option}", getattr(options, option), leaves)
    return chosen


def unknown_field(option: str, name: str, names: Iterable[str]) -> UnknownField:
    """The error for a name that is not there, with the names that are."""
    names = list(names)
    close = difflib.get_close_matches(name, names, 1)
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return UnknownField(
        f"{option}: no such column",
        field=name,
        hint=f"Did you mean {close[0]!r}?" if close else f"The columns are: {shown}.",
    )


def _expand(option: str, patterns: Iterable[str], leaves: list[Leaf]) -> set[str]:
    names = [leaf.name for leaf in leaves]
    found: set[str] = set()
    for pattern in patterns:
        inside = [name for name in names if name.startswith(pattern + ".")]
        hits = inside if inside and pattern not in names else matching(pattern, names)
        if pattern in names:
            hits = [pattern, *inside]
        if not hits:
            raise unknown_field(option, pattern, names)
        found.update(hits)
    return found


def _flatten(
    field: pa.Field, name: str, path: tuple[int, ...], feature: Any, options: Options
) -> Iterator[Leaf]:
    kind = field.type
    while isinstance(kind, pa.BaseExtensionType) and pa.types.is_struct(kind.storage_type):
        kind = kind.storage_type
    attributes = _attributes(field)
    feature = feature if isinstance(feature, dict) else {}
    if not pa.types.is_struct(kind) or options.cast.get(name) == "json":
        yield Leaf(name, path, kind, feature, attributes)
        return
    names = [kind.field(i).name for i in range(kind.num_fields)]
    media = feature.get("_type") in ("Image", "Audio") or sorted(names) == ["bytes", "path"]
    for index, child in enumerate(names):
        inner = kind.field(index)
        if media and child == "bytes":
            yield Leaf(name, (*path, index), inner.type, feature, attributes, "bytes")
        elif media and child == "path":
            yield Leaf(f"{name}.path", (*path, index), inner.type, {}, _attributes(inner), "path")
        else:
            yield from _flatten(
                inner, f"{name}.{child}", (*path, index), feature.get(child), options
            )


def _features(schema: pa.Schema) -> dict[str, Any]:
    """HuggingFace's description of the columns, where there is one that can be read."""
    try:
        described = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = described["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def _attributes(field: pa.Field) -> dict[str, Any]:
    return {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in (field.metadata or {}).items()
        if not key.startswith(_ARROW_METADATA)
    }
