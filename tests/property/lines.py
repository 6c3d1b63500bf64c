"""The plain second implementation of reading lines of JSON: the standard library, rule by rule."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

from kseg.cli.append_lines import AppendOptions, read_lines
from kseg.errors import InvalidRecordError

NOW_MS = 77
DEPTH_MAX = 64


class NoRecordError(Exception):
    """What the plain parser says of a line."""


def plain_row(line: str, encoding: str) -> Any:
    """The record of a line, None for none; by the rules, one after another."""
    if not line.strip(" \t\r"):
        return None
    try:
        row = json.loads(line.strip(" \t\r"), parse_constant=refuse, parse_int=whole_number)
    except (ValueError, RecursionError) as error:
        raise NoRecordError from error
    need(type(row) is dict and depth_of(row) <= DEPTH_MAX)
    if row.get("control") is True:
        return None
    need("value" in row and row.get("valid") is not False)
    time = row.get("timestamp")
    need(time is None or (type(time) is int and -1 <= time < 2**63))
    headers = row.get("headers")
    need(headers is None or type(headers) is list)
    pairs = []
    for pair in headers or ():
        need(type(pair) is list and len(pair) == 2 and pair[0] is not None)
        pairs.append((plain_bytes(pair[0], "utf8"), plain_bytes(pair[1], encoding)))
    values = plain_bytes(row["value"], encoding), plain_bytes(row.get("key"), encoding)
    return (*values, NOW_MS if time is None else time, tuple(pairs))


def whole_number(digits: str) -> int:
    """The number; of many digits just a large one, since int() refuses to read thousands."""
    return int(digits[:40])


def depth_of(value: Any) -> int:
    """How many lists and objects lie within each other."""
    if not isinstance(value, (dict, list)):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth_of, inner), default=0)


def refuse(name: str) -> None:
    raise ValueError(name)


def need(holds: bool) -> None:
    if not holds:
        raise NoRecordError


def plain_bytes(text: Any, encoding: str) -> bytes | None:
    if text is None:
        return None
    need(type(text) is str)
    try:
        if encoding == "utf8":
            return text.encode()
        if encoding == "hex":
            need(not text or (text.isascii() and text.isalnum()))
            return bytes.fromhex(text)
        need(len(text) % 4 == 0)
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise NoRecordError from error


def taken(text: bytes, encoding: str) -> list[Any] | str:
    """The rows, or what is said of the line that is none."""
    options = AppendOptions(encoding=encoding, keep_timestamps=True)
    pieces = read_lines(io.BytesIO(text), options, clock=lambda: NOW_MS)
    try:
        return [
            row
            for piece in pieces
            for row in zip(
                piece.value, piece.key, piece.timestamp.tolist(), piece.headers, strict=True
            )
        ]
    except InvalidRecordError as error:
        return str(error)


def agree(text: str, encoding: str) -> None:
    """Both take the lines alike, or refuse the same one."""
    rows, refused = [], None
    for number, line in enumerate(text.split("\n"), 1):
        try:
            rows.append(plain_row(line, encoding))
        except NoRecordError:
            refused = number
            break
    found = taken(text.encode(), encoding)
    if refused is None:
        assert found == [row for row in rows if row is not None]
    else:
        assert isinstance(found, str)
        assert found.startswith(f"line {refused}: ")
