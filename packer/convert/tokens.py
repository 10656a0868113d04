"""`--tokenize`: text -> tokens. The one file that imports HuggingFace's tokenizers.

The tokenizer is the file that its `save` writes, `tokenizer.json`. A row becomes what
`Tokenizer.encode` makes of it; what that file says of truncation and padding is not heeded.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from fieldslab.packer.convert.dense import compute_lengths, is_text
from fieldslab.packer.convert.fieldplan import ConvertedRows, FieldPlan
from fieldslab.packer.convert.infer import InferredField
from fieldslab.packer.convert.leaves import Leaf
from fieldslab.packer.convert.misfit import Misfit
from fieldslab.packer.convert.shapes import strip_type
from fieldslab.packer.options import Options, Tokenize
from fieldslab.schemas.errors import (
    SourceChanged,
    SourceInconsistent,
    SourceNeedsLibrary,
    SourceUnreadable,
    SourceUnsupported,
    UsageError,
    make_unreadable_source_error,
)
from fieldslab.schemas.optiontext import mark_option

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ATTRIBUTE = "fieldslab.tokens"
PAD_TOKENS = ("[PAD]", "<pad>", "<|pad|>", "<|padding|>", "<PAD>")
"""What the token for padding is called, where the file does not tell."""

END_TOKENS = ("<|endoftext|>", "</s>", "<eos>", "<|end_of_text|>", "[EOS]", "[SEP]")
"""What the token at the end of a text is called."""

_PIECE_BYTES = 2**21
"""So much text is encoded at a time: an encoding takes a hundred times the room of its tokens."""
_MAX_NAMED = 64
"""Special tokens that the attributes name."""


def add_tokenizer_paths(options: Options, files: Sequence[str | Path] = ()) -> Options:
    """Add the path of every tokenizer to options as a manifest records them.

    A manifest has the name and SHA-256 of each. The path is that of the file among `files` with the
    same content, or else with the same name in the working directory. Raises SourceUnreadable.
    """
    by_content = {hashlib.sha256(_read_content(str(file))).hexdigest(): str(file) for file in files}
    tokenizers = {}
    for column, tokenize in options.tokenize.items():
        name = Path(tokenize.file).name
        file = by_content.get(tokenize.sha256 or "", str(files[0]) if files else name)
        if not files and not os.path.isfile(name):
            raise SourceUnreadable(
                "the tokenizer that the slab was packed with is missing",
                file=name,
                field=column,
                expected=f"SHA-256 {tokenize.sha256}",
                hint=f"Name it: {mark_option('tokenizers', ['FILE'])}.",
            )
        tokenizers[column] = msgspec.structs.replace(tokenize, file=str(Path(file).absolute()))
    return msgspec.structs.replace(options, tokenize=tokenizers)


def drop_tokenizer_paths(options: Options) -> Options:
    """Remove the paths of tokenizers from the options: name and SHA-256 identify them."""
    by_column = {
        column: msgspec.structs.replace(tokenize, file=Path(tokenize.file).name)
        for column, tokenize in options.tokenize.items()
    }
    return msgspec.structs.replace(options, tokenize=by_column)


def add_tokenizer_digests(options: Options) -> Options:
    """Add the SHA-256 of every tokenizer to the options.

    Raises SourceUnreadable where a file cannot be read, SourceInconsistent where it is another
    than the options already name.
    """
    tokenizers = {}
    for column, tokenize in options.tokenize.items():
        digest = hashlib.sha256(_read_content(tokenize.file)).hexdigest()
        if tokenize.sha256 not in (None, digest):
            raise SourceInconsistent(
                f"{mark_option('tokenize')}: this is not the tokenizer that the slab was "
                "packed with",
                file=tokenize.file,
                field=column,
                expected=tokenize.sha256,
                found=digest,
            )
        tokenizers[column] = msgspec.structs.replace(tokenize, sha256=digest)
    return msgspec.structs.replace(options, tokenize=tokenizers)


def infer_tokens(leaf: Leaf, tokenize: Tokenize) -> InferredField:
    """Infer the field of a column of text that is tokenized.

    Raises
    ------
    UsageError
        The column is no text, another option speaks of it, or the options do not go with the
        tokenizer.
    SourceUnreadable, SourceUnsupported
        The tokenizer is damaged, is not deterministic, or tokenizers is not installed.
    """
    other_options = {
        "cast": leaf.options.cast,
        "tensor": leaf.options.tensor,
        "image": leaf.options.image,
        "ragged": leaf.options.ragged,
    }
    for other, value in other_options.items():
        if value:
            problem = f"{mark_option('tokenize')} and {mark_option(other)} do not go together"
            raise UsageError(problem, field=leaf.name)
    kind = strip_type(leaf.type)
    if not is_text(kind):
        raise UsageError(
            f"{mark_option('tokenize')}: not a column of text",
            field=leaf.name,
            expected="string",
            found=str(leaf.type),
        )
    tokenizer = _load_tokenizer(tokenize)
    added = tokenizer.num_special_tokens_to_add(False) if tokenize.special_tokens else 0
    if tokenize.max_length is not None and tokenize.max_length <= added:
        raise UsageError(
            f"{mark_option('max_length')}: the tokenizer adds {added} special tokens to each row",
            field=leaf.name,
            expected=f"at least {added + 1}",
            found=tokenize.max_length,
        )
    special = _find_special_tokens(tokenizer)
    attribute: dict[str, Any] = {
        "sha256": tokenize.sha256,
        "vocabulary": tokenizer.get_vocab_size(),
        "special_tokens": dict(list(special.items())[:_MAX_NAMED]),
        "special_tokens_added": tokenize.special_tokens,
    }
    if tokenize.max_length is not None:
        attribute["max_length"] = tokenize.max_length
    pad = _find_pad_id(tokenizer, special)
    if pad is not None:
        attribute["pad"] = pad
    elif tokenize.pad:
        raise UsageError(
            f"{mark_option('pad')}: the tokenizer has no token for padding",
            file=tokenize.file,
            field=leaf.name,
            expected=" or ".join(PAD_TOKENS),
            hint=f"Leave {mark_option('pad')} out: rows are ragged then, and Loader's Pad fills "
            "them with any id.",
        )
    members: dict[str, Any] = {
        "kind": "ragged",
        "dtype": _choose_dtype(tokenizer, tokenize),
        "attributes": {ATTRIBUTE: attribute},
    }
    if tokenize.pad and tokenize.max_length is not None:
        members |= {"kind": "fixed", "shape": (tokenize.max_length,)}
    why = f"tokenized by {Path(tokenize.file).name}, {attribute['vocabulary']:,} tokens"
    return InferredField(f"{why}, of {leaf.type_text}", "tokens", members)


def encode_texts(plan: FieldPlan, array: pa.Array) -> ConvertedRows:
    """Encode texts without nulls as tokens: ragged, or fixed if they are padded.

    Raises Misfit for a text that the tokenizer cannot encode.
    """
    options = plan.options.tokenize
    assert options is not None
    tokenizer = _load_tokenizer(options)
    lengths = np.zeros(len(array), np.int64)
    parts = [np.empty(0, plan.field.storage)]
    row, tally = 0, Counter[str]()
    for piece in _split_texts(array):
        encodings = _encode_in_parallel(tokenizer, piece.to_pylist(), options.special_tokens)
        lengths[row : row + len(encodings)] = [len(encoding) for encoding in encodings]
        row += len(encodings)
        parts.append(_collect_ids([encoding.ids for encoding in encodings], plan.field.storage))
        if options.max_length is not None:
            tally["shortened"] += sum(bool(encoding.overflowing) for encoding in encodings)
    values = np.concatenate(parts)
    if plan.field.variable:
        return ConvertedRows(values, lengths, tally=tally)
    pad = plan.field.attributes[ATTRIBUTE]["pad"]
    padded = np.full((len(array), *plan.field.shape), pad, plan.field.storage)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = values
    return ConvertedRows(padded, tally=tally)


def find_separator(tokenize: Tokenize, name: str | None) -> int | None:
    """Find the id of the token that follows each joined text; None if there is none.

    Without a `name`, texts are told apart by the special tokens that the tokenizer adds to each, or
    else by its token for the end of a text. Raises UsageError where there is none.
    """
    tokenizer = _load_tokenizer(tokenize)
    if name == "":
        return None
    if name is not None:
        token = tokenizer.token_to_id(name)
        if token is None:
            raise UsageError(
                f"{mark_option('separator')}: the tokenizer has no such token",
                file=tokenize.file,
                found=name,
                expected=", ".join(list(_find_special_tokens(tokenizer))[:_MAX_NAMED]) or None,
            )
        return token
    if tokenize.special_tokens and tokenizer.num_special_tokens_to_add(False):
        return None
    special = _find_special_tokens(tokenizer)
    for end in END_TOKENS:
        if end in special:
            return special[end]
    raise UsageError(
        f"{mark_option('pack_sequences')}: nothing would separate the texts",
        file=tokenize.file,
        expected=" or ".join(END_TOKENS),
        hint=f"Name the token that goes between them, {mark_option('separator', 'TOKEN')}; or "
        f"none, {mark_option('separator', '')}.",
    )


def _split_texts(array: pa.Array) -> Iterator[pa.Array]:
    """Parts of about the same size."""
    ends = np.cumsum(compute_lengths(array))
    start = 0
    while start < len(array):
        size = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, size + _PIECE_BYTES)), start + 1)
        yield array.slice(start, stop - start)
        start = stop


def _encode_in_parallel(
    tokenizer: "Tokenizer", texts: list[str], special_tokens: bool
) -> list[Any]:
    """Encodings of texts, made by all cores."""
    try:
        return tokenizer.encode_batch_fast(texts, add_special_tokens=special_tokens)
    except BaseException as error:
        if not _is_from_library(error):
            raise
        raise Misfit(f"the tokenizer cannot encode it: {_format_library_error(error)}") from error


def _collect_ids(rows: list[list[int]], dtype: np.dtype[Any]) -> np.ndarray:
    """Concatenate the ids of all rows. Raises Misfit if one does not fit `dtype`."""
    ids = np.fromiter(chain.from_iterable(rows), np.int64, sum(map(len, rows)))
    if ids.size and ids.max() > np.iinfo(dtype).max:
        raise Misfit("a token is not in the vocabulary", found=int(ids.max()))
    return ids.astype(dtype)


def _read_content(file: str) -> bytes:
    if os.path.exists(file) and not os.path.isfile(file):
        raise SourceUnreadable(f"{mark_option('tokenize')}: not a file", file=file, hint=_NAME_IT)
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise make_unreadable_source_error(
            error, f"the tokenizer cannot be read: {error.strerror}", file=file, hint=_NAME_IT
        ) from error
    except ValueError as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SourceUnreadable(
            f"the tokenizer cannot be read: {reason}", file=file, hint=_NAME_IT
        ) from error


_NAME_IT = "Name the tokenizer.json that `Tokenizer.save` or `save_pretrained` wrote."


def _load_tokenizer(tokenize: Tokenize) -> "Tokenizer":
    return _load_cached(tokenize.file, tokenize.sha256, tokenize.max_length)


@lru_cache(maxsize=8)
def _load_cached(file: str, sha256: str | None, max_length: int | None) -> "Tokenizer":
    """Load the tokenizer in a file, once for a process."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise SourceNeedsLibrary(
            f"{mark_option('tokenize')} needs the library tokenizers: {error}",
            hint="pip install 'tokenizers>=0.21'",
        ) from error
    content = _read_content(file)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise SourceChanged("the tokenizer has changed while it was in use", file=file)
    try:
        tokenizer = Tokenizer.from_str(content.decode())
    except BaseException as error:
        if not _is_from_library(error):
            raise
        raise SourceUnreadable(
            f"not a tokenizer, or damaged: {_format_library_error(error)}", file=file, hint=_NAME_IT
        ) from error
    if getattr(tokenizer.model, "dropout", None):
        raise SourceUnsupported(
            "the tokenizer drops merges at random: each pack would produce other tokens",
            file=file,
            found=f"dropout {tokenizer.model.dropout}",
            hint="Set `tokenizer.model.dropout = None` and save it.",
        )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if max_length is not None:
        tokenizer.enable_truncation(max_length)
    return tokenizer


def _is_from_library(error: BaseException) -> bool:
    """Return True if tokenizers raised it: a plain Exception, or the panic of Rust."""
    not_of_library = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)
    return not isinstance(error, not_of_library)


def _format_library_error(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _find_special_tokens(tokenizer: "Tokenizer") -> dict[str, int]:
    """Special tokens and their ids, by id."""
    added_tokens = tokenizer.get_added_tokens_decoder()
    return {token.content: id for id, token in sorted(added_tokens.items()) if token.special}


def _find_pad_id(tokenizer: "Tokenizer", special: dict[str, int]) -> int | None:
    return next((special[name] for name in PAD_TOKENS if name in special), None)


def _choose_dtype(tokenizer: "Tokenizer", tokenize: Tokenize) -> str:
    """uint16 where all ids fit, int32 otherwise."""
    last = max(tokenizer.get_vocab().values(), default=0)
    if last > np.iinfo(np.int32).max:
        raise SourceUnsupported("a token's id does not fit int32", file=tokenize.file, found=last)
    return "uint16" if last <= np.iinfo(np.uint16).max else "int32"
