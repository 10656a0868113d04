"""Between the commands and the shell: streams, signals, errors, exit codes."""

import json
import os
import signal
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

from fieldslab.packer.commands import events
from fieldslab.packer.commands.text_format import escape_controls
from fieldslab.schemas.errors import FieldslabError
from fieldslab.schemas.optiontext import render_for_shell

INTERRUPTED = 130
MOST_ERRORS = 20
"""Most errors to print if many come together; JSON has all of them."""
BUG = 70
"""Exit code of what should never happen; `EX_SOFTWARE` of sysexits.h."""


class Interrupted(Exception):
    """Ctrl-C or SIGTERM; the message says what is left behind, and what a rerun does."""


def run_guarded(command: Callable[[], int], *, as_json: bool, as_events: bool = False) -> int:
    """Run a command and return its exit code; whatever it raises is said in a line or two."""
    events.enable_events(as_events)
    try:
        code = _run_and_report(command, as_json)
        events.write_event("end", code=code)
        return code
    finally:
        events.enable_events(False)


def _run_and_report(command: Callable[[], int], as_json: bool) -> int:
    # Where the shell has closed a stream, Python has none.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        with _handle_signals(), convert_interrupts(lambda: ""):
            code = command()
            sys.stdout.flush()
        return code
    except FieldslabError as error:
        report_error(error, as_json=as_json)
        return error.exit_code
    except (KeyboardInterrupt, Interrupted) as error:
        text = f"interrupted: {error}" if str(error) else "interrupted"
        _report_failure(text, "Interrupted", text, as_json)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has seen enough. Python must not flush into the pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        text = f"{where}{error.strerror or error}"
        _report_failure(f"error: {text}", type(error).__name__, text, as_json)
        return 3
    except Exception as error:  # noqa: BLE001  # a bug: its traceback is what a report needs
        traceback.print_exc()
        text = "this is a bug in fieldslab; please report it"
        _report_failure(f"error: {text}", type(error).__name__, text, as_json)
        return BUG


_received: list[int] = []
"""Signals that this run of a command was stopped by."""


@contextmanager
def convert_interrupts(describe: Callable[[], str]) -> Iterator[None]:
    """Raise Interrupted, with what `describe` says, whatever became of the signal in between.

    Libraries that are being imported turn a KeyboardInterrupt into errors of their own.
    """
    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt as error:
        raise Interrupted(describe()) from error
    except Exception as error:
        if not _received:
            raise
        raise Interrupted(describe()) from error


def report_error(error: FieldslabError, *, as_json: bool) -> None:
    """Say what is wrong: on stderr for people, or as one line of JSON on stdout."""
    if as_json:
        print_json(error.as_dict(render_for_shell), indent=None)
        return
    if events.are_events_on():
        events.write_event("error", **error.as_dict(render_for_shell))
        return
    errors = (error, *error.others)
    for shown in errors[:MOST_ERRORS]:
        statement, hint = shown.render_for_shell()
        _print_message(f"error: {statement}", hint)
    if len(errors) > MOST_ERRORS:
        _print_message(f"error: ... and {len(errors) - MOST_ERRORS} more like these")


def print_warning(text: str) -> None:
    """Print a warning on stderr."""
    if events.are_events_on():
        events.write_event("warning", text=text)
    else:
        _print_message(f"warning: {text}")


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print one JSON value on stdout; in one line if `indent` is None."""
    _write_line(json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False))


def print_lines(lines: Iterator[str]) -> None:
    """Print lines on stdout."""
    for line in lines:
        _write_line(line)


def get_terminal_width(stream: TextIO) -> int | None:
    """Return the columns of the terminal; None for a pipe or a file."""
    if not stream.isatty():
        return None
    if os.environ.get("COLUMNS", "").isdigit():
        return int(os.environ["COLUMNS"])
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def _report_failure(text: str, name: str, problem: str, as_json: bool) -> None:
    """Report an exception that ended a command and is not a FieldslabError."""
    if as_json:
        print_json({"error": name, "problem": problem, "hint": None}, indent=None)
    elif events.are_events_on():
        events.write_event("error", error=name, problem=problem, hint=None)
    else:
        _print_message(text)


def _print_message(text: str, hint: str | None = None) -> None:
    """Print text on stderr, with its hint in a paragraph below."""
    width = get_terminal_width(sys.stderr)
    for part, indent in ((text, ""), (hint, "  ")):
        if not part:
            continue
        if width is None:
            _write_line(indent + escape_controls(part), sys.stderr)
            continue
        filled = textwrap.fill(
            escape_controls(part),
            max(width, 40),
            initial_indent=indent,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        _write_line(filled, sys.stderr)


def _write_line(text: str, stream: TextIO | None = None) -> None:
    (stream or sys.stdout).write(text + "\n")


@contextmanager
def _handle_signals() -> Iterator[None]:
    """Let SIGTERM interrupt as Ctrl-C does. The second signal ends the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    caught = [number for number in numbers if before[number] is not signal.SIG_IGN]

    _received.clear()

    def interrupt(number: int, frame: FrameType | None) -> None:
        _received.append(number)
        for each in caught:
            signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt

    for number in caught:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, before[number])
