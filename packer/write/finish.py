"""The end of a pack: from the shards' records to the manifest."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from fieldslab.packer.convert.categories import CategoryIndex
from fieldslab.packer.convert.dense import compute_lengths, view_bytes
from fieldslab.packer.convert.pictureplan import make_external_images_error
from fieldslab.packer.convert.pictures import CODEC_COUNT
from fieldslab.packer.plan import Plan
from fieldslab.packer.write.origins import count_episode_rows, list_sources
from fieldslab.packer.write.prepare import SharedData
from fieldslab.packer.write.warnings import find_warnings
from fieldslab.packer.write.writers import ShardRecord, merge_tallies, write_digests
from fieldslab.schemas import layout
from fieldslab.schemas.arrays import ArrayWriter
from fieldslab.schemas.digest import BLOCK_DIGESTS, DigestName
from fieldslab.schemas.episodes import replace_episodes
from fieldslab.schemas.errors import DamagedManifest, SourceUnsupported
from fieldslab.schemas.fields import (
    MAX_INLINE_BYTES,
    MAX_INLINE_CATEGORIES,
    CategoryTable,
    Compression,
    Field,
    Role,
)
from fieldslab.schemas.manifest import (
    COUNTS,
    Manifest,
    Provenance,
    Shard,
    create_manifest,
    decode_manifest,
    encode_manifest,
)
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.version import get_package_version
from fieldslab.schemas.write_errors import name_write_errors

MAX_ALL_INLINE_BYTES = 4 * 1024 * 1024
"""Categories of all fields that stand in the manifest, together."""
MAX_SOURCES = 1000
"""Source files that the manifest names."""


class SlabFolder(Protocol):
    """Where a slab is built: a `SlabBuilder`, or what the parts of a plan share."""

    def add_folder(self, name: str, write: Callable[[Path], None]) -> None:
        """Have `write` write a folder that holds no rows, and make it part of the slab."""


def finish_slab(
    plan: Plan, records: list[ShardRecord], prepared: SharedData, staging: SlabFolder
) -> Manifest:
    """Write what shards share and draw up the manifest from the shards' records."""
    _refuse_external_images(plan, records)
    nullable = [count > 0 for count in _sum_nulls(plan, records)]
    tallies = merge_tallies(records)
    room = MAX_ALL_INLINE_BYTES
    fields = []
    for field_plan, has_nulls in zip(plan.fields, nullable, strict=True):
        field = msgspec.structs.replace(field_plan.field, nullable=has_nulls)
        tally = tallies[field.name]
        if field.kind == "image":
            codecs = {key.removeprefix(CODEC_COUNT) for key in tally if key.startswith(CODEC_COUNT)}
            codec = codecs.pop() if len(codecs) == 1 and "" not in codecs else "mixed"
            field = msgspec.structs.replace(field, codec=codec)
        if field.kind == "categorical":
            field = _add_categories(field, prepared.categories[field.name], room)
            room -= sum(len(name.encode()) for name in field.categories or ())
        if field.compression is not None:
            dictionary = len(prepared.compressors[field.name].dictionary)
            decoded = tally["bytes before compression"]
            compression = Compression(codec="zstd", decoded=decoded, dictionary=dictionary)
            field = msgspec.structs.replace(field, compression=compression)
        fields.append(field)
    left_out = [row for record in records for row in record.left_out]
    provenance = Provenance(
        tool=f"fieldslab {get_package_version('fieldslab')}",
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        plan=plan.compute_fingerprint(),
        sources=limit_sources(list_sources(plan, left_out)),
        options=plan.recorded_options | {"from": plan.source.name},
        reasons={field_plan.field.name: field_plan.why for field_plan in plan.fields},
        warnings=(*plan.notes, *find_warnings(plan, fields, records, tallies)),
    )
    return make_checked_manifest(
        provenance,
        rows=sum(record.rows for record in records),
        fields=tuple(fields),
        shards=make_shards(records, nullable),
        tables=write_tables(
            fields, partial(get_table_items, prepared), staging, plan.options.digest
        ),
        attributes=replace_episodes(plan.source.attributes, count_episode_rows(plan, left_out)),
        digest=plan.options.digest,
    )


def make_shards(records: Iterable[ShardRecord], nullable: Sequence[bool]) -> tuple[Shard, ...]:
    """Make what the manifest says of shards; `nullable` tells for each field if it may be null."""
    return tuple(
        Shard(
            rows=record.rows,
            nulls=tuple(n for n, kept in zip(record.nulls, nullable, strict=True) if kept),
            root=record.root,
            **{member: tuple(getattr(record, member)) for member in COUNTS.values()},
        )
        for record in records
    )


def _refuse_external_images(plan: Plan, records: list[ShardRecord]) -> None:
    """As `refuse_external_images`, for a stream: only the end tells that all images are null."""
    rows = sum(record.rows for record in records)
    nulls = _sum_nulls(plan, records)
    for image, image_nulls in zip(plan.fields, nulls, strict=True):
        struct = image.paths[0][:-1]
        if rows and image.field.kind == "image" and image_nulls == rows and struct:
            path_nulls = [
                count
                for path, count in zip(plan.fields, nulls, strict=True)
                if path.paths[0][:-1] == struct and path.field.kind == "text"
            ]
            if path_nulls and min(path_nulls) < rows:
                raise make_external_images_error(image.field.name, rows)


def _sum_nulls(plan: Plan, records: list[ShardRecord]) -> list[int]:
    """Sum the null rows of each field."""
    return [sum(record.nulls[index] for record in records) for index in range(len(plan.fields))]


def make_checked_manifest(provenance: Provenance, **content: Any) -> Manifest:
    """Make the manifest and parse it back: a slab that no reader opens is never published."""
    try:
        manifest = create_manifest(provenance, **content)
        return decode_manifest(encode_manifest(manifest))
    except (DamagedManifest, ValueError) as error:
        problem = error.problem if isinstance(error, DamagedManifest) else str(error)
        context = error.context if isinstance(error, DamagedManifest) else {}
        raise SourceUnsupported(
            f"cannot be described in a manifest: {problem}",
            expected=context.get("expected"),
            found=context.get("found"),
            hint=f"Leave columns out with {mark_option('exclude')}, or pack them into a slab of "
            "their own.",
        ) from error


def limit_sources(sources: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Keep the first sources; a hundred thousand of them would fill the manifest."""
    excess = len(sources) - MAX_SOURCES
    if excess <= 0:
        return tuple(sources)
    return (*sources[:MAX_SOURCES], {"more": excess})


def _add_categories(field: Field, index: CategoryIndex, room: int) -> Field:
    """Few categories stand in the manifest, many in arrays of their own."""
    size = view_bytes(index.values).nbytes
    if len(index.values) <= MAX_INLINE_CATEGORIES and size <= min(MAX_INLINE_BYTES, room):
        return msgspec.structs.replace(field, categories=tuple(index.values.to_pylist()))
    return msgspec.structs.replace(field, table=CategoryTable(len(index.values), size))


def get_table_items(prepared: SharedData, field: Field, role: Role) -> np.ndarray:
    """Return the items of an array of the folder `tables`."""
    if role == "dictionary":
        return np.frombuffer(prepared.compressors[field.name].dictionary, np.uint8)
    values = prepared.categories[field.name].values
    if role == "categories.values":
        return view_bytes(values)
    return np.insert(np.cumsum(compute_lengths(values), dtype="<u8"), 0, 0)


def write_tables(
    fields: Iterable[Field],
    get_items: Callable[[Field, Role], np.ndarray],
    staging: SlabFolder,
    digest: DigestName,
) -> str | None:
    """Write the folder `tables`, where a field needs it; returns its root."""
    arrays = [(field, spec) for field in fields for spec, _ in field.list_arrays_in_tables()]
    if not arrays:
        return None
    roots, kind = [], BLOCK_DIGESTS[digest]

    def write(folder: Path) -> None:
        digests = []
        with name_write_errors(folder):
            for field, spec in arrays:
                path = folder / layout.name_file(field, spec.role)
                writer = ArrayWriter(path, spec.dtype, digest=kind)
                writer.append(get_items(field, spec.role))
                digests.append(writer.close()[1])
            roots.append(write_digests(folder, kind, digests))

    staging.add_folder(layout.TABLES, write)
    return roots[0]
