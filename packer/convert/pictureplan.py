"""How an image column is stored: in which form, and whether its JPEG images get an index."""

import msgspec

from fieldslab.packer.convert import pixels
from fieldslab.packer.convert.infer import Sample
from fieldslab.packer.convert.leaves import Leaf
from fieldslab.packer.image_options import ImageForm
from fieldslab.packer.source import Source
from fieldslab.schemas.codecs import turbolibrary
from fieldslab.schemas.errors import SourceUnsupported
from fieldslab.schemas.fields import Field
from fieldslab.schemas.images import detect_format, read_image_size
from fieldslab.schemas.optiontext import mark_option


def plan_pictures(
    field: Field, leaf: Leaf, sample: Sample, every: int | None
) -> tuple[Field, str | None]:
    """Plan an image field as it will be stored, with a text for people; keep other fields.

    An index is made where a sampled value is, or becomes, JPEG. Raises MissingLibrary.
    """
    if field.kind != "image":
        return field, None
    form = leaf.options.image_as
    if form is not None and form.stores_pixels and form.fraction == 1:
        return msgspec.structs.replace(field, codec=form.store), _describe_form(form)
    if every is not None and (form is None or form.store != "jpeg") and not _has_jpeg(leaf, sample):
        every = None
    coded = form is not None and form.stores_pixels
    return msgspec.structs.replace(field, index=every, coded=coded), _describe_form(form)


def estimate_largest_image_bytes(leaf: Leaf, sample: Sample) -> int | None:
    """Estimate the decoded bytes of the largest sampled image; None if images stay encoded."""
    form = leaf.options.image_as
    if form is None or not form.stores_pixels:
        return None
    largest = 0
    for array in sample(leaf.name):
        for value in array:
            _, height, width = read_image_size(memoryview(value.as_buffer()))
            across, down = pixels.compute_target_size((max(width, 1), max(height, 1)), form)
            largest = max(largest, 3 * across * down)
    return largest


def _describe_form(form: ImageForm | None) -> str | None:
    """Say what an option does to images, and by which library."""
    if form is None:
        return None
    if form.store == "baseline":
        turbolibrary.choose_newest(turbolibrary.find_libraries())
        return "image as baseline: progressive JPEG made baseline, without loss"
    loss = "lossy" if form.lossy else "alpha and 16 bit are dropped"
    return f"image as {form}: {loss}, by Pillow {pixels.get_library_version()}"


def _has_jpeg(leaf: Leaf, sample: Sample) -> bool:
    return any(
        detect_format(memoryview(value.as_buffer())) == "jpeg"
        for array in sample(leaf.name)
        for value in array
    )


def refuse_external_images(leaf: Leaf, leaves: list[Leaf], source: Source) -> None:
    """Raise SourceUnsupported for images of HuggingFace of which only the paths are stored."""
    rows = [unit.rows for unit in source.units]
    if leaf.feature.get("_type") != "Image" or None in rows:
        return
    total = sum(count or 0 for count in rows)
    for other in leaves:
        if other.role == "path" and other.path[:-1] == leaf.path[:-1]:
            missing, pathless = source.null_count(leaf.path), source.null_count(other.path)
            if total and missing == total and pathless is not None and pathless < total:
                raise make_external_images_error(leaf.name, total)


def make_external_images_error(name: str, rows: int) -> SourceUnsupported:
    """Make the error for images that lie outside the source."""
    return SourceUnsupported(
        "the images lie outside the source: it holds their paths and no bytes",
        field=name,
        found=f"{rows} nulls",
        hint="Let datasets embed them: dataset.with_format('arrow').map(embed_table_storage, "
        f"batched=True), of datasets.table; {mark_option('exclude', [name])} packs the rest.",
    )
