"""`fieldslab cache`."""

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fieldslab.packer.commands.params import Argument, Option, command
from fieldslab.packer.commands.shared import CACHE_DIR, JSON
from fieldslab.packer.commands.terminal import print_json, print_lines
from fieldslab.schemas.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fieldslab.schemas.mirror.cache import CacheDirectory
    from fieldslab.schemas.mirror.inventory import MirrorInfo

ACTIONS = ("list", "verify", "evict", "pin", "unpin")
EXAMPLES = """\
Examples:
  fieldslab cache list
  fieldslab cache verify --cache-dir /local/cache
  fieldslab cache evict --size 50G
  fieldslab cache evict 5b1f03
  fieldslab cache pin s3://bucket/train.slab"""


@command(
    Argument("action", "ACTION", f"{', '.join(ACTIONS)}.", type=click.Choice(ACTIONS)),
    Argument("slabs", "SLAB...", "Slabs: the place, or the beginning of the id.", required=False),
    CACHE_DIR,
    Option("--size", "Options", "Evict at least so much of all slabs, e.g. 50G.", "SIZE"),
    JSON,
    examples=EXAMPLES,
)
def cache(
    action: str, slabs: tuple[str, ...], cache_dir: str | None, size: str | None, as_json: bool
) -> int | None:
    """Look after the blocks that slabs at a distance keep on this machine.

    `list` shows the slabs in the cache. `verify` compares blocks with their digests, and forgets
    those that differ: they are fetched again when they are needed. `evict` frees room, all that a
    slab takes or `--size` of what was not needed for the longest time; what is in use stays. What
    is pinned is never evicted, until `unpin`.
    """
    from fieldslab.schemas.bytesizes import parse_size
    from fieldslab.schemas.mirror import inventory
    from fieldslab.schemas.mirror.cache import find_default_cache

    if size is not None and (action != "evict" or slabs):
        raise UsageError("--size is for `evict` without slabs")
    if action in ("evict", "pin", "unpin") and not slabs and size is None:
        hint = "Name slabs" + (", or give --size." if action == "evict" else ".")
        raise UsageError(f"`{action}` needs slabs", hint=hint)
    directory = inventory.open_cache(Path(cache_dir) if cache_dir else find_default_cache())
    chosen = inventory.find_mirrors(directory, slabs)
    if action == "list":
        if as_json:
            print_json([vars(info) for info in chosen])
        else:
            print_lines(_format_mirrors(chosen))
            if not chosen:
                print(f"no slab is in {directory.path}", file=sys.stderr)
    elif action == "verify":
        return _verify(directory, chosen, as_json)
    elif action == "evict":
        freed = {info.id: inventory.evict_mirror(directory, info.id) for info in chosen if slabs}
        if size is not None:
            freed["all"] = inventory.evict_bytes(directory, parse_size("size", size))
        _print_freed(freed, as_json)
    else:
        for info in chosen:
            inventory.pin_mirror(directory, info.id, action == "pin")
    return None


def _format_mirrors(infos: "Sequence[MirrorInfo]") -> "Iterator[str]":
    from fieldslab.packer.commands.text_format import escape_controls, format_size

    for info in infos:
        size = f"{format_size(info.present_bytes)} of {format_size(info.total_bytes)}"
        used = datetime.fromtimestamp(info.last_used).strftime("%Y-%m-%d %H:%M")
        notes = ["whole"] * info.whole + ["pinned"] * info.pinned
        place = escape_controls(info.place or "from an unknown place")
        yield f"{info.id[:12]}  {place}"
        parts = [size, *notes, f"last used {used}" if info.last_used else "never used"]
        yield f"              {', '.join(parts)}"


def _verify(directory: "CacheDirectory", chosen: "Sequence[MirrorInfo]", as_json: bool) -> int:
    from fieldslab.packer.commands.progress import show_bar
    from fieldslab.schemas.mirror.inventory import verify_mirror

    results = {}
    for info in chosen:
        with show_bar("verifying", info.id[:12], info.present_bytes, "bytes", hidden=as_json) as go:
            results[info.id] = verify_mirror(directory, info.id, go)
    if as_json:
        print_json(
            [
                {"id": content, "blocks": checked, "damaged": damaged}
                for content, (checked, damaged) in results.items()
            ]
        )
    else:
        for content, (checked, damaged) in results.items():
            print(f"{content[:12]}  {checked:,} blocks, {damaged:,} of them damaged and forgotten")
    return int(any(damaged for _, damaged in results.values()))


def _print_freed(freed: dict[str, int], as_json: bool) -> None:
    from fieldslab.packer.commands.text_format import format_size

    if as_json:
        print_json(freed)
    else:
        for content, count in freed.items():
            print(f"{content[:12]}  {format_size(count)} freed")
