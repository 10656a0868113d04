"""Versions of installed packages, as their metadata has them."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def get_installed_version() -> str:
    """Such as `0.1.0`; `unknown` where the folders lie on the path without being installed."""
    try:
        return version("fieldslab")
    except PackageNotFoundError:
        return "unknown"


@cache
def get_package_version(name: str) -> str:
    """The version of an installed package, kept: to parse metadata takes a millisecond or more."""
    return version(name)
