"""The URL of a store and how to open it, for other processes and machines: without credentials."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.store import Store, open_store

_HARMLESS = re.compile(
    "(aws_|azure_|azure_storage_|google_)?(default_)?(endpoint(_url)?(_s3)?|region|allow_http"
    "|skip_signature|virtual_hosted_style_request|unsigned_payload|checksum_algorithm|retry_config"
    "|bucket(_name)?|account_name|container_name|request_payer|s3_express|disable_tagging)"
)
"""Names of storage options that are no secrets."""


@dataclass(frozen=True)
class StorePlace:
    """The URL of a folder in a store, and how to open it; credentials are never pickled."""

    url: str
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    @cached_property
    def store(self) -> Store:
        """The store, opened when it is first needed, once in each process."""
        return self.open()

    def open(self) -> Store:
        """Open the store; nothing is sent yet. Raises UsageError and MissingLibrary."""
        return open_store(self.url, self.storage_options)

    def join(self, suffix: str) -> "StorePlace":
        """Return the place whose URL has a suffix."""
        return StorePlace(self.url + suffix, self.storage_options)

    def refuse_secrets(self) -> None:
        """Raise UsageError for storage options that no other process may get."""
        options = dict(self.storage_options or {})
        names = [*options, *(options.pop("config", None) or {})]
        if secrets := [name for name in names if not _HARMLESS.fullmatch(name.lower())]:
            raise UsageError(
                f"{mark_option('storage_options')}: credentials do not leave this process, and "
                "shards are packed in others",
                found=", ".join(secrets),
                hint="Put them into the environment of all processes, such as AWS_ACCESS_KEY_ID, "
                f"or use {mark_option('engine', 'here')}.",
            )

    def __reduce__(self) -> tuple[Any, ...]:
        self.refuse_secrets()
        return StorePlace, (self.url, self.storage_options)
