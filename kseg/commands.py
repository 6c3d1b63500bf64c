"""Lines for users: commands ready to be pasted, notes, and text that is safe to print."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Final

from kseg.constants import StrPath


def _log(line: str) -> None:
    import logging  # imported late: it is slow, and few directories need it

    logging.getLogger("kseg").warning(line)


#: Takes a line about what a reading leaves out; the command line writes it in its own way.
note: ContextVar[Callable[[str], object]] = ContextVar("note", default=_log)


def command_line(*words: StrPath) -> str:
    r"""Spell a command: words that need it are quoted.

    The result is one line without control characters, for all words.

    >>> command_line("kseg", "recover", "sp ace/orders-0", "--apply")
    "kseg recover 'sp ace/orders-0' --apply"
    >>> command_line("rm", "two\nlines")
    "rm $'two\\x0alines'"
    """
    return " ".join(_quote_word(os.fspath(word)) for word in words)


#: A part of a sentence that may be left out, and the name of a value.
_OPTIONAL: Final = re.compile(r"\[([^]]*)\]")
_NAME: Final = re.compile(r"\{(\w+)")


def filled(text: str, values: Mapping[str, object]) -> str:
    """A sentence with its values; a part in brackets is left out if a value in it is None.

    >>> filled("offset {offset}[, position {at}]", {"offset": 3, "at": None})
    'offset 3'
    """
    missing = {name for name, value in values.items() if value is None}

    def part(match: re.Match[str]) -> str:
        return "" if missing & set(_NAME.findall(match[1])) else match[1]

    return _OPTIONAL.sub(part, text).format_map(values)


def nearest(word: str, names: Iterable[str], similar: float = 0.6) -> str:
    """The name that is most similar to a word; empty if none is.

    Args:
        word: the unknown word.
        names: the names that exist.
        similar: the least likeness, from 0 to 1.
    """
    from difflib import get_close_matches  # imported late: it is slow, and seldom needed

    return next(iter(get_close_matches(word, list(names), 1, similar)), "")


def suggestion(words: Iterable[str], names: Iterable[str], otherwise: str = "") -> str:
    """The end of a message about unknown words: the most similar name, or other help.

    Args:
        words: the unknown words.
        names: the names that exist.
        otherwise: follows a semicolon if no name is similar; if empty, nothing does.
    """
    candidates = list(names)
    for word in words:
        if name := nearest(word, candidates):
            return f"; did you mean {name}?"
    return otherwise and f"; {otherwise}"


def _quote_word(word: str) -> str:
    """A word in shell syntax; `$'...'` if it holds characters that a terminal would not show."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = (
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b"'\\" else f"\\x{byte:02x}"
        for byte in os.fsencode(word)
    )
    return f"$'{''.join(escaped)}'"


#: C0, DEL, C1, separators, direction marks, and the surrogates that stand for undecodable bytes.
_STEERING = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


def printable(text: str) -> str:
    r"""The text with everything that could steer a terminal as `\uXXXX`, on one line."""
    if text.isascii() and text.isprintable():
        return text  # nearly all texts are
    return re.sub(_STEERING, lambda match: f"\\u{ord(match[0]):04x}", text)


def json_string(text: str) -> bytes:
    """A JSON string, quotes included, in ASCII."""
    import json  # imported late: help, errors and the lines of Kafka's tool do not need it

    return json.dumps(text).encode("ascii")


def csv_field(text: str) -> bytes:
    """A quoted CSV field."""
    return b'"' + printable(text).replace('"', '""').encode() + b'"'
