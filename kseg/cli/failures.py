"""Exit codes, and how an exception becomes one of them and one line on standard error."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum
from functools import cache
from typing import Final, NoReturn

import click

from kseg.commands import command_line, nearest, note, printable
from kseg.errors import (
    KsegError,
    LimitExceededError,
    LogLockedError,
    MisplacedKeyError,
    MissingExtraError,
    NotALogError,
    OffsetOutOfRangeError,
    SegmentInUseError,
    TierError,
    UncleanShutdownError,
    UnreadableError,
)
from kseg.extras import check_memory

_PASSED_OVER: Final = "kseg.passed-over"
#: The prefix of the library's messages for users, for errors whose class says nothing.
MARK: Final = "kseg: "
#: Words of a NotALogError that leave the next step open.
_UNKNOWN: Final = ("an empty directory", "not a name of Kafka's", "not a partition directory")


class Exit(IntEnum):
    """The exit codes of the program."""

    OK = 0
    FOUND = 1  #: damage or a difference, or a dry run that would change bytes
    USAGE = 2
    FILES = 3  #: the file system refused, or the path is not Kafka's
    LIMIT = 4
    BUG = 5
    INTERRUPTED = 130


#: (classes of errors, exit code); the first classes that fit count.
_CODES: Final[tuple[tuple[tuple[type[BaseException], ...], Exit], ...]] = (
    ((MissingExtraError, OffsetOutOfRangeError, MisplacedKeyError), Exit.USAGE),
    # Another process has it now, or the disk cannot read it.
    (
        (NotALogError, LogLockedError, SegmentInUseError, UnreadableError, OSError),
        Exit.FILES,
    ),
    ((LimitExceededError, MemoryError), Exit.LIMIT),
    ((KsegError,), Exit.FOUND),
    ((KeyboardInterrupt,), Exit.INTERRUPTED),
)


def exit_code(error: BaseException) -> Exit:
    """The code for an exception that ended a verb."""
    if type(error) is KsegError:  # raised for a missing part of the machine, such as Java
        return Exit.FILES
    if _is_marked(error):
        return Exit.USAGE
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), Exit.BUG)


def _is_marked(error: BaseException) -> bool:
    """Whether an error is a ValueError about the user's input, such as the scheme of a URL."""
    return isinstance(error, ValueError) and str(error).startswith(MARK)


@contextmanager
def told_warnings() -> Iterator[None]:
    """Write warnings and notes for users in this block as lines, each once."""
    tell = cache(complain)
    before = note.set(tell)
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_: tell(_with_way(str(message)))
        try:
            yield
        finally:
            note.reset(before)


def _with_way(warning: str) -> str:
    """A warning as a line, with the option that avoids it."""
    warning = f"{MARK}warning: {warning.removeprefix(MARK)}"
    if ": read_committed " not in warning:
        return warning
    return (
        f"{warning}; --open-transactions abort takes it for aborted and goes on, "
        "'kseg transactions' shows how to end it"
    )


@contextmanager
def usage_errors(option: str = "", *, marked: str = "") -> Iterator[None]:
    """Make a usage error of a ValueError: the words of a command line are wrong.

    A KsegError passes as it is: some are ValueErrors too, but about files on the disk.

    Args:
        option: the option whose value is read, for the message; empty where the message names it.
        marked: the prefix of the messages that are meant, which is removed; other ValueErrors pass.

    Raises:
        UsageError: the words are wrong.
    """
    try:
        yield
    except KsegError:
        raise
    except ValueError as error:
        text = str(error)
        if not text.startswith(marked):
            raise
        prefix = f"{option}: " if option else ""
        stop = "" if text.endswith("?") else "."
        raise click.UsageError(f"{prefix}{text.removeprefix(marked or MARK)}{stop}") from None


def refuse_verb(context: click.Context, word: str, verbs: Iterable[str]) -> NoReturn:
    """Report an unknown verb, with the most similar verb.

    Raises:
        UsageError: always.
    """
    near = nearest(word, verbs)
    hint = f" Did you mean {near!r}?" if near else ""
    context.fail(f"No such verb {word!r}.{hint}")


def one_line(error: BaseException) -> str:
    """An exception in one line: the problem, its place and reason, without control characters."""
    if isinstance(error, OSError) and not isinstance(error, KsegError):
        prefix = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
        text = f"{prefix}{error.strerror or error}"
    elif isinstance(error, MemoryError):
        text = "out of memory"
    elif isinstance(error, KsegError) or _is_marked(error):
        text = str(error).removeprefix(MARK)
    else:
        text = f"{type(error).__name__}: {error}"
    return printable(text)


def report(error: BaseException, *, debug: bool) -> Exit:
    """Report on standard error the error that ended the verb; returns the exit code."""
    if isinstance(error, ImportError):
        try:
            check_memory(error)
        except MemoryError as short:
            error = short
    code = exit_code(error)
    if code is Exit.INTERRUPTED:
        return code
    if debug:
        import traceback  # rarely wanted, and slow to load

        for lines in traceback.format_exception(error):
            complain(*lines.splitlines())
    hint = ""
    command = ""
    if isinstance(error, UncleanShutdownError):
        # The data directory, as `recover` of one partition that is in order has nothing to do.
        home = "DIR" if error.path is None else os.path.dirname(error.path) or "."
        hint = "; this shows the changes of a recovery, and makes them with --apply:"
        command = command_line("kseg", "recover", home)
    elif code is Exit.FOUND and not isinstance(error, TierError):
        hint = "; 'kseg verify' lists the damage, 'kseg dump' shows the readable part"
    elif code is Exit.FILES:
        hint = _next_step(error)
    elif code is Exit.LIMIT and one_line(error).endswith("out of memory"):
        hint = "; try '--jobs 1', or raise the limit that 'ulimit -v' shows"
    elif code is Exit.BUG:
        hint = "; this is a bug in kseg" + ("" if debug else ", --debug shows where")
    complain(f"kseg: {one_line(error)}{hint}")
    if command:
        complain(f"    {command}")
    return code


def _next_step(error: BaseException) -> str:
    """The end of an error message about a file: a command that shows more, or the nearest name."""
    refused = isinstance(error, NotALogError)
    path = error.path if isinstance(error, NotALogError) else getattr(error, "filename", None)
    if path is None or (refused and not any(word in str(error) for word in _UNKNOWN)):
        return ""
    path = os.path.abspath(os.fsdecode(path))
    if ":/" in path:
        return ""  # the store has said it
    if isinstance(error, PermissionError):
        while not os.path.lexists(path):  # a new file: the directory is at fault
            path = os.path.dirname(path)
        return f"; this shows whose it is: {command_line('ls', '-ld', path)}"
    if not refused and not isinstance(error, FileNotFoundError):
        return ""
    directory = path
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    near = (
        ""
        if directory == path
        else _nearest_name(os.path.relpath(path, directory).partition(os.sep)[0], directory)
    )
    if near and not refused:
        return f"; did you mean {printable(os.path.join(directory, near))}?"
    return f"; this lists the files: {command_line('ls', '-la', directory)}"


def _nearest_name(name: str, directory: str) -> str:
    """The name in a directory that is most similar to a name; empty if none is."""
    try:
        return nearest(name, os.listdir(directory))
    except OSError:
        return ""


def tell_replaced(count: int, prefix: str = "") -> None:
    """Report how many values were written as text although they are not UTF-8, if any."""
    if count:
        values = "1 value is" if count == 1 else f"{count} values are"
        complain(
            f"kseg: warning: {prefix}{values} not UTF-8, and U+FFFD stands for what is not; "
            "--bytes base64 keeps all bytes"
        )


def pass_over(error: OSError) -> None:
    """Report that a file or directory cannot be read, and go on with the rest; see `answer`."""
    complain(f"kseg: {one_line(error)}")
    click.get_current_context().meta[_PASSED_OVER] = True


def has_passed_over() -> bool:
    """Whether something was skipped, by `pass_over`."""
    return bool(click.get_current_context().meta.get(_PASSED_OVER))


def answer(context: click.Context, code: object) -> object:
    """The exit code of a verb that skipped something: 1 for damage, else 3."""
    if not context.meta.get(_PASSED_OVER):
        return code
    return Exit.FOUND if code == Exit.FOUND else Exit.FILES


def complain_of(errors: Iterable[BaseException]) -> None:
    """Write a line for each error."""
    complain(*(f"{MARK}{one_line(error)}" for error in errors))


def complain(*lines: str) -> None:
    """Write lines to standard error, with control characters escaped.

    Does nothing if standard error cannot be written.
    """
    with suppress(OSError):
        sys.stderr.writelines(f"{printable(line)}\n" for line in lines)
        sys.stderr.flush()
