"""What a pack should tell its user afterwards; kept in the manifest."""

from collections import Counter
from collections.abc import Iterator

from fieldslab.packer.commands.words import counted
from fieldslab.packer.plan import Plan
from fieldslab.packer.write.writers import ShardRecord
from fieldslab.schemas.fields import Field

_REMARKS = {
    "progressive": "are JPEG without an index, since they are progressive or of another rare kind: "
    "they decode three times slower (stored as `baseline` images they would not, and without loss)",
    "not indexed": "are JPEG without an index, since they are damaged or of a rare sampling; they "
    "are kept byte for byte",
    "not made baseline": "could not be made baseline JPEG, and are kept byte for byte",
    "orientation lost": "are to be turned, by their EXIF data, which pixels cannot say",
    "alpha": "had alpha, which was dropped",
    "16 bit": "had 16 bit, of which 8 were kept",
}
"""What to say of images, by the remark on them; `Converted.remarks` counts these."""


MOST_LEFT_OUT = 20
"""Rows that were left out, of which it is said why."""


def find_warnings(plan: Plan, fields: list[Field], records: list[ShardRecord]) -> Iterator[str]:
    """What is odd in the data, field by field: a sentence each."""
    rows = sum(record.rows for record in records)
    yield from _left_out_warnings(records, rows)
    yield from _null_warnings(fields, records, rows)
    yield from _image_warnings(fields, records)
    yield from _length_warnings(plan, records, rows)
    yield from _rounding_warnings(plan, records)
    yield from plan.source.endings
    yield from _compression_warnings(fields, records, rows)


def _left_out_warnings(records: list[ShardRecord], rows: int) -> Iterator[str]:
    missing = [one for record in records for one in record.left_out]
    if missing:
        yield (
            f"{len(missing):,} of {counted(rows + len(missing), 'row')} left out, since their "
            "images cannot be decoded"
        )
    yield from map(str, missing[:MOST_LEFT_OUT])
    if len(missing) > MOST_LEFT_OUT:
        more = len(missing) - MOST_LEFT_OUT
        yield f"... and {more:,} more: the result names all of them in `left_out`"


def _null_warnings(fields: list[Field], records: list[ShardRecord], rows: int) -> Iterator[str]:
    for at, field in enumerate(fields):
        if rows and sum(record.nulls[at] for record in records) == rows:
            yield f"{field.name}: all {rows} rows are null"


def _compression_warnings(
    fields: list[Field], records: list[ShardRecord], rows: int
) -> Iterator[str]:
    stored = [field for field in fields if field.stored.variable]
    for at, field in enumerate(stored):
        if field.compression is not None:
            beside = 2 if field.variable else 1  # offsets, and lengths of variable rows
            after = sum(record.elements[at] for record in records) + 8 * beside * rows
            before = field.compression.decoded + 8 * (beside - 1) * rows
            if rows and after >= before:
                yield (
                    f"{field.name}: {before} bytes became {after}: compression does not pay for "
                    "rows as short as these"
                )


def _image_warnings(fields: list[Field], records: list[ShardRecord]) -> Iterator[str]:
    for field in fields:
        if field.kind == "image":
            found: Counter[str] = Counter()
            for record in records:
                found.update(record.codecs[field.name])
            total = sum(found.values())
            if found[""]:
                yield (
                    f"{field.name}: {found['']} of {total} values have no JPEG, PNG or WebP "
                    "header; they are kept byte for byte, with height and width 0"
                )
            remarks: Counter[str] = Counter()
            for record in records:
                remarks.update(record.remarks.get(field.name, {}))
            for remark, text in _REMARKS.items():
                if remarks[remark]:
                    text = text.replace("COLUMN", field.name)
                    yield f"{field.name}: {remarks[remark]} of {total} images {text}"


def _length_warnings(plan: Plan, records: list[ShardRecord], rows: int) -> Iterator[str]:
    for one in plan.fields:
        name = one.field.name
        shortened = sum(record.shortened.get(name, 0) for record in records)
        if one.tokenize is not None and shortened:
            yield (
                f"{name}: {shortened} of {rows} rows had more than {one.tokenize.max_length} "
                "tokens and were cut"
            )


def _rounding_warnings(plan: Plan, records: list[ShardRecord]) -> Iterator[str]:
    for one in plan.fields:
        name = one.field.name
        rounded = sum(record.rounded.get(name, 0) for record in records)
        if rounded:
            yield (
                f"{name}: {counted(rounded, 'integer')} that {one.cast} cannot hold exactly became "
                "the nearest that it can"
            )
