"""What a process and its helper say to each other: frames of msgpack over a pair of sockets.

A frame is its length as uint32, then one message. Nothing is pickled, and nothing that could hold a
credential is on the helper's command line.
"""

import struct
from typing import Any

import msgspec

from fieldslab.schemas import errors
from fieldslab.schemas.errors import DamagedArray, FieldslabError

LENGTH = struct.Struct("<I")


class Open(msgspec.Struct, tag=True):
    """Open the store of a slab, under a number, and answer with an object: that of its manifest.

    `most` is the most bytes that it may have. `environment` is what stores may look for in the
    environment, as it is now.
    """

    request: int
    slab: int
    place: str
    options: dict[str, Any]
    environment: dict[str, str]
    key: str
    most: int | None


class Attach(msgspec.Struct, tag=True):
    """Fetch for this mirror of the slab from now on; its manifest must have the `id` `content`."""

    request: int
    slab: int
    content: str
    cache: str
    limit: int | None
    shared: bool
    temporary: bool


class Fetch(msgspec.Struct, tag=True):
    """Fetch blocks: `ranges` is int64[n, 2] of positions.

    With `again`, marked blocks are fetched, too. Without `demand`, it is a prefetch: nothing waits
    for it yet, and `share` is how much of the data around is needed later, from 0 to 1.
    """

    request: int
    slab: int
    ranges: bytes
    demand: bool
    again: bool = False
    share: float = 0.0


class Cancel(msgspec.Struct, tag=True):
    """Cancel all fetches that nothing waits for."""

    slab: int


class Detach(msgspec.Struct, tag=True):
    """Nobody reads this slab any more."""

    slab: int


class Reply(msgspec.Struct, tag=True):
    """The request is done; `content` is what was asked for."""

    request: int
    content: bytes


class Failure(msgspec.Struct, tag=True):
    """The request failed: what `decode_error` makes an error of.

    `position` is that of the block which is damaged.
    """

    request: int
    kind: str
    problem: str
    hint: str | None
    context: dict[str, Any]
    errno: int | None
    position: int | None


class DamagedBlock(Exception):
    """A block does not match its digest, however often it is fetched: its position."""

    def __init__(self, position: int, error: DamagedArray) -> None:
        super().__init__(position, error)
        self.position = position
        self.error = error


Request = Open | Attach | Fetch | Cancel | Detach
Answer = Reply | Failure

_encoder = msgspec.msgpack.Encoder()
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode


def encode_frame(message: Request | Answer) -> bytes:
    """Encode a message with its length. Raises TypeError where an option is no plain value."""
    content = _encoder.encode(message)
    return LENGTH.pack(len(content)) + content


def encode_error(request: int, error: BaseException, position: int | None = None) -> Failure:
    """Describe an error to the other side."""
    if not isinstance(error, FieldslabError):
        problem = f"the helper process failed: {type(error).__name__}: {error}"
        return Failure(request, "WorkerDied", problem, None, {}, None, None)
    problem, hint = error.marked
    context = {
        key: value if isinstance(value, int | float | str) else str(value)
        for key, value in error.context.items()
    }
    number = getattr(error, "errno", None) if isinstance(error, errors.Unreadable) else None
    return Failure(request, type(error).__name__, problem, hint, context, number, position)


def decode_error(failure: Failure) -> FieldslabError:
    """Make an error of what the other side said."""
    kind = getattr(errors, failure.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, FieldslabError)):
        kind = FieldslabError
    context = dict(failure.context)
    if issubclass(kind, errors.Unreadable):
        context["errno"] = failure.errno
    return kind(failure.problem, hint=failure.hint, **context)
