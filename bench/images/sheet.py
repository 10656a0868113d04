"""A contact sheet: views as they come out, Pillow's beside them, and the difference amplified."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fieldslab.bench.images.fidelity import by_pillow, psnr
from fieldslab.bench.images.subjects import encoded
from fieldslab.reader import ImageSteps, Slab

AMPLIFIED = 16
"""How many times differences are shown larger, around a middle grey."""
_GAP, _HEAD, _SIDE = 8, 30, 110
_INK, _PAPER = (30, 30, 30), (255, 255, 255)


def draw_sheet(
    slab: Slab, crop: Any, decoders: dict[str, Any], file: Path, title: str, count: int = 6
) -> None:
    """Draw `count` images: a column each; a row for Pillow, two for each decoder (by label)."""
    rows = range(count)
    boxes = slab.gather(rows, ["image"], decode={"image": ImageSteps([crop], crop_boxes=True)})[
        "image.boxes"
    ]
    size = crop.size[0]
    files = list(encoded(slab[:count]))
    wanted = [np.asarray(by_pillow(files[row], boxes[row].tolist(), size)) for row in rows]
    lines = [("Pillow", wanted)]
    for label, decoder in decoders.items():
        images = ImageSteps([crop], decoder=decoder)
        views = slab.gather(rows, ["image"], decode={"image": images})["image"]
        differences = [
            view.astype(np.int16) - other for view, other in zip(views, wanted, strict=True)
        ]
        square = float(np.mean([np.square(each, dtype=np.int32).mean() for each in differences]))
        lines.append((label, list(views)))
        lines.append(
            (
                f"difference x {AMPLIFIED}\n{psnr(square):.1f} dB",
                [np.clip(128 + AMPLIFIED * each, 0, 255).astype(np.uint8) for each in differences],
            )
        )
    sheet = Image.new(
        "RGB", (_SIDE + count * (size + _GAP), _HEAD + len(lines) * (size + _GAP)), _PAPER
    )
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(15)
    pen.text((_GAP, _GAP), f"{title}, against Pillow's whole decode", _INK, font)
    for line, (label, views) in enumerate(lines):
        top = _HEAD + line * (size + _GAP)
        pen.multiline_text((_GAP, top + size // 2 - 16), label, _INK, font)
        for column, view in enumerate(views):
            sheet.paste(Image.fromarray(view), (_SIDE + column * (size + _GAP), top))
    sheet.save(file)
