"""A slab that another one replaced: removed, or set aside while it is being read.

Whoever has a slab open holds a shared lock on its directory (`OpenFolder.lock_for_reading`) and
goes on reading fields that it has not touched before. So the directory stays, under a hidden name
beside the new slab, until the next pack to the same place finds that it is no longer read.
"""

import os
import re
import secrets
from pathlib import Path

from fieldslab.packer.write.directories import remove_path, try_lock


def remove_or_set_aside(folder: Path, out: Path) -> Path | None:
    """Remove a slab that is no longer at `out`; while it is being read, set it aside. Where to."""
    with try_lock(folder) as free:
        if free:
            remove_path(folder)
            return None
        aside = out.with_name(f".{out.name}.{secrets.token_hex(4)}.replaced")
        folder.rename(aside)
        return aside


def is_being_read(folder: Path) -> bool:
    """Return True if a process reads a slab."""
    with try_lock(folder) as free:
        return not free


def remove_unread_slabs(out: Path) -> None:
    """Remove replaced slabs that were set aside at `out` and are no longer read."""
    name = re.compile(rf"\.{re.escape(out.name)}\.[0-9a-f]{{8}}\.replaced")
    for entry in list(os.scandir(out.parent)):
        if name.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            with try_lock(Path(entry)) as free:
                if free:
                    remove_path(Path(entry))
