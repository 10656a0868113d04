"""Windows of the elements of one field as samples, such as tokens."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from fieldslab.reader.batch import Batch
from fieldslab.reader.buffers import Allocator
from fieldslab.reader.images.steps import ImageSteps
from fieldslab.reader.rows import ShardDirectory, check_integer, wrap_rows
from fieldslab.reader.runs import Runs
from fieldslab.reader.slab_storage import Storage
from fieldslab.reader.views import View
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field


class ElementWindows:
    """Windows of the elements of one field, of all rows as one stream: a `WindowReader`.

    Attributes
    ----------
    total
        Number of elements.
    runs
        Elements of each slab of a union, which no window goes beyond; None of one slab alone.
    """

    def __init__(self, storage: Storage, view: View, name: str, length: int) -> None:
        """Raises UnknownField, and UsageError for a field or view that has no such stream."""
        self._storage = storage
        self._name = name
        self._length = check_integer("length", length, least=1)
        self._stored = stored = storage.load_field(name)
        field = stored.field
        if field.kind not in ("fixed", "ragged", "text", "binary") or field.compression is not None:
            raise UsageError(
                "the elements of this field cannot be read as one stream",
                field=name,
                expected="an uncompressed field of numbers, lists, text or bytes",
                found=field.describe(),
            )
        if isinstance(view, range) and len(view) < 2:
            view = range(view.start, view.start + len(view))  # whatever the step
        if not isinstance(view, range) or view.step != 1:
            hint = "Write the rows with repack first, or take windows of rows."
            raise UsageError("rows of this view are not neighbours", field=name, hint=hint)
        parts = 1 if field.variable else [*field.shape, 1][0]
        self._parts = max(parts, 1)  # of an empty shape: none, but then no window is ever read
        self._part_shape = field.shape if field.variable else field.shape[1:]
        # Rows of lists that are null have no elements.
        self._has_nulls = stored.valid is not None and not field.variable
        self._part_bytes = stored.values.item_bytes // self._parts
        self._directory = ShardDirectory(stored.values.items.astype(np.int64) * parts)
        self._view = view
        self._first = self._find_element(view.start, parts)
        self.total = self._find_element(view.stop, parts) - self._first
        self.runs = self._find_slab_runs()

    @property
    def fields(self) -> Mapping[str, Field]:
        """See `WindowReader`."""
        field = self._stored.field
        shape = self._length, *self._part_shape
        return {self._name: msgspec.structs.replace(field, kind="fixed", shape=shape)}

    def count_before(self, row: int) -> int:
        """Count the elements in front of a row of the view."""
        parts = 1 if self._stored.field.variable else [*self._stored.field.shape, 1][0]
        return self._find_element(self._view.start + row, parts) - self._first

    def is_regular(self, names: Sequence[str]) -> bool:
        """See `WindowReader`."""
        return True

    def count_bytes(self, names: Sequence[str], windows: int) -> int:
        """See `WindowReader`."""
        return windows * self._length * self._part_bytes

    @property
    def span(self) -> int:
        """See `WindowReader`."""
        if self._stored.field.variable:
            return 0  # only offsets tell the rows
        return (self._length - 2) // self._parts + 2

    def list_rows(self, starts: np.ndarray) -> np.ndarray:
        """See `WindowReader`: those of rows of fixed size."""
        first = starts // self._parts
        last = (starts + self._length - 1) // self._parts
        rows = first[:, np.newaxis] + np.arange(self.span)
        listed: np.ndarray = rows[rows <= last[:, np.newaxis]]
        return listed

    def read(
        self,
        starts: np.ndarray,
        names: Sequence[str],
        memory: Allocator,
        batches_in_turn: int = 1,
        visits: np.ndarray | None = None,
        images: Mapping[str, ImageSteps] | None = None,
        epoch: int = 0,
    ) -> Batch:
        """See `WindowReader`. Raises RowOutOfRange, and what `gather` raises."""
        from fieldslab.reader.gather import gather_validity
        from fieldslab.reader.pieces import Bounds, find_pieces, gather_items  # compiles kernels
        from fieldslab.reader.plain import PlainWindows

        storage, stored = self._storage, self._stored
        lows, highs = np.zeros(1, np.int64), np.full(1, self.total)
        if self.runs is not None:
            starts = wrap_rows(starts, self.total)
            lows, highs = self.runs.find_bounds(starts)
        bounds = Bounds(self.total, lows, highs, strict=True)
        if storage.mirrors is None and stored.conversion is None and not self._has_nulls:
            shape = self._length, *self._part_shape
            plain = PlainWindows(
                self._name, stored.values, 0, self._length, shape, self._part_bytes
            )
            copied = storage.changes.read(
                lambda: plain.copy(
                    self._directory, self._first, starts, bounds, memory, batches_in_turn
                )
            )
            if copied is not None:
                return Batch(starts, {self._name: copied}, {}, {}, visits=visits)
        indices = range(self._length)
        pieces = find_pieces(self._directory, storage.pool, self._first, starts, indices, bounds)

        def gather() -> Batch:
            values = gather_items(
                stored.values,
                pieces,
                memory,
                self._name,
                batches_in_turn,
                stored.conversion,
                self._part_shape,
            )
            valid = {}
            if self._has_nulls:
                assert stored.valid is not None
                rows = pieces.locate_rows()
                rows = rows._replace(in_shard=rows.in_shard // self._parts)
                valid[self._name] = gather_validity(stored.valid, rows, memory, self._name).reshape(
                    pieces.shape
                )
            return Batch(starts, {self._name: values}, valid, {}, visits=visits)

        if storage.mirrors is None:
            return storage.changes.read(gather)
        from fieldslab.reader.absent import read_mirrored_elements

        runs = pieces.locations, pieces.counts
        return storage.changes.read(
            lambda: read_mirrored_elements(storage, stored, *runs, self._part_bytes, gather)
        )

    def _find_slab_runs(self) -> Runs | None:
        shards = self._storage.slabs.first_shards[1:-1]
        borders = np.unique(self._directory.starts[shards]) - self._first
        borders = borders[(borders > 0) & (borders < self.total)]
        return Runs([0], [self.total]).cut(borders) if len(borders) else None

    def _find_element(self, row: int, parts: int) -> int:
        """Find the first element of a row of the slab, or the number of all behind the last."""
        storage, stored = self._storage, self._stored
        if row >= storage.manifest.rows:
            return int(self._directory.starts[-1])
        shard, place = storage.directory.find_shard(row)
        if not stored.field.variable:
            return int(self._directory.starts[shard]) + parts * place
        start, _ = storage.read(
            [self._name], [shard], lambda: stored.read_element_range(shard, place)
        )
        return int(self._directory.starts[shard]) + start
