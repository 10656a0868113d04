"""One Arrow column -> the arrays of its field, vectorised over Arrow's buffers."""

from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fieldslab.packer.categories import CategoryIndex
from fieldslab.packer.dense import InnerNull, Uneven, fill, numbers, plain, valid_rows
from fieldslab.packer.fieldplan import Converted, FieldPlan
from fieldslab.packer.forms import FORMS, cast_array
from fieldslab.packer.options import parse_shape
from fieldslab.schemas.errors import NullsFound, SourceInconsistent


def convert(
    plan: FieldPlan, batch: pa.RecordBatch, positions: dict[int, int], first_row: int,
    categories: CategoryIndex | None = None,
) -> Converted:  # fmt: skip
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
        A row that does not fit the plan.
    """
    if plan.form == "stack":
        return _stack(plan, batch, positions, first_row)
    array = plain(reach(batch, positions, plan.paths[0]))
    array = _cast(plan, _filled(plan, array), first_row)
    valid = valid_rows(array)
    if valid is not None:
        if plan.nulls != "mask":
            _refuse_nulls(plan, len(array) - int(valid.sum()), first_row + int(np.argmin(valid)))
        array = array.filter(pa.array(valid))
    rows = range(len(array)) if valid is None else np.flatnonzero(valid)
    if plan.shape_path is not None:
        _check_shapes(plan, reach(batch, positions, plan.shape_path), rows, first_row)
    try:
        if plan.form == "categorical":
            assert categories is not None
            converted = Converted(categories.codes(array))
        else:
            converted = FORMS[plan.form](plan, array)
    except Uneven as error:
        _uneven(plan, first_row + int(rows[error.row]), error)
    except InnerNull as error:
        _inner_null(plan, first_row + int(rows[error.row]))
    except pa.ArrowInvalid as error:
        raise SourceInconsistent(
            f"invalid values: {error}", field=plan.columns[0],
            row=f"{first_row}..{first_row + batch.num_rows - 1}",
        ) from error  # fmt: skip
    return converted if valid is None else _scatter(plan, converted, valid)


def reach(batch: pa.RecordBatch, positions: dict[int, int], path: tuple[int, ...]) -> pa.Array:
    """The array at a path, with the nulls of the structs around it."""
    array = batch.column(positions[path[0]])
    for child in path[1:]:
        array = plain(array).flatten()[child]
    return array


def _filled(plan: FieldPlan, array: pa.Array) -> pa.Array:
    if plan.nulls in ("error", "mask"):
        return array
    try:
        return fill(array, plan.nulls)
    except pa.ArrowException as error:
        raise SourceInconsistent(
            "--nulls: the value does not fit the column",
            field=plan.columns[0], expected=str(array.type), found=plan.nulls,
        ) from error  # fmt: skip


def _cast(plan: FieldPlan, array: pa.Array, first_row: int) -> pa.Array:
    if plan.cast is None:
        return array
    try:
        return cast_array(array, plan.cast)
    except pa.ArrowException as error:
        raise SourceInconsistent(
            f"--cast: {str(error).rstrip('.')}", field=plan.columns[0], expected=plan.cast,
            found=str(array.type), row=f"{first_row}..{first_row + len(array) - 1}",
        ) from error  # fmt: skip


def _stack(
    plan: FieldPlan, batch: pa.RecordBatch, positions: dict[int, int], first_row: int
) -> Converted:
    """Many numeric columns side by side: (rows, columns)."""
    values = np.empty((batch.num_rows, len(plan.paths)), plan.field.storage)
    for index, (path, column) in enumerate(zip(plan.paths, plan.columns, strict=True)):
        array = _filled(plan, plain(reach(batch, positions, path)))
        array = _cast(plan, array, first_row)
        if array.null_count:
            first = first_row + int(np.argmin(valid_rows(array)))  # type: ignore[arg-type]
            raise NullsFound(
                f"{array.null_count} nulls in a stacked column", field=column, row=first,
                hint=f"Give them a value: --nulls '{column}=0', or leave the column out.",
            )  # fmt: skip
        values[:, index] = numbers(array, plan.field.storage)
    return Converted(values)


def _scatter(plan: FieldPlan, dense_rows: Converted, valid: np.ndarray) -> Converted:
    """Put converted rows back between the nulls."""
    if dense_rows.lengths is not None:
        lengths = np.zeros(len(valid), np.int64)
        lengths[valid] = dense_rows.lengths
        return Converted(dense_rows.values, lengths, valid)
    values = np.zeros((len(valid), *plan.field.shape), dense_rows.values.dtype)
    if plan.form == "categorical":
        values[:] = -1
    values[valid] = dense_rows.values
    return Converted(values, None, valid)


def _check_shapes(plan: FieldPlan, shapes: pa.Array, rows: Any, first_row: int) -> None:
    expected = plan.field.shape
    for text in pc.unique(plain(shapes)).to_pylist():
        found = tuple(text) if isinstance(text, list) else parse_shape(str(text))
        if found != expected:
            raise SourceInconsistent(
                "a row's shape differs from the first row's",
                field=plan.columns[0], row=f"{first_row}..{first_row + len(shapes) - 1}",
                expected=expected, found=text,
                hint="A fixed field needs one shape; --limit, --rows or --exclude leave rows or the column out.",  # noqa: E501
            )  # fmt: skip


def _refuse_nulls(plan: FieldPlan, count: int, row: int) -> NoReturn:
    raise nulls_error(plan.columns[0], f"at least {count}", row)


def nulls_error(column: str, count: object, row: int | None = None) -> NullsFound:
    """The error for nulls that no option speaks of."""
    return NullsFound(
        f"{count} nulls", field=column, row=row,
        hint=f"Say what to do with them: --nulls '{column}=mask' keeps them with a validity "
        f"array, --nulls '{column}=VALUE' replaces them, --exclude '{column}' leaves them out.",
    )  # fmt: skip


def _inner_null(plan: FieldPlan, row: int) -> NoReturn:
    column = plan.columns[0]
    raise NullsFound(
        "a null inside a list", field=column, row=row,
        hint=f"--nulls '{column}=VALUE' replaces it (a mask covers whole rows only).",
    )  # fmt: skip


def _uneven(plan: FieldPlan, row: int, error: Uneven) -> NoReturn:
    column, field = plan.columns[0], plan.field
    raise SourceInconsistent(
        "a row's shape differs from the plan's", field=column, row=row,
        expected=f"length {error.expected}", found=f"length {error.found}",
        hint=f"--tensor '{column}={field.dtype}[*]' packs rows of any length, --cast "
        f"'{column}=json' any nesting.",
    )  # fmt: skip
