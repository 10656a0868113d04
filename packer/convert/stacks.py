"""`--stack`: which columns become one field, and what that field is."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from fieldslab.packer.column_names import match_names
from fieldslab.packer.convert.fieldplan import FieldPlan
from fieldslab.packer.convert.fillers import parse_filler
from fieldslab.packer.convert.infer import describe_element
from fieldslab.packer.convert.leaves import Leaf, make_unknown_field_error, refuse_unsupported_leaf
from fieldslab.packer.convert.shapes import find_list_sizes
from fieldslab.packer.options import Options
from fieldslab.packer.source import Source
from fieldslab.schemas.errors import SourceInconsistent, SourceUnsupported, UsageError
from fieldslab.schemas.fields import Field
from fieldslab.schemas.optiontext import mark_option


def find_stacks(leaves: list[Leaf], options: Options) -> dict[str, list[Leaf]]:
    """Find the columns of each `--stack`, in the order of the source.

    Raises
    ------
    UnknownField
        A pattern matches no column.
    UsageError
        A column is in two stacks, or is renamed.
    """
    stacks: dict[str, list[Leaf]] = {}
    stacked: set[str] = set()
    for name, pattern in options.stack.items():
        hits = set(match_names(pattern, [leaf.name for leaf in leaves]))
        if not hits:
            raise make_unknown_field_error("stack", pattern, [leaf.name for leaf in leaves])
        if repeated := sorted(stacked & hits):
            raise UsageError(
                f"{mark_option('stack')}: a column is in two stacks", field=repeated[0]
            )
        if renamed := sorted(hits & options.rename.keys()):
            raise UsageError(
                f"{mark_option('rename')}: the column goes into a stack", field=renamed[0]
            )
        stacked |= hits
        stacks[name] = [leaf for leaf in leaves if leaf.name in hits]
    return stacks


def plan_stack(name: str, leaves: list[Leaf], source: Source) -> FieldPlan:
    """Plan the field of a stack.

    Raises
    ------
    UsageError, SourceInconsistent
        The columns differ in what was asked of them, or in type.
    SourceUnsupported
        One does not hold single numbers.
    """
    first = leaves[0].options
    kinds = [_check_stackable(leaf) for leaf in leaves]
    for leaf, kind in zip(leaves, kinds, strict=True):
        if (leaf.options.cast, leaf.options.nulls) != (first.cast, first.nulls):
            raise UsageError(
                f"{mark_option('stack')}: all columns need the same {mark_option('cast')} and "
                f"{mark_option('nulls')}",
                field=leaf.name,
                hint="Give both with the stack's pattern.",
            )
        if kind != kinds[0]:
            raise SourceInconsistent(
                f"{mark_option('stack')}: the columns differ in type",
                field=leaf.name,
                expected=f"{leaves[0].type}, as {leaves[0].name}",
                found=str(leaf.type),
                hint=f"{mark_option('cast')} with the stack's pattern gives them one dtype.",
            )
    members = kinds[0] | {"shape": (len(leaves),)}
    field = Field(name=name, stem="00-x", kind="fixed", **members)
    options = replace(first, nulls="error") if first.nulls == "mask" else first
    sizes = [source.column_bytes(leaf.path) for leaf in leaves]
    return FieldPlan(
        field=field,
        form="stack",
        paths=tuple(leaf.path for leaf in leaves),
        columns=tuple(leaf.name for leaf in leaves),
        options=options,
        filler=parse_filler(field, options.nulls, name),
        why=f"stack of {len(leaves)} columns, {leaves[0].name} to {leaves[-1].name}",
        bytes=None if None in sizes else sum(size or 0 for size in sizes),
    )


def _check_stackable(leaf: Leaf) -> dict[str, Any]:
    """Dtype and logical type of a column of single numbers. Raises SourceUnsupported for others."""
    refuse_unsupported_leaf(leaf)
    options = leaf.options
    shaped = options.tensor or options.image or options.ragged or options.tokenize
    if not (shaped or find_list_sizes(leaf.type)[0]):
        with suppress(SourceUnsupported):  # which would say how to pack it by itself
            members = describe_element(leaf, leaf.type)
            if not members["shape"]:
                return members
    raise SourceUnsupported(
        f"{mark_option('stack')}: only columns of single numbers can be stacked",
        field=leaf.name,
        found=str(leaf.type),
        hint=f"A narrower pattern leaves it out; so does {mark_option('exclude', [leaf.name])}.",
    )
