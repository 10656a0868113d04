"""What errors of obstore mean.

Its texts repeat what was sent and answered: URLs with signatures, names of keys, whole bodies. So
nothing of them is passed on but a status and the name of an error of S3.
"""

import errno
import re
from dataclasses import replace

from fieldslab.schemas.errors import (
    AccessDenied,
    NoSpace,
    ObjectNotFound,
    OutputDenied,
    OutputError,
    OutputExists,
    RemoteUnreadable,
)
from fieldslab.schemas.optiontext import mark_option
from fieldslab.schemas.stores.retries import Failure

_STATUS = re.compile(r"status code: (\d{3})\b|\bstatus: (\d{3})\b")
_CODE = re.compile(r"<Code>([A-Z][A-Za-z]{2,40})</Code>")
_RETRIES = re.compile(r"after (\d+) retries")
_CREDENTIAL_SERVERS = re.compile(
    r"169\.254\.\d+\.\d+|metadata\.google\.internal|//sts\.|oauth2|login\.microsoftonline", re.I
)
_PASSING = (408, 425, 429)
"""Of 4xx, those that pass; all of 5xx do, but 501 and 505."""
_LASTING = (501, 505)

_TRY = "Try again later; if it stays so, look at the server and at the network."
_CREDENTIALS = (
    f"Check the credentials, in the environment or in {mark_option('storage_options')}, and what "
    "they allow. For public buckets: "
    f"{mark_option('storage_options', 'true', column='skip_signature')}."
)
_DENIALS = ("PermissionDeniedError", "UnauthenticatedError")
_BUCKET = "Check the bucket's name, its region (AWS_REGION) and the server (AWS_ENDPOINT_URL)."
_SHORT = re.compile(r"Requested \S+ got ")
SHORT_ATTEMPTS = 3
"""Attempts at a range of which less came, since the object may be shorter than was thought."""
_BROKEN = (
    (re.compile("Timeout|TimedOut|timed out"), "no answer in time"),
    (re.compile("kind: Connect|ConnectError"), "cannot be reached"),
    (re.compile("kind: (Interrupted|Request|Decode)|Incomplete"), "the connection broke"),
)


class EndsEarly(ValueError):
    """The end of an object came before that of a range, and obstore took it for an answer."""


def is_passing(status: int) -> bool:
    """Return True for a status that another attempt may not get."""
    return status in _PASSING or (status >= 500 and status not in _LASTING)


def diagnose_reading(error: Exception) -> Failure:
    """Convert an error of obstore while reading to one of ours."""
    text = str(error)
    status = next((int(a or b) for a, b in _STATUS.findall(text)), None)
    code = _CODE.search(text)
    name = "" if code is None else f" ({code[1]})"
    if _CREDENTIAL_SERVERS.search(text):
        return Failure(AccessDenied, "no credentials were found", _CREDENTIALS, status)
    if isinstance(error, FileNotFoundError) or status == 404:
        hint = _BUCKET if code is not None and code[1] == "NoSuchBucket" else None
        return Failure(ObjectNotFound, f"does not exist{name}", hint, status=status)
    if status in (401, 403) or type(error).__name__ in _DENIALS:
        return Failure(AccessDenied, f"the server denies access{name}", _CREDENTIALS, status)
    if status == 416 or isinstance(error, EndsEarly):
        return Failure(RemoteUnreadable, "the object ends too early", status=status)
    if status is not None:
        problem = f"the server fails{name}" if status >= 500 else f"the server refuses{name}"
        return Failure(RemoteUnreadable, problem, _TRY, status, None if is_passing(status) else 1)
    if "Range request not supported" in text or "non-partial response" in text:
        problem = "the server sends whole objects only, and no ranges of them"
        return Failure(RemoteUnreadable, problem)
    if _SHORT.search(text):
        problem = "the server sends fewer bytes than asked for"
        return Failure(RemoteUnreadable, problem, _TRY, attempts=SHORT_ATTEMPTS)
    problem = next(
        (problem for words, problem in _BROKEN if words.search(text)),
        f"the request failed ({type(error).__name__})",
    )
    return Failure(RemoteUnreadable, problem, _TRY, attempts=None)


def diagnose_writing(error: Exception) -> tuple[Failure, int]:
    """Convert an error of obstore while writing to one of ours, with the number of attempts."""
    failure = diagnose_reading(error)
    retries = _RETRIES.search(str(error))
    attempts = int(retries[1]) + 1 if retries else 1
    if type(error).__name__ in ("AlreadyExistsError", "PreconditionError"):
        return Failure(OutputExists, "exists already", status=failure.status), attempts
    if failure.status == 507 or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return replace(failure, error=NoSpace), attempts
    denied = failure.error is AccessDenied
    return replace(failure, error=OutputDenied if denied else OutputError), attempts
