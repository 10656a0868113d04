"""The grid of a JPEG: MCUs, their blocks, and the index points of a row of them."""

from typing import Any

from fieldslab.schemas.jit import inlined


@inlined
def count_mcu_rows(frame: Any) -> int:
    """Count the rows of MCUs in the picture."""
    mcu_height = 8 * frame.down
    return (frame.height + mcu_height - 1) // mcu_height


@inlined
def count_mcu_columns(frame: Any) -> int:
    """Count the MCUs in a row."""
    mcu_width = 8 * frame.across
    return (frame.width + mcu_width - 1) // mcu_width


@inlined
def count_points_per_row(columns: int, every: int) -> int:
    """Count the index points in a row of `columns` MCUs."""
    return (columns + every - 1) // every if every > 0 else 1


@inlined
def count_blocks_per_mcu(frame: Any) -> int:
    """Count the blocks in an MCU of a baseline image, of all components."""
    return frame.across * frame.down + frame.components - 1
