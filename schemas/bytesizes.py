"""Numbers of bytes as users write them."""

import re

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_size(name: str, text: str | int) -> int:
    """Parse '64M', '1GiB' or a number of bytes; `name` is that of the option."""
    match = re.fullmatch(r"(\d+)\s*([KMGT]?)(?:i?B)?", str(text), re.IGNORECASE)
    if match is None:
        raise UsageError(
            f"{mark_option(name)}: must be a size", found=text, expected="a size like 64M or 1G"
        )
    return int(match[1]) * _UNITS[match[2].upper()]
