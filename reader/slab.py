"""A slab, open for reading."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsIndex, overload

import numpy as np

from fieldslab.reader.arrow import Tabular
from fieldslab.reader.batch import Batch, Buffers
from fieldslab.reader.buffers import MUCH, ReusedMemory
from fieldslab.reader.column import Column
from fieldslab.reader.images.steps import check_decode_option
from fieldslab.reader.reading import read_batch
from fieldslab.reader.row_samples import Samples
from fieldslab.reader.rows import Rows, check_index, check_integer, check_rows, wrap_rows
from fieldslab.reader.slab_storage import Storage
from fieldslab.reader.var_len import Text
from fieldslab.reader.views import ChosenRows, View
from fieldslab.reader.windowed import Windowed
from fieldslab.schemas.episodes import Episodes, find_episode_lengths
from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.manifest import Manifest


def check_slab(slab: Any) -> None:
    """Raise UsageError for anything but an open slab, such as a path."""
    if not isinstance(slab, Slab):
        hint = "Give open_slab(path)."
        raise UsageError("not an open slab", found=repr(slab), hint=hint)


class Slab(Tabular, Windowed):
    """Rows of a slab: all of them, or a view such as `slab[a:b]`.

    `slab[7]` is a row as a dict, `slab["label"]` a column, `slab[100:200]` a view that shares
    everything with the slab, and `slab.gather(rows)` a batch. `select`, `where` and `split` make
    views of other rows. Any number of threads may use one
    slab at once. It pickles as its path and is opened again where it is unpickled. It can be used
    after a fork.
    """

    def __init__(self, storage: Storage, view: View) -> None:
        """Not for callers: use `open_slab`."""
        super().__init__(storage, view)

    @property
    def path(self) -> Path:
        """The slab's directory, absolute."""
        return self._storage.path

    @property
    def manifest(self) -> Manifest:
        """The content of `manifest.json`: of the whole slab, also for a view."""
        return self._storage.manifest

    @property
    def storage(self) -> Storage:
        """Manifest and maps, which all views share: for the reader's own parts."""
        return self._storage

    @property
    def view(self) -> View:
        """Rows of the stored slab that this view has."""
        return self._view

    @property
    def fields(self) -> Mapping[str, Field]:
        """Fields by name, in their order."""
        return self._storage.fields

    @property
    def episodes(self) -> Episodes:
        """First row and length of each episode; see `fieldslab.schemas.episodes.Episodes`.

        Empty for a view, and where the slab does not list episodes: it was packed without
        `episodes`, shuffled, or written without some rows. Those of joined slabs are joined.
        """
        manifest = self.manifest
        lengths = find_episode_lengths(manifest.attributes, manifest.rows)
        if self._view != range(manifest.rows):
            lengths = None
        return Episodes(np.array(lengths or [], np.int64))

    @property
    def members(self) -> Mapping[str, range]:
        """Rows of this slab or view that each of its slabs has, by name, in their order.

        A slab that was opened alone has itself as its only member, by its path.
        """
        return self._storage.members.find_ranges(self._view)

    def member_of(self, rows: Rows) -> np.ndarray:
        """Find the slab that each row comes from: its index in `members`, int64[n].

        Raises RowOutOfRange, UsageError as `gather` does.
        """
        numbers = wrap_rows(check_rows(rows, len(self)), len(self))
        return self._storage.members.find_members(self._view, numbers)

    def __add__(self, other: "Slab") -> "Slab":
        """Join both slabs, as `open_slab` joins a list. Raises UsageError for views."""
        if not isinstance(other, Slab):
            return NotImplemented
        for slab in (self, other):
            if slab.view != range(slab.manifest.rows) or slab.storage.dtypes:
                raise UsageError(
                    "only whole slabs are joined, not views or casts of them",
                    file=slab.path,
                    hint="Join first, then write (a + b)[...] or (a + b).cast(...).",
                )
        storage = self._storage.join(other.storage)
        return Slab(storage, range(storage.manifest.rows))

    def __radd__(self, other: int) -> "Slab":
        """Let `sum` add up slabs, which begins with 0."""
        return self if other == 0 else NotImplemented

    def __len__(self) -> int:
        return len(self._view)

    @overload
    def __getitem__(self, key: str) -> Column: ...
    @overload
    def __getitem__(self, key: slice) -> "Slab": ...
    @overload
    def __getitem__(self, key: SupportsIndex) -> dict[str, Any]: ...
    def __getitem__(self, key: str | slice | SupportsIndex) -> Any:
        """A row by number, a view by slice, or a column by name.

        A row is a dict from field name to value: numpy scalar or array, `str`, `bytes` (binary
        and image fields), the category's name, or None for null. It shares no memory.

        Raises
        ------
        UnknownField, RowOutOfRange, UsageError
            There is no such field or row, or `key` has another type.
        DamagedArray
            The slab's files are not what pack wrote.
        SlabReplaced, Unreadable
            The slab was removed or changed since it was opened; the disk fails.
        """
        if isinstance(key, str):
            return Column(self._storage, self._storage.load_field(key), self._view)
        if isinstance(key, slice):
            return Slab(self._storage, self._view[key])
        if isinstance(key, list | tuple | np.ndarray) and np.ndim(key):
            raise UsageError(
                "slab[...] takes one row, a slice or a field name",
                hint="For many, write slab.gather(rows).",
            )
        row = self._view[check_index(key, len(self))]
        storage = self._storage
        shard, place = storage.directory.find_shard(row)
        fields, load = storage.fields, storage.load_field

        def read() -> dict[str, Any]:
            return {name: load(name).read_row(shard, place) for name in fields}

        if storage.evictions is None:
            return storage.changes.read(read)
        return storage.read(list(fields), [shard], read)

    def __getitems__(self, rows: Rows) -> Samples:
        """Many rows, as PyTorch's DataLoader asks for them; `fieldslab.reader.torch` says more."""
        return Samples(self, rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[row] for row in range(len(self)))

    def gather(
        self,
        rows: Rows,
        fields: Sequence[str] | None = None,
        out: Batch | None = None,
        *,
        decode: Mapping[str, Any] | None = None,
        epoch: int = 0,
        visits: Any = None,
    ) -> Batch:
        """Copy chosen rows, in the order given, into one batch.

        Parameters
        ----------
        rows
            Row numbers of this slab or view: any array of integers, list or range. Negative ones
            count from the end; a row may come several times.
        fields
            Names of the fields to gather. Default: those of `out`, or all.
        out
            Result of `buffers` for at least as many rows. It is overwritten and returned, and so
            is every array taken from it before. After an error its content is undefined.
            Without `out`, each call returns a new batch that never changes.
        decode
            What image fields become, by name: a list of steps, or `ImageSteps`.
        epoch
            Number of the epoch. Random crops and flips depend on it, on the seed in `ImageSteps`,
            on the row and on its visit.
        visits
            One integer from 0 for each of `rows`, which tells visits of the same row apart, so
            that each has crops and flips of its own. Default: how often the row comes earlier in
            `rows`.

        Raises
        ------
        RowOutOfRange
            There is no such row. Nothing was read or written.
        UnknownField, UsageError
            The arguments contradict each other or the slab.
        MissingLibrary
            The decoder needs a library that is not installed.
        DamagedImage
            An image cannot be decoded, and `on_error` is "raise".
        DamagedArray
            The slab's files are not what pack wrote.
        SlabReplaced, Unreadable
            The slab was removed since it was opened; the disk fails.
        """
        if out is not None and not isinstance(out, Buffers):
            hint = "Make it with slab.buffers(batch_size, fields)."
            raise UsageError(
                "`out` was not made by slab.buffers()", found=type(out).__name__, hint=hint
            )
        if out is not None and fields is None:
            fields = [field.name for field in out.fields]
        names = self.names(fields)
        numbers = check_rows(rows, len(self))
        if out is not None:
            out.check(tuple(self.fields[name] for name in names), len(numbers))
        memory = self._storage.pool if out is None else out.memory
        if decode:
            images, epoch = (
                check_decode_option(decode, self.fields, names),
                check_integer("epoch", epoch, least=0),
            )
            batch = read_batch(
                self._storage, self._view, numbers, names, memory, images, epoch, visits
            )
        else:
            batch = read_batch(self._storage, self._view, numbers, names, memory)
        if out is None:
            return batch
        out.fill(batch)
        return out

    def buffers(self, batch_size: int, fields: Sequence[str] | None = None) -> Batch:
        """Allocate memory for batches of up to `batch_size` rows, to pass to `gather` as `out`.

        Memory for rows of fixed size is allocated at once; for other rows it grows as needed.
        Raises UnknownField, UsageError, and DamagedArray where a file is smaller than the manifest
        says.
        """
        if check_index(batch_size, 2**63) != batch_size:
            raise UsageError("a batch size cannot be negative", found=batch_size)
        chosen = tuple(self.fields[name] for name in self.names(fields))
        memory = ReusedMemory(self._storage.pool)
        room = batch_size if len(self) else 0
        for field in chosen:
            stored = self._storage.load_field(field.name)
            for spec in field.list_arrays():
                if spec.per == "row":
                    if room * spec.item_bytes > MUCH:
                        stored.arrays[spec.role].check_item_size()
                    memory.allocate_array((field.name, spec.role), (room, *spec.shape), spec.dtype)
        out = Buffers(chosen, batch_size, memory)
        return self.gather([], out=out)

    def cast(self, dtypes: Mapping[str, Any]) -> "Slab":
        """Return a view of the same rows with numbers of some fields in other dtypes.

        They are converted while rows are gathered, in one pass: to the nearest number, ties to
        even, and what is too large to infinity. Whatever takes a slab takes the result; loader
        states are the same for both.

        Parameters
        ----------
        dtypes
            "float32", "float16" or "bfloat16" by name of a fixed or ragged field of booleans,
            integers or floats. Arrays hold bfloat16 as uint16; tensors are torch.bfloat16.

        Raises UnknownField, and UsageError where a field has no numbers or the dtype is another.
        """
        return Slab(self._storage.cast(dtypes), self._view)

    def preload(
        self,
        fields: Sequence[str] | None = None,
        *,
        lock: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Bring the data of these rows into the page cache, so that no batch waits for the disk.

        All processes of the machine share it. The system may drop it again when it needs memory.
        Blocks are compared with their digests later, when they are first touched.

        Parameters
        ----------
        fields
            Names of the fields to read. Default: all.
        lock
            Keep the data in memory until the slab is closed, which the limit `ulimit -l` must
            allow. A process that is forked later does not hold it.
        progress
            Called with the bytes that were read since the last call.

        Returns
        -------
        Bytes of the data. Of a view with gaps, they include the rows in between.

        Raises
        ------
        UsageError
            The data is larger than the memory that is available, or cannot be locked.
        UnknownField, DamagedArray, SlabReplaced, Unreadable
            As `gather` raises them.
        """
        from fieldslab.reader.stored.preloading import preload_rows

        stored = [self._storage.load_field(name) for name in self.names(fields)]
        if not self._view:
            return 0
        view = self._view
        ends = view.rows if isinstance(view, ChosenRows) else np.array([view[0], view[-1]])
        first, last = int(ends.min()), int(ends.max())
        spans = self._storage.directory.split_by_shard(first, last + 1)
        return preload_rows(stored, spans, lock, progress)

    def addresses(self, rows: Rows, field: str) -> tuple[np.ndarray, np.ndarray]:
        """Find where the values of rows lie in memory, for decoders that read them in place.

        Returns
        -------
        addresses, lengths
            uint64[n] and int64[n], in bytes. The memory is read-only. It stays mapped as long as
            the slab, or any view or column of it, exists.
        """
        finder, view = self._storage.row_finder, self._view
        return finder.find_addresses(view, check_rows(rows, len(view)), field)

    def lengths(self, rows: Rows, field: str) -> np.ndarray:
        """Return lengths of rows, int64[n]: elements if ragged; bytes of text, binary and images.

        Only offsets are read. Raises UsageError for a field of fixed size.
        """
        stored, view = self._storage.load_field(field), self._view
        if not stored.field.variable:
            shape = list(stored.field.shape)
            raise UsageError("a field of fixed size has no lengths", field=field, found=shape)
        return self._storage.row_finder.count_elements(view, check_rows(rows, len(view)), field)

    def categories(self, field: str) -> Sequence[str] | Text:
        """Return names of categories by code. Raises UsageError for other fields."""
        stored = self._storage.load_field(field)
        if stored.field.kind != "categorical":
            raise UsageError("the field is not categorical", field=field)
        return stored.categories

    def __repr__(self) -> str:
        total = self.manifest.rows
        rows = f"{len(self):,} rows" if len(self) == total else f"{len(self):,} of {total:,} rows"
        count = len(self.manifest.shards)
        shards = "1 shard" if count == 1 else f"{count:,} shards"
        lines = [f"Slab({str(self.path)!r}, {rows} in {shards})"]
        shown = list(self.fields.values())[:20]
        lines += [f"  {field.name}: {field.describe()}" for field in shown]
        if len(self.fields) > 20:
            lines.append(f"  and {len(self.fields) - 20:,} more fields")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from fieldslab.reader.notebook import FIELDS, format_slab

        columns = [self[name] for name in list(self.fields)[:FIELDS]]
        return format_slab(self.path.name, len(self), columns, len(self.fields))

    def __reduce__(self) -> tuple[Any, ...]:
        return Slab, (self._storage, self._view)
