"""What formats do with damaged data: damage is done, outcomes are told apart, the table is made."""

import random
import shutil
from pathlib import Path

import pytest
from tests.naming import case

from fieldslab.bench.peers import faults
from fieldslab.bench.peers.damage import DAMAGE
from fieldslab.bench.peers.examine import examine
from fieldslab.bench.peers.peer import find
from fieldslab.bench.peers.source import Workload
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import FieldslabError
from fieldslab.schemas.folder import load_manifest


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Workload:
    """The rows that all formats get."""
    return faults.make_rows(tmp_path_factory.mktemp("faults") / "source")


def outcome(name: str, source: Workload, folder: Path, kind: str, seed: int) -> str:
    """What a peer makes of a damaged copy."""
    kind_of_peer, whole, copy = find(name), folder / name, folder / "copy"
    if not whole.exists():
        whole.mkdir()
        kind_of_peer(whole, source).convert()
        assert examine(kind_of_peer, source, whole)["outcome"] == "right"
    shutil.copytree(whole, copy)
    DAMAGE[kind](copy, name, random.Random(seed))
    reply = examine(kind_of_peer, source, copy)
    shutil.rmtree(copy)
    return str(reply["outcome"])


def test_no_accident_makes_wrong_rows_of_a_slab(source: Workload, tmp_path: Path) -> None:
    """Flipped bits, lost pages and cut files are errors."""
    for kind in [*DAMAGE][:3]:
        for seed in range(4):
            with case(f"{kind} {seed}"):
                assert outcome("fieldslab", source, tmp_path, kind, seed) == "error"


def test_a_pinned_slab_has_no_hostile_index(source: Workload, tmp_path: Path) -> None:
    """Who makes all digests anew after a change of rows cannot keep the id."""
    peer, whole, copy = find("fieldslab"), tmp_path / "whole", tmp_path / "copy"
    whole.mkdir()
    peer(whole, source).convert()
    content = load_manifest(whole / "data.slab").id
    refused = 0
    for seed in range(8):
        with case(str(seed)):
            shutil.copytree(whole, copy)
            DAMAGE["a hostile index"](copy, "fieldslab", random.Random(seed))
            try:
                open_slab(copy / "data.slab", id=content)
            except FieldslabError:
                refused += 1
            else:
                assert examine(peer, source, copy)["outcome"] != "wrong"
            shutil.rmtree(copy)
    assert refused > 1


def test_wrong_rows_are_noticed(source: Workload, tmp_path: Path) -> None:
    """Rows of a format without checksums count as wrong where a bit was flipped in them."""
    seen = {outcome("numpy memmap", source, tmp_path, "a flipped bit", seed) for seed in range(6)}
    assert "wrong" in seen


def test_the_table_names_every_peer() -> None:
    """The documentation's table has a line for each peer and a column for each damage."""
    head, _, *lines = faults.table().partition("\n\n")[2].splitlines()
    assert head.split(" | ")[1:] == [*list(DAMAGE)[:-1], f"{list(DAMAGE)[-1]} |"]
    named = [name for name in faults.PEERS if any(line.startswith(f"| {name}") for line in lines)]
    assert len(named) == len(lines) > 4
