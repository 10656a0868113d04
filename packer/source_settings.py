"""Settings of kinds of sources: options of `fieldslab pack`, and `settings` in Python."""

from typing import Annotated, Literal, TypedDict

from fieldslab.packer.definition import Option
from fieldslab.packer.pack_options import (
    CSV,
    FOLDERS,
    HDF5,
    LITDATA,
    NPY,
    TABLES,
    VERSIONED,
    WEBDATASET,
)


class SourceSettings(TypedDict, total=False):
    """What the command line passes to a source as `settings`."""

    episodes: Annotated[
        str | None,
        Option(
            HDF5,
            "GROUPS|files|ends:a,b",
            "Pack groups of one layout as episodes, one behind the other: a pattern of their "
            "paths, such as 'data/demo_*'; 'files' if each file is an episode; "
            "'ends:terminals,timeouts' if one of these is true in the last row of each. Adds the "
            "fields episode, step and episode_name.",
        ),
    ]
    episode_attrs: Annotated[
        str | None,
        Option(
            HDF5,
            "a,b",
            "Attributes of episodes that become fields: each row has the value of its episode.",
        ),
    ]
    drop_extra_step: Annotated[
        bool,
        Option(
            HDF5,
            None,
            "Leave out the last value of datasets with one step more than the others of their "
            "episode, such as the observations of Minari.",
            False,
        ),
    ]
    rows_attr: Annotated[
        str | None,
        Option(
            HDF5,
            "NAME",
            "Attribute of each file, or episode, that holds its number of valid rows.",
        ),
    ]
    rows_axis: Annotated[
        int,
        Option(
            HDF5,
            "0|-1",
            "Which axis of datasets has the rows: the first, or -1 for the last, as in files of "
            "MATLAB.",
            0,
            parse=int,
        ),
    ]
    raw: Annotated[bool, Option(HDF5, None, "Pack opaque data as bytes (uint8).", False)]
    external: Annotated[
        bool,
        Option(
            HDF5,
            None,
            "Follow external links, virtual datasets and external storage into other files.",
            False,
        ),
    ]
    memory: Annotated[
        str | None,
        Option(
            HDF5,
            "SIZE",
            "Memory limit for reading in each job, e.g. 4G. The default is half of the machine's "
            "memory.",
        ),
    ]
    block: Annotated[
        int | None,
        Option(
            LITDATA,
            "N",
            "Cut a stream of tokens into rows of N. By default, a row is a document.",
            parse=int,
        ),
    ]
    key: Annotated[
        str | None,
        Option(
            LITDATA,
            "FILE",
            "Key of an encrypted stream, as written by litdata's Encryption.save.",
        ),
    ]
    unify: Annotated[
        str | None,
        Option(
            TABLES,
            "widen",
            "If columns of files differ: 'widen' reads numbers in the widest type of all files "
            "(int32 as int64, float32 as float64), and columns that a file lacks as null.",
        ),
    ]
    delimiter: Annotated[
        str | None,
        Option(
            CSV,
            "SIGN",
            "The sign between values. The default is a comma, and a tab for .tsv.",
        ),
    ]
    header: Annotated[
        bool,
        Option(
            CSV,
            None,
            "The first record holds the names of the columns.",
            True,
            off="The first record is a row; columns are named f0, f1 and so on.",
        ),
    ]
    annotations: Annotated[
        str | None,
        Option(
            FOLDERS,
            "PATH",
            "Annotations of images: a .csv, .jsonl or .parquet with a column file_name, a .json of "
            "COCO, or a folder of .xml of Pascal VOC. By default, those among the images are "
            "recognised; 'none' passes them over.",
        ),
    ]
    unmatched: Annotated[
        str,
        Option(
            FOLDERS,
            "raise|skip|keep",
            "What to do with images that annotations do not list, and with listed images that are "
            "missing: 'raise' stops, 'skip' leaves both out, 'keep' packs the first without "
            "annotations and leaves the second out. A warning counts them.",
            "raise",
        ),
    ]
    table_version: Annotated[
        int | None,
        Option(
            VERSIONED,
            "N",
            "Version of the table, or id of its snapshot, as `TABLE@N` does. The default is the "
            "newest one.",
            parse=int,
        ),
    ]
    npy_files: Annotated[
        Literal["fields", "rows"] | None,
        Option(
            NPY,
            "fields|rows",
            "What .npy files of one folder are: 'fields' side by side, or 'rows' of one array, one "
            "behind the other. The default is fields, and an error where their names are numbered.",
        ),
    ]
    json_fields: Annotated[
        bool,
        Option(
            WEBDATASET,
            None,
            "Make a field of each key of .json members, by the types of the first samples of each "
            "tar. By default they stay text.",
            False,
        ),
    ]
    key_password_file: Annotated[
        str | None, Option(LITDATA, "FILE", "File whose first line is the password of the key.")
    ]
