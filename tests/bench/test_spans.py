"""The memcpy that everything is compared with, and the pages that are dropped."""

import mmap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fieldslab.bench.slab.pages import drop
from fieldslab.bench.slab.turns import Turn, take_turns
from fieldslab.bench.spans import Spans, written_pages
from fieldslab.packer import pack
from fieldslab.reader import Slab, open_slab


@pytest.fixture(scope="module")
def slab(tmp_path_factory: pytest.TempPathFactory) -> Slab:
    """Numbers, ragged lists, and text that is compressed."""
    path = tmp_path_factory.mktemp("slab") / "a.slab"
    columns = {
        "x": np.arange(300, dtype=np.float64),
        "tokens": [list(range(row % 7)) for row in range(300)],
        "text": [f"text {row} " * 20 for row in range(300)],
    }
    pack([pa.record_batch(columns)], path, compress=["text"])
    return open_slab(path)


def test_a_memcpy_copies_what_a_gather_yields(slab: Slab) -> None:
    """The bytes are those of the values of the same rows, field after field."""
    rows = np.array([7, 299, 0, 7])
    spans = Spans(slab, rows, ["x", "tokens"])
    out = written_pages(spans.nbytes)
    spans.copy(out)
    batch = slab.gather(rows)
    expected = batch["x"].tobytes() + batch["tokens"].values.tobytes()
    assert out.tobytes() == expected


def test_compressed_fields_count_as_what_they_become(slab: Slab) -> None:
    """As many bytes are copied as a gather yields, and no more."""
    rows = np.arange(50)
    spans = Spans(slab, rows, ["text"])
    assert spans.nbytes == slab.gather(rows, ["text"]).nbytes
    out = written_pages(spans.nbytes + 1)
    out[:] = 9
    spans.copy(out)
    assert (out[:-1] == 1).all()
    assert out[-1] == 9


def test_turns_are_fair() -> None:
    """Every call is made equally often, with its own arguments, in turns."""
    sizes: dict[str, list[int]] = {"a": [], "b": []}
    turns = {name: Turn(iter(range(1000)), sizes[name].append) for name in sizes}
    actual = take_turns(turns, 60, most=20)
    assert {name: len(times) for name, times in actual.items()} == {"a": 20, "b": 20}
    assert sizes["a"] == sizes["b"] == list(range(len(sizes["a"])))
    assert len(take_turns({"a": Turn(iter(range(9)), id)}, 0, least=4)["a"]) == 4


def test_pages_in_use_are_not_dropped(tmp_path: Path) -> None:
    """What somebody has mapped and touched stays in memory, and is counted; bytes stay the same."""
    file = tmp_path / "a"
    content = np.arange(2**18, dtype=np.uint32).tobytes()
    file.write_bytes(content)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == content
        assert drop([file]) == 1.0
    assert 0 <= drop([file]) <= 1
    assert file.read_bytes() == content
