"""What is taken for a slab, and is a part of a cache directory."""

import json
from contextlib import suppress
from pathlib import Path

from fieldslab.schemas.errors import IncompleteSlab, NotASlab, SlabNotFound
from fieldslab.schemas.mirror.names import MARKER, PLACE, SIDE
from fieldslab.schemas.optiontext import mark_option


def find_mirror_error(path: Path) -> NotASlab | None:
    """Make the error for a directory of a cache that is no slab; None for any other path."""
    path = path.absolute()
    name = path.name.removesuffix(SIDE)
    side = path.with_name(name + SIDE)
    if not ((path.parent / MARKER).is_file() and side.is_dir()):
        return None
    place = "the slab"
    with suppress(OSError, ValueError, KeyError, TypeError):
        place = str(json.loads((side / PLACE).read_bytes())["place"])
    option = mark_option("cache_dir", path.parent)
    hint = f"Open {place} with {option}: what is here is not fetched again."
    if path == side:
        problem = "is what a cache directory notes of a slab that lies elsewhere, not the slab"
        return SlabNotFound(problem, file=path, hint=hint)
    problem = "is a part of a slab that lies elsewhere: not all of its blocks were needed so far"
    return IncompleteSlab(problem, file=path, hint=hint)
