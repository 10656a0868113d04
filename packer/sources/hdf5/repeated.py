"""Groups that repeat one layout, such as a group for each episode: not columns of one table.

Where episodes happen to be of one length, their datasets look like columns beside each other.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from glob import escape

from fieldslab.packer.sources.hdf5.parts import Key, Part
from fieldslab.schemas.errors import SourceInconsistent
from fieldslab.schemas.optiontext import mark_option

_MANY = 8
"""So many groups of one layout are a series, whatever they are called."""

_Layout = frozenset[tuple[object, ...]]


def check_not_repeated(part: Part, keys: Iterable[Key]) -> None:
    """Raise SourceInconsistent for groups side by side with the same datasets in them.

    Fewer than eight must have names that differ in their numbers alone, as `demo_0` and `demo_1`.
    """
    layouts = _find_layouts(part, keys)
    series: dict[tuple[str, str, _Layout], list[str]] = defaultdict(list)
    for (parent, name), layout in layouts.items():
        for stem in (re.sub("[0-9]+", "#", name), ""):
            series[parent, stem, layout].append(name)
    for (parent, stem, layout), names in series.items():
        if len(names) >= (2 if "#" in stem else _MANY):
            first = f"{parent}{names[0]}"
            pattern = escape(parent) + (re.sub("[0-9]+", "*", names[0]) if "#" in stem else "*")
            inner = sorted(str(dataset[0]) for dataset in layout)
            raise SourceInconsistent(
                f"{len(names):,} groups with the same datasets in them are parts of a series, "
                "such as episodes, not columns of one table",
                file=part.path,
                found=f"{first} to {names[-1]}, each with {', '.join(inner[:5])}",
                hint=f"{mark_option('episodes', pattern)} packs all of them, one behind the other. "
                f"{mark_option('fields', [f'{first}/*'])} packs one of them, "
                f"{mark_option('fields', ['*'])} packs them as columns.",
            )


def _find_layouts(part: Part, keys: Iterable[Key]) -> dict[tuple[str, str], _Layout]:
    """What is in each group, by the path of its parent and its name: names, types, row shapes."""
    layouts: dict[tuple[str, str], set[tuple[object, ...]]] = defaultdict(set)
    for key in keys:
        dataset, column = part.columns[key]
        path = dataset.name.split("/")
        inner = column.element.why, *dataset.row_shape, *column.shape
        for depth in range(len(path) - 1):
            parent = "".join(f"{group}/" for group in path[:depth])
            place = "/".join(path[depth + 1 :]) + column.suffix
            layouts[parent, path[depth]].add((place, *inner))
    return {group: frozenset(layout) for group, layout in layouts.items()}
