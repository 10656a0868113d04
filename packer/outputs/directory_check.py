"""Where a slab may be written, and what is told of an output that cannot be."""

import re
from pathlib import Path

from fieldslab.packer.outputs.journal import Journal
from fieldslab.schemas import layout
from fieldslab.schemas.errors import (
    FieldslabError,
    OutputExists,
    UsageError,
)
from fieldslab.schemas.folder import (
    JOURNAL,
    find_enclosing_slab,
    get_partial_path,
    is_slab,
    load_manifest,
)
from fieldslab.schemas.manifest import MANIFEST, SIGNATURE
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.write_errors import name_write_errors

_OUR_NAMES = re.compile(
    rf"{re.escape(MANIFEST)}|{re.escape(SIGNATURE)}|{layout.TABLES}|shard-[0-9]{{5,}}"
)
_LITTER = (".DS_Store", "Thumbs.db", "desktop.ini")
"""Files that file managers leave everywhere; they may be deleted."""


def check_output(out: Path, *, force: bool) -> None:
    """Raise OutputExists where a pack to `out` would destroy something, UsageError in a slab.

    `force` allows to replace a slab, and nothing else.
    """
    with name_write_errors(out):
        _check_parents(out)
        if not (out.exists() or out.is_symlink()) or is_empty_directory(out):
            return
        if not force and was_cleanup_interrupted(out):
            return
        if not force:
            raise OutputExists(
                "exists already", file=out, hint=f"{mark_option('force', True)} replaces a slab."
            )
        if out.is_symlink() or not is_slab(out):
            raise OutputExists(
                f"exists and is not a slab, so that {mark_option('force', True)} leaves it alone",
                file=out,
                hint="Remove it yourself, or choose another output.",
            )
        names = sorted(entry.name for entry in out.iterdir())
        strangers = [n for n in names if not _OUR_NAMES.fullmatch(n) and n not in _LITTER]
        if strangers:
            raise OutputExists(
                f"holds more than a slab, so that {mark_option('force', True)} leaves it alone",
                file=out,
                found=", ".join(strangers[:5]),
                hint="Move the other files elsewhere.",
            )


def _check_parents(out: Path) -> None:
    """Raise UsageError where `out` lies in a slab, which `verify` would then find damaged."""
    slab = find_enclosing_slab(out)
    if slab is not None:
        raise UsageError(
            "a slab cannot lie within another one",
            file=out,
            found=slab,
            hint="Write to another place.",
        )


def is_empty_directory(out: Path) -> bool:
    """Return True for an empty directory: it may be replaced."""
    return out.is_dir() and not out.is_symlink() and not any(out.iterdir())


def was_cleanup_interrupted(out: Path) -> bool:
    """Return True if a packer was killed between publishing the slab and cleaning up.

    Then the plan of its journal is that of the slab, and running it again cleans up.
    """
    partial = get_partial_path(out)
    if out.is_symlink() or not partial.is_dir() or not is_slab(out):
        return False
    try:
        plan = load_manifest(out).made.plan
    except FieldslabError:
        return False
    return is_empty_directory(partial) or Journal(partial / JOURNAL, "").read_plan() == plan
