"""`--tokenize`: text becomes the tokens that the tokenizer itself makes of it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.packer.readback import Readback
from tests.packer.tokenizing import END, PAD, START, TEXTS, trained
from tokenizers import Tokenizer, models, pre_tokenizers

from fieldslab.packer import pack, verify
from fieldslab.packer.cli import run
from fieldslab.reader import open_slab
from fieldslab.schemas.errors import (
    FieldslabError,
    NullsFound,
    SourceInconsistent,
    SourceUnreadable,
    SourceUnsupported,
    UnknownField,
    UsageError,
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """One tokenizer for the tests that do not change it."""
    return trained()


@pytest.fixture
def file(tmp_path: Path, tokenizer: Any) -> Path:
    """The tokenizer, saved."""
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def packed(path: Path, texts: Any, file: Path, **options: Any) -> Readback:
    """Pack one column of text and read it back."""
    pack(pa.table({"text": texts}), path / "slab", tokenize={"text": file}, **options)
    return Readback(path / "slab")


def refused(path: Path, texts: Any, file: Path, **options: Any) -> FieldslabError:
    """The error of packing one column, which must leave no slab behind."""
    with pytest.raises(FieldslabError) as caught:
        pack(pa.table({"text": texts}), path / "slab", tokenize={"text": file}, **options)
    assert not list(path.glob("*slab*"))
    return caught.value


@pytest.mark.parametrize("special", [True, False])
def test_rows_are_what_encode_makes(
    special: bool, tmp_path: Path, file: Path, tokenizer: Any
) -> None:
    """Each row holds the ids of `Tokenizer.encode`, with and without its special tokens."""
    slab = packed(tmp_path, TEXTS, file, special_tokens=special)
    field = slab.fields["text"]
    assert (field["kind"], field["dtype"]) == ("ragged", "uint16")
    for row, text in zip(slab.column("text"), TEXTS, strict=True):
        assert row.tolist() == tokenizer.encode(text, add_special_tokens=special).ids
    assert field["attributes"]["fieldslab.tokens"] == {
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "vocabulary": tokenizer.get_vocab_size(),
        "special_tokens": {"[PAD]": PAD, "<s>": START, "</s>": END},
        "special_tokens_added": special,
        "pad": PAD,
    }


@pytest.mark.parametrize(
    "kind",
    [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_every_kind_of_text(kind: pa.DataType, tmp_path: Path, file: Path, tokenizer: Any) -> None:
    """It makes no difference how Arrow holds the text."""
    texts = ["row", "", "field", "row"]
    slab = packed(tmp_path, pa.array(texts).cast(kind), file)
    assert [row.tolist() for row in slab.column("text")] == [
        tokenizer.encode(text).ids for text in texts
    ]


def test_long_rows_are_cut_as_the_tokenizer_cuts_them(tmp_path: Path, file: Path) -> None:
    """`max_length` keeps the special tokens, and a warning tells how many rows were cut."""
    cutting = trained()
    cutting.enable_truncation(10)
    slab = packed(tmp_path, TEXTS, file, max_length=10)
    expected = [cutting.encode(text) for text in TEXTS]
    for row, encoding in zip(slab.column("text"), expected, strict=True):
        assert row.tolist() == encoding.ids
        assert row[-1] == END
    count = sum(bool(encoding.overflowing) for encoding in expected)
    assert 0 < count < len(TEXTS)
    assert slab.manifest["made"]["warnings"] == [
        f"text: {count} of {len(TEXTS)} rows had more than 10 tokens and were cut"
    ]


def test_no_warning_where_nothing_is_cut(tmp_path: Path, file: Path) -> None:
    """Rows that are just as long as `max_length` are whole."""
    slab = packed(tmp_path, ["", "s"], file, max_length=3)
    assert [len(row) for row in slab.column("text")] == [2, 3]
    assert "warnings" not in slab.manifest["made"]


def test_padded_rows_have_one_length(tmp_path: Path, file: Path) -> None:
    """With `pad` the field is fixed, and the padding token stands behind the tokens."""
    padding = trained()
    padding.enable_truncation(12)
    padding.enable_padding(pad_id=PAD, pad_token="[PAD]", length=12)
    slab = packed(tmp_path, TEXTS, file, max_length=12, pad=True)
    field = slab.fields["text"]
    assert (field["kind"], field["shape"]) == ("fixed", [12])
    for row, text in zip(slab.column("text"), TEXTS, strict=True):
        assert row.tolist() == padding.encode(text).ids


def test_truncation_and_padding_of_the_file_are_not_heeded(tmp_path: Path, tokenizer: Any) -> None:
    """Only the options of pack cut and pad rows."""
    other = trained()
    other.enable_truncation(4)
    other.enable_padding(length=50)
    other.save(str(tmp_path / "other.json"))
    slab = packed(tmp_path, TEXTS, tmp_path / "other.json")
    assert [row.tolist() for row in slab.column("text")] == [
        tokenizer.encode(text).ids for text in TEXTS
    ]


def test_null_texts_are_an_error(tmp_path: Path, file: Path) -> None:
    """Nulls need a word, as everywhere."""
    assert isinstance(refused(tmp_path, ["row", None], file), NullsFound)


def test_masked_nulls_have_no_tokens(tmp_path: Path, file: Path, tokenizer: Any) -> None:
    """A masked null is not the empty text, which has its special tokens."""
    slab = packed(tmp_path, ["row", None, ""], file, nulls={"text": "mask"})
    first, second, third = slab.column("text")
    assert first.tolist() == tokenizer.encode("row").ids
    assert second is None
    assert third.tolist() == [START, END]


def test_masked_nulls_among_padded_rows(tmp_path: Path, file: Path) -> None:
    """Cut rows are counted beside nulls, too."""
    texts = [None, "the slab keeps every row", None]
    slab = packed(tmp_path, texts, file, nulls={"text": "mask"}, max_length=3, pad=True)
    first, second, third = slab.column("text")
    assert first is third is None
    assert len(second) == 3
    assert slab.manifest["made"]["warnings"][0].startswith("text: 1 of 3 rows")


def test_filled_nulls_are_tokenized(tmp_path: Path, file: Path, tokenizer: Any) -> None:
    """The text that stands for a null becomes tokens like any other."""
    slab = packed(tmp_path, [None, "row"], file, nulls={"text": "no reader"})
    assert slab.column("text")[0].tolist() == tokenizer.encode("no reader").ids


def test_many_tokens_are_int32(tmp_path: Path) -> None:
    """Above 65,536 ids, two bytes are not enough: the last id decides."""
    for last, dtype in [(65535, "uint16"), (65536, "int32")]:
        wide = Tokenizer(models.WordLevel({"a": 0, "b": last}, unk_token="a"))
        wide.save(str(tmp_path / "wide.json"))
        folder = tmp_path / dtype
        folder.mkdir()
        slab = packed(folder, ["b", "x"], tmp_path / "wide.json")
        assert slab.fields["text"]["dtype"] == dtype
        assert [row.tolist() for row in slab.column("text")] == [[last], [0]]


def test_shards_and_processes_make_no_difference(tmp_path: Path, file: Path) -> None:
    """A slab of many shards, packed by two processes, holds the same and gathers the same."""
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "texts.parquet", row_group_size=50)
    single = packed(tmp_path, TEXTS, file, max_length=9)
    pack(
        tmp_path / "texts.parquet",
        tmp_path / "many",
        tokenize=f"text={file}",
        max_length=9,
        jobs=2,
        shard_size=1000,
        compress="text",
    )
    many = open_slab(tmp_path / "many")
    assert len(many.manifest.shards) > 1
    assert many.manifest.made.warnings[:1] == tuple(single.manifest["made"]["warnings"])
    batch = many.gather(list(range(len(TEXTS))))["text"]
    for row, expected in zip(batch, single.column("text"), strict=True):
        assert np.array_equal(row, expected)


def test_padding_of_many_rows(tmp_path: Path, file: Path, tokenizer: Any) -> None:
    """Short texts with far more padding than text are packed bit by bit, each in its place."""
    texts = [str(row % 7) for row in range(20_000)]
    slab = packed(tmp_path, texts, file, max_length=1024, pad=True)
    expected = np.full((7, 1024), PAD, np.uint16)
    for row in range(7):
        expected[row, :3] = tokenizer.encode(str(row)).ids
    assert np.array_equal(slab.values("text"), expected[np.arange(len(texts)) % 7])


def test_verify_tokenizes_again(tmp_path: Path, file: Path) -> None:
    """`--against` compares tokens, and names another tokenizer and a row that differs."""
    source = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"text": TEXTS}), source)
    pack(source, tmp_path / "slab", tokenize={"text": file}, max_length=20, pad=True)
    assert verify(tmp_path / "slab", against=source, tokenizers=[file]).ok
    pq.write_table(pa.table({"text": [*TEXTS[:7], "another text", *TEXTS[8:]]}), source)
    (problem,) = verify(tmp_path / "slab", against=source, tokenizers=[file]).problems
    assert problem.rows == (7, 7)
    file.write_text(file.read_text().replace("[PAD]", "[DAP]"))
    (problem,) = verify(tmp_path / "slab", against=source, tokenizers=[file]).problems
    assert "not the tokenizer" in problem.problem
    file.unlink()
    with pytest.raises(SourceUnreadable, match="No such file"):
        verify(tmp_path / "slab", against=source, tokenizers=[file])


def test_a_slab_knows_no_place_of_its_tokenizer(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name and content are kept: the plan is the same from elsewhere, and `verify` is told."""
    source = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"text": TEXTS}), source)
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / file.name
    pack(source, tmp_path / "one", tokenize={"text": file})
    file.rename(moved)
    pack(source, tmp_path / "two", tokenize={"text": moved})
    first, two = (Readback(tmp_path / name).manifest for name in ("one", "two"))
    assert first["made"]["plan"] == two["made"]["plan"]
    assert first["made"]["options"]["tokenize"]["text"]["file"] == "tokenizer.json"
    assert run(["verify", str(tmp_path / "one"), "--against", str(source)]) == 3
    assert (
        run(["verify", str(tmp_path / "one"), "--against", str(source), "--tokenizer", str(moved)])
        == 0
    )
    monkeypatch.chdir(moved.parent)
    assert verify(tmp_path / "one", against=source).ok


def test_another_tokenizer_is_another_plan(tmp_path: Path, file: Path) -> None:
    """The tokenizer's content counts, not its name: what one began, another does not go on with."""
    first = packed(tmp_path, TEXTS, file).manifest["made"]["plan"]
    file.write_text(file.read_text() + "\n")
    second = packed(tmp_path, TEXTS, file, force=True).manifest["made"]["plan"]
    assert first != second


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"\xff\xfe", b"PAR1", b'{"version":"1.0"', b"[" * 100_000]
)
def test_damaged_tokenizers_are_named(content: bytes, tmp_path: Path) -> None:
    """What is no tokenizer is refused by name."""
    file = tmp_path / "tokenizer.json"
    file.write_bytes(content)
    error = refused(tmp_path, TEXTS, file)
    assert isinstance(error, SourceUnreadable)
    assert str(file) in str(error)
    assert "Tokenizer.save" in str(error)


@pytest.mark.parametrize("name", ["missing.json", "", "name\0"])
def test_missing_tokenizers_are_named(name: str, tmp_path: Path) -> None:
    """A file that is not there, or a folder, is refused by name."""
    assert isinstance(refused(tmp_path, TEXTS, tmp_path / name), SourceUnreadable)


def test_random_tokenizers_are_refused(tmp_path: Path) -> None:
    """Dropout would give other tokens each time."""
    file = tmp_path / "random.json"
    random = trained()
    random.model.dropout = 0.1
    random.save(str(file))
    error = refused(tmp_path, TEXTS, file)
    assert isinstance(error, SourceUnsupported)
    assert "dropout" in str(error)


def test_text_that_cannot_be_encoded_is_named_by_its_row(tmp_path: Path) -> None:
    """A word-level tokenizer without an unknown token cannot encode what it has not seen."""
    file = tmp_path / "words.json"
    words = Tokenizer(models.WordLevel({"row": 0}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.save(str(file))
    error = refused(tmp_path, ["row", "row row", "column", "row"], file)
    assert isinstance(error, SourceInconsistent)
    assert error.context["row"] == 2


def test_text_that_is_not_utf8_is_named_by_its_row(tmp_path: Path, file: Path) -> None:
    """Bytes that only claim to be text are found before they are encoded."""
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"ok", b"\xff\xfe"]).buffers())
    pq.write_table(pa.table({"text": bad}), tmp_path / "bad.parquet")
    with pytest.raises(SourceInconsistent, match="not UTF-8") as caught:
        pack(tmp_path / "bad.parquet", tmp_path / "slab", tokenize={"text": file})
    assert caught.value.context["row"] == 1
    assert "cast=" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"cast": {"text": "binary"}}, "tokenize and cast"),
        ({"tensor": {"text": "f4[2]"}}, "tokenize and tensor"),
        ({"ragged": {"text": "pad=0"}}, "tokenize and ragged"),
        ({"image": "text"}, "tokenize and image"),
        ({"pad": True}, "pad needs max_length"),
        ({"max_length": 0}, "max_length: the length is out of range"),
        ({"max_length": 2}, "adds 2 special tokens"),
        ({"stack": {"x": "text"}}, "stack"),
    ],
    ids=str,
)
def test_options_that_contradict_are_refused(
    options: dict[str, Any], expected: str, tmp_path: Path, file: Path
) -> None:
    """Each option that does not go with `tokenize` is named."""
    assert expected in str(refused(tmp_path, TEXTS, file, **options))


def test_padding_needs_a_token(tmp_path: Path) -> None:
    """No id is made up where the tokenizer has none for padding."""
    file = tmp_path / "plain.json"
    Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save(str(file))
    error = refused(tmp_path, ["a"], file, max_length=4, pad=True)
    assert isinstance(error, UsageError)
    assert "no token for padding" in str(error)


def test_only_text_is_tokenized(tmp_path: Path, file: Path) -> None:
    """Numbers, lists and names that are not there are refused."""
    for values in ([1, 2], [["a"], ["b"]], [b"a", b"b"]):
        assert "not a column of text" in str(refused(tmp_path, values, file))
    with pytest.raises(UnknownField, match="tokenize"):
        pack(pa.table({"a": ["x"]}), tmp_path / "slab", tokenize={"text": file})
    with pytest.raises(UsageError, match="pad needs tokenize"):
        pack(pa.table({"a": ["x"]}), tmp_path / "slab", pad=True)


def test_command_line(
    tmp_path: Path, file: Path, tokenizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The options have the same meaning on the command line."""
    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "texts.parquet")
    command = ["pack", str(tmp_path / "texts.parquet"), "-o", str(tmp_path / "slab"), "--json"]
    asked = [f"--tokenize=text={file}", "--max-length=8", "--pad", "--no-special-tokens"]
    assert run([*command, *asked, "--verify"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "had more than 8 tokens" in told["warnings"][0]
    slab = Readback(tmp_path / "slab")
    for row, text in zip(slab.column("text"), TEXTS, strict=True):
        ids = tokenizer.encode(text, add_special_tokens=False).ids[:8]
        assert row.tolist() == ids + [PAD] * (8 - len(ids))
