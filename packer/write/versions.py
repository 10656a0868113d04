"""Which versions of which libraries wrote a shard: one slab, one set of versions."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError

from fieldslab.packer.convert import pixels
from fieldslab.packer.plan import Plan
from fieldslab.schemas.codecs import turbolibrary
from fieldslab.schemas.errors import OutputError
from fieldslab.schemas.version import get_package_version


def find_versions(plan: Plan) -> dict[str, str]:
    """Return name and version of everything that affects the bytes that a plan writes."""
    names = {"fieldslab", "numpy", "pyarrow", *plan.source.libraries}
    versions: dict[str, str] = {}
    for field_plan in plan.fields:
        options = field_plan.options
        if options.compress is not None:
            names.add("zstandard")
        if options.tokenize is not None:
            names.add("tokenizers")
        if options.image_as is not None and options.image_as.store == "baseline":
            versions["libjpeg-turbo"] = turbolibrary.choose_newest(
                turbolibrary.find_libraries()
            ).version
        elif options.image_as is not None or field_plan.skips_damaged_images:
            versions |= pixels.find_versions()
    return versions | get_versions(names)


def get_versions(names: Iterable[str]) -> dict[str, str]:
    """Return name and version of the packages that are installed."""
    versions: dict[str, str] = {}
    for name in sorted(names):
        with suppress(PackageNotFoundError):  # a source may do without one of its libraries
            versions[name] = get_package_version(name)
    return versions


def check_versions(versions: Mapping[str, str], expected: Mapping[str, str]) -> None:
    """Raise OutputError where a worker has other versions than the process that drives it."""
    if versions != expected:
        expected_versions, actual_versions = format_differences(expected, versions)
        raise OutputError(
            "a worker has other versions of libraries, which may write other bytes",
            expected=expected_versions,
            found=actual_versions,
            hint="Install the same versions everywhere, and run the same command again.",
        )


def format_differences(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[str, str]:
    """Format the versions in which two machines differ, those of each."""
    names = first.keys() | second.keys()
    other = sorted(name for name in names if first.get(name) != second.get(name))
    return _format_versions(other, first), _format_versions(other, second)


def _format_versions(names: list[str], versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {versions.get(name, 'not used')}" for name in names)
