"""Windows of a slab, and runs of its rows: methods of `Slab`."""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from fieldslab.reader.batch import Batch, Buffers
from fieldslab.reader.elements import ElementWindows
from fieldslab.reader.images.steps import check_decode_option
from fieldslab.reader.rows import Rows, check_integer, check_rows
from fieldslab.reader.runs import Runs
from fieldslab.reader.selecting import Selectable
from fieldslab.reader.windows import Edges, RowWindows, WindowReader, WindowShape
from fieldslab.schemas.errors import UsageError


class Windowed(Selectable):
    """Rows of a slab of which windows can be gathered."""

    def find_runs(self, by: str) -> Runs:
        """Find the runs of neighbouring rows with one value, such as those of an episode.

        The values are read once. A null is a value of its own; a run ends where a slab of a union
        ends.

        Parameters
        ----------
        by
            Name of the field: integers, categories, text or any other that is not nested.

        Raises UnknownField, UsageError, and what `gather` raises.
        """
        from fieldslab.reader.runs import find_runs

        if by not in self._found_runs:
            self._storage.check_field_name(by)
            if self._storage.fields[by].kind == "nested":
                raise UsageError(
                    "lists of lists or of texts cannot tell where runs of rows end",
                    field=by,
                    hint="Pack an integer or a text that says where a run ends.",
                )
            runs = find_runs(by, self._gather_range, len(self._view))
            slabs = self.slab_runs
            self._found_runs[by] = runs if slabs is None else runs.cut(slabs.starts[1:])
        return self._found_runs[by]

    @cached_property
    def slab_runs(self) -> Runs | None:
        """Runs of rows of one slab of a union; None where there is one slab alone."""
        borders = self._storage.members.find_borders(self._view)
        return Runs([0], [len(self._view)]).cut(borders) if len(borders) else None

    def gather_windows(
        self,
        starts: Rows,
        length: int | None = None,
        fields: Sequence[str] | None = None,
        out: Batch | None = None,
        *,
        delta_indices: Mapping[str, Sequence[int]] | None = None,
        within: Any = None,
        edges: Edges | None = None,
        of: str | None = None,
        decode: Mapping[str, Any] | None = None,
        epoch: int = 0,
    ) -> Batch:
        """Copy windows of neighbouring rows into one batch.

        Fields of fixed size become arrays (windows, length, *shape), validity and sizes of images
        (windows, length) and (windows, length, 2). Rows of different lengths are those of all
        windows, one window behind the other: row `j` of window `i` is row `i * length + j`.
        `Batch.rows` has the starts.

        Parameters
        ----------
        starts
            First rows of the windows, as `gather` takes rows.
        length
            Rows of a window: `starts[i]` up to `starts[i] + length`.
        fields
            Names of the fields to gather. Default: all.
        out
            Result of `buffers` for as many rows as all windows have: see `gather`.
        delta_indices
            Instead of `length`: which rows each field has, counted from the start, such as
            `{"state": [-1, 0], "action": range(16)}`. Other fields have the row at the start alone.
        within
            What no window goes beyond: the name of a field, whose value is the same in a run of
            rows, or `Runs`, or an object with such `starts` and `lengths`. No window goes beyond
            its slab of a union in any case.
        edges
            What stands for rows beyond that, or beyond the slab: "repeat" takes the nearest row,
            "zeros" has zeros, nulls (-1 as the code of a category) and rows without elements. The
            batch then has `is_pad`, bool (windows, length), which is True there; with
            `delta_indices`, `NAME_is_pad` for each of these fields. Default: such windows are an
            error.
        of
            Windows of elements, not of rows: of this field alone, whose rows make one stream, such
            as tokens. `starts` then count elements.
        decode, epoch
            What image fields become, as in `gather`. All images of a window have the same random
            crop and flip, drawn by its start.

        Raises
        ------
        RowOutOfRange
            There is no such row, or a window goes beyond what it may have.
        UnknownField, UsageError, DamagedArray, SlabReplaced, Unreadable
            As `gather` raises them.
        """
        reader: WindowReader
        if of is not None:
            if any(option is not None for option in (delta_indices, within, edges, decode)):
                raise UsageError("`of` takes `length` alone", field=of)
            reader = self._make_element_windows(of, length)
            names, total = choose_element_field(of, fields), reader.total
        else:
            if out is not None and fields is None:
                fields = [field.name for field in getattr(out, "fields", ())]
            reader = self._make_row_windows(length, delta_indices, within, edges)
            names, total = self.names(fields), len(self._view)
        numbers = check_rows(starts, total)
        images = check_decode_option(decode, self._storage.fields, names) if decode else {}
        if images:
            from fieldslab.reader.images.decoded_windows import check_window_steps

            check_window_steps(images)
        read = partial(
            reader.read, numbers, names, images=images, epoch=check_integer("epoch", epoch, 0)
        )
        if out is None:
            return read(self._storage.pool)
        if not isinstance(out, Buffers):
            hint = "Make it with slab.buffers(windows * length, fields)."
            problem = "`out` was not made by slab.buffers()"
            raise UsageError(problem, found=type(out).__name__, hint=hint)
        out.fill(read(out.memory))
        return out

    def _make_row_windows(
        self,
        length: int | None,
        delta_indices: Mapping[str, Sequence[int]] | None,
        within: Any,
        edges: Edges | None,
    ) -> RowWindows:
        length = None if length is None else check_integer("length", length, least=1)
        plain = delta_indices is None and within is None and edges is None
        if plain and (windows := self._row_windows.get(length)):  # another thread may replace it
            return windows
        if edges not in (None, "repeat", "zeros"):
            raise UsageError("unknown `edges`", expected='"repeat" or "zeros"', found=edges)
        shape, runs = WindowShape(length, delta_indices), resolve_runs(self, within)
        windows = RowWindows(self._storage, self._view, shape, runs, edges)
        if plain:
            self._row_windows = {length: windows}
        return windows

    def _make_element_windows(self, name: str, length: int | None) -> ElementWindows:
        if length is None:
            raise UsageError("`length` is missing", field=name)
        length = check_integer("length", length, least=1)
        windows = self._element_windows.get((name, length))
        if windows is None:
            windows = ElementWindows(self._storage, self._view, name, length)
            self._element_windows = {(name, length): windows}
        return windows

    @cached_property
    def _found_runs(self) -> dict[str, Runs]:
        return {}

    @cached_property
    def _row_windows(self) -> dict[int | None, RowWindows]:
        return {}  # that of the last call

    @cached_property
    def _element_windows(self) -> dict[tuple[str, int], ElementWindows]:
        return {}  # that of the last call


def resolve_runs(slab: Windowed, within: Any) -> Runs | None:
    """Return the runs that `within` means; None for all rows of one slab.

    They end where a slab of a union ends. Raises UnknownField, UsageError.
    """
    if isinstance(within, str):
        return slab.find_runs(within)
    slabs = slab.slab_runs
    if within is None:
        return slabs
    try:
        runs = within if isinstance(within, Runs) else Runs(within.starts, within.lengths)
    except AttributeError:
        raise UsageError(
            "`within` is the name of a field, or has `starts` and `lengths` of runs of rows",
            found=repr(within)[:80],
        ) from None
    return runs if slabs is None else runs.cut(slabs.starts[1:])


def choose_element_field(of: str, fields: Sequence[str] | None) -> list[str]:
    """Return the one field of windows of elements. Raises UsageError where others are asked for."""
    if fields is not None and list(fields) not in ([of], []):
        raise UsageError(
            "windows of elements have one field",
            expected=[of],
            found=list(fields),
            hint="Leave out `fields`.",
        )
    return [of]
