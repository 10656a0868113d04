"""Conditions on rows as text, such as `label in [3, 5] and not is_null(caption)`."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.registry import make_unknown_name_error

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
    "label in [3, 5] and not is_null(caption)."
)


def parse_expression(text: str, classes: Mapping[str, Mapping[str, int]] | None = None) -> Any:
    """Parse a condition into a `pyarrow.compute.Expression`; nothing is executed.

    Names are fields, `field("any name")` as well. There are numbers, strings, True, False and None,
    comparisons, `in` with a list, `and`, `or`, `not`, `+ - * /`, parentheses, and the functions
    `is_null(x)`, `length(x)` in bytes, `starts_with(x, "a")`, `contains(x, "a")` and
    `matches(x, "regular expression")`.

    `classes` has the values of fields by the names of their classes: `==`, `!=` and `in` compare
    such a field with a name, too.

    Raises UsageError.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = getattr(error, "msg", None) or error
        raise UsageError(f"not a condition: {reason}", found=text, hint=_HINT) from None
    try:
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                _number_classes(node, classes or {})
        return _convert(tree.body)
    except RecursionError:
        raise UsageError("the condition is nested too deeply", hint=_HINT) from None


def _number_classes(node: ast.Compare, classes: Mapping[str, Mapping[str, int]]) -> None:
    """Put the numbers of classes in the place of their names, in one comparison."""
    if not all(isinstance(sign, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for sign in node.ops):
        return
    sides = [node.left, *node.comparators]
    fields = [name for name in map(_find_field, sides) if name is not None and name in classes]
    if not fields:
        return
    numbers = classes[fields[0]]
    for side in sides:
        elements = side.elts if isinstance(side, ast.List | ast.Tuple) else [side]
        for element in elements:
            if isinstance(element, ast.Constant) and isinstance(element.value, str):
                name = element.value
                if name not in numbers:
                    problem = f"the condition names {name!r}, which is no class"
                    raise make_unknown_name_error(problem, name, numbers, field=fields[0])
                element.value = numbers[name]


def _find_field(node: ast.expr) -> str | None:
    """Find the name of the field that a part of a condition is; None for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Call(func=ast.Name(id="field"), args=[ast.Constant(value=str() as name)]):
            return name
    return None


def _convert(node: ast.expr) -> Any:
    import pyarrow.compute as pc

    match node:
        case ast.Name(id=name):
            return pc.field(name)
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
    if name == "field" and len(arguments) == 1:
        return pc.field(str(_read_constant(arguments[0])))
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
