"""The grid of a JPEG: MCUs, their blocks, and the index points of a row of them."""

from typing import Any

from fieldslab.schemas.codecs.jpeg import ACROSS, COMPONENTS, DOWN, HEIGHT, WIDTH
from fieldslab.schemas.jit import inlined


@inlined
def mcu_rows(header: Any) -> int:
    """Rows of MCUs in the picture."""
    size = 8 * header[DOWN]
    return (header[HEIGHT] + size - 1) // size


@inlined
def mcu_columns(header: Any) -> int:
    """MCUs in a row."""
    size = 8 * header[ACROSS]
    return (header[WIDTH] + size - 1) // size


@inlined
def points_a_row(columns: int, every: int) -> int:
    """Index points in a row of so many MCUs."""
    return (columns + every - 1) // every if every > 0 else 1


@inlined
def mcu_blocks(header: Any) -> int:
    """Blocks in an MCU, of all components."""
    return header[ACROSS] * header[DOWN] + header[COMPONENTS] - 1
