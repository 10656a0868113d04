"""What a repair did, and what it could not."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fieldslab.packer.check.findings import Problem
from fieldslab.packer.commands.text_format import (
    escape_controls,
    format_count,
    format_duration,
    format_size,
)

_MOST_NAMED = 3
"""Files that the last line names one by one."""


@dataclass(frozen=True)
class RepairedFile:
    """A file that was replaced.

    `what` says what it is to the slab, such as "values of field x, shard 3", `problem` what was
    wrong with it; `blocks` of its blocks were damaged.
    """

    file: str
    what: str
    problem: str
    blocks: int

    def __str__(self) -> str:
        blocks = f" {format_count(self.blocks, 'block')}," if self.blocks else ""
        return escape_controls(f"repaired {self.file}:{blocks} {self.problem} ({self.what})")


@dataclass
class RepairReport:
    """What `repair` did. `problems` are those that are left; with `dry_run`, all that were found.

    `bytes` were checked.
    """

    path: Path
    dry_run: bool = False
    bytes: int = 0
    seconds: float = 0.0
    repaired: list[RepairedFile] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the slab is whole now."""
        return not self.problems

    @property
    def repaired_blocks(self) -> int:
        """Blocks that were repaired."""
        return sum(file.blocks for file in self.repaired)

    def add_repaired(self, path: Path, what: str, problem: str, blocks: int) -> None:
        """Enter a file that was replaced: see `RepairedFile`."""
        self.repaired.append(RepairedFile(str(path), what, problem, blocks))

    def add_left(self, problem: Problem) -> None:
        """Enter something that is still wrong."""
        self.problems.append(problem)

    def __str__(self) -> str:
        checked = f"{format_size(self.bytes)} checked in {format_duration(self.seconds)}"
        fixed = f"{self._format_repaired()}, {checked}"
        if self.deleted:
            fixed = f"{format_count(len(self.deleted), 'file')} deleted, {fixed}"
        if self.ok:
            return f"OK: {self.path}: {fixed}"
        problems = format_count(len(self.problems), "problem")
        left = "found" if self.dry_run else "left"
        return f"FAILED: {problems} {left} in {self.path}; {checked if self.dry_run else fixed}"

    def _format_repaired(self) -> str:
        """Format what was repaired: blocks, then files whose blocks were right."""
        if not self.repaired:
            return "nothing to repair" if self.ok else "nothing repaired"
        others = [file.what for file in self.repaired if not file.blocks]
        parts = []
        if files := len(self.repaired) - len(others):
            blocks = format_count(self.repaired_blocks, "block")
            parts.append(f"{blocks} in {format_count(files, 'file')}")
        parts += others[:_MOST_NAMED]
        if len(others) > _MOST_NAMED:
            parts.append(f"{len(others) - _MOST_NAMED:,} more files")
        return escape_controls(f"{'; '.join(parts)} repaired")

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready values."""
        return {
            "path": str(self.path),
            "ok": self.ok,
            "dry_run": self.dry_run,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "repaired_blocks": self.repaired_blocks,
            "repaired": [vars(file) for file in self.repaired],
            "deleted": self.deleted,
            "problem_count": len(self.problems),
            "problems": [problem.as_dict() for problem in self.problems],
        }
