"""Lines of JSON gone wrong: each text is records or one error, and its length changes neither."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np

from kseg.cli.append import AppendOptions, encode_lines, read_lines
from kseg.errors import KsegError
from kseg.format.typed import decode_column
from kseg.format.values import BinaryColumn, Kind, RecordColumns

#: The plain parser is slow: it reads some of the texts.
_PLAIN_SHARE = 0.25


class Trickle(io.BytesIO):
    """Gives a few bytes at a time."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size or 0, 23))


def outcome(made: Iterator[Any]) -> tuple[list[Any], str | None]:
    """What came in front of an error, and the error."""
    found: list[Any] = []
    try:
        found.extend(made)
    except KsegError as error:
        return found, str(error)
    return found, None


def decode_values(data: bytes, source: Random) -> None:
    """Cut a text anywhere, and take the parts for each kind of value that there is."""
    cuts = sorted(source.randrange(len(data) + 1) for _ in range(source.randrange(9)))
    ends = np.array([0, *cuts, len(data)], np.int32)
    column = BinaryColumn(ends, np.frombuffer(data, np.uint8).copy(), None, 0)
    for kind in Kind:
        values, errors = decode_column(column, kind)
        for value, reason in zip(values, errors, strict=True):
            assert reason is None or value is None
        if kind is Kind.JSON and source.random() < _PLAIN_SHARE:
            for stored, reason in zip(column, errors, strict=True):
                assert "deep" in (reason or "") or (reason is None) == is_json(stored or b"")


def is_json(value: bytes) -> bool:
    """Whether Python's library takes it, but for its words for no numbers."""
    try:
        json.loads(value.decode(), parse_constant=int, parse_int=float)
    except (ValueError, RecursionError):
        return False
    return True


def read_text(data: bytes, source: Random) -> list[RecordColumns]:
    """Read a text whole, then as a trickle into batches; and as values of records."""
    decode_values(data, source)
    encoding = source.choice(("base64", "utf8", "hex"))
    options = AppendOptions(
        encoding=encoding,
        keep_timestamps=source.random() < 0.5,
        batch_bytes=source.choice((1, 100, 16384)),
        batch_records=source.choice((None, None, 1, 3)),
    )
    pieces, error = outcome(read_lines(io.BytesIO(data), options, clock=lambda: 5))
    made = encode_lines(Trickle(data), options, base_offset=0, clock=lambda: 5)
    batches, said = outcome(made)
    assert said == error
    count = 0
    for batch in batches:
        assert batch.base_offset == count
        count += batch.record_count
    if error is None:
        assert count == sum(map(len, pieces))
    return pieces
