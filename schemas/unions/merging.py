"""The fields of several slabs as the fields of one."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

import msgspec
import numpy as np

from fieldslab.schemas.access import find_table_folder
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import CategoryTable, Compression, Field, make_file_stem
from fieldslab.schemas.folder import SlabFiles
from fieldslab.schemas.images import PIXELS
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stored_tables import load_categories

NO_CATEGORY = np.array([-1])
"""What the codes of rows become that have no value in their slab: they are stored as 0."""


_ALIKE = ("kind", "inner", "dtype", "shape")
"""Members that fields of one name have in common."""


class MergedField(NamedTuple):
    """A field of several slabs.

    Attributes
    ----------
    field
        What it is in all of them together.
    parts
        What it is in each of them; None where a slab lacks it.
    codes
        For each slab what its codes become, int64[categories], None where they stay; None where
        all stay.
    categories
        Its categories, where they stand in tables that differ.
    """

    field: Field
    parts: list[Field | None]
    codes: list[np.ndarray | None] | None = None
    categories: list[str] | None = None


def merge_fields(slabs: Sequence[SlabFiles], missing: str | None) -> list[MergedField]:
    """Merge the fields of slabs by name, in order of first appearance.

    Raises UsageError for fields that contradict each other, or that some slabs lack unless
    `missing` is "null".
    """
    tables = [{field.name: field for field in files.manifest.fields} for files in slabs]
    names = dict.fromkeys(name for table in tables for name in table)
    return [
        _merge_field(ordinal, slabs, [table.get(name) for table in tables], missing)
        for ordinal, name in enumerate(names)
    ]


def _merge_field(
    ordinal: int, slabs: Sequence[SlabFiles], parts: list[Field | None], missing: str | None
) -> MergedField:
    first, field = next((index, part) for index, part in enumerate(parts) if part is not None)
    stem = make_file_stem(ordinal, field.name)
    if (
        field.compression is None
        and all(part == field for part in parts)
        and (field.table is None or len({files.manifest.tables for files in slabs}) == 1)
    ):
        return MergedField(msgspec.structs.replace(field, stem=stem), parts)
    lacking = [files for files, part in zip(slabs, parts, strict=True) if part is None]
    if lacking and missing != "null":
        shown = ", ".join(str(files.path) for files in lacking[:3])
        raise UsageError(
            f"{len(lacking):,} of the slabs lack a field that {slabs[first].path} has",
            field=field.name,
            found=shown + (", ..." if len(lacking) > 3 else ""),
            hint=f"Give {mark_option('missing', 'null')} to read nulls there.",
        )
    stored = [(files, part) for files, part in zip(slabs, parts, strict=True) if part is not None]

    def refuse(problem: str, files: SlabFiles, expected: Any, found: Any) -> NoReturn:
        raise UsageError(
            f"{problem} than in {slabs[first].path}",
            file=files.path,
            field=field.name,
            expected=expected,
            found=found,
            hint="Give each of the two fields another name, or leave one out, with "
            "`fieldslab pack` or `fieldslab repack`.",
        )

    for files, part in stored:
        if any(getattr(part, name) != getattr(field, name) for name in _ALIKE):
            refuse("the field is another", files, field.describe(), part.describe())
        if (part.compression is None) != (field.compression is None):
            words = {True: "uncompressed", False: "compressed"}
            expected, found = (words[each.compression is None] for each in (field, part))
            refuse("the field is stored in another way", files, expected, found)
    if lacking and field.compression is not None and not field.variable:
        refuse("a compressed field of fixed size cannot be missing", lacking[0], field.name, None)
    changes: dict[str, Any] = {
        "stem": stem,
        "nullable": bool(lacking) or any(part.nullable for _, part in stored),
        "attributes": _keep_common([part.attributes for _, part in stored]),
    }
    if field.compression is not None:
        decoded = sum(part.compression.decoded for _, part in stored if part.compression)
        changes["compression"] = Compression(codec=field.compression.codec, decoded=decoded)
    if field.kind == "image":
        changes |= _merge_images([part for _, part in stored])
    merged = MergedField(field, parts)
    if field.kind == "categorical":
        merged = _merge_categories(merged, slabs)
    elif any(part.logical != field.logical for _, part in stored):
        merged = _merge_class_names(merged, stored, refuse)
    return merged._replace(field=msgspec.structs.replace(merged.field, **changes))


def _keep_common(attributes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The members that all of some dicts have with the same value."""
    first, *others = attributes
    return {
        key: value
        for key, value in first.items()
        if all(key in other and other[key] == value for other in others)
    }


def _merge_images(parts: Sequence[Field]) -> dict[str, Any]:
    codecs = {part.codec for part in parts}
    index = {part.index for part in parts} - {None}
    return {
        "codec": codecs.pop() if len(codecs) == 1 else "mixed",
        "coded": any(part.coded for part in parts)
        or (len({part.codec for part in parts}) > 1 and not codecs.isdisjoint(PIXELS)),
        "index": index.pop() if len(index) == 1 else None,
    }


def _merge_categories(merged: MergedField, slabs: Sequence[SlabFiles]) -> MergedField:
    """Join categories, those of the first slab in front."""
    by_key: dict[tuple[Any, ...], Sequence[str]] = {}
    lists: list[Sequence[str] | None] = []
    for files, part in zip(slabs, merged.parts, strict=True):
        if part is None or part.categories is not None:
            lists.append(None if part is None else part.categories)
            continue
        key = files.manifest.tables, part.stem
        if key not in by_key:
            by_key[key] = _read_categories(files, part)
        lists.append(by_key[key])
    names, codes = _join_names(lists)
    if any(each is None for each in lists):
        codes = [
            NO_CATEGORY if each is None else code for each, code in zip(lists, codes, strict=True)
        ]
    in_tables = any(part is not None and part.table is not None for part in merged.parts)
    text_bytes = sum(len(name.encode()) for name in names) if in_tables else 0
    field = msgspec.structs.replace(
        merged.field,
        categories=None if in_tables else tuple(names),
        table=CategoryTable(len(names), text_bytes) if in_tables else None,
    )
    return MergedField(field, merged.parts, _drop_unchanged(codes), names if in_tables else None)


def _merge_class_names(
    merged: MergedField,
    stored: Sequence[tuple[SlabFiles, Field]],
    refuse: Callable[..., NoReturn],
) -> MergedField:
    """Join the names of classes; what else numbers stand for must be the same."""
    logical = merged.field.logical
    for files, part in stored:
        types = {each.type if each is not None else None for each in (logical, part.logical)}
        if part.logical != logical and types != {"class_label"}:
            refuse("the numbers stand for something else", files, logical, part.logical)
    lists = [
        None if part is None or part.logical is None else part.logical.names or ()
        for part in merged.parts
    ]
    names, joined = _join_names(lists)
    codes = _drop_unchanged(joined)
    field = merged.field
    if codes is not None:
        files = next(files for files, part in stored if part.logical != logical)
        if field.kind != "fixed" or field.shape or field.compression is not None:
            refuse("the classes have other names", files, logical, "other names")
        if len(names) - 1 > np.iinfo(field.dtype).max:
            refuse("there are more classes", files, f"what fits in {field.dtype}", len(names))
    assert logical is not None
    logical = msgspec.structs.replace(logical, names=tuple(names))
    return MergedField(msgspec.structs.replace(field, logical=logical), merged.parts, codes)


def _join_names(
    lists: Sequence[Sequence[str] | None],
) -> tuple[list[str], list[np.ndarray | None]]:
    """Join lists of names; return what the index of each name becomes, None where all stay."""
    index: dict[str, int] = {}
    codes: list[np.ndarray | None] = []
    last: tuple[Sequence[str] | None, np.ndarray | None] = (None, None)
    for names in lists:
        if names is not None and names is not last[0] and names != last[0]:
            numbers = np.array([index.setdefault(name, len(index)) for name in names], np.int64)
            unchanged = np.array_equal(numbers, np.arange(len(numbers)))
            last = names, None if unchanged else numbers
        codes.append(None if names is None else last[1])
    return list(index), codes


def _drop_unchanged(codes: list[np.ndarray | None]) -> list[np.ndarray | None] | None:
    return None if all(each is None for each in codes) else codes


def _read_categories(files: SlabFiles, field: Field) -> list[str]:
    """Read a category table. Raises DamagedArray."""
    tables = find_table_folder(files)
    assert tables is not None
    tables.load_digests()
    ends, text = load_categories(field, tables)
    data, bounds = text.tobytes(), ends.tolist()
    try:
        return [data[start:stop].decode() for start, stop in pairwise(bounds)]
    except UnicodeDecodeError as error:
        values = tables.get_required_array(field, "categories.values")
        raise values.make_damaged_error("a category is not UTF-8") from error
