"""The journal: which shards of a pack are finished, so that a rerun need not write them again."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
import xxhash

from fieldslab.packer.write.writers import ShardRecord


class Journal:
    """A file of lines, each the digest of a text and the text: first the plan, then the shards.

    What follows a torn or damaged line is not believed.
    """

    def __init__(self, path: Path, plan: str) -> None:
        """The journal of the plan with this fingerprint; nothing is read or written yet."""
        self.path = path
        self.fresh = path.with_name(path.name + ".new")
        self._plan = plan

    def read(self) -> list[ShardRecord]:
        """Read the records of finished shards; none if the journal belongs to another plan."""
        texts = self._read_texts()
        if not texts or texts[0] != self._plan:
            return []
        records = []
        for text in texts[1:]:
            try:
                records.append(msgspec.json.decode(text, type=ShardRecord))
            except msgspec.DecodeError:
                break
        return records

    def read_plan(self) -> str | None:
        """Read the fingerprint of the plan that the journal belongs to; None if there is none."""
        texts = self._read_texts()
        return texts[0] if texts else None

    def rewrite(self, records: Iterable[ShardRecord]) -> None:
        """Replace the journal by one with these records: at once, or not at all."""
        lines = [
            _make_line(self._plan),
            *(_make_line(_encode_record(record)) for record in records),
        ]
        with open(self.fresh, "wb") as file:
            file.write(b"".join(lines))
            file.flush()
            os.fsync(file.fileno())
        self.fresh.rename(self.path)

    def append(self, record: ShardRecord) -> None:
        """Append a finished shard durably."""
        with open(self.path, "ab") as file:
            file.write(_make_line(_encode_record(record)))
            file.flush()
            os.fsync(file.fileno())

    def _read_texts(self) -> list[str]:
        texts: list[str] = []
        try:
            lines = self.path.read_text("utf-8", errors="replace").split("\n")
        except FileNotFoundError:
            return texts
        for line in lines[:-1]:
            digest, _, text = line.partition(" ")
            if digest != _compute_digest(text):
                break
            texts.append(text)
        return texts


def _encode_record(record: ShardRecord) -> str:
    return msgspec.json.encode(record).decode()


def _make_line(text: str) -> bytes:
    return f"{_compute_digest(text)} {text}\n".encode()


def _compute_digest(text: str) -> str:
    return xxhash.xxh3_64_hexdigest(text.encode())
