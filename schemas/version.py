"""Versions of installed packages, as their metadata has them."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def get_installed_version() -> str:
    """Return a version such as `0.1.0`; `unknown` if fieldslab is not installed."""
    try:
        return version("fieldslab")
    except PackageNotFoundError:
        return "unknown"


@cache
def get_package_version(name: str) -> str:
    """Return the version of an installed package; cached, since metadata is slow to parse."""
    return version(name)
