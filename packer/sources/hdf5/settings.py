"""Settings of HDF5 sources: their types."""

from typing import Any

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option

_SETTING_TYPES = {"episodes": str | None, "rows_attr": str | None, "rows_axis": int}


def check_settings(settings: dict[str, Any]) -> None:
    """Raise UsageError for settings that do not have their types: a slab may hold any."""
    if settings["rows_axis"] not in (0, -1) or isinstance(settings["rows_axis"], bool):
        raise UsageError(
            f"{mark_option('rows_axis')}: rows lie along the first axis or the last one",
            found=repr(settings["rows_axis"]),
            expected="0 or -1",
        )
    for name, value in settings.items():
        kind: Any = _SETTING_TYPES.get(name, bool)
        if not isinstance(value, kind):
            raise UsageError(f"settings: {name} has the wrong type", found=repr(value))
