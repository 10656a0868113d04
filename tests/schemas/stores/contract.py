"""What every store must do: test classes inherit `Contract`, and give a `store`."""

import asyncio
import pickle
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.naming import case

from fieldslab.schemas.errors import (
    ObjectNotFound,
    OutputChanged,
    OutputExists,
    Unreadable,
    UsageError,
)
from fieldslab.schemas.stores.store import Data, Store

DATA = np.random.default_rng(0).bytes(100_000)


class Contract:
    """Tests of the docstring of `Store`, for a store that can be written."""

    def test_what_is_written_is_read(self, store: Store, tmp_path: Path) -> None:
        """Content comes back whole and in parts, however it was handed over."""
        (tmp_path / "content").write_bytes(DATA)
        pieces: list[Data] = [DATA[:10], memoryview(DATA)[10:60_000], bytearray(DATA[60_000:])]
        handed: list[Data | Path | Iterable[Data]] = [DATA, memoryview(DATA), pieces, iter(pieces)]
        for data in (*handed, tmp_path / "content"):
            with case(type(data)):
                store.write("shard-00000/a.npy", data)
                assert store.read("shard-00000/a.npy") == DATA
                assert store.read("shard-00000/a.npy", 99_990) == DATA[99_990:]
                assert store.read("shard-00000/a.npy", 10, 70_000) == DATA[10:70_000]
                assert not store.read("shard-00000/a.npy", 10, 10)
                store.delete("shard-00000/a.npy")

    def test_ranges_are_read_many_at_a_time(self, store: Store) -> None:
        """An event loop and threads get what they asked for, each its own."""
        store.write("a", DATA)
        ranges = [(start, start + 1000) for start in range(0, 50_000, 500)]

        async def read() -> list[memoryview]:
            return await asyncio.gather(*(store.read_range("a", *ends) for ends in ranges))

        expected = [DATA[start:stop] for start, stop in ranges]
        assert asyncio.run(read()) == expected
        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(lambda ends: store.read("a", *ends), ranges)) == expected

    def test_info_tells_size_and_another_version(self, store: Store) -> None:
        """A replaced object has another version, even with the same size."""
        store.write("a", DATA)
        info = store.get_info("a")
        assert (info.key, info.size) == ("a", len(DATA))
        assert store.get_info("a") == info
        for stop in (10, 20):
            data, read_info = store.read_with_info("a", 10, stop)
            assert (bytes(data), read_info) == (DATA[10:stop], info)
        assert bytes(store.read_small("a", len(DATA)) or b"") == DATA
        assert store.read_small("a", len(DATA) - 1) is None
        store.write("a", DATA[::-1])
        assert store.get_info("a").version != info.version
        assert store.read_with_info("a", 10, 20)[1] == store.get_info("a")

    def test_lists_are_of_folders(self, store: Store) -> None:
        """A list has each object once, and those of a folder without others of similar names."""
        sizes = {"a": 1, "b/c": 2, "b/d/e": 3, "bb/f": 4}
        for key, size in sizes.items():
            store.write(key, DATA[:size])
        assert {info.key: info.size for info in store.list_keys()} == sizes
        assert sorted(info.key for info in store.list_keys("b")) == ["b/c", "b/d/e"]
        assert list(store.list_keys("nothing")) == []
        info = store.get_info("b/c")
        assert [listed for listed in store.list_keys() if listed.key == "b/c"] == [info]
        for folder in ("", "b", "b/d", "nothing"):
            inside = [key for key in sizes if not folder or key.startswith(f"{folder}/")]
            names = [key[len(folder) + 1 if folder else 0 :].split("/") for key in inside]
            objects, folders = store.list_folder(folder)
            assert [info.key.rpartition("/")[2] for info in objects] == [
                name for name, *rest in names if not rest
            ]
            assert sorted(folders) == sorted({name for name, *rest in names if rest})

    def test_only_one_writes_if_absent(self, store: Store) -> None:
        """Of many who write at the same moment, one succeeds, and its content stays."""

        def write(writer: int) -> int | None:
            try:
                store.write("manifest.json", b"%03d" % writer, if_absent=True)
            except OutputExists:
                return None
            return writer

        with ThreadPoolExecutor(8) as threads:
            writers = [writer for writer in threads.map(write, range(24)) if writer is not None]
        assert len(writers) == 1
        assert store.read("manifest.json") == b"%03d" % writers[0]

    def test_only_one_replaces_what_it_read(self, store: Store) -> None:
        """Of many who replace the same content, one succeeds; what is gone is not replaced."""
        store.write("all.slabs", b"old")

        def replace(writer: int) -> int | None:
            try:
                store.replace("all.slabs", b"%03d" % writer, b"old")
            except OutputChanged:
                return None
            return writer

        with ThreadPoolExecutor(8) as threads:
            writers = [writer for writer in threads.map(replace, range(24)) if writer is not None]
        assert len(writers) == 1
        assert store.read("all.slabs") == b"%03d" % writers[0]
        with pytest.raises(OutputChanged, match="another writer"):
            store.replace("nothing", b"new", b"old")

    def test_a_writer_that_fails_leaves_nothing(self, store: Store) -> None:
        """If an iterable raises, its error comes out, and the object stays as it was."""

        def raise_late() -> Iterator[bytes]:
            yield from [bytes(1 << 20)] * 12
            raise ArithmeticError("of the reader")

        for before in ([], ["a"]):
            for key in before:
                store.write(key, b"as it was")
            with pytest.raises(ArithmeticError, match="of the reader"):
                store.write("a", raise_late())
            assert [info.key for info in store.list_keys()] == before
        assert bytes(store.read("a")) == b"as it was"

    def test_what_is_not_there_is_named(self, store: Store) -> None:
        """A missing object is ObjectNotFound with its place; to delete it is no error."""
        for read in (store.read, store.get_info, lambda key: store.read(key, 3, 9)):
            with pytest.raises(ObjectNotFound, match="nowhere/at-all") as caught:
                read("nowhere/at-all")
            assert str(caught.value.context["file"]) == store.locate("nowhere/at-all")
        store.delete("nowhere/at-all")

    def test_objects_that_end_early_are_not_cut(self, store: Store) -> None:
        """A range beyond the end is an error, not fewer bytes."""
        store.write("a", DATA)
        for start, stop in ((0, 100_001), (100_000, 100_001), (200_000, 200_010)):
            with case(start, stop), pytest.raises(Unreadable):
                store.read("a", start, stop)

    def test_keys_lead_nowhere_else(self, store: Store) -> None:
        """A key that could leave the place is refused by every method."""
        for key in ("", "/a", "a/", "a//b", "..", "../a", "a/../../b", ".", "a\\b", "a\0b", "a\nb"):
            for method in (store.read, store.get_info, store.delete):
                with case(key, method), pytest.raises(UsageError, match="not a key"):
                    method(key)
            with case(key), pytest.raises(UsageError, match="not a key"):
                store.write(key, b"")

    def test_a_store_is_not_pickled(self, store: Store) -> None:
        """It could hold credentials."""
        with pytest.raises(TypeError, match="open it again"):
            pickle.dumps(store)
