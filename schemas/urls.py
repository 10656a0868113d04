"""URLs of slabs and of sources: told from paths, and shown without credentials."""

import re
from pathlib import Path, PosixPath
from urllib.parse import urlsplit, urlunsplit

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_SHORTENED_URL = re.compile(r"(?!file:)([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")


class UrlPath(PosixPath):
    """A URL where messages want a path: it shows both slashes of `s3://bucket/train.slab`."""

    def __str__(self) -> str:
        return restore_url(super().__str__())


def is_url(path: str | Path) -> bool:
    """Return True for a path that names another machine, as `s3://bucket/x`, but not `C:/x`."""
    return _URL.match(str(path)) is not None


def restore_url(url: object) -> str:
    """Restore a URL as it was written: a `Path` keeps only one of two slashes."""
    text = str(url)
    scheme = _SHORTENED_URL.match(text)
    return text if scheme is None else f"{scheme[1]}://{text[scheme.end() :]}"


def get_scheme(url: str) -> str:
    """Return the scheme of a URL in lower case, such as `s3`."""
    return url.partition(":")[0].lower()


def hide_credentials(url: str) -> str:
    """Return a URL for messages: without user, password, signature or any other query.

    In `abfss://container@account...`, what stands in front of the `@` is no user.
    """
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if parts.scheme.lower() in ("abfs", "abfss"):
        host = user.partition(":")[0] + at + host
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
