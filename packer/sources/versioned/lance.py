"""Tables of Lance: the one file that imports it. Fragments are read one by one."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from fieldslab.packer.sources.versioned.table_folder import TableFolder
from fieldslab.packer.sources.versioned.versioned_source import Piece, Snapshot, VersionedSource
from fieldslab.schemas.errors import SourceNeedsLibrary


class LanceSource(VersionedSource):
    """The rows of a Lance table, without those that were deleted."""

    name = "lance"
    kind = "Lance"
    libraries = ("pylance",)
    schemes = ("s3", "gs", "az")

    def open_snapshot(self, folder: TableFolder, version: int | None) -> Snapshot:
        """Open a version."""
        try:
            import lance
        except ImportError as error:
            raise SourceNeedsLibrary(
                f"Lance tables need the library pylance: {error}", hint="pip install 'pylance>=1.0'"
            ) from error
        options = folder.make_library_options()
        dataset = lance.dataset(folder.path, version=version, storage_options=options)
        return _LanceSnapshot(folder, dataset)


class _LanceSnapshot(Snapshot):
    def __init__(self, folder: TableFolder, dataset: Any) -> None:
        self.version = int(dataset.version)
        self.schema = dataset.schema
        self._fragments = dataset.get_fragments()
        self.pieces = [_make_piece(folder, fragment) for fragment in self._fragments]

    def read(self, piece: int, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Read a fragment."""
        yield from self._fragments[piece].to_batches(
            columns=list(names), batch_size=rows, batch_readahead=2
        )


def _make_piece(folder: TableFolder, fragment: Any) -> Piece:
    files = tuple(folder.find_library_file(f"data/{file.path}") for file in fragment.data_files())
    return Piece(int(fragment.count_rows()), sum(file.size for file in files), files)
