"""Blocks from the source: the rows that lie in them are read and converted again."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fieldslab.packer.check.against import load_options
from fieldslab.packer.check.stored import StoredSlab
from fieldslab.packer.convert.batch import SourceBatch
from fieldslab.packer.convert.categories import CategoryIndex
from fieldslab.packer.convert.columns import convert_field
from fieldslab.packer.convert.compress import Compressor, convert_to_frames
from fieldslab.packer.convert.fieldplan import ConvertedRows, FieldPlan
from fieldslab.packer.convert.tokens import add_tokenizer_paths
from fieldslab.packer.plan import make_plan
from fieldslab.packer.repairing.damage import find_runs
from fieldslab.packer.repairing.patch import Patch
from fieldslab.packer.repairing.source_rows import RowRange, merge_ranges, read_slab_rows
from fieldslab.packer.source import find_source
from fieldslab.packer.write.finish import get_table_items
from fieldslab.packer.write.prepare import prepare_shared_data
from fieldslab.schemas.access import Folder
from fieldslab.schemas.digest import BLOCK
from fieldslab.schemas.errors import SourceInconsistent, UsageError
from fieldslab.schemas.fields import ArraySpec, Field, Role
from fieldslab.schemas.folder import SlabFiles
from fieldslab.schemas.manifest import SHUFFLE_ATTRIBUTE

Patches = Mapping[Role, Patch]
"""The patches of the damaged arrays of one field in one folder."""


class SourceRows:
    """A source that is planned as it was when the slab was packed."""

    def __init__(
        self,
        files: SlabFiles,
        source: Any,
        tokenizers: Sequence[str | Path] = (),
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Plan a source by the options in the slab's manifest.

        Raises
        ------
        UsageError
            The rows of the slab were shuffled.
        SourceError
            The source cannot be read, or cannot be packed by these options.
        """
        self._files = files
        manifest = files.manifest
        if SHUFFLE_ATTRIBUTE in manifest.attributes:
            raise UsageError(
                "the rows of the slab were shuffled, so no source tells what is in its blocks",
                file=files.path,
                hint="Repair it from a copy, or pack it again.",
            )
        options, name = load_options(manifest, files.path)
        opened = find_source(
            source,
            name,
            options.settings,
            tolerant=options.leave_out,
            storage_options=storage_options,
        )
        self._plan = make_plan(opened, add_tokenizer_paths(options, tokenizers))
        self._plans = {plan.field.name: plan for plan in self._plan.fields}

    def fill_tables(self, patches: Mapping[str, Patches]) -> None:
        """Fill what is left of patches of the folder `tables`, by field.

        Raises SourceError and its subclasses.
        """
        plans = [self._find_plan(name) for name in patches]
        prepared = prepare_shared_data(replace(self._plan, fields=tuple(plans)))
        for plan in plans:
            for role, patch in patches[plan.field.name].items():
                items = get_table_items(prepared, plan.field, role)
                if items.nbytes == patch.file.data_bytes:
                    patch.write(0, items)

    def fill_field(
        self,
        folder: Folder,
        shard: int,
        field: Field,
        patches: Patches,
        expected: Mapping[Role, np.ndarray] | None,
    ) -> None:
        """Fill what is left of the patches of a field in a shard.

        `expected` are digests by role, None where the digest table is not known. Raises SourceError
        and its subclasses, and DamagedArray where what the conversion needs is damaged.
        """
        convert = _FieldConversion(self._files, self._find_plan(field.name), field)
        offsets = [spec for spec in field.list_arrays() if spec.per == "row+1"]
        other_specs = [spec for spec in field.list_arrays() if spec.per != "row+1"]
        for spec in offsets:
            if spec.role in patches:
                patches[spec.role].copy_good_blocks()
        # Offsets come first: they say where in the other arrays rows lie.
        for specs in (offsets, other_specs):
            damaged_specs = [
                spec
                for spec in specs
                if spec.role in patches
                and patches[spec.role].left.any()
                and not (
                    expected and spec.by and spec.by in patches and patches[spec.by].left.any()
                )
            ]
            ranges = [
                rows
                for spec in damaged_specs
                for rows in _find_rows(folder, field, spec, patches, shifted=spec in offsets)
            ]
            if not ranges:
                continue
            writers = [_ArrayRows(folder, field, spec, patches) for spec in damaged_specs]
            first_row = folder.first_row
            merged = merge_ranges([(first_row + a, first_row + b) for a, b in ranges])
            shards = len(self._files.manifest.shards)
            for row, batch in read_slab_rows(
                self._plan, convert.plan, merged, shard, first_row, shards
            ):
                converted = convert.convert(batch)
                for writer in writers:
                    writer.write(row - first_row, converted)
            for spec in damaged_specs:
                if expected is not None:
                    patches[spec.role].accept(expected[spec.role])

    def _find_plan(self, name: str) -> FieldPlan:
        if name not in self._plans:
            raise SourceInconsistent("the source has no such field", field=name)
        return self._plans[name]


class _FieldConversion:
    """Converts rows of a source as they are stored."""

    def __init__(self, files: SlabFiles, plan: FieldPlan, field: Field) -> None:
        source_field = msgspec.structs.replace(plan.field, index=field.index, coded=field.coded)
        self.plan = replace(plan, field=source_field, skips_damaged_images=False)
        self._field = field
        self._categories: CategoryIndex | None = None
        self._compressor: Compressor | None = None
        slab = StoredSlab(files)
        if field.kind == "categorical":
            self._categories = CategoryIndex(slab.read_categories(field))
        if field.compression is not None:
            dictionary = b""
            if field.compression.dictionary:
                dictionary = slab.read_table(field, "dictionary").tobytes()
            self._compressor = Compressor(plan.options.compress or 0, dictionary)

    def convert(self, batch: SourceBatch) -> ConvertedRows:
        """Convert the rows of a batch. Raises what `convert_field` raises."""
        rows = convert_field(self.plan, batch, self._categories)
        if self._compressor is not None:
            return convert_to_frames(self._compressor, self._field, rows)
        return rows


class _ArrayRows:
    """Writes what converted rows have in one array into its patch; rows count from the shard's."""

    def __init__(self, folder: Folder, field: Field, spec: ArraySpec, patches: Patches) -> None:
        self._spec = spec
        self._patch = patches[spec.role]
        self._offsets = None if spec.by is None else _Offsets(folder, field, spec.by, patches)
        self._next: tuple[int, int] | None = None
        self._own = _Offsets(folder, field, spec.role, patches) if spec.per == "row+1" else None

    def write(self, row: int, rows: ConvertedRows) -> None:
        """Write the items of rows from `row` of the shard on."""
        spec = self._spec
        if spec.role == "valid":
            items = rows.valid
            if items is None:
                items = np.ones(len(rows.values if rows.lengths is None else rows.lengths), bool)
        elif spec.role == "values":
            items = rows.values
        elif spec.role == "offsets":
            assert rows.lengths is not None
            items = rows.lengths
        else:
            items = rows.other_arrays[spec.role]
        first = row
        if self._own is not None:
            base = self._find_base(row)
            ends = base + np.cumsum(items, dtype=np.uint64)
            self._next = row + len(items), int(ends[-1]) if len(ends) else base
            items = np.concatenate([[base], ends]).astype("<u8")
        elif self._offsets is not None:
            first = self._offsets[row]
        self._patch.write(first * spec.item_bytes, items)

    def _find_base(self, row: int) -> int:
        """Find the offset of a row: what the rows before it came to, or what is stored."""
        if self._next is not None and self._next[0] == row:
            return self._next[1]
        assert self._own is not None
        return self._own[row]


class _Offsets:
    """Offsets of a field in a shard, as they are when its patch is in place."""

    def __init__(self, folder: Folder, field: Field, role: Role, patches: Patches) -> None:
        self._reader = folder.get_required_array(field, role)
        self._patch = patches.get(role)

    def __len__(self) -> int:
        return len(self._reader)

    def __getitem__(self, index: int) -> int:
        if index == 0:
            return 0
        return self._reader[index] if self._patch is None else self._patch.read_item(index)


def _find_rows(
    folder: Folder, field: Field, spec: ArraySpec, patches: Patches, *, shifted: bool
) -> Iterator[RowRange]:
    """Find the rows of a shard, counted from its first, that make the damaged blocks of an array.

    `shifted` is for offsets: the item behind a row is made of the row before it.
    """
    file = patches[spec.role].file
    for first, stop in find_runs(patches[spec.role].left):
        start = first * BLOCK // spec.item_bytes
        end = -(-min(stop * BLOCK, file.data_bytes) // spec.item_bytes)
        if shifted:
            yield max(start - 1, 0), end - 1
        elif spec.by is None:
            yield start, end
        else:
            offsets = _Offsets(folder, field, spec.by, patches)
            yield bisect_right(offsets, start) - 1, min(bisect_left(offsets, end), folder.rows)
