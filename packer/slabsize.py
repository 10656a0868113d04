"""How many bytes a slab takes, by its manifest alone."""

from fieldslab.schemas import layout
from fieldslab.schemas.access import iterate_folders
from fieldslab.schemas.arrays import HEADER
from fieldslab.schemas.folder import SlabFiles


def count_bytes(files: SlabFiles) -> int:
    """Count the bytes of all files of a slab, by its manifest."""
    total = files.manifest_bytes
    for folder in iterate_folders(files):
        total += sum(HEADER + file.data_bytes for file in folder.files)
        total += HEADER + folder.digest.count_bytes(layout.count_total_blocks(folder.files))
    return total
