"""`fieldslab verify`."""

from collections.abc import Sequence
from typing import Any

import click

from fieldslab.packer.commands.params import MESSAGES, PATH, Option, command
from fieldslab.packer.commands.shared import (
    FOLLOW_LINKS,
    ID,
    JSON,
    PROGRESS,
    SLAB_LIST,
    STORAGE_OPTION,
    verify_with_bar,
)
from fieldslab.packer.commands.terminal import print_json, print_warning
from fieldslab.packer.commands.text_format import escape_controls
from fieldslab.schemas.errors import BadSignature, Damaged, NotASlab, UsageError
from fieldslab.schemas.optiontext import render_for_shell

CHECKS = "Checks"
SCRUB = "Scrubs that take their time"
EXAMPLES = """\
Examples:
  fieldslab verify train.slab
  fieldslab verify train.slab --sample 3/30            the third of thirty nights
  fieldslab verify train.slab --against train.parquet
  fieldslab verify train.slab --rate 50M --resume scrub.json    slowly, in many short runs"""


_ACCIDENTS_ONLY = (
    "its blocks have XXH3 digests, which find accidents: what a forger changed in blocks is not "
    "found. Slabs with --digest sha256 have digests that find it"
)


@command(
    SLAB_LIST,
    Option(
        "--quick",
        CHECKS,
        "Check files, headers, digest tables, offsets and codes, but do not read the values.",
    ),
    Option(
        "--sample",
        CHECKS,
        "Read only a part: 5% at random, the third of thirty parts, or about 10 GiB at random.",
        "5%|3/30|10G",
    ),
    Option(
        "--against",
        CHECKS,
        "Compare every value with this source, packed with the same options. May be repeated.",
        "SRC",
        multiple=True,
        type=PATH,
    ),
    Option(
        "--from from_", CHECKS, "Kind of this source, if the slab was packed from another.", "KIND"
    ),
    Option(
        "--tokenizer tokenizers",
        CHECKS,
        "The tokenizer.json that the slab was packed with, for --against. May be repeated. The "
        "default is the file of the same name in the working directory.",
        "FILE",
        multiple=True,
        type=PATH,
    ),
    Option(
        "--public-key",
        CHECKS,
        "First check that each slab was signed with this key of `fieldslab sign` or minisign: a "
        "file or URL. Of a union file, all slabs.",
        "FILE",
        type=PATH,
    ),
    ID,
    Option("--fields", CHECKS, "Check only these fields: names or patterns.", "a,b", multiple=True),
    Option("--rate", SCRUB, "Read at most so many bytes per second.", "SIZE"),
    Option(
        "--max-load",
        SCRUB,
        "Wait while more processes than this ran or waited for a disk, on average of a minute.",
        "N",
        type=click.FloatRange(min=0, min_open=True),
    ),
    Option(
        "--resume",
        SCRUB,
        "Go on behind the block at which the last run with this file was ended, and keep it up to "
        "date. A run after a complete one begins again.",
        "STATE.json",
        type=PATH,
    ),
    Option("--repeat", SCRUB, "Begin again after the last block, at most once a minute."),
    Option(
        "--metrics", SCRUB, "Write counters for Prometheus' node_exporter.", "FILE.prom", type=PATH
    ),
    FOLLOW_LINKS,
    STORAGE_OPTION,
    Option(
        "--max-errors",
        MESSAGES,
        "Print the first N problems; all are counted.",
        "N",
        type=click.IntRange(min=0),
        default=20,
    ),
    PROGRESS,
    JSON,
    Option("-q --quiet", MESSAGES, "Print nothing about a slab that is whole."),
    examples=EXAMPLES,
)
def verify(
    slabs: Sequence[str],
    quick: bool,
    sample: str | None,
    against: Sequence[str],
    from_: str | None,
    tokenizers: Sequence[str],
    public_key: str | None,
    content: str | None,
    fields: Sequence[str],
    rate: str | None,
    max_load: float | None,
    resume: str | None,
    repeat: bool,
    metrics: str | None,
    follow_links: bool,
    storage_options: dict[str, Any] | None,
    max_errors: int,
    progress: str,
    as_json: bool,
    quiet: bool,
) -> int:
    """Check that slabs are what pack wrote, byte for byte.

    Prints one line for every problem, with the rows that it affects, then OK or FAILED for each
    slab; with --json one line for each slab, an object with "path" and "ok". With several slabs
    the exit code is the highest.

    With any option of a scrub, blocks are read in one thread, what was not in memory is not kept
    there, and with --json each problem is a line when it is found, an object with "path" and
    "problem". Ctrl-C or SIGTERM ends a scrub with exit code 130; the state then names the next
    block.
    """
    from fieldslab.packer.unions.union_changes import expand_pinned_places
    from fieldslab.schemas.folder import check_pinned
    from fieldslab.schemas.signatures import check_signature, load_public_key
    from fieldslab.schemas.stores.slab_objects import is_remote, open_slab_anywhere

    places = expand_pinned_places(slabs, content, storage_options)
    slabs = [place for place, _ in places]
    trusts = public_key is not None or content is not None
    if trusts and (repeat or rate or max_load or resume or metrics):
        problem = "--public-key and --id do not go with options of a scrub: verify once with them"
        raise UsageError(problem)
    key = None if public_key is None else load_public_key(public_key, storage_options)
    if repeat or any(option is not None for option in (rate, max_load, resume, metrics)):
        from fieldslab.packer.commands.scrubbing import scrub_slabs

        if quick or sample is not None or against or fields:
            raise UsageError(
                "--rate, --max-load, --resume, --repeat and --metrics read every block: they do "
                "not go with --quick, --sample, --against and --fields"
            )
        return scrub_slabs(
            slabs,
            rate=rate,
            max_load=max_load,
            resume=resume,
            repeat=repeat,
            metrics=metrics,
            follow_links=follow_links,
            storage_options=storage_options,
            max_errors=max_errors,
            as_json=as_json,
            quiet=quiet,
            hidden=progress == "none" or quiet or as_json,
        )
    if against and len(slabs) > 1:
        raise UsageError(
            "--against compares one slab with its source",
            found=f"{len(slabs)} slabs",
            hint="Verify each of them against its own source.",
        )
    code, hidden = 0, progress == "none" or quiet or as_json
    for slab, pinned in places:
        try:
            if trusts:
                with open_slab_anywhere(
                    slab,
                    follow_links=follow_links,
                    storage_options=storage_options if is_remote(slab) else None,
                ) as files:
                    check_pinned(pinned, files.manifest.id, files.path)
                    if key is not None:
                        check_signature(files, key)
                    pinned = files.manifest.id
                    if files.manifest.digest == "xxh3" and not quiet:
                        print_warning(f"{slab}: {_ACCIDENTS_ONLY}")
            checked = verify_with_bar(
                slab,
                hidden=hidden,
                silent=as_json,
                quick=quick,
                sample=sample,
                against=against or None,
                from_=from_,
                tokenizers=tokenizers,
                fields=fields or None,
                max_errors=max_errors,
                follow_links=follow_links,
                storage_options=storage_options,
                id=pinned,
            )
        except (NotASlab, BadSignature) as error:
            if as_json:
                print_json(
                    {"path": slab, "ok": False} | error.as_dict(render_for_shell), indent=None
                )
            else:
                statement, hint = error.render_for_shell()
                print(f"FAILED: {escape_controls(f'{statement}. {hint}' if hint else statement)}")
            code = max(code, error.exit_code)
            continue
        if as_json:
            print_json(checked.as_dict(), indent=None)
        elif not (quiet and checked.ok):
            print(checked)
            if key is not None and checked.ok:
                print(f"signed with key {key.name}")
        code = max(code, 0 if checked.ok else Damaged.exit_code)
    return code
