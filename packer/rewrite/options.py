"""The options of `repack`, said once: command line, signature and reference follow."""

from collections.abc import Iterable
from typing import Annotated, Any, TypedDict

from fieldslab.packer.definition import Option
from fieldslab.packer.pack_options import OUTPUT, Progress, Scratch, StorageOptions
from fieldslab.schemas.optiontext import mark_option

ROWS = "Rows and fields"


class RepackOptions(TypedDict, total=False):
    """Every option of `repack`, in the order of its signature."""

    id: Annotated[
        str | None,
        Option(
            ROWS,
            "ID",
            "The id that the slab to read must have, as `fieldslab info` shows it: all of it, or "
            "the first 16 digits or more.",
        ),
    ]
    shuffle: Annotated[
        int | None,
        Option(
            ROWS,
            "SEED",
            "Write the rows in random order. The same seed gives the same order.",
            parse=int,
        ),
    ]
    rows_file: Annotated[
        Any,
        Option(
            ROWS,
            "FILE",
            "Keep only these rows: a .rows file of a saved view, a .npy file of row numbers, or a "
            "text file with a number per line. They keep the order that they have in the slab.",
            python="An array of row numbers, too.",
        ),
    ]
    drop_rows: Annotated[
        Any,
        Option(
            ROWS,
            "FILE",
            "Leave these rows out: a file as above.",
            python="An array of row numbers, too.",
        ),
    ]
    where: Annotated[
        Any,
        Option(
            ROWS,
            "CONDITION",
            'Keep only rows for which this is true, such as "label in [3, 5] and not '
            'is_null(caption)".',
            python="A `pyarrow.compute.Expression`, too.",
        ),
    ]
    missing: Annotated[
        str | None,
        Option(
            ROWS,
            "null",
            "Of many slabs: write nulls where a slab lacks a field that others have. The default "
            "is an error.",
        ),
    ]
    fields: Annotated[
        str | Iterable[str] | None,
        Option(ROWS, "a,b", "Keep only these fields: names or patterns.", repeat=True),
    ]
    exclude: Annotated[
        str | Iterable[str],
        Option(ROWS, "a,b", "Leave these fields out: names or patterns.", (), repeat=True),
    ]
    remove_unused_categories: Annotated[
        str | Iterable[str] | None,
        Option(
            ROWS,
            "a,b",
            "Of these categorical fields, remove the categories that no row has any more: names or "
            "patterns. Codes of the others change.",
            repeat=True,
        ),
    ]
    shard_size: Annotated[
        str | int | None,
        Option(
            OUTPUT,
            "SIZE",
            "Target shard size, e.g. 256M. By default, shards stay as large as they are.",
        ),
    ]
    digest: Annotated[
        str | None,
        Option(
            OUTPUT,
            "NAME",
            "Digest of each 64 KiB of data, 'xxh3' or 'sha256': see `fieldslab pack`. By default "
            "as in the slab that is read, 'sha256' if one of many has it.",
        ),
    ]
    force: Annotated[bool, Option(OUTPUT, None, "Replace the slab if it exists.", False)]
    engine: Annotated[
        str | None,
        Option(
            OUTPUT,
            "NAME",
            "Where shards are written: 'here', 'processes' or 'ray', as for `fieldslab pack`.",
        ),
    ]
    jobs: Annotated[
        int | None,
        Option(
            OUTPUT,
            "N",
            "Number of shards that are written at a time. The slab does not depend on it. The "
            f"default is 1; with {mark_option('engine')}, what the machine or the cluster has "
            "cores for.",
            parse=int,
            python="As with every use of `multiprocessing`, the calling script needs its "
            '`if __name__ == "__main__":`.',
        ),
    ]
    scratch: Scratch
    storage_options: StorageOptions
    progress: Annotated[
        Progress | None,
        Option(OUTPUT, "CALLABLE", "Called with the rows and bytes of each step.", in_shell=False),
    ]
