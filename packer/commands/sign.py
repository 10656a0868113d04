"""`fieldslab sign`."""

from pathlib import Path
from typing import Any

import click

from fieldslab.packer.commands.params import PATH, Argument, Option, command
from fieldslab.packer.commands.shared import ID, JSON, STORAGE_OPTION
from fieldslab.packer.commands.terminal import print_json
from fieldslab.schemas.errors import UsageError

EXAMPLES = """\
Examples:
  fieldslab sign train.slab --new-key lab.key          makes lab.key and lab.pub
  fieldslab sign train.slab --key lab.key
  fieldslab sign s3://bucket/train.slab --key lab.key
  fieldslab verify train.slab --public-key lab.pub
  minisign -Vm train.slab/manifest.json -p lab.pub     the same without fieldslab"""


@command(
    Argument("slab", "SLAB", "A directory that pack wrote, or its URL.", type=PATH),
    Option(
        "--key", "Options", "A key of minisign or --new-key, without a password.", "FILE", type=PATH
    ),
    Option(
        "--new-key",
        "Options",
        "Make this key first, such as lab.key, which you keep, and lab.pub, which you publish.",
        "FILE",
        type=PATH,
    ),
    ID,
    Option(
        "-o --output",
        "Options",
        "Write the signature to this file, for a slab where you cannot write.",
        "FILE",
        type=click.Path(path_type=Path),
    ),
    STORAGE_OPTION,
    JSON,
    examples=EXAMPLES,
)
def sign(
    slab: str,
    key: str | None,
    new_key: str | None,
    content: str | None,
    output: Path | None,
    storage_options: dict[str, Any] | None,
    as_json: bool,
) -> None:
    """Sign a slab, so that others can tell that it is yours and unchanged.

    The signature (Ed25519, in the format of minisign) covers manifest.json, and lies beside it as
    manifest.json.minisig, also in a bucket. Who reads the slab without a key does not notice it.
    """
    from fieldslab.schemas.folder import check_pinned
    from fieldslab.schemas.signatures import create_key, find_signature_place, sign_slab
    from fieldslab.schemas.stores.slab_objects import open_slab_anywhere

    if (key is None) == (new_key is None):
        raise UsageError("a slab is signed with one key", hint="Give --key or --new-key.")
    path = Path(key or new_key or "")
    with open_slab_anywhere(slab, storage_options=storage_options) as files:
        check_pinned(content, files.manifest.id, files.path)
        place = find_signature_place(files, output)
        if new_key is not None:
            create_key(path)
        public = sign_slab(files, path, place)
        if as_json:
            print_json({"path": slab, "id": files.manifest.id, "key": public.name})
            return
        print(f"{slab}: signed {files.manifest.id[:16]} with key {public.name}")
        if output is not None:
            print(f"{output}: belongs into the slab, as manifest.json.minisig")
