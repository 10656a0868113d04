"""The version of fieldslab, as its installed metadata has it."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def installed_version() -> str:
    """Such as `0.1.0`; `unknown` where the folders lie on the path without being installed."""
    try:
        return version("fieldslab")
    except PackageNotFoundError:
        return "unknown"
