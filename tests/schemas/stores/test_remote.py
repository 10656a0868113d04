"""Buckets and web servers as stores."""

import pytest
from tests.schemas.stores.contract import Contract
from tests.servers.s3 import Bucket

from fieldslab.schemas.stores.store import Store, open_store


class TestBucket(Contract):
    """What every store must do, by an S3 server."""

    @pytest.fixture
    def store(self, bucket: Bucket) -> Store:
        """A folder of a bucket."""
        return open_store(f"{bucket.url}/data/train.slab", bucket.options)

    def test_failed_uploads_are_aborted(self, store: Store, bucket: Bucket) -> None:
        """After a write that failed, no parts stay that nobody sees and somebody pays for."""
        self.test_a_writer_that_fails_leaves_nothing(store)
        assert bucket.list_uploads() == []
