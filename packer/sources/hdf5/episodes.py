"""Episodes: groups of one layout, or files, whose rows follow each other."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os.path import basename, commonpath, dirname, relpath, splitext
from typing import Any

from fieldslab.schemas.errors import UsageError
from fieldslab.schemas.optiontext import mark_option

FILES, ENDS = "files", "ends:"
_EPISODE_NAME = re.compile(r"(.*[-_. ])?(episode|demo|traj|trajectory|rollout)[-_. ]?[0-9]+")


@dataclass(frozen=True)
class EpisodeRules:
    """What is an episode, and what is kept of it.

    Attributes
    ----------
    groups
        A pattern for each name on the path of a group; () where each file is an episode, or some.
    attributes
        Names of attributes that become columns.
    drop_extra_step
        Whether datasets may have one row more than the others, which is left out.
    rows_attr
        Name of the attribute that says how many rows of an episode are valid.
    ends
        Names of datasets that are not 0 in the last row of an episode, where a file has many.
    """

    groups: tuple[str, ...]
    attributes: tuple[str, ...] = ()
    drop_extra_step: bool = False
    rows_attr: str | None = None
    ends: tuple[str, ...] = ()

    def find_episode(self, name: str) -> str | None:
        """Find the episode that a place in a file lies in: the path of its group, or None."""
        head = name.split("/")[: len(self.groups)] if name else []
        if len(head) < len(self.groups) or not all(map(fnmatchcase, head, self.groups)):
            return None
        return "/".join(head)

    def read_attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Read the attributes of an episode that are needed, as h5py gives them."""
        names = {*self.attributes, self.rows_attr} & set(attributes)
        return {name: attributes[name] for name in names if name is not None}

    def shorten_name(self, group: str) -> str:
        """Shorten the path of a group to what differs: from the first name with a wildcard on."""
        wild = [bool(re.search(r"[*?\[]", pattern)) for pattern in self.groups]
        first = wild.index(True) if True in wild else len(wild) - 1
        return "/".join(group.split("/")[first:])


def parse_episode_rules(
    episodes: Any, attributes: Any, drop_extra_step: Any, rows_attr: str | None
) -> EpisodeRules | None:
    """Parse the options about episodes; None without any. Raises UsageError."""
    if episodes is None:
        for name, value in (("episode_attrs", attributes), ("drop_extra_step", drop_extra_step)):
            if value:
                raise UsageError(f"{mark_option(name)} needs {mark_option('episodes')}")
        return None
    names = attributes.split(",") if isinstance(attributes, str) else attributes or ()
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"{mark_option('episode_attrs')}: not names of attributes", found=repr(attributes)
        )
    if episodes.startswith(ENDS):
        for name, value in (("episode_attrs", names), ("drop_extra_step", drop_extra_step)):
            if value:
                raise UsageError(
                    f"{mark_option(name)} is for episodes that are groups or files, not for "
                    f"`{episodes}`"
                )
        ends = tuple(episodes.removeprefix(ENDS).split(","))
        return EpisodeRules((), rows_attr=rows_attr, ends=ends)
    groups = () if episodes == FILES else tuple(episodes.strip("/").split("/"))
    if groups == ("",):
        raise UsageError(
            f"{mark_option('episodes')}: neither a pattern of groups nor `{FILES}`",
            found=repr(episodes),
            hint=f"Write {mark_option('episodes', 'data/demo_*')} for groups of a file, or "
            f"{mark_option('episodes', FILES)} if each file is an episode.",
        )
    return EpisodeRules(groups, tuple(names), drop_extra_step, rows_attr)


def describe_likely_episodes(paths: Sequence[str]) -> list[str]:
    """Warn that files are called as episodes are, and packed as if they were one."""
    names = [splitext(basename(path))[0].lower() for path in paths]
    if len(names) < 2 or not all(map(_EPISODE_NAME.fullmatch, names)):
        return []
    return [
        f"{len(names):,} files are named as episodes: the option `episodes`, with the value "
        f"`{FILES}`, adds the number, steps and name of each"
    ]


def make_natural_key(text: str) -> tuple[Any, ...]:
    """Make a key that sorts `demo_2` before `demo_10`."""
    parts = re.split("([0-9]+)", text)
    numbers = [part.lstrip("0") for part in parts[1::2]]
    return (*zip(parts[::2], [(len(n), n) for n in numbers] + [(0, "")], strict=True), text)


def name_files(paths: Sequence[str]) -> dict[str, str]:
    """Name files by their paths below the folder that they share, without suffix."""
    folder = commonpath([dirname(path) or "." for path in paths])
    return {path: splitext(relpath(path, folder))[0] for path in paths}
