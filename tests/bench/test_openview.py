"""`--rows-file`: commands read only rows that a file lists, of the slab that it was saved for."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.naming import case
from tests.slabs import write_slab

from fieldslab.bench.commands.advise import advise
from fieldslab.bench.commands.bench import bench
from fieldslab.bench.commands.rows import rows
from fieldslab.packer.commands.export import export
from fieldslab.packer.commands.head import head
from fieldslab.reader import Loader, Shuffled, open_slab
from fieldslab.schemas.errors import RowOutOfRange, SlabChanged, UsageError

ROWS = 40
LISTED = [31, 4, 15, 9, 26, 5]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two slabs and their union, and the same rows in files of all kinds."""
    folder = tmp_path_factory.mktemp("rows")
    paths = {
        name: write_slab(folder / f"{name}.slab", {"x": np.arange(ROWS) * 10, "text": ["x"] * ROWS})
        for name in ("a", "b")
    }
    open_slab(paths["a"]).select(LISTED).save(folder / "saved.rows")
    np.save(folder / "listed.npy", LISTED)
    (folder / "listed.txt").write_text("\n".join(map(str, LISTED)) + "\n")
    both = open_slab([paths["a"], paths["b"]])
    both.select(LISTED).save(folder / "both.rows")
    for name in ("saved.rows", "listed.npy", "listed.txt", "both.rows"):
        paths[name] = folder / name
    return paths


def run(capsys: pytest.CaptureFixture[str], command: Any, *arguments: Any) -> str:
    """What a command prints."""
    command.main([*map(str, arguments)], standalone_mode=False)
    return capsys.readouterr().out


def test_rows_of_a_file_are_read(
    paths: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """All commands take files of all kinds; numbers that they show are those of the slab."""
    slab = paths["a"]
    for kind in ("saved.rows", "listed.npy", "listed.txt"):
        with case(kind):
            options = [slab, "--rows-file", paths[kind]]
            shown = run(capsys, head, *options, "-n", 4, "--json").splitlines()
            assert [json.loads(line)["row"] for line in shown] == LISTED[:4]
            shown = run(capsys, head, *options, "--rows", "1,-1", "--json").splitlines()
            assert [json.loads(line)["values"]["x"] for line in shown] == [40, 50]
            with pytest.raises(RowOutOfRange, match="file of rows has 6 rows"):
                run(capsys, head, *options, "--rows", "6")

            loader = Loader(open_slab(slab).select(LISTED), 4, Shuffled(3), prefetch=0)
            values = [value for batch in loader for value in batch["x"].tolist()]
            loader = Loader(open_slab(slab).select(LISTED), 4, Shuffled(3), prefetch=0)
            next(iter(loader))
            state = tmp_path / "state.json"
            state.write_text(json.dumps(loader.state_dict()))
            order = ["--order", "Shuffled(3)", "--batch-size", 4]
            first = run(capsys, rows, *options, *order).split()
            assert [10 * int(row) for row in first] == values[:4]
            left = run(
                capsys, rows, *options, "--state", state, "--batch-size", 4, "--show"
            ).split()
            assert [left.count(str(value)) for value in values[4:]] == [1, 1]
    for view in (open_slab(slab)[25::-2], open_slab(slab)[3:30][::3]):
        with case(view.view):
            loader = Loader(view, 4, Shuffled(3), prefetch=0)
            batches = iter(loader)
            next(batches)
            state.write_text(json.dumps(loader.state_dict()))
            told = run(capsys, rows, slab, "--state", state, "--batch-size", 4).split()
            assert [10 * int(row) for row in told] == next(batches)["x"].tolist()
            with pytest.raises(UsageError, match="Leave it out"):
                run(capsys, rows, *options, "--state", state, "--batch-size", 4)
    state.write_text(json.dumps(Loader(open_slab(slab).select(LISTED), 4).state_dict()))
    with pytest.raises(UsageError, match="give --rows-file"):
        run(capsys, rows, slab, "--state", state, "--batch-size", 4)
    out = tmp_path / "out.parquet"
    assert json.loads(run(capsys, export, slab, "-o", out, *options[1:], "--json"))["rows"] == 6


def test_rows_of_a_file_are_measured(
    paths: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """`bench` measures the view that training has."""
    options = [paths["a"], "--rows-file", paths["saved.rows"], "--fields", "x"]
    measured = json.loads(run(capsys, bench, *options, "--seconds", 0.4, "--json", "-"))
    assert "Only 6 rows of 40 were read: those of a file." in measured["notes"]


def test_rows_of_another_slab_are_refused(
    paths: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A saved view is bound to its slab, or to the slabs that were opened as one."""
    three = tmp_path / "three"
    three.mkdir()
    for name in ("a", "b"):
        (three / f"{name}.slab").symlink_to(paths[name])
    pattern = f"{three}/*.slab"
    shown = run(capsys, head, pattern, "--rows-file", paths["both.rows"], "-n", 1, "--json")
    assert json.loads(shown)["row"] == LISTED[0]
    write_slab(three / "c.slab", {"x": np.arange(3), "text": ["y"] * 3})
    out = tmp_path / "out.parquet"
    for command, *options in (
        (head,),
        (rows, "--batch-size", 2),
        (advise,),
        (bench, "--seconds", 1),
        (export, "-o", out),
    ):
        with (
            case(command.name),
            pytest.raises(SlabChanged, match=r"another slab.*of 80 rows.*of 83.*added, removed"),
        ):
            run(capsys, command, pattern, *options, "--rows-file", paths["both.rows"])
    (tmp_path / "wrong.txt").write_text("40\n")
    for command in (head, advise):
        with pytest.raises(RowOutOfRange, match="rows_file: no such row"):
            run(capsys, command, paths["a"], "--rows-file", tmp_path / "wrong.txt")
        with pytest.raises(UsageError, match="cannot be read"):
            run(capsys, command, paths["a"], "--rows-file", tmp_path / "none.npy")
