"""What a pack should tell its user afterwards; kept in the manifest."""

from collections import Counter
from collections.abc import Iterator

from fieldslab.packer.commands.text_format import format_count
from fieldslab.packer.convert.pictures import CODEC_COUNT
from fieldslab.packer.plan import Plan
from fieldslab.packer.write.writers import ShardRecord, Tallies
from fieldslab.schemas.fields import Field

_REMARKS = {
    "progressive": "are JPEG without an index, since they are progressive or of another rare kind: "
    "crops of large ones decode ten times slower; the image form `baseline` avoids that, "
    "without loss",
    "not indexed": "are JPEG without an index, since they are damaged or of a rare sampling; they "
    "are kept byte for byte",
    "not made baseline": "could not be made baseline JPEG, and are kept byte for byte",
    "orientation lost": "are to be turned, by their EXIF data, which pixels cannot say",
    "alpha": "had alpha, which was dropped",
    "16 bit": "had 16 bit, of which 8 were kept",
}
"""What to say of images, by the remark on them; `Converted.tally` counts these."""


MOST_LEFT_OUT_LISTED = 20
"""So many of the rows that were left out are listed, with the reason."""


def find_warnings(
    plan: Plan, fields: list[Field], records: list[ShardRecord], tallies: Tallies
) -> Iterator[str]:
    """List what is odd in the data, field by field: a sentence each."""
    rows = sum(record.rows for record in records)
    yield from _find_left_out_warnings(records, rows)
    for index, field in enumerate(fields):
        if rows and sum(record.nulls[index] for record in records) == rows:
            yield f"{field.name}: all {rows} rows are null"
    for field in fields:
        if field.kind == "image":
            yield from _find_image_warnings(field.name, tallies[field.name])
    yield from _find_length_warnings(plan, tallies, rows)
    yield from _find_rounding_warnings(plan, tallies)
    yield from plan.source.endings
    yield from _find_compression_warnings(fields, records, rows)


def _find_left_out_warnings(records: list[ShardRecord], rows: int) -> Iterator[str]:
    left_out = [row for record in records for row in record.left_out]
    if left_out:
        yield (
            f"{len(left_out):,} of {format_count(rows + len(left_out), 'row')} left out, since "
            "their images cannot be decoded"
        )
    yield from map(str, left_out[:MOST_LEFT_OUT_LISTED])
    if len(left_out) > MOST_LEFT_OUT_LISTED:
        unlisted = len(left_out) - MOST_LEFT_OUT_LISTED
        yield f"... and {unlisted:,} more: the result names all of them in `left_out`"


def _find_compression_warnings(
    fields: list[Field], records: list[ShardRecord], rows: int
) -> Iterator[str]:
    stored = [field for field in fields if field.stored.variable]
    for index, field in enumerate(stored):
        if field.compression is not None:
            size_arrays = 2 if field.variable else 1  # offsets, and lengths of variable rows
            elements = sum(record.elements[index] for record in records)
            stored_bytes = elements + 8 * size_arrays * rows
            decoded_bytes = field.compression.decoded + 8 * (size_arrays - 1) * rows
            if rows and stored_bytes >= decoded_bytes:
                yield (
                    f"{field.name}: {decoded_bytes} bytes became {stored_bytes}: compression does "
                    "not pay for rows as short as these"
                )


def _find_image_warnings(name: str, tally: Counter[str]) -> Iterator[str]:
    total = sum(count for key, count in tally.items() if key.startswith(CODEC_COUNT))
    unknown = tally[CODEC_COUNT]
    if unknown:
        yield (
            f"{name}: {unknown} of {total} values have no JPEG, PNG or WebP header; they are kept "
            "byte for byte, with height and width 0"
        )
    for remark, text in _REMARKS.items():
        if tally[remark]:
            text = text.replace("COLUMN", name)
            yield f"{name}: {tally[remark]} of {total} images {text}"


def _find_length_warnings(plan: Plan, tallies: Tallies, rows: int) -> Iterator[str]:
    for field_plan in plan.fields:
        name, options = field_plan.field.name, field_plan.options.tokenize
        shortened = tallies[name]["shortened"]
        if options is not None and shortened:
            yield (
                f"{name}: {shortened} of {rows} rows had more than {options.max_length} tokens "
                "and were cut"
            )


def _find_rounding_warnings(plan: Plan, tallies: Tallies) -> Iterator[str]:
    for field_plan in plan.fields:
        name = field_plan.field.name
        rounded = tallies[name]["rounded"]
        if rounded:
            yield (
                f"{name}: {format_count(rounded, 'integer')} that {field_plan.options.cast} cannot "
                "hold exactly became the nearest that it can"
            )
