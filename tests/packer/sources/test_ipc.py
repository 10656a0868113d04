"""Arrow IPC as a source: files, streams, dictionaries, and what is fetched of them."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.feather
import pytest
from tests.naming import case
from tests.packer.cases import CASES
from tests.packer.packing import content
from tests.packer.readback import Readback, difference
from tests.servers.web import WebServer

from fieldslab.packer import pack
from fieldslab.packer.options import parse_options
from fieldslab.packer.pack_source import pack_plan
from fieldslab.packer.plan import make_plan
from fieldslab.packer.source import find_source
from fieldslab.schemas.errors import SourceUnreadable, SourceUnsupported

Serve = Callable[..., WebServer]


def write(path: Path, batches: list[pa.RecordBatch], *, stream: bool, **options: Any) -> Path:
    """A file or a stream of some batches."""
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(path, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return path


@pytest.mark.parametrize("stream", [False, True])
def test_every_type(tmp_path: Path, stream: bool) -> None:
    """Every type comes from a file or a stream as from a table in memory, bit for bit."""
    arrays = {each.name: each.build(each.rows) for each in CASES}
    batch = pa.record_batch(list(arrays.values()), names=list(arrays))
    write(tmp_path / "a.arrow", [batch.slice(0, 9), batch.slice(9)], stream=stream)
    pack(tmp_path / "a.arrow", tmp_path / "slab")
    back = Readback(tmp_path / "slab")
    for each in CASES:
        with case(each.name):
            assert not difference(back.column(each.name), each.expected(each.rows))


def encode(words: str, dictionary: str) -> pa.RecordBatch:
    """A batch with a dictionary of its own."""
    codes = pa.array([dictionary.index(word) for word in words], pa.int8())
    array = pa.DictionaryArray.from_arrays(codes, pa.array(list(dictionary)))
    return pa.record_batch([array, pa.array(range(len(words)))], names=["d", "n"])


@pytest.mark.parametrize("unit_bytes", [1, 1 << 20])
@pytest.mark.parametrize("stream", [False, True])
def test_dictionaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool, unit_bytes: int
) -> None:
    """Dictionaries grow by deltas, and in streams are replaced, wherever units begin."""
    monkeypatch.setattr("fieldslab.packer.sources.ipc.source.UNIT_BYTES", unit_bytes)
    batches = [encode("aab", "ab"), encode("cab", "abc"), encode("dda", "abcd")]
    if stream:
        batches += [encode("xyz", "zyx"), encode("wx", "zyxw"), encode("aq", "qa")]
    path = write(tmp_path / "a.arrow", batches, stream=stream, emit_dictionary_deltas=True)
    pack(path, tmp_path / "slab", shard_size=1)
    expected = "".join("".join(batch["d"].to_pylist()) for batch in batches)
    assert "".join(Readback(tmp_path / "slab").column("d")) == expected


def test_files_of_other_writers(tmp_path: Path) -> None:
    """Feather of pandas and Polars, and the streams that HuggingFace names `.arrow`."""
    frame = pd.DataFrame({"n": np.arange(100), "s": [f"é{row}" for row in range(100)]})
    frame.to_feather(tmp_path / "pandas.feather", compression="lz4")
    polars.from_pandas(frame).write_ipc(tmp_path / "polars.arrow", compression="zstd")
    with pa.ipc.new_stream(tmp_path / "hub.arrow", pa.Schema.from_pandas(frame)) as writer:
        writer.write_table(pa.Table.from_pandas(frame), max_chunksize=7)
    for name in ("pandas.feather", "polars.arrow", "hub.arrow"):
        with case(name):
            pack(tmp_path / name, tmp_path / "slab", force=True)
            back = Readback(tmp_path / "slab")
            assert back.values("n").tolist() == list(range(100))
            assert back.column("s") == frame["s"].tolist()


def test_few_bytes_are_fetched(tmp_path: Path, serve: Serve) -> None:
    """Of one column of a file, its buffers are fetched alone, and those of dictionaries."""
    rng = np.random.default_rng(0)
    rows = 200_000
    columns = {"x": rng.random(rows), "s": pa.array([b"x" * 100]).take([0] * rows)}
    table = pa.table(columns | {"y": rng.random(rows)})
    batches = table.to_batches(max_chunksize=25_000)
    write(tmp_path / "a.arrow", batches, stream=False)
    web = serve(tmp_path)
    plan = make_plan(find_source(f"{web.url}/a.arrow"), parse_options(fields=["y"]))
    assert web.count_bytes() < 10**6  # the footer, metadata, and samples of three batches
    web.requests.clear()
    pack_plan(plan, tmp_path / "slab")
    assert web.count_bytes() <= 1.1 * 8 * rows
    pack(tmp_path / "a.arrow", tmp_path / "local", fields="y")
    assert content(tmp_path / "slab") == content(tmp_path / "local")


def test_what_is_refused(tmp_path: Path) -> None:
    """Feather of version 1, files without their footer, and columns without a form are named."""
    table = pa.table({"n": range(10), "u": pa.array([None] * 10, pa.month_day_nano_interval())})
    cut = io.BytesIO()
    with pa.ipc.new_file(cut, table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "cut.arrow").write_bytes(cut.getvalue()[:-30])
    (tmp_path / "u.arrow").write_bytes(cut.getvalue())
    (tmp_path / "one.feather").write_bytes(b"FEA1" + bytes(20))
    cases: list[tuple[str, type[Exception], str]] = [
        ("one.feather", SourceUnreadable, r"one\.feather: is Feather of version 1"),
        ("cut.arrow", SourceUnreadable, r"cut\.arrow: .*its footer is missing"),
        ("u.arrow", SourceUnsupported, "field u, found month_day_nano"),
    ]
    for name, error, words in cases:
        with case(name), pytest.raises(error, match=words):
            pack(tmp_path / name, tmp_path / "slab")
