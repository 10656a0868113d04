"""The options of `pack`, said once.

From here follow the keywords of `fieldslab.packer.pack`, the options of `fieldslab pack`, and
their help and reference. `fieldslab.packer.options` parses them.
"""

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Annotated, Any, Literal, Protocol, TypedDict

from fieldslab.packer.definition import Option
from fieldslab.schemas.optiontext import mark_option

SOURCE, COLUMNS, IMAGES, TEXT, OUTPUT = "Source", "Columns", "Images", "Text as tokens", "Output"
HDF5, LITDATA, CSV = "HDF5 sources", "LitData sources", "CSV sources"
FOLDERS, WEBDATASET = "Image folders", "WebDataset sources"
NPY = "Numpy sources"
VERSIONED = "Delta, Iceberg and Lance sources"
TABLES = "Parquet, Arrow IPC, ORC and CSV sources"

DEFAULT_INDEX = 8
"""MCUs from one index point of a JPEG to the next."""

Names = str | Iterable[str]
Pairs = Mapping[str, str] | Iterable[str]
OnError = Literal["raise", "skip"]


class Progress(Protocol):
    """Told of every batch; the CLI draws a bar with it."""

    def __call__(self, rows: int, bytes: int) -> None:
        """So many more rows, of so many bytes, are packed."""


Scratch = Annotated[
    str | PathLike[str] | None,
    Option(
        OUTPUT,
        "DIR",
        "For an output at a URL: the directory in which each shard is packed before it is "
        "uploaded. Takes a shard for each job. The default is the system's temporary directory.",
    ),
]
StorageOptions = Annotated[
    Mapping[str, Any] | None,
    Option(
        OUTPUT,
        "OPTIONS",
        "For sources and an output at URLs: options of obstore, such as `endpoint` and `region`. "
        "Credentials among them stay in this process; others need theirs in the environment.",
        in_shell=False,
    ),
]


class PackOptions(TypedDict, total=False):
    """Every option of `pack`, in the order of its signature."""

    from_: Annotated[
        str | None,
        Option(
            SOURCE,
            "KIND",
            "Kind of source, if the path does not tell: parquet, ipc, orc, csv, jsonl, hdf5, "
            "npy, zarr, delta, iceberg, lance, litdata, webdataset or images.",
        ),
    ]
    rows: Annotated[
        str | tuple[int, int | None] | None,
        Option(
            SOURCE,
            "A:B",
            "Pack only rows A to B (B excluded), counted from 0.",
            python='Give `"A:B"` or `(A, B)`.',
        ),
    ]
    limit: Annotated[int | None, Option(SOURCE, "N", "Pack at most this many rows.", parse=int)]
    fields: Annotated[
        Names | None,
        Option(
            SOURCE,
            "a,b",
            "Pack only these columns: names, or patterns such as 'feature_*'.",
            repeat=True,
        ),
    ]
    exclude: Annotated[
        Names,
        Option(SOURCE, "a,b", "Leave these columns out: names or patterns.", (), repeat=True),
    ]
    rename: Annotated[Pairs, Option(COLUMNS, "OLD=NEW", "Rename a column.", (), repeat=True)]
    cast: Annotated[
        Pairs,
        Option(
            COLUMNS,
            "COL=TYPE",
            "Convert a column to another type: i1 i2 i4 i8, u1 u2 u4 u8, f2 f4 f8 (kind and bytes "
            "of a number), bf16, bool, text, binary, json, categorical or nested (lists of lists).",
            (),
            repeat=True,
        ),
    ]
    nulls: Annotated[
        Mapping[str, Any] | Iterable[str],
        Option(
            COLUMNS,
            "COL=WHAT",
            "How to treat nulls, which are an error by default: 'mask' keeps them and stores a "
            "validity array, any other value replaces them. The column '*' stands for all columns.",
            (),
            repeat=True,
        ),
    ]
    tensor: Annotated[
        Pairs,
        Option(
            COLUMNS,
            "COL=SPEC",
            "Store bytes, hexadecimal text or flat lists as arrays: 'f4[402,500]', 'f4[*,3]' "
            "(first axis of any length), or 'f4,shape_from=COLUMN'.",
            (),
            repeat=True,
        ),
    ]
    ragged: Annotated[
        Pairs,
        Option(
            COLUMNS,
            "COL:SPEC",
            "Store padded rows without their padding: 'pad=0' if zeros pad them, 'len=LENGTHS' if "
            "a column holds their lengths, or 'len=LENGTHS,pad=V' if so and V pads them.",
            (),
            repeat=True,
        ),
    ]
    stack: Annotated[
        Pairs,
        Option(
            COLUMNS,
            "NAME=PATTERN",
            "Store many numeric columns as one field, so that a row is read in one piece. The "
            "pattern names the columns, such as 'feature_*'.",
            (),
            repeat=True,
        ),
    ]
    compress: Annotated[
        Mapping[str, int] | Iterable[str],
        Option(
            COLUMNS,
            "COL[=LEVEL]",
            "Store each row as a zstd frame: smaller, but slower to read. The default level is 3.",
            (),
            repeat=True,
        ),
    ]
    image: Annotated[
        str | Iterable[str] | Mapping[str, str | None],
        Option(
            IMAGES,
            "COL[:FORM]",
            "Treat a column as encoded images (JPEG, PNG and WebP are recognised without this). "
            "They are stored unchanged, or in a form: 'baseline' (progressive JPEG made baseline, "
            "without loss), 'yuv420' or 'rgb' (pixels), or 'jpeg'. Add ',short-side=256' or "
            "',long-side=256' to make larger images smaller, ',fraction=0.5' to decode only half "
            "of the rows, ',quality=95' for jpeg.",
            (),
            repeat=True,
        ),
    ]
    jpeg_index: Annotated[
        int | str | None,
        Option(
            IMAGES,
            "N|rows",
            "Store the state of the decoder every N MCUs of a JPEG (units of mostly 16 x 16 "
            "pixels), or once per row of them, so that crops are decoded without the rest.",
            DEFAULT_INDEX,
            off="Store no such index, which saves 2.4 % of the bytes.",
            python="None stores no index.",
        ),
    ]
    on_error: Annotated[
        OnError,
        Option(
            IMAGES,
            "raise|skip",
            "What to do with a row whose image cannot be decoded: 'raise' stops where pixels are "
            "needed, 'skip' leaves the row out and names it, even where images are stored "
            "unchanged.",
            "raise",
            former_name="damaged_images",
        ),
    ]
    tokenize: Annotated[
        Mapping[str, str | PathLike[str]] | Iterable[str],
        Option(
            TEXT,
            "COL=FILE",
            "Store text as ragged rows of tokens. The file is the tokenizer.json of a HuggingFace "
            "tokenizer.",
            (),
            repeat=True,
        ),
    ]
    max_length: Annotated[
        int | None,
        Option(
            TEXT,
            "N",
            "Cut tokenized rows to this many tokens, special tokens included.",
            parse=int,
        ),
    ]
    pad: Annotated[
        bool,
        Option(
            TEXT,
            None,
            f"Pad tokenized rows to {mark_option('max_length')} with the padding token of the "
            "tokenizer.",
            False,
        ),
    ]
    special_tokens: Annotated[
        bool,
        Option(
            TEXT,
            None,
            "Add the special tokens of the tokenizer to each row.",
            True,
            off="Do not add the special tokens of the tokenizer.",
        ),
    ]
    pack_sequences: Annotated[
        int | None,
        Option(
            TEXT,
            "N",
            "Join all tokenized texts and cut them into rows of this many tokens. The last row is "
            "padded; a warning says by how much. The engines 'processes' and 'ray' make all tokens "
            "twice.",
            parse=int,
        ),
    ]
    separator: Annotated[
        str | None,
        Option(
            TEXT,
            "TOKEN",
            "Token behind each joined text; an empty text for none. The default is the special "
            "tokens of the tokenizer if it adds some, or else its token for the end of a text.",
        ),
    ]
    keep_boundaries: Annotated[
        bool,
        Option(
            TEXT,
            None,
            "Also store where texts begin in each row, as the ragged field COL.starts.",
            False,
        ),
    ]
    drop_last: Annotated[
        bool,
        Option(
            TEXT,
            None,
            "Drop the last row instead of padding it; a warning says how many tokens it had.",
            False,
        ),
    ]
    shuffle: Annotated[
        int | None,
        Option(
            OUTPUT,
            "SEED",
            "Write the rows in random order, the same one for the same seed. Needs temporary space "
            "of the size of the slab.",
            parse=int,
        ),
    ]
    digest: Annotated[
        str,
        Option(
            OUTPUT,
            "NAME",
            "Digest of each 64 KiB of data: 'xxh3' finds accidents, and is fast. 'sha256' also "
            "finds what a forger changed, where the reader knows the slab's id or public key.",
            "xxh3",
        ),
    ]
    force: Annotated[bool, Option(OUTPUT, None, "Replace the slab if it exists.", False)]
    shard_size: Annotated[
        str | int,
        Option(
            OUTPUT,
            "SIZE",
            "Target shard size, e.g. 64M. Large datasets get larger shards.",
            "1G",
        ),
    ]
    engine: Annotated[
        str | None,
        Option(
            OUTPUT,
            "NAME",
            "Where shards are packed: 'here', in this process; 'processes' of this machine; 'ray', "
            "on a cluster that sees the sources and the output. The slab does not depend on it.",
        ),
    ]
    jobs: Annotated[
        int | None,
        Option(
            OUTPUT,
            "N",
            "Number of shards that are packed at a time, each in a process of its own. The default "
            f"is 1; with {mark_option('engine')}, what the machine or the cluster has cores for.",
            parse=int,
            python="As with every use of `multiprocessing`, the calling script needs its "
            '`if __name__ == "__main__":`.',
        ),
    ]
    scratch: Scratch
    storage_options: StorageOptions
    settings: Annotated[
        Mapping[str, Any] | None,
        Option(
            SOURCE,
            "SETTINGS",
            "Settings of the kind of source: `episodes`, `episode_attrs`, `drop_extra_step`, "
            "`rows_attr`, `rows_axis`, `raw`, `external` and `memory` for HDF5, "
            "`block`, `key` and `key_password_file` for LitData, `annotations` and `unmatched` for "
            "image folders, `json_fields` for WebDataset.",
            in_shell=False,
        ),
    ]
    progress: Annotated[
        Progress | None,
        Option(
            OUTPUT,
            "CALLABLE",
            "Called after every batch with its rows and bytes.",
            in_shell=False,
        ),
    ]
