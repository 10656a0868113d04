"""Names of columns: made unique, checked, and matched by patterns."""

import fnmatch
from collections.abc import Iterable

import pyarrow as pa


def make_names_unique(names: Iterable[str]) -> list[str]:
    """Make all names different, in order: the second `a` becomes `a#2`."""
    names = list(names)
    if len(set(names)) == len(names):
        return names
    original_names, result, used_names = set(names), [], set()
    for name in names:
        unique, count = name, 1
        while unique in used_names or (count > 1 and unique in original_names):
            count += 1
            unique = f"{name}#{count}"
        used_names.add(unique)
        result.append(unique)
    return result


def check_utf8_names(schema: pa.Schema) -> None:
    """Raise UnicodeDecodeError where a name or a time zone in a schema is not UTF-8."""
    for column in schema:
        _check_utf8_name(column)


def _check_utf8_name(column: pa.Field) -> None:
    kind, texts = column.type, [column.name]  # pyarrow decodes each when it is asked for
    if isinstance(kind, pa.BaseExtensionType):
        texts.append(kind.extension_name)
        _check_utf8_name(pa.field("", kind.storage_type))
    elif pa.types.is_dictionary(kind):
        _check_utf8_name(pa.field("", kind.value_type))
    elif pa.types.is_timestamp(kind):
        texts.append(kind.tz)
    for index in range(kind.num_fields):
        _check_utf8_name(kind.field(index))


def match_names(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that a shell pattern matches; an exact name matches itself alone."""
    names = list(names)
    return [pattern] if pattern in names else fnmatch.filter(names, pattern)
