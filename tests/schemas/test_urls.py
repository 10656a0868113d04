"""URLs as messages, plans and manifests show them."""

from tests.naming import case

from fieldslab.schemas.urls import hide_credentials


def test_credentials_are_hidden_and_places_are_not() -> None:
    """User, password, signature and query go; a container of Azure is a part of the place."""
    host = "account.dfs.core.windows.net"
    for url, expected in {
        "https://me:secret@host:81/a/b?X-Amz-Signature=abc#x": "https://host:81/a/b",
        "s3://key:secret@bucket/a": "s3://bucket/a",
        f"abfss://container@{host}/a/b": f"abfss://container@{host}/a/b",
        f"abfs://container:secret@{host}/a?sig=abc": f"abfs://container@{host}/a",
        f"abfss://{host}/a": f"abfss://{host}/a",
        "hf://datasets/me/data@v1/a": "hf://datasets/me/data@v1/a",
    }.items():
        with case(url):
            assert hide_credentials(url) == expected
