"""The columns of a source with structs flattened, and what user and HuggingFace say of them."""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa

from fieldslab.packer.column_names import make_names_unique, match_names
from fieldslab.packer.convert.dense import is_list
from fieldslab.packer.convert.shapes import strip_type
from fieldslab.packer.image_options import ImageForm
from fieldslab.packer.options import Options, Ragged, Tensor, Tokenize
from fieldslab.packer.source import ColumnHint, Source
from fieldslab.schemas.arrow_arrays import NESTED_KEY
from fieldslab.schemas.errors import SourceUnsupported, UnknownField, UsageError
from fieldslab.schemas.optiontext import mark_option

_ARROW_METADATA = (b"ARROW:", b"PARQUET:", b"fieldslab:")

_LOOK_AT = f"Check the options {mark_option('fields')} and {mark_option('exclude')}."


@dataclass(frozen=True)
class ColumnOptions:
    """What the options of a pack say of one column; `compress` is a level of zstd."""

    cast: str | None = None
    tensor: Tensor | None = None
    image: bool = False
    image_as: ImageForm | None = None
    nulls: str = "error"
    ragged: Ragged | None = None
    tokenize: Tokenize | None = None
    compress: int | None = None


@dataclass(frozen=True)
class Leaf:
    """A column that may become a field: `a.b` for child `b` of a struct `a`, also in lists.

    `feature` is the HuggingFace feature of the column, `role` says which part of a HuggingFace
    Image or Audio struct this is; `hint` is what the source says beside the type. Lists that are
    `nested` were so in the slab that the source was exported from.
    """

    name: str
    path: tuple[int, ...]
    type: pa.DataType
    feature: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    role: str | None = None
    nested: bool = False
    hint: ColumnHint = field(default_factory=ColumnHint)
    options: ColumnOptions = ColumnOptions()

    @property
    def type_text(self) -> str:
        """The type, for people."""
        return self.hint.why or str(self.type)


def find_leaves(source: Source, options: Options) -> list[Leaf]:
    """Find every leaf of a source. A struct that `--cast STRUCT=json` names stays whole.

    Lists of structs, and maps, are lists for each child: the path leads through the list.

    Raises SourceUnsupported where the source has no columns.
    """
    if not len(source.schema):
        files = [file["path"] for file in source.fingerprint() if "path" in file]
        raise SourceUnsupported("there are no columns to pack", file=next(iter(files), None))
    features = _read_features(source.schema)
    leaves: list[Leaf] = []
    for index, column in enumerate(source.schema):
        feature, hint = features.get(column.name), source.hints.get(index, ColumnHint())
        for leaf in _list_leaves(column, column.name, (index,), feature, options):
            attributes = leaf.attributes | dict(hint.attributes)
            leaves.append(replace(leaf, hint=hint, attributes=attributes))
    names = make_names_unique([leaf.name for leaf in leaves])
    all_names = frozenset(names)
    return [
        replace(leaf, name=name, options=_select_options(name, leaf.role, all_names, options))
        for leaf, name in zip(leaves, names, strict=True)
    ]


def choose_leaves(leaves: list[Leaf], options: Options) -> list[Leaf]:
    """Choose the leaves that `--fields` and `--exclude` keep, in the order of the source.

    Raises UnknownField where an option names a column that is not there.
    """
    names = [leaf.name for leaf in leaves]
    chosen = leaves
    if options.fields is not None:
        chosen_names = _expand_patterns("fields", options.fields, names)
        chosen = [leaf for leaf in leaves if leaf.name in chosen_names]
    dropped = _expand_patterns("exclude", options.exclude, names)
    chosen = [leaf for leaf in chosen if leaf.name not in dropped]
    if not chosen:
        raise UsageError("no field is left to pack", hint=_LOOK_AT)
    for name in ("cast", "tensor", "nulls", "ragged", "tokenize"):
        for pattern in getattr(options, name):
            _match_pattern(name, pattern, names)
    for name in options.rename:
        if name not in names:
            raise make_unknown_field_error("rename", name, names)
    images = _expand_patterns("image", options.image, names)
    for item in options.image:
        if not _expand_patterns("image", [item], names) & {leaf.name for leaf in chosen}:
            raise UsageError(
                f"{mark_option('image')}: the column is left out", field=item, hint=_LOOK_AT
            )
    forms: dict[str, ImageForm] = {}
    for columns, form in options.image_as.items():
        forms |= dict.fromkeys(_expand_patterns("image", [columns], names), form)
    # Of a struct{bytes, path}, the path is no image unless it is called one.
    images -= {leaf.name for leaf in leaves if leaf.role == "path"} - set(options.image)
    return [
        replace(leaf, options=replace(leaf.options, image=True, image_as=forms.get(leaf.name)))
        if leaf.name in images
        else leaf
        for leaf in chosen
    ]


def refuse_unsupported_leaf(leaf: Leaf) -> None:
    """Raise SourceUnsupported where the source says that a leaf cannot be packed."""
    if leaf.hint.refusal is not None:
        problem, hint = leaf.hint.refusal
        raise SourceUnsupported(
            problem, field=leaf.name, found=leaf.type_text, hint=hint.format(leaf.name)
        )


def make_unknown_field_error(asked_by: str, name: str, names: Iterable[str]) -> UnknownField:
    """Make the error for an unknown name, which lists the known names."""
    names = list(names)
    inside = [other for other in names if other.startswith(name + ".")]
    folded = {other.casefold(): other for other in names}
    close = difflib.get_close_matches(name.casefold(), list(folded), 1)
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    hint = f"The columns are: {shown}."
    if inside:
        hint = f"It is a struct; its parts are {', '.join(inside[:20])}."
    elif close:
        hint = f"Did you mean {folded[close[0]]!r}?"
    return UnknownField(f"{mark_option(asked_by)}: no such column", field=name, hint=hint)


def _expand_patterns(asked_by: str, items: Iterable[str], names: list[str]) -> set[str]:
    """Return the names that items stand for: names, structs, patterns, or lists with commas."""
    expanded: set[str] = set()
    for item in items:
        if item in names:
            expanded |= _match_pattern(asked_by, item, names)
            continue
        for pattern in item.split(","):
            if pattern.strip():
                expanded |= _match_pattern(asked_by, pattern.strip(), names)
    return expanded


def _match_pattern(asked_by: str, pattern: str, names: list[str]) -> set[str]:
    hits = {name for name in names if _is_inside(name, pattern)} | set(match_names(pattern, names))
    if not hits:
        raise make_unknown_field_error(asked_by, pattern, names)
    return hits


def _is_inside(name: str, struct: str) -> bool:
    return bool(struct) and name.startswith(struct + ".")


def _select_options(
    name: str, role: str | None, known: frozenset[str], options: Options
) -> ColumnOptions:
    """Select the options of one column; a path beside bytes may be null by default."""
    nulls = look_up_option(options.nulls, name, known)
    unset = "mask" if role == "path" else "error"
    return ColumnOptions(
        cast=look_up_option(options.cast, name, known),
        tensor=look_up_option(options.tensor, name, known),
        nulls=unset if nulls in (None, "error") else nulls,
        ragged=look_up_option(options.ragged, name, known),
        tokenize=look_up_option(options.tokenize, name, known),
    )


def look_up_option(
    values: Mapping[str, Any], name: str, known: frozenset[str] = frozenset()
) -> Any:
    """Look up the option of a column, or None; `known` are names that mean one column alone.

    An exact name wins over structs and patterns, of these the later one over the earlier.
    """
    if name in values:
        return values[name]
    patterns = [key for key in values if key not in known]
    hits = [key for key in patterns if _is_inside(name, key) or fnmatchcase(name, key)]
    return values[hits[-1]] if hits else None


def _list_leaves(
    column: pa.Field, name: str, path: tuple[int, ...], feature: Any, options: Options
) -> Iterator[Leaf]:
    kind = column.type
    while isinstance(kind, pa.BaseExtensionType) and pa.types.is_struct(kind.storage_type):
        kind = kind.storage_type
    attributes = _read_attributes(column)
    feature = feature if isinstance(feature, dict) else {}
    names = [inner.name for inner in kind] if pa.types.is_struct(kind) else []
    is_json = look_up_option(options.cast, name) == "json"
    if not is_json and _holds_structs(kind):
        items = kind.field(0).with_metadata(column.metadata)
        for leaf in _list_leaves(items, name, (*path, 0), _get_item_feature(feature), options):
            yield replace(leaf, type=pa.large_list(leaf.type))
        return
    if not names or is_json:
        nested = NESTED_KEY.encode() in (column.metadata or {})
        yield Leaf(name, path, kind, feature, attributes, nested=nested)
        return
    media = sorted(names) == ["bytes", "path"]
    for index, child in enumerate(names):
        inner = kind.field(index)
        if media and child == "bytes":
            yield Leaf(name, (*path, index), inner.type, feature, attributes, "bytes")
        elif media and child == "path":
            yield Leaf(
                f"{name}.path", (*path, index), inner.type, {}, _read_attributes(inner), "path"
            )
        else:
            yield from _list_leaves(
                inner, f"{name}.{child}", (*path, index), feature.get(child), options
            )


def _holds_structs(kind: pa.DataType) -> bool:
    """Return whether a type is lists of structs, at any depth, or a map."""
    while is_list(kind):
        kind = strip_type(kind.value_type)
        if pa.types.is_struct(kind) and kind.num_fields:
            return True
    return bool(pa.types.is_map(kind))


def _get_item_feature(feature: Any) -> Any:
    """Return HuggingFace's description of the items of a list."""
    if isinstance(feature, dict) and "feature" in feature:
        return feature["feature"]
    return feature[0] if isinstance(feature, list) and len(feature) == 1 else feature


def _read_features(schema: pa.Schema) -> dict[str, Any]:
    """HuggingFace's description of the columns, where there is one that can be read."""
    try:
        described = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = described["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return features if isinstance(features, dict) else {}


def _read_attributes(column: pa.Field) -> dict[str, Any]:
    return {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in (column.metadata or {}).items()
        if not key.startswith(_ARROW_METADATA)
    }
