"""Schemas of messages, compiled into readers: `schemas.json` is read and compiled on first use.

`Cursor` reads bytes one after the other, each step compared with the bytes that are left.

A reader takes a cursor to the end of one value. It is nested as deep as its schema, which has no
recursion. Each count and length is compared with the bytes that are left, so a value takes memory
in proportion to its bytes.

| type | read as |
|---|---|
| int8 .. int64, uint16, uint32, float64, bool | a number, a truth |
| uuid | `uuid.UUID`; zero where there is none |
| string, bytes and their compact forms | `str` (bad UTF-8 becomes U+FFFD), `bytes`, or None |
| array, compact_array | a tuple, or None |
| struct | a dict: names as Kafka's JSON has them, every field of the version, or None |

A tagged field that is not there has its default. An unknown tag is skipped.

Source: Kafka's message generator (`MessageDataGenerator`), KIP-482.
"""

from __future__ import annotations

import base64
import json
import pkgutil
import struct
from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from typing import Any, Final
from uuid import UUID

from kseg.documents import frozen_dataclass, id_of
from kseg.errors import InvalidRecordError

_VARINT_BYTES_MAX: Final = 5
#: The most items of arrays in one record. As values they need up to a hundred times their bytes.
ITEMS_MAX: Final = 1 << 20


class Cursor:
    """A position in the bytes of one key or value.

    Attributes:
        data: the bytes, borrowed.
        position: the position of the next byte to read.
        end: no byte from here on is read.
        part: "key" or "value", for errors.
        items_left: how many more items of arrays are allowed.
        unknown_tags: tagged fields that were passed over since their tags are not known.
    """

    __slots__ = ("data", "end", "items_left", "part", "position", "unknown_tags")

    def __init__(self, data: bytes, part: str, items_left: int = ITEMS_MAX) -> None:
        """Begin at the first byte."""
        self.items_left = items_left
        self.unknown_tags = 0
        self.data = data
        self.position = 0
        self.end = len(data)
        self.part = part

    @property
    def left(self) -> int:
        """The number of bytes that are left."""
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
        if items * smallest > self.end - self.position:
            raise self.error(f"{what} has {items} items, {self.left} bytes are left")
        if items > self.items_left:
            raise self.error(f"with {what} it has more than {ITEMS_MAX} items in all")
        self.items_left -= items

    def unpack(self, form: struct.Struct, what: str) -> Any:
        """Read one number of a fixed width.

        Raises:
            InvalidRecordError: fewer bytes are left.
        """
        start = self.position
        if form.size > self.end - start:
            raise self.error(f"{what} has {form.size} bytes, {self.left} are left")
        self.position = start + form.size
        return form.unpack_from(self.data, start)[0]

    def uvarint(self, what: str) -> int:
        """Read an unsigned varint of 32 bits, of any length; signed as in Java.

        Only the low 4 bits of a fifth byte count, as in Kafka's `ByteUtils.readUnsignedVarint`.

        Raises:
            InvalidRecordError: the bytes end first, or it is longer than 5 bytes.
        """
        start = self.position
        number = 0
        if start < self.end and (byte := self.data[start]) < 0x80:  # most varints are like this
            self.position = start + 1
            return byte
        for index in range(_VARINT_BYTES_MAX):
            if self.position + index >= self.end:
                raise self.error(f"{what} is a cut varint")
            byte = self.data[self.position + index]
            number |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                self.position += index + 1
                number &= 0xFFFFFFFF
                return number - (1 << 32) if number >> 31 else number
        raise self.error(f"{what} is a varint of more than {_VARINT_BYTES_MAX} bytes")


#: A function that reads one value at a cursor.
Reader = Callable[[Cursor], Any]
#: How many bytes, or items, there are; negative for a null.
Length = Callable[[Cursor], int]
Schema = Mapping[str, Any]

_NUMBERS: Final = {
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "uint16": struct.Struct(">H"),
    "uint32": struct.Struct(">I"),
    "float64": struct.Struct(">d"),
    "bool": struct.Struct(">?"),
}
_UUID_BYTES: Final = 16
#: The type of the length before a value of variable size; compact types have a varint.
_LENGTHS: Final = {"string": "int16", "bytes": "int32", "array": "int32"}
_COMPACT: Final = "compact_"


@frozen_dataclass
class RecordType:
    """One type of record in a topic.

    Attributes:
        name: as Kafka's dump prints it, such as OFFSET_COMMIT.
        key: the message in its key; None where keys say nothing.
        value: the message in its value.
        versions: the known versions of the value, the last one included.
    """

    name: str
    key: str | None
    value: str
    versions: tuple[int, int]


@cache
def load() -> Schema:
    """The contents of `schemas.json`."""
    data = pkgutil.get_data("kseg.internal", "schemas.json")
    assert data is not None  # the package has it
    schemas: Schema = json.loads(data)
    return schemas


@cache
def record_types(topic: str) -> Mapping[int, RecordType]:
    """The types of records in a topic, keyed by id.

    Raises:
        ValueError: it is not one of Kafka's internal topics.
    """
    topic_schema = load()["topics"].get(topic)
    if topic_schema is None:
        raise ValueError(f"{topic!r} is none of {', '.join(load()['topics'])}")
    return {
        record["type"]: RecordType(
            record["name"], record.get("key"), record["value"], tuple(record["value_versions"])
        )
        for record in topic_schema["records"]
    }


@cache
def message_reader(name: str, version: int) -> Reader:
    """The reader of one version of a message.

    Raises:
        KeyError: the message or version does not exist.
    """
    schema = load()["messages"][name][str(version)]
    return _struct(schema["fields"], flexible=schema["flexible"])


# ---- structs -------------------------------------------------------------------------------------


def _struct(fields: list[Schema], *, flexible: bool) -> Reader:
    """The reader of a struct: its fields in order, then its tagged section."""
    plain = [(field["name"], _field(field, flexible)) for field in fields if "tag" not in field]
    tagged = {
        field["tag"]: (field["name"], _field(field, flexible)) for field in fields if "tag" in field
    }
    defaults = {field["name"]: _default(field) for field in fields if "tag" in field}
    structs = [name for name, default in defaults.items() if isinstance(default, dict)]

    def read(cursor: Cursor) -> dict[str, Any]:
        value = {name: reader(cursor) for name, reader in plain}
        if flexible:
            value.update(defaults)
            for name in structs:
                value[name] = dict(value[name])
            _read_tags(cursor, tagged, value)
        return value

    return read


@lru_cache(maxsize=4096)
def _uuid(data: bytes) -> UUID:
    """Read an id; ids are cached, since many records have the same ones."""
    return UUID(bytes=data)


def _read_tags(
    cursor: Cursor, tagged: Mapping[int, tuple[str, Reader]], value: dict[str, Any]
) -> None:
    """Read a tagged section; each tag has two bytes at least, so a wrong count ends soon."""
    end = cursor.end
    for _ in range(cursor.uvarint("the number of tags")):
        tag = cursor.uvarint("a tag")
        size = cursor.uvarint("the size of a tag")
        after = cursor.position + size
        if size < 0 or after > end:
            raise cursor.error(f"tag {tag} has {size} bytes, {cursor.left} are left")
        if tag in tagged:
            name, reader = tagged[tag]
            cursor.end = after
            value[name] = reader(cursor)
            if cursor.position != after:
                raise cursor.error(f"{cursor.left} bytes are left over in tag {tag}, {name}")
            cursor.end = end
        else:
            cursor.unknown_tags += 1
        cursor.position = after


def _field(field: Schema, flexible: bool) -> Reader:
    reader = _reader(field, flexible)
    if field.get("null_mark"):
        return partial(_read_marked, mark=field["null_mark"], name=field["name"], reader=reader)
    return reader


def _read_marked(cursor: Cursor, *, mark: str, name: str, reader: Reader) -> Any:
    """A struct that may be null, after the mark that says so."""
    if mark == "varint":
        is_present = cursor.uvarint(name) != 0
    else:
        is_present = cursor.unpack(_NUMBERS[mark], name) >= 0
    return reader(cursor) if is_present else None


def _default(field: Schema) -> Any:
    """The value of a tagged field that is not there, out of its JSON form."""
    value = field["default"]
    kind = field["type"].removeprefix(_COMPACT)
    if value is None or kind in _NUMBERS or kind == "string":
        return value
    if kind == "uuid":
        return id_of(value)
    if kind == "bytes":
        return base64.b64decode(value)
    if kind == "array":
        assert not value, field
        return ()
    return {
        member["name"]: _default(member | {"default": value[member["name"]]})
        for member in field["fields"]
    }


# ---- values --------------------------------------------------------------------------------------


def _reader(field: Schema, flexible: bool) -> Reader:
    """The reader of a field's type, without the mark of a struct that may be null."""
    kind = field["type"]
    name = field.get("name", "an item")
    nullable = field.get("nullable", False)
    if kind in _NUMBERS:
        number = _NUMBERS[kind]
        return lambda cursor: cursor.unpack(number, name)
    if kind == "uuid":
        return partial(_read_uuid, name=name)
    if kind == "struct":
        return _struct(field["fields"], flexible=flexible)
    length = _length(kind, name)
    if kind.removeprefix(_COMPACT) == "array":
        items = field["items"]
        smallest = max(1, _least_bytes(items, flexible))
        form = _NUMBERS.get(items["type"])
        width = None if form is None else form.format[1:]
        item = _reader({"name": name} | items, flexible)
        return _array(name, length, item, smallest, nullable, width)
    return _blob(name, length, nullable, is_text=kind.removeprefix(_COMPACT) == "string")


def _length(kind: str, name: str) -> Length:
    """A function that reads the length of a text or an array; -1 means null."""
    what = f"the length of {name}"
    if kind.startswith(_COMPACT):
        return lambda cursor: cursor.uvarint(what) - 1
    form = _NUMBERS[_LENGTHS[kind]]
    return lambda cursor: int(cursor.unpack(form, what))


def _blob(name: str, length: Length, nullable: bool, *, is_text: bool) -> Reader:
    """The reader of text, or of bytes."""

    def read(cursor: Cursor) -> str | bytes | None:
        count = length(cursor)
        if count < 0:
            _check_null(cursor, name, nullable)
            return None
        data = cursor.take(count, name)
        return data.decode("utf-8", "replace") if is_text else data

    return read


def _array(
    name: str, length: Length, item: Reader, smallest: int, nullable: bool, width: str | None
) -> Reader:
    """The reader of an array.

    Args:
        name: the name of the field.
        length: reads the number of items.
        item: reads one.
        smallest: the least size of an item, in bytes.
        nullable: whether it may be null.
        width: the `struct` form of numbers; None for other items.
    """

    def read(cursor: Cursor) -> tuple[Any, ...] | None:
        count = length(cursor)
        if count < 0:
            _check_null(cursor, name, nullable)
            return None
        cursor.count(count, smallest, name)
        if width is None:
            return tuple([item(cursor) for _ in range(count)])
        start = cursor.position
        cursor.position = start + count * smallest  # `count` has compared it with the end
        return struct.unpack_from(f">{count}{width}", cursor.data, start)

    return read


def _check_null(cursor: Cursor, name: str, nullable: bool) -> None:
    if not nullable:
        raise cursor.error(f"{name} is null, which it may not be")


def _read_uuid(cursor: Cursor, *, name: str) -> UUID:
    return _uuid(cursor.take(_UUID_BYTES, name))


def _least_bytes(field: Schema, flexible: bool) -> int:
    """The fewest bytes that a value of a field's type can have."""
    kind = field["type"]
    if kind in _NUMBERS:
        return _NUMBERS[kind].size
    if kind == "uuid":
        return _UUID_BYTES
    if kind == "struct":
        plain = (member for member in field["fields"] if "tag" not in member)
        return sum(_least_bytes(member, flexible) for member in plain) + flexible
    return 1 if kind.startswith(_COMPACT) else _NUMBERS[_LENGTHS[kind]].size
