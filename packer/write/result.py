"""What a pack did, for programs and people."""

from dataclasses import dataclass
from pathlib import Path

from fieldslab.packer.commands.text_format import format_count, format_duration, format_size
from fieldslab.packer.convert.damaged_rows import LeftOutRow
from fieldslab.schemas.files import make_unreadable_error
from fieldslab.schemas.manifest import Manifest


@dataclass(frozen=True)
class PackResult:
    """What a pack did. `left_out` are the rows that `on_error="skip"` left out."""

    path: Path
    manifest: Manifest
    bytes: int
    seconds: float
    reused_shards: int
    dropped_shards: int
    left_out: tuple[LeftOutRow, ...] = ()

    def __repr__(self) -> str:
        manifest = self.manifest
        parts = [
            repr(str(self.path)),
            format_count(manifest.rows, "row"),
            format_count(len(manifest.fields), "field"),
            format_size(self.bytes),
            format_count(len(manifest.shards), "shard"),
            format_duration(self.seconds),
        ]
        if self.left_out:
            parts.append(f"{len(self.left_out):,} left out")
        if self.warnings:
            parts.append(format_count(len(self.warnings), "warning"))
        return f"PackResult({', '.join(parts)})"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know."""
        if not self.dropped_shards:
            return self.manifest.made.warnings
        return (
            f"{self.dropped_shards} finished shards of an earlier run were dropped: the source, "
            "the options or the version are others now",
            *self.manifest.made.warnings,
        )


def count_bytes(out: Path) -> int:
    """Count the bytes of all files of a slab. Raises Unreadable."""
    try:
        return sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    except OSError as error:
        raise make_unreadable_error(error, Path(error.filename or out)) from error
