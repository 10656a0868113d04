"""What the parts of a plan share in a store, and the lookup by the place of the slab."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fieldslab.packer.outputs.find_output import find_output
from fieldslab.packer.outputs.ownership import find_manifest
from fieldslab.packer.outputs.slab_output import make_shuffle_error
from fieldslab.packer.outputs.store_attempts import StoreAttempts
from fieldslab.packer.outputs.store_output import StoreBuilder, StoreOutput
from fieldslab.packer.parts.directory_parts import DirectoryPartFolder
from fieldslab.packer.parts.part_folder import PartFolder
from fieldslab.packer.parts.plan_file import PlanFile
from fieldslab.packer.write.writers import ShardRecord
from fieldslab.schemas.errors import FieldslabError, ObjectNotFound
from fieldslab.schemas.manifest import Manifest


class StorePartFolder(StoreBuilder, PartFolder):
    """`NAME.partial/PLAN` in a store, as one run of a part or of `finish` uses it."""

    attempts: StoreAttempts

    def __init__(self, output: StoreOutput, planned: PlanFile, parts: int) -> None:
        """Nothing is written yet; `parts` says of how many parts this one is."""
        super().__init__(output, planned.fingerprint, planned.versions, parts=parts)
        self._output = output

    def __enter__(self) -> "StorePartFolder":
        """Leave the marker; see `StoreBuilder`."""
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave everything to the other runs, unless the slab is there: then this one came late."""
        with suppress(*([] if error[0] is None else [FieldslabError])):
            self.end_uploads(wait=error[0] is None or isinstance(error[1], Exception))
        if self.load_published() is not None:
            self.remove()

    def check(self) -> None:
        """Raise OutputExists where another slab is."""
        self._output.check(force=False)

    def count_bytes(self) -> int:
        """Count the bytes of all files, by the manifest."""
        return self._output.count_bytes()

    def load_published(self) -> Manifest | None:
        """Load the manifest of the finished slab; see `PartFolder`."""
        manifest = find_manifest(self._place.store)
        return manifest if manifest is not None and manifest.made.plan == self._plan else None

    def open_first_pass(self) -> PartFolder:
        """Raise UsageError: the slab of the first pass would be read from the store."""
        raise make_shuffle_error(self._output)

    def accept_shard(self, record: ShardRecord, parts: int = 1) -> None:
        """Note a shard that is uploaded and recorded."""
        super().accept_shard(record)

    def read_file(self, name: str) -> bytes | None:
        """Read a small object of another run."""
        try:
            return bytes(self._partial_place.store.read(name))
        except ObjectNotFound:
            return None

    def write_file(self, name: str, content: bytes) -> None:
        """Write a small object for other runs."""
        self._partial_place.store.write(name, content)


def open_part_folder(
    planned: PlanFile,
    parts: int = 1,
    *,
    scratch: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> PartFolder:
    """Open what the parts of a plan share, where the plan says; nothing is made yet.

    `parts` says of how many parts this one is. Raises UsageError; see `find_output`.
    """
    output = find_output(planned.out, storage_options, scratch)
    if isinstance(output, StoreOutput):
        return StorePartFolder(output, planned, parts)
    return DirectoryPartFolder(Path(planned.out), planned.fingerprint)
