"""One Arrow column -> the arrays of its field, vectorised over Arrow's buffers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.convert.casts import LAYOUTS, cast_layout, rounded_integers
from fieldslab.packer.convert.categories import CategoryIndex
from fieldslab.packer.convert.dense import child, decoded, is_list, plain, valid_rows
from fieldslab.packer.convert.fieldplan import Converted, FieldPlan
from fieldslab.packer.convert.forms import FORMS, read_elements
from fieldslab.packer.convert.misfit import InnerNull, Misfit, Undecodable
from fieldslab.packer.convert.padding import cut
from fieldslab.packer.convert.pictures import with_pictures
from fieldslab.packer.options import parse_shape
from fieldslab.schemas.errors import (
    FieldslabError,
    NullsFound,
    SourceInconsistent,
    UndecodableImage,
)
from fieldslab.schemas.optiontext import option

STACKED_AT_ONCE = 1024
"""Rows that are put side by side at a time: so many lie close enough together in memory."""

_BAD = (Misfit, InnerNull, pa.ArrowException)


def convert(
    plan: FieldPlan,
    batch: pa.RecordBatch,
    positions: dict[int, int],
    first_row: int,
    categories: CategoryIndex | None = None,
) -> Converted:
    """The rows of a batch as the arrays of one field.

    Parameters
    ----------
    positions
        Where in `batch` each top-level column of the source stands.
    first_row
        Row of the slab that the batch starts with, for messages.
    categories
        The field's categories, which grow as new ones are met.

    Raises
    ------
    NullsFound
        A null, and no `--nulls` for it.
    SourceInconsistent
        A row that does not fit the plan; UndecodableImage where its image is damaged.
    """

    def attempt(start: int, rows: int) -> Converted:
        part = batch if rows == batch.num_rows else batch.slice(start, rows)  # slices are dear
        if plan.form == "stack":
            converted = _stack(plan, part, positions)
        else:
            converted = _column(plan, part, positions, first_row + start, categories)
        if plan.cast is None:
            return converted
        columns = (reach(part, positions, path) for path in plan.paths)
        return converted._replace(rounded=sum(rounded_integers(c, plan.cast) for c in columns))

    try:
        return attempt(0, batch.num_rows)
    except _BAD as error:
        # Conversion does not keep track of rows; the first bad one is looked for only now.
        start, rows = 0, batch.num_rows
        looked_for = not (plan.sound and isinstance(error, Undecodable))  # else all of them are
        while rows > 1 and looked_for:
            half = rows // 2
            if _failure(attempt, start, half):
                rows = half
            else:
                start, rows = start + half, rows - half
        cause = _failure(attempt, start, rows) or error
        column = _culprit(plan, batch.slice(start, rows), positions)
        raise _named(plan, column, cause, first_row + start) from cause


def _failure(attempt: Callable[..., object], *arguments: Any) -> Exception | None:
    try:
        attempt(*arguments)
    except _BAD as error:
        return error
    return None


def _culprit(plan: FieldPlan, row: pa.RecordBatch, positions: dict[int, int]) -> str:
    """The column of a field that cannot be converted in one row."""
    if plan.form == "stack":
        for column, path in zip(plan.columns, plan.paths, strict=True):
            if _failure(read_elements, plan, reach(row, positions, path)):
                return column
    return plan.columns[0]


def _column(
    plan: FieldPlan,
    batch: pa.RecordBatch,
    positions: dict[int, int],
    first_row: int,
    categories: CategoryIndex | None,
) -> Converted:
    array = reach(batch, positions, plan.paths[0])
    if plan.cast in LAYOUTS:
        array = cast_layout(array, plan.cast)
    array = plain(array)
    valid = valid_rows(array)
    if valid is not None and isinstance(plan.filler, str):
        array, valid = _filled(array, plan.filler), None
    if valid is not None:
        if plan.nulls != "mask" and (plan.filler is None or plan.field.variable):
            count = len(array) - int(valid.sum())
            first = first_row + int(np.argmin(valid))
            raise nulls_error(plan.columns[0], f"at least {count}", first)
        array = array.filter(pa.array(valid))
    if plan.shape_path is not None:
        _check_shapes(plan, reach(batch, positions, plan.shape_path), valid)
    if plan.form == "categorical":
        assert categories is not None
        ordered = plan.field.attributes.get("ordered") is True
        converted = Converted(categories.codes(array, ordered=ordered))
    else:
        converted = FORMS[plan.form](plan.as_read, array)
    if plan.padding is not None:
        stated = plan.padding.lengths
        lengths = None if stated is None else reach(batch, positions, stated)
        if lengths is not None and valid is not None:
            lengths = lengths.filter(pa.array(valid))
        converted = Converted(*cut(plan.padding, converted.values, lengths))
    if valid is not None:
        converted = _scatter(plan, converted, valid)
    return with_pictures(plan, converted, first_row) if plan.field.kind == "image" else converted


def reach(batch: pa.RecordBatch, positions: dict[int, int], path: tuple[int, ...]) -> pa.Array:
    """The array at a path, with the nulls of the structs around it."""
    array = batch.column(positions[path[0]])
    for index in path[1:]:
        array = child(array, index)
    return array


def _filled(array: pa.Array, value: str) -> pa.Array:
    """Text, bytes or categories with a value for nulls."""
    encoded = pa.types.is_dictionary(array.type)
    array = decoded(array)
    filled = array.fill_null(pa.scalar(value.encode()).cast(array.type))
    return filled.dictionary_encode() if encoded else filled


def _stack(plan: FieldPlan, batch: pa.RecordBatch, positions: dict[int, int]) -> Converted:
    """Many numeric columns side by side: (rows, columns)."""
    columns = [read_elements(plan, reach(batch, positions, path)) for path in plan.paths]
    values = np.empty((batch.num_rows, len(columns)), plan.field.storage)
    for start in range(0, batch.num_rows, STACKED_AT_ONCE):
        rows = slice(start, start + STACKED_AT_ONCE)
        for index, column in enumerate(columns):
            values[rows, index] = column[rows]
    return Converted(values)


def _scatter(plan: FieldPlan, there: Converted, valid: np.ndarray) -> Converted:
    """Put converted rows back between the nulls, which become the filler, or stay null."""
    if there.lengths is not None:
        lengths = np.zeros(len(valid), np.int64)
        lengths[valid] = there.lengths
        return Converted(there.values, lengths, valid, there.shortened)
    values = np.zeros((len(valid), *plan.field.shape), there.values.dtype)
    values[valid] = there.values
    if plan.filler is not None:
        values[~valid] = plan.filler
        return Converted(values)
    if plan.form == "categorical":
        values[~valid] = -1
    return Converted(values, None, valid, there.shortened)


def _check_shapes(plan: FieldPlan, shapes: pa.Array, valid: np.ndarray | None) -> None:
    """Raise Misfit where a row states another shape than the field has."""
    shapes = decoded(shapes)
    if valid is not None:
        shapes = shapes.filter(pa.array(valid))
    if not is_list(shapes.type):
        shapes = shapes.unique()
    for given in shapes.to_pylist():
        shape = tuple(given) if isinstance(given, list) else parse_shape(str(given))
        if shape != plan.field.shape:
            raise Misfit(
                "its shape differs from the first row's",
                expected=list(plan.field.shape),
                found=given,
                hint=f"A fixed field needs one shape: {option('rows')} leaves rows out, "
                f"{option('exclude')} the column.",
            )


def nulls_error(
    column: str, count: object, row: int | None = None, *, stacked: bool = False
) -> NullsFound:
    """The error for null rows that no option speaks of."""
    mask = (
        ""
        if stacked
        else (f"{option('nulls', 'mask', column=column)} keeps them with a validity array, ")
    )
    return NullsFound(
        "1 null" if count == 1 else f"{count} nulls",
        field=column,
        row=row,
        hint=f"Say what to do with them: {mask}{option('nulls', 'VALUE', column=column)} replaces "
        f"them, {option('exclude', [column])} leaves the column out.",
    )


def _named(plan: FieldPlan, column: str, cause: Exception, row: int) -> FieldslabError:
    """The error for what is wrong in a row."""
    if isinstance(cause, InnerNull):
        stacked = plan.form == "stack"
        return NullsFound(
            "a null in a stacked column" if stacked else "a null inside a list",
            field=column,
            row=row,
            hint=f"{option('nulls', 'VALUE', column=column)} replaces it (a mask covers whole rows "
            f"only), {option('exclude', [column])} leaves the column out.",
        )
    fit = cause if isinstance(cause, Misfit) else Misfit(" ".join(str(cause).split()).rstrip("."))
    problem = (
        fit.problem if plan.cast is None else f"{option('cast')} to {plan.cast}: {fit.problem}"
    )
    kind = UndecodableImage if isinstance(fit, Undecodable) else SourceInconsistent
    return kind(
        problem,
        field=column,
        row=row,
        expected=fit.expected,
        found=fit.found,
        hint=fit.hint or _shape_hint(plan, column),
    )


def _shape_hint(plan: FieldPlan, column: str) -> str | None:
    """What admits lists that are not all of one shape."""
    field = plan.field
    if plan.form not in ("dense", "list") or not field.shape or plan.cast is not None:
        return None
    hint = f"{option('cast', 'json', column=column)} packs lists of any nesting."
    if plan.form == "dense" and field.logical is None and 0 not in field.shape:
        shape = ",".join(["*", *map(str, field.shape[1:])])
        tensor = option("tensor", f"{field.dtype}[{shape}]", column=column)
        return f"{tensor} lets the first length differ, {hint}"
    return hint
