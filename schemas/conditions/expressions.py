"""Conditions on rows as text, such as `label in [3, 5] and not is_null(caption)`."""

import ast
import datetime
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.registry import make_unknown_name_error

if TYPE_CHECKING:
    import pyarrow as pa

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_HINT = (
    "Write comparisons of fields and constants, joined by `and`, `or`, `not`, as in "
    "label in [3, 5] and not is_null(caption). A name with spaces or signs is written as "
    'field("any name").'
)

_TIME_EXAMPLES = {
    "date32": "2026-11-22",
    "date64": "2026-11-22",
    "time32": "08:00",
    "time64": "08:00",
}


def parse_expression(
    text: str,
    classes: Mapping[str, Mapping[str, int]] | None = None,
    times: Mapping[str, "pa.DataType"] | None = None,
) -> Any:
    """Parse a condition into a `pyarrow.compute.Expression`; nothing is executed.

    Names are fields, also those with dots, such as `meta.width`; `field("any name")` names any.
    There are numbers, strings, True, False and None, comparisons, `in` with a list, `and`, `or`,
    `not`, `+ - * /`, parentheses, and the functions `is_null(x)`, `length(x)` in bytes,
    `starts_with(x, "a")`, `contains(x, "a")` and `matches(x, "regular expression")`.

    `classes` has the values of fields by the names of their classes: `==`, `!=` and `in` compare
    such a field with a name, too. `times` has the types of fields that hold times or dates: these
    are compared with text in ISO 8601, which is in UTC where it names no zone.

    Raises UsageError.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = getattr(error, "msg", None) or error
        hint = f"Compare with ==. {_HINT}" if re.search("[^=!<>]=[^=]", text) else _HINT
        raise UsageError(f"not a condition: {reason}", found=text, hint=hint) from None
    try:
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                _number_classes(node, classes or {})
                _read_times(node, times or {})
        return _convert(tree.body)
    except RecursionError:
        raise UsageError("the condition is nested too deeply", hint=_HINT) from None


def _number_classes(node: ast.Compare, classes: Mapping[str, Mapping[str, int]]) -> None:
    """Put the numbers of classes in the place of their names, in one comparison."""
    if not all(isinstance(sign, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for sign in node.ops):
        return
    field = _find_compared_field(node, classes)
    if field is None:
        return
    numbers = classes[field]
    for constant, name in _list_texts(node):
        if name not in numbers:
            problem = f"the condition names {name!r}, which is no class"
            raise make_unknown_name_error(problem, name, numbers, field=field)
        constant.value = numbers[name]


def _read_times(node: ast.Compare, times: Mapping[str, "pa.DataType"]) -> None:
    """Put times in the place of text, in one comparison of a field that holds times."""
    field = _find_compared_field(node, times)
    if field is None:
        return
    for constant, text in _list_texts(node):
        try:
            constant.value = _read_time(text, times[field])
        except ValueError:  # pyarrow's ArrowInvalid is one
            example = _TIME_EXAMPLES.get(str(times[field]).partition("[")[0], "2026-11-22T08:00")
            raise UsageError(
                f"not a time that the field, {times[field]}, can have",
                field=field,
                expected=f"ISO 8601, such as '{example}'",
                found=repr(text),
            ) from None


def _read_time(text: str, type: "pa.DataType") -> "pa.Scalar[Any]":
    import pyarrow as pa

    if pa.types.is_time(type):
        return pa.scalar(datetime.time.fromisoformat(text), type)
    if pa.types.is_timestamp(type) and type.tz is not None:
        try:
            return pa.scalar(text).cast(type)
        except pa.ArrowInvalid:  # there is no zone in it: UTC
            return pa.scalar(text).cast(pa.timestamp(type.unit)).cast(type)
    return pa.scalar(text).cast(type)


def _find_compared_field(node: ast.Compare, fields: Mapping[str, Any]) -> str | None:
    """Find the first of these fields among the sides of a comparison."""
    names = map(_find_field, [node.left, *node.comparators])
    return next((name for name in names if name in fields), None)


def _list_texts(node: ast.Compare) -> Iterator[tuple[ast.Constant, str]]:
    """List the constants of a comparison that are text, also those of lists, with their text."""
    for side in [node.left, *node.comparators]:
        for element in side.elts if isinstance(side, ast.List | ast.Tuple) else [side]:
            if isinstance(element, ast.Constant) and isinstance(element.value, str):
                yield element, element.value


def _find_field(node: ast.expr) -> str | None:
    """Find the name of the field that a part of a condition is; None for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name() | ast.Attribute() as parent, attr=name):
            return None if (start := _find_field(parent)) is None else f"{start}.{name}"
        case ast.Call(func=ast.Name(id="field"), args=[ast.Constant(value=str() as name)]):
            return name
    return None


def _convert(node: ast.expr) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    name = _find_field(node)
    if name is not None:
        return pc.field(name)
    match node:
        case ast.Constant(value=pa.Scalar() as value):
            return pc.scalar(value)
        case ast.Constant(value=bool() | int() | float() | str() | bytes() as value):
            return pc.scalar(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ~_convert(operand)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return pc.scalar(-value)
        case ast.BoolOp(op=joint, values=values):
            converted = [_convert(value) for value in values]
            result = converted[0]
            for value in converted[1:]:
                result = result & value if isinstance(joint, ast.And) else result | value
            return result
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
            return _ARITHMETIC[type(sign)](_convert(left), _convert(right))
        case ast.Compare(left=left, ops=signs, comparators=rights):
            pairs = zip([left, *rights], signs, rights, strict=False)
            comparisons = [_compare(a, sign, b) for a, sign, b in pairs]
            result = comparisons[0]
            for comparison in comparisons[1:]:
                result = result & comparison
            return result
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _call(name, arguments, node)
    raise _make_error(node)


def _compare(left: ast.expr, sign: ast.cmpop, right: ast.expr) -> Any:
    if type(sign) in _COMPARISONS:
        return _COMPARISONS[type(sign)](_convert(left), _convert(right))
    if isinstance(sign, ast.In | ast.NotIn):
        if not isinstance(right, ast.List | ast.Tuple):
            raise _make_error(right)
        inside = _convert(left).isin([_read_constant(element) for element in right.elts])
        return inside if isinstance(sign, ast.In) else ~inside
    if isinstance(right, ast.Constant) and right.value is None:
        is_null = _convert(left).is_null()
        return is_null if isinstance(sign, ast.Is) else ~is_null
    raise _make_error(right)


def _call(name: str, arguments: list[ast.expr], node: ast.expr) -> Any:
    import pyarrow.compute as pc

    texts = [_read_constant(argument) for argument in arguments[1:]]
    if name in ("is_null", "length") and len(arguments) == 1:
        value = _convert(arguments[0])
        return value.is_null() if name == "is_null" else pc.binary_length(value)
    if len(texts) == 1 and isinstance(texts[0], str):
        value, text = _convert(arguments[0]), texts[0]
        if name == "starts_with":
            return pc.starts_with(value, text)
        if name == "contains":
            return pc.match_substring(value, text)
        if name == "matches":
            return pc.match_substring_regex(value, text)
    raise _make_error(node)


def _read_constant(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _make_error(node) from None


def _make_error(node: ast.expr) -> UsageError:
    return UsageError("not part of a condition", found=ast.unparse(node), hint=_HINT)
