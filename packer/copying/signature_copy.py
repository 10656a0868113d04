"""Signatures of slabs that are copied: taken along, and not checked."""

from contextlib import suppress
from pathlib import Path

from fieldslab.schemas.drafts import replace_file
from fieldslab.schemas.errors import BadSignature, FieldslabError
from fieldslab.schemas.folder import SlabFiles, open_slab_files
from fieldslab.schemas.manifest import SIGNATURE
from fieldslab.schemas.notices import warn
from fieldslab.schemas.signatures import parse_signature, read_manifest_bytes, read_signature
from fieldslab.schemas.write_errors import name_write_errors


def find_copied_signature(files: SlabFiles) -> bytes | None:
    """Read the signature of a slab, or None, with a warning for a file that is no signature."""
    try:
        signature = read_signature(files)
        if signature is not None:
            parse_signature(signature, files.path / SIGNATURE)
    except BadSignature as error:
        warn(f"the signature is not copied: {error}")
        return None
    return signature


def warn_of_other_manifest() -> None:
    """Warn that a signature does not fit the manifest of a copy that is there already."""
    warn(
        "the signature is not copied: the copy that is there has the same id, but was packed at "
        "another time, and so its manifest is not the one that was signed"
    )


def add_signature(slab: Path, files: SlabFiles, signature: bytes) -> None:
    """Give a copy that is there already the signature of `files`, if it has the same manifest.

    Raises OutputError.
    """
    with suppress(FieldslabError), open_slab_files(slab) as copy:
        if read_manifest_bytes(copy) != read_manifest_bytes(files):
            warn_of_other_manifest()
            return
        if read_signature(copy) == signature:
            return
    with name_write_errors(slab), replace_file(slab / SIGNATURE) as file:
        file.write(signature)
