"""Where a scrub is: the file that lets the next run go on, and metrics for Prometheus."""

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from fieldslab.schemas.errors import FieldslabError, ObjectNotFound, UsageError
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.directory import DirectoryStore

_FORMAT, _VERSION = "fieldslab scrub", 1


class SlabPass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a pass over one slab has come, and what it found.

    Blocks are counted through all arrays, in the order of the manifest; `next_block` is checked
    next. `bytes` were read and `seconds` used in this pass. `completed` (Unix time) and
    `duration` (seconds) are those of the last pass that was completed, None before the first.
    """

    path: str
    id: str
    blocks: int
    next_block: int = 0
    checked_blocks: int = 0
    damaged_blocks: int = 0
    unreadable_blocks: int = 0
    problems: int = 0
    bytes: int = 0
    seconds: float = 0.0
    done: bool = False
    completed: float | None = None
    duration: float | None = None

    def complete(self) -> "SlabPass":
        """Return the pass as it is when its last block was checked."""
        return msgspec.structs.replace(
            self, done=True, completed=time.time(), duration=self.seconds
        )

    def start_again(self) -> "SlabPass":
        """Return the next pass over the same slab."""
        return SlabPass(
            self.path, self.id, self.blocks, completed=self.completed, duration=self.duration
        )


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in the file."""

    format: str
    version: int
    slabs: list[SlabPass]


def load_passes(path: Path, slabs: Sequence[SlabPass], named: Sequence[str]) -> list[SlabPass]:
    """Load how far each of these slabs is from a state file; `slabs` as they are, without one.

    When all were done, all begin again. `named` are the slabs that the state may name: these, and
    those that cannot be opened.

    Raises UsageError where the file is no state, or one of other slabs.
    """
    option = mark_option("resume")
    try:
        state = msgspec.json.decode(bytes(DirectoryStore(path.parent).read(path.name)), type=_File)
    except ObjectNotFound:
        return list(slabs)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{option}: is not the state of a scrub: {error}",
            file=path,
            hint="Name another file, or delete this one.",
        ) from error
    if (state.format, state.version) != (_FORMAT, _VERSION):
        raise UsageError(
            f"{option}: is not a state that this version reads",
            file=path,
            expected=f"{_FORMAT} {_VERSION}",
            found=f"{state.format} {state.version}",
        )
    hint = "Name another file, or delete this one: then all blocks are checked from the first."
    stored = {entry.path: entry for entry in state.slabs}
    if unexpected := stored.keys() - named:
        raise UsageError(
            f"{option}: is the state of another slab",
            file=path,
            expected=", ".join(named),
            found=", ".join(sorted(unexpected)),
            hint=hint,
        )
    for slab in slabs:
        entry = stored.get(slab.path, slab)
        if (entry.id, entry.blocks) != (slab.id, slab.blocks):
            raise UsageError(
                f"{option}: {slab.path} was another slab when this state was saved",
                file=path,
                expected=f"id {slab.id}",
                found=f"id {entry.id}",
                hint=hint,
            )
        if not 0 <= entry.next_block <= slab.blocks:
            raise UsageError(
                f"{option}: is damaged: there is no such block",
                file=path,
                expected=f"0..{slab.blocks}",
                found=entry.next_block,
                hint=hint,
            )
    passes = [stored.get(slab.path, slab) for slab in slabs]
    if all(entry.done for entry in passes):
        return [entry.start_again() for entry in passes]
    return passes


def save_passes(path: Path, slabs: Sequence[SlabPass]) -> None:
    """Replace a state file at once, durably. Raises OutputError."""
    state = _File(_FORMAT, _VERSION, list(slabs))
    data = msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n"
    DirectoryStore(path.parent).write(path.name, data)


_METRICS = (
    ("blocks", "Blocks of the slab.", "blocks"),
    ("checked_blocks", "Blocks whose digest was compared in this pass.", "checked_blocks"),
    ("damaged_blocks", "Blocks of this pass that differ from their digest.", "damaged_blocks"),
    (
        "unreadable_blocks",
        "Blocks of this pass that could not be read.",
        "unreadable_blocks",
    ),
    ("problems", "Problems found in this pass.", "problems"),
    ("read_bytes", "Bytes read in this pass.", "bytes"),
    ("pass_seconds", "Seconds that this pass has taken.", "seconds"),
    (
        "last_completed_timestamp_seconds",
        "When the last pass was completed, in Unix time.",
        "completed",
    ),
    (
        "last_pass_duration_seconds",
        "Seconds that the last completed pass took.",
        "duration",
    ),
)


def write_metrics(path: Path, slabs: Sequence[SlabPass]) -> None:
    """Replace a file of metrics at once, in Prometheus' text format. Raises OutputError."""
    lines = []
    for name, about, member in _METRICS:
        values = [(slab.path, getattr(slab, member)) for slab in slabs]
        if all(value is None for _, value in values):
            continue
        lines += [
            f"# HELP fieldslab_scrub_{name} {about}",
            f"# TYPE fieldslab_scrub_{name} gauge",
        ]
        lines += [
            f'fieldslab_scrub_{name}{{slab="{_escape_label(slab)}"}} {value!r}'
            for slab, value in values
            if value is not None
        ]
    try:
        DirectoryStore(path.parent).write(path.name, ("\n".join(lines) + "\n").encode())
    except FieldslabError as error:
        error.add_hint(f"{mark_option('metrics')} names a file in the collector's directory.")
        raise


def _escape_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
