"""Orders by name, and the text by which a command line names one.

A package offers orders of its own under the entry point `fieldslab.orders`, by the names of their
classes.
"""

import ast
import inspect
from collections.abc import Mapping
from typing import Any

from fieldslab.reader.orders.order import Order
from fieldslab.schemas.errors import FieldslabError, UsageError
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.registry import Registry

ORDERS = Registry(
    "order",
    "fieldslab.orders",
    {
        "Shuffled": "fieldslab.reader.orders.order:Shuffled",
        "Sequential": "fieldslab.reader.orders.order:Sequential",
        "Blocked": "fieldslab.reader.orders.blocked:Blocked",
        "Near": "fieldslab.reader.orders.near:Near",
        "ByLength": "fieldslab.reader.orders.bylength:ByLength",
        "Mixed": "fieldslab.reader.orders.mixed:Mixed",
        "Balanced": "fieldslab.reader.orders.balanced:Balanced",
        "Grouped": "fieldslab.reader.orders.grouped:Grouped",
        "TokenBudget": "fieldslab.reader.orders.tokenbudget:TokenBudget",
        "Subset": "fieldslab.reader.orders.order:Subset",
        "Strided": "fieldslab.reader.orders.order:Strided",
        "Weighted": "fieldslab.reader.orders.weighted:Weighted",
        "Windows": "fieldslab.reader.orders.windows:Windows",
    },
    option="order",
)
_NOT_OPTIONS = "name", "version", "members"
"""Of a key, what no constructor takes: the slab tells which members it has."""
_HINT = "Write it as in Python, such as 'Shuffled(seed=0)'."


def parse_order(text: str) -> Order:
    """Make the order that a text such as `Mixed({"web": 0.7, "code": 0.3}, seed=1)` describes.

    The text is a name of `ORDERS`, with or without arguments: numbers, strings, None, True, False,
    `range(...)`, `Windows(...)`, and lists, tuples and dicts of these. Nothing of it is executed.

    Raises UsageError.
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if isinstance(call, ast.Name):
            return _make_order(call.id, [], {})
        return _parse_call(call)
    except FieldslabError:
        raise
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        problem = f"{mark_option('order')}: not an order"
        raise UsageError(problem, found=text, hint=_HINT) from None


def _parse_call(call: ast.expr) -> Order:
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError
    arguments = [_evaluate(argument) for argument in call.args]
    if any(keyword.arg is None for keyword in call.keywords):
        raise ValueError  # **
    options = {str(keyword.arg): _evaluate(keyword.value) for keyword in call.keywords}
    return _make_order(call.func.id, arguments, options)


def recall_order(key: Mapping[str, Any]) -> Order:
    """Make the order of a loader's state, of its `Order.key`.

    Raises UsageError where a key does not tell all, as of a list of rows.
    """
    try:
        options = {name: value for name, value in key.items() if name not in _NOT_OPTIONS}
        if isinstance(options.get("groups"), Mapping):  # those of `Mixed`: ranges are told whole
            options["groups"] = {
                name: range(*rows) if isinstance(rows, list) else rows
                for name, rows in options["groups"].items()
            }
        windows = options.get("windows")
        if key["name"] == "Mixed" and isinstance(windows, Mapping) and windows["name"] == "Windows":
            options["windows"] = recall_order(windows)
        order = _make_order(str(key["name"]), [], options)
        order = order.recall(key) or order
        if order.key() | {"members": None} == {**key, "members": None}:
            return order
    except (KeyError, AttributeError, TypeError, ValueError, UsageError):
        pass
    problem = "the state does not tell all of its order"
    hint = f"Give {mark_option('order')}, as the loader had it."
    raise UsageError(problem, found=repr(key)[:80], hint=hint)


def _make_order(name: str, arguments: list[Any], options: dict[str, Any]) -> Order:
    order_class = ORDERS.load(name)
    if not (isinstance(order_class, type) and issubclass(order_class, Order)):
        raise UsageError(f"{mark_option('order')}: {name} is not an order", hint=_HINT)
    try:
        order = order_class(*arguments, **options)
    except FieldslabError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        problem = f"{mark_option('order')}: {error}"
        signature = inspect.signature(order_class).replace(
            return_annotation=inspect.Signature.empty
        )
        raise UsageError(problem, hint=f"Write {name}{signature}.") from None
    return order


def _evaluate(node: ast.expr) -> Any:
    """Evaluate a literal, or a range or dict of literals. Raises ValueError for anything else."""
    if isinstance(node, ast.Dict):
        keys = [key if key is None else ast.literal_eval(key) for key in node.keys]
        if None in node.keys:
            raise ValueError("** in a dict")
        return dict(zip(keys, map(_evaluate, node.values), strict=True))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Windows":
        return _parse_call(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        if node.keywords:
            raise ValueError("range with names")
        return range(*map(ast.literal_eval, node.args))
    return ast.literal_eval(node)
