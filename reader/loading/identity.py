"""What tells one run from another in a loader's state.

States of version 1 named orders and steps for images by their `repr` at that time. Such texts are
parsed, never evaluated, into the keys of today.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fieldslab.reader.images.steps import ImageSteps
from fieldslab.reader.orders.order import Order
from fieldslab.reader.rows import check_integer
from fieldslab.reader.slab import Slab
from fieldslab.reader.views import describe_view
from fieldslab.schemas.errors import UsageError

STATE_VERSION = 2
_NUMBERS = re.compile(r"<(\d+) numbers, sha256 ([0-9a-f]{16})>")
_FIRST = {
    "Strided": "n",
    "Subset": "rows",
    "Weighted": "weights",
    "ByLength": "field",
    "Images": "steps",
    "RandomResizedCrop": "size",
    "CenterCrop": "size",
    "Resize": "size",
    "MultiCrop": "views",
    "RandomHorizontalFlip": "p",
}
"""The parameter that such a text gives without its name."""
_UNSAID: dict[str, dict[str, Any]] = {
    "Subset": {"rows": None, "fraction": None},
    "Blocked": {"spread": False},
}
"""Parameters that such a text may leave out."""

_OTHER_ARGUMENTS = "Make the loader with the arguments that it had when the state was saved."
_OTHER_SLAB = (
    "Open the slab that it was saved with. Where slabs were added to a union since, go on with "
    'the next epoch: loader.set_epoch(state["epoch"] + 1).'
)


class SavedRun(NamedTuple):
    """What a state says: the order, the same attached to the slab, epoch and position."""

    order: Order
    attached: Order
    epoch: int
    position: int


def read_state(
    state: Mapping[str, Any],
    recall: Callable[[Any], tuple[Order, Order]],
    describe: Callable[[Order, Order], Mapping[str, Any]],
) -> SavedRun:
    """Read a loader's state of any version.

    `recall` gives the order of this key, and the same attached; `describe` gives what must be the
    same in both runs, by name. Raises UsageError where it is not.
    """
    try:
        version = state["version"]
        if version not in (1, STATE_VERSION):
            problem = "unknown version of a loader state"
            raise UsageError(problem, expected=STATE_VERSION, found=version)
        saved = upgrade_state(state) if version == 1 else dict(state)
        epoch, position = (check_integer(name, saved[name], 0) for name in ("epoch", "position"))
        order, attached = recall(saved["order"])
        if version == 1 and state["order"] == make_version_1_repr(order, attached):
            saved["order"] = make_order_key(order, attached)
        for name, expected in describe(order, attached).items():
            saved_value = saved.get("seed") if name == "seed" else saved[name]
            if saved_value != expected:
                raise UsageError(
                    f"the state is of another {name}",
                    expected=expected,
                    found=saved_value,
                    hint=_OTHER_SLAB if name == "slab" else _OTHER_ARGUMENTS,
                )
    except (AttributeError, KeyError, TypeError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError("not a loader state", found=repr(state)[:80]) from None
    return SavedRun(order, attached, epoch, position)


def describe_identity(
    slab: Slab, order: Order, attached: Order, decode: Mapping[str, ImageSteps], seed: int | None
) -> dict[str, Any]:
    """Describe what must be equal where a state is loaded: ready for JSON, by name."""
    identity: dict[str, Any] = {
        "slab": slab.manifest.id,
        "view": describe_view(slab.view),
        "order": make_order_key(order, attached),
    }
    if decode:
        identity["decode"] = {name: images.key() for name, images in decode.items()}
    if seed is not None:
        identity["seed"] = seed
    return identity


def make_order_key(order: Order, attached: Order) -> dict[str, Any]:
    """Make the JSON-ready key of an attached order, or of `order` if it has none.

    Raises UsageError if neither has a key, or if it is not ready for JSON.
    """
    has_key = type(attached).key is not Order.key or _has_repr(attached)
    key = (attached if has_key else order).key()
    try:
        restored = json.loads(json.dumps(key, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UsageError("the key of an order is not ready for JSON", found=repr(key)) from error
    if not isinstance(restored, dict) or not {"name", "version"} <= restored.keys():
        expected = 'a dict with "name" and "version"'
        raise UsageError("not the key of an order", expected=expected, found=repr(key))
    return restored


def make_version_1_repr(order: Order, attached: Order) -> str:
    """Make the text by which states of version 1 named an order of another package."""
    return repr(attached if _has_repr(attached) else order)


def parse_order_repr(text: str) -> dict[str, Any] | None:
    """Parse the key of an order from a state of version 1; None if it is not of this package."""
    key = _parse_repr(text)
    return None if key is None else {"version": 1, **_UNSAID.get(key["name"], {}), **key}


def parse_images_repr(text: str) -> dict[str, Any] | None:
    """Parse the key of steps for images that a state of version 1 names; None if it names none."""
    key = _parse_repr(text)
    if key is None or key.pop("name") != "Images":
        return None
    return {"version": 1, "apply_exif": key.pop("exif", None), **key}


def upgrade_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a state of version 1 to version 2; `order` stays text if it is a user's order."""
    upgraded = {**state, "version": 2, "order": parse_order_repr(state["order"]) or state["order"]}
    if "decode" in state:
        upgraded["decode"] = {
            name: parse_images_repr(text) for name, text in state["decode"].items()
        }
    return upgraded


def _has_repr(order: Order) -> bool:
    return type(order).__repr__ is not object.__repr__


def _parse_repr(text: str) -> dict[str, Any] | None:
    literal = _NUMBERS.sub(r"{'count': \1, 'sha256': '\2'}", text)
    try:
        key = _convert_node(ast.parse(literal, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return key if isinstance(key, dict) and "name" in key else None


def _convert_node(node: ast.expr) -> Any:
    """Convert a call to a dict of its name and parameters, a bare name to text, tuples to lists."""
    if isinstance(node, ast.List | ast.Tuple):
        return [_convert_node(item) for item in node.elts]
    if isinstance(node, ast.Name):
        return node.id
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    if not isinstance(node.func, ast.Name) or len(node.args) > 1:
        raise ValueError("not a constructor with at most one unnamed parameter")
    key: dict[str, Any] = {"name": node.func.id}
    if node.args:
        key[_FIRST.get(node.func.id, "")] = _convert_node(node.args[0])
    return key | {str(keyword.arg): _convert_node(keyword.value) for keyword in node.keywords}
