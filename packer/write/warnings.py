"""What a pack should tell its user afterwards; kept in the manifest."""

from collections import Counter
from collections.abc import Iterator

from fieldslab.packer.plan import Plan
from fieldslab.packer.write.writers import ShardRecord
from fieldslab.schemas.fields import Field


def find_warnings(plan: Plan, fields: list[Field], records: list[ShardRecord]) -> Iterator[str]:
    """What is odd in the data, field by field: a sentence each."""
    rows = sum(record.rows for record in records)
    yield from _null_warnings(fields, records, rows)
    yield from _image_warnings(fields, records)
    yield from _length_warnings(plan, records, rows)
    yield from getattr(plan.source, "endings", ())
    yield from _compression_warnings(fields, records, rows)


def _null_warnings(fields: list[Field], records: list[ShardRecord], rows: int) -> Iterator[str]:
    for at, field in enumerate(fields):
        if rows and sum(record.nulls[at] for record in records) == rows:
            outside = field.kind == "image"
            hint = "; images that lie outside the source are not packed" if outside else ""
            yield f"{field.name}: all {rows} rows are null{hint}"


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
                    f"{field.name}: {before} bytes became {after}: --compress does not pay for "
                    "rows as short as these"
                )


def _image_warnings(fields: list[Field], records: list[ShardRecord]) -> Iterator[str]:
    for field in fields:
        if field.kind == "image":
            found: Counter[str] = Counter()
            for record in records:
                found.update(record.codecs[field.name])
            if found[""]:
                yield (
                    f"{field.name}: {found['']} of {sum(found.values())} values have no JPEG, PNG "
                    "or WebP header; they are kept byte for byte, with height and width 0"
                )


def _length_warnings(plan: Plan, records: list[ShardRecord], rows: int) -> Iterator[str]:
    for one in plan.fields:
        name = one.field.name
        shortened = sum(record.shortened.get(name, 0) for record in records)
        if one.tokenize is not None and shortened:
            yield (
                f"{name}: {shortened} of {rows} rows had more than {one.tokenize.max_length} "
                "tokens and were cut (--max-length)"
            )
