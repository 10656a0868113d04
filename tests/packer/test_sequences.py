"""`--pack-sequences`: all texts, joined, in rows of one length."""

import json
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.naming import case
from tests.packer.readback import Readback
from tests.packer.tokenizing import END, PAD, START, TEXTS, trained
from tokenizers import Tokenizer, models

from fieldslab.packer import pack, verify
from fieldslab.packer.cli import run
from fieldslab.packer.pack_options import PackOptions
from fieldslab.packer.parts.packing import finish_parts, pack_part
from fieldslab.packer.parts.part_number import parse_part
from fieldslab.packer.parts.plan_file import write_plan_file
from fieldslab.reader import Loader, Sequential, Shift, open_slab
from fieldslab.schemas.errors import NullsFound, PartsMissing, UsageError

TOKENIZER = trained()
ENCODED = [TOKENIZER.encode(text).ids for text in TEXTS]
"""<s> and </s> around each text tell them apart."""
ALL = list(chain.from_iterable(ENCODED))
STARTS = np.cumsum([0, *map(len, ENCODED[:-1])])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The tokenizer, saved."""
    path = tmp_path / "tokenizer.json"
    TOKENIZER.save(str(path))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The texts in four row groups, and a column beside them."""
    path = tmp_path / "texts.parquet"
    columns = {"text": TEXTS, "number": list(range(len(TEXTS)))}
    pq.write_table(pa.table(columns), path, row_group_size=60)
    return path


def joined_by(between: list[int], rows: list[list[int]]) -> list[int]:
    """All tokens of all rows, with others behind each."""
    return [token for ids in rows for token in (*ids, *between)]


def packed(path: Path, source: Any, file: Path, length: int, **options: Any) -> Readback:
    """Pack the texts alone, and read them back."""
    columns: dict[str, Any] = {
        "fields": "text",
        "tokenize": {"text": file},
        "pack_sequences": length,
    } | options
    pack(source, path / "slab", force=True, **columns)
    return Readback(path / "slab")


@pytest.mark.parametrize("length", [1, 7, 64, len(ALL), 5000])
def test_rows_hold_every_token_once(length: int, tmp_path: Path, source: Path, file: Path) -> None:
    """Rows one behind another are all texts' tokens; padding fills the last, and is told."""
    slab = packed(tmp_path, source, file, length)
    field = slab.fields["text"]
    assert (field["kind"], field["dtype"], field["shape"]) == ("fixed", "uint16", [length])
    assert field["attributes"]["fieldslab.tokens"]["sequences"] == length
    values = slab.values("text").reshape(-1)
    missing = -len(ALL) % length
    assert values.tolist() == ALL + [PAD] * missing
    warnings = slab.manifest["made"].get("warnings", [])
    assert len(warnings) == bool(missing)
    if missing:
        assert f"holds {length - missing:,} tokens" in warnings[0]
        assert f"{missing:,} times" in warnings[0]


def test_the_last_row_can_be_left_out(tmp_path: Path, source: Path, file: Path) -> None:
    """With `drop_last` only full rows are there, and a warning counts what is lost."""
    slab = packed(tmp_path, source, file, 64, drop_last=True)
    whole = len(ALL) // 64 * 64
    assert slab.values("text").reshape(-1).tolist() == ALL[:whole]
    assert slab.manifest["made"]["warnings"] == [
        f"text: the last {len(ALL) - whole} of {len(ALL):,} tokens fill no row of 64 and were "
        "left out, as asked for"
    ]


@pytest.mark.parametrize("separator", ["</s>", "[PAD]", ""])
def test_separators(separator: str, tmp_path: Path, source: Path, file: Path) -> None:
    """The token that is asked for stands behind each text, the empty one too; '' is none."""
    slab = packed(tmp_path, source, file, 10, separator=separator, special_tokens=False)
    plain = [TOKENIZER.encode(text, add_special_tokens=False).ids for text in TEXTS]
    between = {"</s>": [END], "[PAD]": [PAD], "": []}[separator]
    joined = joined_by(between, plain)
    assert slab.values("text").reshape(-1)[: len(joined)].tolist() == joined


def test_the_end_of_text_separates_where_nothing_else_does(
    tmp_path: Path, source: Path, file: Path
) -> None:
    """Without special tokens around texts, the tokenizer's own end token goes between them."""
    slab = packed(tmp_path, source, file, 10, special_tokens=False)
    assert slab.fields["text"]["attributes"]["fieldslab.tokens"]["separator"] == END
    plain = [TOKENIZER.encode(text, add_special_tokens=False).ids for text in TEXTS]
    joined = joined_by([END], plain)
    assert slab.values("text").reshape(-1)[: len(joined)].tolist() == joined
    assert START not in joined


def test_boundaries_are_kept(tmp_path: Path, source: Path, file: Path) -> None:
    """`NAME.starts` holds where in each row texts begin, and texts can be cut out by it."""
    slab = packed(tmp_path, source, file, 50, keep_boundaries=True, rename={"text": "ids"})
    starts = [
        50 * row + start for row, starts in enumerate(slab.column("ids.starts")) for start in starts
    ]
    assert starts == STARTS.tolist()
    values = slab.values("ids").reshape(-1)
    for start, ids in zip(starts, ENCODED, strict=True):
        assert values[start : start + len(ids)].tolist() == ids
    # README shows this: which text each token of a row belongs to.
    batch = open_slab(tmp_path / "slab").gather([0, 1, 2])
    for ids, begins in zip(batch["ids"], batch["ids.starts"], strict=True):
        segments = np.searchsorted(begins, np.arange(len(ids)), side="right")
        assert np.array_equal(
            np.flatnonzero(np.diff(segments, prepend=segments[0])), begins[begins > 0]
        )


def test_the_slab_does_not_depend_on_how_it_is_packed(
    tmp_path: Path, source: Path, file: Path
) -> None:
    """Jobs, row groups and streams make no difference to the slab's id; shards are cut by size."""
    options: dict[str, Any] = {"keep_boundaries": True, "shard_size": 1000}
    manifest = packed(tmp_path, source, file, 16, **options).manifest
    assert len(manifest["shards"]) > 1
    assert packed(tmp_path, source, file, 16, jobs=2, **options).manifest["id"] == manifest["id"]
    options |= {"engine": "processes", "jobs": 2}
    assert packed(tmp_path, source, file, 16, **options).manifest["id"] == manifest["id"]
    stream = pq.read_table(source).combine_chunks()
    assert packed(tmp_path, stream, file, 16, **options).manifest["id"] == manifest["id"]


def test_parts_join_texts(tmp_path: Path, source: Path, file: Path) -> None:
    """Parts count tokens first and then cut the same rows and shards, with the same warnings."""
    cases: dict[str, dict[str, Any]] = {
        "one token": {"pack_sequences": 1, "separator": ""},
        "boundaries": {"pack_sequences": 7, "keep_boundaries": True},
        "many boundaries": {"pack_sequences": 300, "keep_boundaries": True, "shard_size": 700},
        "left out, compressed": {"pack_sequences": 64, "drop_last": True, "compress": "*"},
        "exactly one row": {"pack_sequences": len(ALL), "keep_boundaries": True},
        "padded": {"pack_sequences": 5000, "rename": {"text": "ids"}},
        "nothing left": {"pack_sequences": 10**5, "drop_last": True},
        "some texts": {"pack_sequences": 8, "rows": "50:130", "special_tokens": False},
        "large shards": {"pack_sequences": 8, "shard_size": "1G", "keep_boundaries": True},
    }
    options: dict[str, Any]
    for number, (name, case_options) in enumerate(cases.items()):
        with case(name):
            options = {
                "fields": "text",
                "tokenize": {"text": file},
                "shard_size": 500,
                **case_options,
            }
            expected = pack(source, tmp_path / "expected", force=True, **options).manifest
            plan, out = tmp_path / f"{number}.plan", tmp_path / f"parts-{number}"
            write_plan_file([source], out, plan, cast(PackOptions, options))
            with pytest.raises(PartsMissing, match="groups of texts are not counted"):
                finish_parts(plan)
            for part in ("2/3", "1/3"):
                pack_part(plan, parse_part(part))
            if len(expected.shards) > 2:
                with pytest.raises(PartsMissing, match="without part 3/3"):
                    finish_parts(plan)
            pack_part(plan, parse_part("3/3"))
            joined = finish_parts(plan).manifest
            assert (joined.id, joined.made.plan) == (expected.id, expected.made.plan)
            assert joined.made.warnings == expected.made.warnings


def test_only_some_texts(tmp_path: Path, source: Path, file: Path) -> None:
    """`rows` chooses texts, not rows of tokens."""
    slab = packed(tmp_path, source, file, 8, rows="50:130")
    joined = joined_by([], ENCODED[50:130])
    assert slab.values("text").reshape(-1)[: len(joined)].tolist() == joined


def test_nothing_to_pack(tmp_path: Path, file: Path) -> None:
    """Without a text there is no row, and nothing to warn of."""
    slab = packed(tmp_path, pa.table({"text": pa.array([], pa.string())}), file, 8)
    assert slab.manifest["rows"] == 0
    assert "warnings" not in slab.manifest["made"]


def test_verify_compares_with_the_texts(tmp_path: Path, source: Path, file: Path) -> None:
    """`--against` joins the texts again, and finds the row where one has changed."""
    packed(tmp_path, source, file, 32, keep_boundaries=True)
    assert verify(tmp_path / "slab", against=source, tokenizers=[file]).ok
    changed = [*TEXTS[:-1], "unseen words"]
    pq.write_table(pa.table({"text": changed}), source)
    problem, *_ = verify(tmp_path / "slab", against=source, tokenizers=[file]).problems
    assert problem.rows is not None
    assert problem.rows[0] >= STARTS[-1] // 32


def test_null_texts(tmp_path: Path, file: Path) -> None:
    """A null is an error without a word, and becomes what is asked for; a mask cannot be kept."""
    table = pa.table({"text": ["row", None, "row"]})
    with pytest.raises(NullsFound):
        packed(tmp_path, table, file, 4)
    with pytest.raises(UsageError, match="null text would be lost"):
        packed(tmp_path, table, file, 4, nulls={"text": "mask"})
    slab = packed(tmp_path, table, file, 4, nulls={"text": ""})
    row = TOKENIZER.encode("row").ids
    joined = [*row, START, END, *row]
    assert slab.values("text").reshape(-1)[: len(joined)].tolist() == joined


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"fields": None}, "number"),
        ({"fields": "number"}, "column of texts is left out"),
        ({"fields": None, "exclude": "*"}, "no field is left"),
        ({"pack_sequences": 0}, "the length is out of range"),
        ({"tokenize": {}}, "one tokenized column"),
        ({"max_length": 4}, "max_length cannot be used together"),
        ({"pack_sequences": None, "drop_last": True}, "drop_last needs"),
        ({"pack_sequences": None, "separator": ""}, "separator needs"),
        ({"pack_sequences": None, "keep_boundaries": True}, "keep_boundaries needs"),
        ({"separator": "<none>"}, "no such token"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(
    options: dict[str, Any], match: str, tmp_path: Path, source: Path, file: Path
) -> None:
    """Columns that cannot be kept and options that contradict are named before reading."""
    with pytest.raises(UsageError, match=match):
        packed(tmp_path, source, file, 8, **options)
    assert not list(tmp_path.glob("*slab*"))


def test_a_plain_tokenizer_needs_words(tmp_path: Path, source: Path) -> None:
    """Without tokens for an end and for padding, the user says what to do."""
    file = tmp_path / "plain.json"
    Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(file))
    with pytest.raises(UsageError, match='separator="TOKEN"'):
        packed(tmp_path, source, file, 8)
    with pytest.raises(UsageError, match="drop_last=True"):
        packed(tmp_path, source, file, 8, separator="")
    slab = packed(tmp_path, source, file, 8, separator="a")
    assert not slab.values("text").any()


def test_command_line(
    tmp_path: Path, source: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The options have the same meaning on the command line; a language model reads the rows."""
    command = ["pack", str(source), "-o", str(tmp_path / "slab"), "--fields=text", "--json"]
    asked = [f"--tokenize=text={file}", "--pack-sequences=32", "--keep-boundaries", "--compress=*"]
    assert run([*command, *asked, "--separator=</s>", "--drop-last", "--verify"]) == 0
    assert "left out" in json.loads(capsys.readouterr().out)["warnings"][0]
    joined = joined_by([END], ENCODED)
    slab = open_slab(tmp_path / "slab")
    loader = Loader(slab, 2, Sequential(), fields=["text"], transforms=[Shift("text")])
    for number, batch in enumerate(loader):
        rows = np.array(joined[64 * number : 64 * number + 32 * len(batch.rows)]).reshape(-1, 32)
        assert np.array_equal(batch["inputs"], rows[:, :-1])
        assert np.array_equal(batch["targets"], rows[:, 1:])
