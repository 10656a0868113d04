"""Rows of a slab in Arrow, Polars and pandas: methods of `Slab`."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from fieldslab.reader.rows import Rows
from fieldslab.reader.selecting import Selectable
from fieldslab.schemas.errors import MissingLibrary

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


class Tabular(Selectable):
    """Rows of a slab that become tables of other libraries."""

    def to_arrow(self, rows: Rows | None = None, fields: Sequence[str] | None = None) -> "pa.Table":
        """Return rows as a table of Arrow.

        What one shard holds, rows of fixed size, text, bytes and lists, shares the mapped files and
        is read-only: it takes no memory, and stays as long as the table. All else is copied: single
        rows, booleans, categories, bfloat16 and compressed fields, and what comes from a distance.
        Blocks are compared with their digests first, as by a gather.

        Times, dates and categories keep their types; rows of shape (k, m) are nested lists of fixed
        size; ragged rows are large lists; encoded images are bytes. bfloat16 becomes float32,
        complex numbers lists of two.

        Parameters
        ----------
        rows
            Row numbers, as `gather` takes them. Default: all rows, in their order.
        fields
            Names of the fields. Default: all.

        Raises UsageError for images that are stored as pixels, and what `gather` raises.
        """
        import pyarrow as pa

        view = self if rows is None else self.select(rows)
        schema, batches = view._read_batches(fields)
        return pa.Table.from_batches(batches, schema)

    def to_polars(
        self, rows: Rows | None = None, fields: Sequence[str] | None = None
    ) -> "pl.DataFrame":
        """Return rows as a frame of Polars; see `to_arrow`. Raises MissingLibrary, too."""
        try:
            import polars as pl
        except ImportError as error:
            raise MissingLibrary("`to_polars` needs Polars", hint="pip install polars") from error
        frame = pl.DataFrame(self.to_arrow(rows, fields))
        self._storage.changes.check()  # what was copied must not have come from a lost page
        return frame

    def to_pandas(
        self, rows: Rows | None = None, fields: Sequence[str] | None = None
    ) -> "pd.DataFrame":
        """Copy rows into a frame of pandas; see `to_arrow`. Raises MissingLibrary, too."""
        try:
            import pandas  # noqa: F401 - pyarrow says less about it
        except ImportError as error:
            raise MissingLibrary("`to_pandas` needs pandas", hint="pip install pandas") from error
        frame = self.to_arrow(rows, fields).to_pandas()
        self._storage.changes.check()
        return frame

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Stream the rows to other libraries, in record batches of about 32 MiB; see `to_arrow`."""
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(*self._read_batches(None))
        return reader.__arrow_c_stream__(requested_schema)

    def _read_batches(
        self, names: Sequence[str] | None
    ) -> "tuple[pa.Schema, Iterator[pa.RecordBatch]]":
        """Return the schema of some fields, and their rows batch by batch."""
        import pyarrow as pa

        from fieldslab.schemas.arrow_arrays import ArrowMaker, make_schema, split_rows

        manifest, chosen = self._storage.manifest, self.names(names)
        fields = [self._storage.fields[name] for name in chosen]
        makers = [
            ArrowMaker(
                field, self._list_categories(field.name) if field.kind == "categorical" else None
            )
            for field in fields
        ]
        schema = make_schema(fields, makers, manifest.attributes)

        def read() -> Iterator[pa.RecordBatch]:
            parts = split_rows(manifest, fields, len(self._view))
            for rows in chain.from_iterable(map(self._split_at_shards, parts)):
                values = self._read_values(rows, chosen)
                arrays = [
                    maker.convert(*values[name]) for name, maker in zip(chosen, makers, strict=True)
                ]
                self._storage.changes.check()  # booleans, and the like, were copied
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

        return schema, read()
