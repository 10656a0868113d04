"""`fieldslab union`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from fieldslab.packer.commands.params import PATH, Argument, Option, command
from fieldslab.packer.commands.shared import JSON, STORAGE_OPTION
from fieldslab.packer.commands.terminal import print_json, print_lines, report_error
from fieldslab.schemas.errors import FieldslabError, UsageError, combine_errors
from fieldslab.schemas.optiontext import render_for_shell

if TYPE_CHECKING:
    from fieldslab.schemas.unions.unionfile import UnionFile

ACTIONS = ("add", "remove", "list", "verify")
EXAMPLES = """\
Examples:
  fieldslab union all.slabs add monday.slab tuesday.slab
  fieldslab union all.slabs add 'days/*.slab'
  fieldslab union all.slabs add s3://bucket/web.slab --name web
  fieldslab union all.slabs remove monday.slab
  fieldslab union all.slabs verify && fieldslab verify all.slabs"""


@command(
    Argument("union", "NAME.slabs", "The union file, or its URL.", type=PATH),
    Argument("action", "ACTION", f"{', '.join(ACTIONS)}.", type=click.Choice(ACTIONS)),
    Argument(
        "slabs",
        "SLAB...",
        "Slabs to add or remove. What is added may be a pattern in quotes.",
        type=PATH,
        required=False,
    ),
    Option("--name", "Options", "What the slab that is added is called.", "NAME"),
    STORAGE_OPTION,
    JSON,
    examples=EXAMPLES,
)
def union(
    union: str,
    action: str,
    slabs: tuple[str, ...],
    name: str | None,
    storage_options: dict[str, Any] | None,
    as_json: bool,
) -> int:
    """List slabs in a file that is opened as one slab.

    `add` puts slabs at the end, and makes the file if need be. Those that it lists already stay as
    they are, so the same pattern adds new slabs every day. `remove` takes slabs out of the list and
    leaves them where they are. Programs that have the union open keep the slabs they opened. `list`
    shows the rows of each slab, or says why it cannot be opened, and ends with the exit code of
    that error. `verify` checks that each slab is the one that was added, and that fields fit
    together; `fieldslab verify NAME.slabs` reads their bytes as well. Of two who change the file at
    the same time, one is told to run the command again.
    """
    from fieldslab.packer.unions import union_changes

    if action in ("add", "remove") and not slabs:
        raise UsageError(f"`{action}` needs slabs", hint="Name at least one.")
    if action in ("list", "verify") and slabs:
        raise UsageError(f"`{action}` is about all slabs of the union", found=slabs[0])
    if name is not None and action != "add":
        raise UsageError("--name is for `add`")
    if action == "add":
        listed = union_changes.add_slabs(union, slabs, name=name, storage_options=storage_options)
    elif action == "remove":
        listed = union_changes.remove_slabs(union, slabs, storage_options=storage_options)
    else:
        listed = union_changes.read_union_file(union, storage_options)
    if action in ("list", "verify"):
        if action == "verify":
            union_changes.check_union(listed, union, storage_options)
        sources = union_changes.find_union_slabs(listed, union, storage_options)
        return _list_members(listed, sources.count_rows(), as_json)
    if as_json:
        print_json(_to_json(listed))
    else:
        print_lines(_format_summary(listed))
    return 0


def _list_members(listed: "UnionFile", rows: Sequence[int | FieldslabError], as_json: bool) -> int:
    """Print the slabs with their rows, or why they cannot be opened; return the exit code."""
    errors = [count for count in rows if not isinstance(count, int)]
    if as_json:
        row_counts = [count if isinstance(count, int) else None for count in rows]
        problems = [
            {"name": member.label} | count.as_dict(render_for_shell)
            for member, count in zip(listed.members, rows, strict=True)
            if not isinstance(count, int)
        ]
        print_json(_to_json(listed) | {"rows": row_counts, "problems": problems})
    else:
        print_lines(_format_members(listed, rows))
        if errors:
            report_error(combine_errors(errors), as_json=False)
    return errors[0].exit_code if errors else 0


def show_union(
    place: str, storage_options: dict[str, Any] | None, as_json: bool, content: str | None = None
) -> None:
    """Show what the slabs of a union file or pattern are together: rows, fields, their types.

    Raises SlabChanged where all of them do not have the `id` that is asked for.
    """
    from fieldslab.packer.commands.fieldtext import field_to_json, format_type
    from fieldslab.packer.commands.text_format import escape_controls, format_count, format_table
    from fieldslab.packer.unions import union_changes
    from fieldslab.packer.unions.source_slabs import find_slabs
    from fieldslab.schemas.unions.unionfile import UnionFile, UnionMember, is_union_file

    is_file = is_union_file(place)
    slabs = find_slabs(place, missing="null", storage_options=storage_options, id=content)
    with slabs.open() as members:
        manifest = members.manifest
        digests = sorted({files.manifest.digest for files in members.files})
        listed = UnionFile(
            members=tuple(
                UnionMember(path=str(files.path), id=files.manifest.id, name=name)
                for name, files in zip(members.names, members.files, strict=True)
            )
        )
    if is_file:
        listed = union_changes.read_union_file(place, storage_options)
    if as_json:
        fields = [field_to_json(field) for field in manifest.fields]
        summary = {"rows": manifest.rows, "digests": digests, "fields": fields}
        print_json({"path": place} | _to_json(listed) | summary)
        return
    lines = [(field.name, field.kind, format_type(field)) for field in manifest.fields]
    count = format_count(len(listed.members), "slab")
    print(f"{escape_controls(place)}: {format_count(manifest.rows, 'row')} in {count}")
    generation = f", generation {listed.generation}" if is_file else ""
    print(f"id {manifest.id}{generation}")
    print(f"digests {', '.join(digests)}\n")
    print_lines(format_table(("field", "kind", "type"), lines, None))


def _to_json(listed: "UnionFile") -> dict[str, object]:
    members = [{"name": m.label, "path": m.path, "id": m.id} for m in listed.members]
    return {"generation": listed.generation, "id": listed.id, "members": members}


def _format_summary(listed: "UnionFile") -> Iterator[str]:
    from fieldslab.packer.commands.text_format import format_count

    slabs = format_count(len(listed.members), "slab")
    yield f"generation {listed.generation}, {slabs}, id {listed.id[:12]}"


def _format_members(listed: "UnionFile", rows: Sequence[int | FieldslabError]) -> Iterator[str]:
    from fieldslab.packer.commands.text_format import escape_controls, format_table

    lines = [
        (
            escape_controls(member.label),
            f"{count:,}" if isinstance(count, int) else "-",
            member.id[:12],
        )
        for member, count in zip(listed.members, rows, strict=True)
    ]
    yield from format_table(("slab", "rows", "id"), lines, None, right="rows")
    yield ""
    yield from _format_summary(listed)
