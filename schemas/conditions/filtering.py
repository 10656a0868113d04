"""Rows for which a condition is true, by pyarrow's own evaluation."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fieldslab.schemas.arrow_arrays import ArrowMaker, Lists, find_scalar_type
from fieldslab.schemas.conditions.expressions import parse_expression
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.registry import make_unknown_name_error
from fieldslab.schemas.row_batches import read_batches

if TYPE_CHECKING:
    import pyarrow as pa

Values = (
    tuple[np.ndarray, np.ndarray | None, np.ndarray | None]
    | tuple[np.ndarray, np.ndarray | None, np.ndarray | None, Lists]
)
"""Values of some rows of a field, their offsets if they differ in length, and which are valid.

Of a nested field, the lists inside the lists, too.
"""
ReadValues = Callable[[range, list[str]], Mapping[str, Values]]
"""Reads rows of fields, which it gives by name."""
_KINDS = ("fixed", "categorical", "text", "binary")


def find_rows(
    expression: Any,
    fields: Mapping[str, Field],
    categories: Callable[[str], Sequence[str]],
    read: ReadValues,
    total: int,
) -> np.ndarray:
    """Find the rows of a slab for which an expression is true: ascending, int64[n].

    Only fields that the expression names are read, in batches of about 32 MiB.

    Parameters
    ----------
    expression
        `pyarrow.compute.Expression`, or a text for `parse_expression`.
    fields
        Fields by name.
    categories
        Gives the names of the categories of a field.
    read
        Reads a range of rows.
    total
        Rows of the slab.

    Raises UsageError, and what `read` raises.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(expression, str):
        text = expression
        expression = parse_expression(text, _list_classes(fields), _list_times(fields))
    else:
        text = str(expression)
    if not isinstance(expression, pc.Expression):
        hint = 'Write it as in slab.where(pyarrow.compute.field("label") == 3).'
        raise UsageError("not an expression", found=type(expression).__name__, hint=hint)
    comparable = {name: field for name, field in fields.items() if _is_comparable(field)}
    schema = pa.schema([(name, _find_column_type(field)) for name, field in comparable.items()])
    makers = {
        name: ArrowMaker(
            fields[name], categories(name) if fields[name].kind == "categorical" else None
        )
        for name in _find_names(expression, schema, fields, text)
    }

    def read_table(rows: range) -> "pa.Table":
        values = read(rows, list(makers))
        columns = {
            name: _simplify_column(maker.convert(*values[name])) for name, maker in makers.items()
        }
        return pa.table({**columns, "": np.arange(rows.start, rows.stop, dtype=np.int64)})

    matches = [np.empty(0, np.int64)]
    for _, table in read_batches(read_table, total):
        try:
            matches.append(table.filter(expression)[""].to_numpy())
        except (pa.ArrowException, TypeError) as error:
            raise UsageError(
                f"the condition cannot be evaluated: {error}", found=str(expression)
            ) from error
    return np.concatenate(matches)


def _list_classes(fields: Mapping[str, Field]) -> dict[str, dict[str, int]]:
    """List the values of classes by name, of the fields that have some."""
    return {
        name: dict(zip(names, field.logical.codes or range(len(names)), strict=True))
        for name, field in fields.items()
        if field.logical is not None
        and field.logical.type == "class_label"
        and (names := field.logical.names) is not None
    }


def _list_times(fields: Mapping[str, Field]) -> dict[str, "pa.DataType"]:
    """List the types of the fields that hold times or dates, but not durations."""
    import pyarrow as pa

    types = {
        name: find_scalar_type(field)
        for name, field in fields.items()
        if field.kind == "fixed" and _is_comparable(field)
    }
    return {
        name: type
        for name, type in types.items()
        if pa.types.is_temporal(type) and not pa.types.is_duration(type)
    }


def _is_comparable(field: Field) -> bool:
    """Whether rows of a field are single values that Arrow compares."""
    return field.kind in _KINDS and not field.shape and field.storage.kind != "c"


def _find_column_type(field: Field) -> "pa.DataType":
    """Find the type of the columns of a field that is comparable; categories count by name."""
    import pyarrow as pa

    if field.kind == "fixed":
        return find_scalar_type(field)
    return pa.large_binary() if field.kind == "binary" else pa.large_string()


def _simplify_column(column: "pa.Array") -> "pa.Array":
    """Make a column one that Arrow compares: names of categories, and JSON as text."""
    import pyarrow as pa

    if isinstance(column, pa.DictionaryArray):
        return column.dictionary_decode()
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _find_names(
    expression: Any, schema: "pa.Schema", fields: Mapping[str, Field], text: str
) -> list[str]:
    """Find the fields that an expression reads: those without which it cannot be evaluated."""
    import pyarrow as pa

    try:
        schema.empty_table().filter(expression)
    except (pa.ArrowException, TypeError) as error:
        missing = re.match(r"No match for FieldRef.Name\((.*?)\)", str(error))
        if missing and missing[1] not in fields:
            raise _make_no_field_error(missing[1], fields, text) from None
        reason = f"there is no field {missing[1]!r} to compare" if missing else str(error)
        raise UsageError(
            f"the condition cannot be evaluated: {reason}",
            found=str(expression),
            expected=f"fields with one value a row: {', '.join(schema.names)}",
            hint=_explain_comparison(reason, expression, schema, fields),
        ) from None
    names = []
    for index, name in enumerate(schema.names):
        try:
            schema.remove(index).empty_table().filter(expression)
        except pa.ArrowException:
            names.append(name)
    return names


def _make_no_field_error(name: str, fields: Mapping[str, Field], text: str) -> UsageError:
    """Make the error for a name in a condition that is no field; it says how to write what is."""
    error = make_unknown_name_error(
        f"the condition names {name!r}, which is no field", name, fields
    )
    written = [field for field in fields if name in field and field in text and field != name]
    if written:
        error = UsageError(
            error.problem, **error.context, hint=f'Write it as field("{written[0]}").'
        )
    elif error.hint is None:
        error.add_hint("Text is written in quotes.")
    return error


def _explain_comparison(
    reason: str, expression: Any, schema: "pa.Schema", fields: Mapping[str, Field]
) -> str | None:
    """Say what to write where Arrow has no way to compare the values of a condition."""
    if "string" in reason and any(name in str(expression) for name in _list_classes(fields)):
        return "Names of classes are for conditions as text: \"label == 'cat'\"."
    if "no kernel matching" in reason:
        return "Write numbers as they are, text in quotes, and times as text in ISO 8601."
    others = ", ".join(name for name in fields if name not in schema.names)
    return f"Others cannot be compared: {others}." if others else None
