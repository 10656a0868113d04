"""One Arrow column -> the arrays of its field, vectorised over Arrow's buffers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from fieldslab.packer.commands.text_format import format_count
from fieldslab.packer.convert.batch import SourceBatch
from fieldslab.packer.convert.casts import LAYOUTS, cast_layout, count_rounded
from fieldslab.packer.convert.categories import CategoryIndex
from fieldslab.packer.convert.dense import decode_layout, find_valid_rows, is_list, strip_layout
from fieldslab.packer.convert.fieldplan import ConvertedRows, FieldPlan
from fieldslab.packer.convert.forms import FORMS, fill_nulls, read_elements
from fieldslab.packer.convert.misfit import InnerNull, Misfit, Undecodable
from fieldslab.packer.convert.padding import cut_padding
from fieldslab.packer.convert.pictures import convert_pictures
from fieldslab.packer.options import parse_shape
from fieldslab.schemas.errors import (
    FieldslabError,
    NullsFound,
    SourceInconsistent,
    UndecodableImage,
)
from fieldslab.schemas.optiontext import mark_option

STACKED_AT_ONCE = 1024
"""Rows that are put side by side at a time: so many lie close enough together in memory."""

_BAD = (Misfit, InnerNull, pa.ArrowException)


def convert_field(
    plan: FieldPlan, batch: SourceBatch, categories: CategoryIndex | None = None
) -> ConvertedRows:
    """Convert the rows of a batch to the arrays of one field; new `categories` are added.

    Raises
    ------
    NullsFound
        A null, and no `--nulls` for it.
    SourceInconsistent
        A row that does not fit the plan; UndecodableImage where its image is damaged.
    """

    try:
        return _convert_and_count_rounded(plan, batch, categories)
    except _BAD as error:
        if not (
            plan.skips_damaged_images and isinstance(error, Undecodable)
        ):  # else all of them are looked for
            batch = _find_bad_row(plan, batch, categories)
        cause = _catch_failure(_convert_and_count_rounded, plan, batch, categories) or error
        raise _make_row_error(
            plan, _find_bad_column(plan, batch), cause, batch.first_row
        ) from cause


def _convert_and_count_rounded(
    plan: FieldPlan, batch: SourceBatch, categories: CategoryIndex | None
) -> ConvertedRows:
    if plan.form == "stack":
        converted = _stack_columns(plan, batch)
    else:
        converted = _convert_column(plan, batch, categories)
    cast = plan.options.cast
    if cast is None:
        return converted
    rounded = sum(count_rounded(batch.get_column(path), cast) for path in plan.paths)
    return converted._replace(tally={**converted.tally, "rounded": rounded})


def _find_bad_row(
    plan: FieldPlan, batch: SourceBatch, categories: CategoryIndex | None
) -> SourceBatch:
    """Find the first row that cannot be converted: conversion itself keeps no track of rows."""
    while len(batch) > 1:
        half = len(batch) // 2
        first = batch.slice(0, half)
        if _catch_failure(_convert_and_count_rounded, plan, first, categories):
            batch = first
        else:
            batch = batch.slice(half, len(batch) - half)
    return batch


def _catch_failure(function: Callable[..., object], *arguments: Any) -> Exception | None:
    try:
        function(*arguments)
    except _BAD as error:
        return error
    return None


def _find_bad_column(plan: FieldPlan, row: SourceBatch) -> str:
    """Find the column of a field that cannot be converted in one row."""
    if plan.form == "stack":
        for column, path in zip(plan.columns, plan.paths, strict=True):
            if _catch_failure(read_elements, plan, row.get_column(path)):
                return column
    return plan.columns[0]


def _convert_column(
    plan: FieldPlan, batch: SourceBatch, categories: CategoryIndex | None
) -> ConvertedRows:
    array = batch.get_column(plan.paths[0])
    if plan.options.cast in LAYOUTS:
        array = cast_layout(array, plan.options.cast)
    array = strip_layout(array)
    valid = find_valid_rows(array)
    if valid is not None and isinstance(plan.filler, str) and plan.form != "nested":
        array, valid = fill_nulls(array, plan.filler), None
    if valid is not None:
        if plan.options.nulls != "mask" and (plan.filler is None or plan.field.variable):
            count = len(array) - int(valid.sum())
            first = batch.first_row + int(np.argmin(valid))
            raise make_nulls_error(plan.columns[0], count, first)
        array = array.filter(pa.array(valid))
    if plan.shape_path is not None:
        _check_shapes(plan, batch.get_column(plan.shape_path), valid)
    if plan.form == "categorical":
        assert categories is not None
        ordered = plan.field.attributes.get("ordered") is True
        converted = ConvertedRows(categories.encode(array, ordered=ordered))
    else:
        converted = FORMS[plan.form](plan.with_padding, array)
    if plan.padding is not None:
        path = plan.padding.lengths
        lengths = None if path is None else batch.get_column(path)
        if lengths is not None and valid is not None:
            lengths = lengths.filter(pa.array(valid))
        converted = ConvertedRows(*cut_padding(plan.padding, converted.values, lengths))
    if valid is not None:
        converted = _scatter_between_nulls(plan, converted, valid)
    if plan.field.kind == "image":
        return convert_pictures(plan, converted, batch.first_row)
    return converted


def _stack_columns(plan: FieldPlan, batch: SourceBatch) -> ConvertedRows:
    """Stack many numeric columns side by side: (rows, columns)."""
    columns = [read_elements(plan, batch.get_column(path)) for path in plan.paths]
    values = np.empty((len(batch), len(columns)), plan.field.storage)
    for start in range(0, len(batch), STACKED_AT_ONCE):
        rows = slice(start, start + STACKED_AT_ONCE)
        for index, column in enumerate(columns):
            values[rows, index] = column[rows]
    return ConvertedRows(values)


def _scatter_between_nulls(
    plan: FieldPlan, rows: ConvertedRows, valid: np.ndarray
) -> ConvertedRows:
    """Put converted rows back between the nulls, which become the filler, or stay null."""
    if rows.lengths is not None:
        lengths = np.zeros(len(valid), np.int64)
        lengths[valid] = rows.lengths
        other_arrays = dict(rows.other_arrays)
        if plan.form == "nested":
            counts = np.zeros(len(valid), np.int64)
            counts[valid] = other_arrays["lists.offsets"]
            other_arrays["lists.offsets"] = counts
        return rows._replace(lengths=lengths, valid=valid, other_arrays=other_arrays)
    values = np.zeros((len(valid), *plan.field.shape), rows.values.dtype)
    values[valid] = rows.values
    if plan.filler is not None:
        values[~valid] = plan.filler
        return rows._replace(values=values)
    if plan.form == "categorical":
        values[~valid] = -1
    return rows._replace(values=values, valid=valid)


def _check_shapes(plan: FieldPlan, shapes: pa.Array, valid: np.ndarray | None) -> None:
    """Raise Misfit where a row states another shape than the field has."""
    shapes = decode_layout(shapes)
    if valid is not None:
        shapes = shapes.filter(pa.array(valid))
    if not is_list(shapes.type):
        shapes = shapes.unique()
    for value in shapes.to_pylist():
        shape = tuple(value) if isinstance(value, list) else parse_shape(str(value))
        if shape != plan.field.shape:
            raise Misfit(
                "its shape differs from the first row's",
                expected=list(plan.field.shape),
                found=value,
                hint=f"A fixed field needs one shape: {mark_option('rows')} leaves rows out, "
                f"{mark_option('exclude')} the column.",
            )


def make_nulls_error(
    column: str, count: int, row: int | None = None, *, stacked: bool = False
) -> NullsFound:
    """Make the error for null rows that no option mentions: at least `count` if `row` is given."""
    mask = (
        ""
        if stacked
        else (f"{mark_option('nulls', 'mask', column=column)} keeps them with a validity array, ")
    )
    return NullsFound(
        ("" if row is None else "at least ") + format_count(count, "null"),
        field=column,
        row=row,
        hint=f"Say what to do with them: {mask}{mark_option('nulls', 'VALUE', column=column)} "
        f"replaces them, {mark_option('exclude', [column])} leaves the column out.",
    )


def _make_row_error(plan: FieldPlan, column: str, cause: Exception, row: int) -> FieldslabError:
    """Make the error for a row that cannot be converted."""
    if isinstance(cause, InnerNull) and plan.form == "nested":
        return _make_nested_null_error(plan, column, cause, row)
    if isinstance(cause, InnerNull):
        stacked = plan.form == "stack"
        return NullsFound(
            "a null in a stacked column" if stacked else "a null inside a list",
            field=column,
            row=row,
            hint=f"{mark_option('nulls', 'VALUE', column=column)} replaces it (a mask covers "
            f"whole rows only), {mark_option('exclude', [column])} leaves the column out.",
        )
    misfit = (
        cause if isinstance(cause, Misfit) else Misfit(" ".join(str(cause).split()).rstrip("."))
    )
    cast = plan.options.cast
    problem = (
        misfit.problem if cast is None else f"{mark_option('cast')} to {cast}: {misfit.problem}"
    )
    kind = UndecodableImage if isinstance(misfit, Undecodable) else SourceInconsistent
    return kind(
        problem,
        field=column,
        row=row,
        expected=misfit.expected,
        found=misfit.found,
        hint=misfit.hint or _make_shape_hint(plan, column),
    )


def _make_nested_null_error(plan: FieldPlan, column: str, cause: InnerNull, row: int) -> NullsFound:
    """Make the error for a null inside the lists of a nested field."""
    hints = [f"{mark_option('nulls', 'mask', column=column)} keeps it"]
    if not cause.of_list:  # of a number: only whole lists have a mark
        hints = [f"{mark_option('nulls', 'VALUE', column=column)} replaces it"]
    elif plan.field.inner != "ragged":
        hints.append(f"{mark_option('nulls', 'VALUE', column=column)} replaces it")
    hints.append(f"{mark_option('cast', 'json', column=column)} packs nulls of any kind")
    return NullsFound(
        f"{'a null in a list' if cause.of_list else 'a null inside a list of lists'}",
        field=column,
        row=row,
        hint=f"{', '.join(hints)}, {mark_option('exclude', [column])} leaves the column out.",
    )


def _make_shape_hint(plan: FieldPlan, column: str) -> str | None:
    """Make the hint about options for lists of different shapes."""
    field = plan.field
    if plan.form not in ("dense", "list") or not field.shape or plan.options.cast is not None:
        return None
    hint = f"{mark_option('cast', 'json', column=column)} packs lists of any nesting."
    if plan.form == "list" or len(field.shape) > 1:
        nested = mark_option("cast", "nested", column=column)
        hint = f"{nested} packs lists of lists of any lengths, {hint}"
    if plan.form == "dense" and field.logical is None and 0 not in field.shape:
        shape = ",".join(["*", *map(str, field.shape[1:])])
        tensor = mark_option("tensor", f"{field.dtype}[{shape}]", column=column)
        return f"{tensor} lets the first length differ, {hint}"
    return hint
