"""Bytes read one after the other: each step is compared with the bytes that are left."""

from __future__ import annotations

import struct
from typing import Any

from kseg.errors import InvalidRecordError

_VARINT_BYTES_MAX = 5
#: Items of arrays in one record. As values they take up to a hundred times their bytes.
ITEMS_MAX = 1 << 20


class Cursor:
    """A place in the bytes of one key or value.

    Attributes:
        data: the bytes, borrowed.
        position: of the next byte to read.
        end: no byte from here on is read.
        part: "key" or "value", for errors.
        items_left: how many items of arrays may still come.
    """

    __slots__ = ("data", "end", "items_left", "part", "position")

    def __init__(self, data: bytes, part: str, items_left: int = ITEMS_MAX) -> None:
        """Stand in front of the first byte."""
        self.items_left = items_left
        self.data = data
        self.position = 0
        self.end = len(data)
        self.part = part

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return self.end - self.position

    def error(self, reason: str) -> InvalidRecordError:
        """The error about the bytes here."""
        return InvalidRecordError(f"the {self.part}: {reason}", position=self.position)

    def take(self, count: int, what: str) -> bytes:
        """The next bytes.

        Raises:
            InvalidRecordError: fewer are left, or the count is negative.
        """
        start = self.position
        if not 0 <= count <= self.end - start:
            raise self.error(f"{what} has {count} bytes, {self.left} are left")
        self.position = start + count
        return self.data[start : self.position]

    def count(self, items: int, smallest: int, what: str) -> None:
        """Compare the number of an array's items with the bytes that are left, and the limit.

        Raises:
            InvalidRecordError: they do not fit, with `smallest` bytes each at least; or the
                record has more than any that Kafka writes.
        """
        if items * smallest > self.left:
            raise self.error(f"{what} has {items} items, {self.left} bytes are left")
        if items > self.items_left:
            raise self.error(f"with {what} it has more than {ITEMS_MAX} items in all")
        self.items_left -= items

    def unpack(self, form: struct.Struct, what: str) -> Any:
        """One number of a fixed width.

        Raises:
            InvalidRecordError: fewer bytes are left.
        """
        start = self.position
        if form.size > self.end - start:
            raise self.error(f"{what} has {form.size} bytes, {self.left} are left")
        self.position = start + form.size
        return form.unpack_from(self.data, start)[0]

    def uvarint(self, what: str) -> int:
        """An unsigned varint of 32 bits, longer than needed or not; as Java has it, with a sign.

        Of a fifth byte the low 4 bits count, as in Kafka's `ByteUtils.readUnsignedVarint`.

        Raises:
            InvalidRecordError: the bytes end first, or it is longer than 5 bytes.
        """
        number = 0
        for index in range(_VARINT_BYTES_MAX):
            if self.position + index >= self.end:
                raise self.error(f"{what} is a varint that is cut off")
            byte = self.data[self.position + index]
            number |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                self.position += index + 1
                number &= 0xFFFFFFFF
                return number - (1 << 32) if number >> 31 else number
        raise self.error(f"{what} is a varint of more than {_VARINT_BYTES_MAX} bytes")
