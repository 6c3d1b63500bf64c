"""Records of bytes that cannot be proved, as lines of JSON: what still parses, and no more.

A damaged batch is read without its checksum, up to the first record that does not parse. Offsets,
keys and values are what its bytes say; each of them may be wrong.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kseg.constants import LOG_OVERHEAD
from kseg.errors import KsegError
from kseg.files.mapping import MappedFile
from kseg.format.columns import decode
from kseg.format.header import ENTRY_BYTES_MIN, scan
from kseg.format.request import Request
from kseg.log.salvage.tables import provable_tables
from kseg.log.salvage.values import ProvableRun

if TYPE_CHECKING:
    from kseg.log.salvage.values import Unprovable

#: A larger batch is not looked into, and none that inflates to more.
_BYTES_MAX: Final = 64 << 20
_DAMAGED: Final = frozenset(("batch-crc", "batch-length", "batch-fields", "torn-tail"))
#: Sound batches that have no place in the log.
_SOUND: Final = frozenset(("not-anchored", "offset-order", "epoch-order", "collision"))
_FIELDS: Final = (
    "base_offset",
    "offset",
    "timestamp",
    "key",
    "value",
    "headers",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "sequence",
    "transactional",
    "control",
)


def unproven_lines(extents: Iterable[Unprovable]) -> Iterator[bytes]:
    """A line for each record of some extents that parses.

    It has `path`, `position` (of its batch), `why` (a word of `REASONS`) and the fields of a line
    of `kseg dump`, bytes in base64.
    """
    for one in extents:
        if one.reason in _DAMAGED or one.reason in _SOUND:
            with suppress(OSError, KsegError), MappedFile.open(one.path, "never") as file:
                for position, size in _batches(one):
                    yield from _lines(file, one, position, size)


def _batches(one: Unprovable) -> Iterator[tuple[int, int]]:
    """Position and size of each batch of an extent; a damaged one is taken for one batch."""
    if one.reason in _DAMAGED:
        yield one.position, one.size
        return
    for _, table in provable_tables([ProvableRun(one.path, one.position, one.size, -1, -1, 0)]):
        yield from zip(table.position.tolist(), table.size.tolist(), strict=True)


def _lines(file: MappedFile, one: Unprovable, position: int, size: int) -> Iterator[bytes]:
    if not ENTRY_BYTES_MIN <= size <= _BYTES_MAX:
        return
    data = bytearray(file.read(position, size))
    # Its length may be what is wrong; it ends where the extent does at the latest.
    data[8:LOG_OVERHEAD] = (len(data) - LOG_OVERHEAD).to_bytes(4, "big")
    table = scan(data, on_bad_crc="ignore")
    request = Request(fields=_FIELDS, control=True, verify_crc=False, inflated_max=_BYTES_MAX)
    place = {"path": one.path, "position": position, "why": one.reason}
    for columns in decode(memoryview(data), table, request, on_error=lambda _error: None):
        for row in columns:
            yield json.dumps({**place, **_told(row)}).encode() + b"\n"


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """A record's fields in JSON."""
    headers = [
        [name.decode("utf-8", "backslashreplace"), _text(value)] for name, value in row["headers"]
    ]
    return {**row, "key": _text(row["key"]), "value": _text(row["value"]), "headers": headers}


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


__all__ = ["unproven_lines"]
