"""Make text from names and messages safe to print, as the text kernel does for bytes."""

from __future__ import annotations

import re

#: C0, DEL, C1, separators, direction marks, and the surrogates that stand for undecodable bytes.
_STEERING = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


def printable(text: str) -> str:
    r"""The text with everything that could steer a terminal as `\uXXXX`, on one line."""
    if text.isascii() and text.isprintable():
        return text  # as nearly all is
    return re.sub(_STEERING, lambda match: f"\\u{ord(match[0]):04x}", text)


def json_string(text: str) -> bytes:
    """A JSON string, quotes included, in ASCII."""
    import json  # help, errors and the lines of Kafka's tool do without

    return json.dumps(text).encode("ascii")


def csv_field(text: str) -> bytes:
    """A quoted CSV field."""
    return b'"' + printable(text).replace('"', '""').encode() + b'"'
