"""Protobuf to structs: the messages of one type, whose `.proto` text a compiler has read.

The compiler runs in a process of its own, in a directory that holds the text and its references,
and nothing else. A recursive type has no columns, so it is refused.

Types: an absent field is null if it tracks presence; others have their default. An
enum is the name of its value, or the number where no name is; a Timestamp is `timestamp[us, UTC]`,
a Duration `duration[us]`, finer parts are cut; a wrapper such as `Int64Value` is its value.

ptars decodes in bulk. It lacks many checks, so a kernel examines each payload first; unusual
payloads go to protobuf itself, as do types that ptars does not support.

Source: protobuf.dev, "Encoding" and "Language Guide".
"""

from __future__ import annotations

import os
import re
import sys
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kseg._kernels.protobuf import DEPTH_MAX, SLOTS_MAX, mark_messages
from kseg.constants import INT32_MAX, INT64_MAX, INT64_MIN, Bools, Uint8s
from kseg.decode.payloads import ODD, VALUES_MAX, Block, Reasons, decode_blocks
from kseg.errors import KsegError, LimitExceededError, SchemaError
from kseg.extras import require
from kseg.internal.registry import Schema

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = require("pyarrow", extra="protobuf")

#: The longest compilation; most take milliseconds.
COMPILE_SECONDS: Final = 30
#: The number of compiled schemas that are kept.
COMPILED_MAX: Final = 256
#: File systems have no longer names.
NAME_BYTES_MAX: Final = 255
#: The most fields of a type and of the messages in it; rows of ptars' table of field numbers.
FIELDS_MAX: Final = 10_000
NUMBERS_MAX: Final = 1 << 16

_UTC: Final = pa.timestamp("us", tz="UTC")
#: Lines of the compiler's log that are not errors.
_NOISE: Final = re.compile(r"WARNING: |[A-Z]\d{4} ")
_WELL_KNOWN: Final = "google/protobuf/"
#: Messages that ptars does not decode as a struct of their fields.
_OTHERS: Final = ("google.type.Date", "google.type.TimeOfDay")
#: Seconds and nanoseconds of the first and the last one. Source: timestamp.proto, duration.proto.
_TIMES: Final = {
    "google.protobuf.Timestamp": (_UTC, (-62_135_596_800, 253_402_300_799), (0, 999_999_999)),
    "google.protobuf.Duration": (
        pa.duration("us"),
        (-315_576_000_000, 315_576_000_000),
        (-999_999_999, 999_999_999),
    ),
}
_INT64: Final = (INT64_MIN, INT64_MAX)
_INT32: Final = (-(2**31), INT32_MAX)
_UINT32: Final = (0, 2**32 - 1)
#: Kinds of the kernel.
_VARINT, _FIXED32, _FIXED64, _STRING, _BYTES, _MESSAGE, _ENTRY = range(1, 8)
#: Number of a type in descriptor.proto -> Arrow's type, the kernel's kind, the least and the
#: largest varint (zigzag varints are not negative).
_SCALARS: Final[dict[int, tuple[pa.DataType, int, tuple[int, int]]]] = {
    1: (pa.float64(), _FIXED64, _INT64),
    2: (pa.float32(), _FIXED32, _INT64),
    3: (pa.int64(), _VARINT, _INT64),
    4: (pa.uint64(), _VARINT, _INT64),
    5: (pa.int32(), _VARINT, _INT32),
    6: (pa.uint64(), _FIXED64, _INT64),
    7: (pa.uint32(), _FIXED32, _INT64),
    8: (pa.bool_(), _VARINT, (0, 1)),
    9: (pa.string(), _STRING, _INT64),
    12: (pa.binary(), _BYTES, _INT64),
    13: (pa.uint32(), _VARINT, _UINT32),
    14: (pa.string(), _VARINT, _INT32),
    15: (pa.int32(), _FIXED32, _INT64),
    16: (pa.int64(), _FIXED64, _INT64),
    17: (pa.int32(), _VARINT, _UINT32),
    18: (pa.int64(), _VARINT, _INT64),
}
#: The type of texts in descriptor.proto.
_TEXT: Final = 9
#: The number of messages that an error names.
_LISTED_MAX: Final = 20
#: The type of groups, the oldest form of messages, in descriptor.proto.
_GROUP: Final = 10
#: Numbers in the kernel's row for a field: see `_Table._row`.
_COLUMNS: Final = 8


def decoder(
    schema: Schema,
    references: Mapping[str, Schema],
    message: str | tuple[int, ...] | None = None,
) -> ProtobufDecoder:
    """A decoder of one message type.

    Args:
        schema: the text of a `.proto` file, or its descriptor in base64.
        references: name of an import -> its schema, for all imports.
        message: the name of the type, with its package or without; or indexes of messages, each
            within the one before, where entries of maps do not count; None for the first message.

    Raises:
        SchemaError: the text or a reference does not compile, the message is not there, or the
            type is recursive or too large.
        LimitExceededError: the compiler takes too long.
        MissingExtraError: a package of the extra is missing.
    """
    return ProtobufDecoder(_message_of(_compile(schema, references), message))


def message_name(
    schema: Schema, references: Mapping[str, Schema], message: str | tuple[int, ...] | None
) -> str:
    """The full name of a message; for the arguments and errors see `decoder`."""
    name: str = _message_of(_compile(schema, references), message).full_name
    return name


class ProtobufDecoder:
    """A `Decoder` of messages.

    Attributes:
        name: the full name of the message, with its package.
        type: the Arrow type of the values, a struct.
    """

    def __init__(self, descriptor: Any) -> None:
        """Prepare both readers for the messages of a protobuf descriptor."""
        self.name: str = descriptor.full_name
        self.type = _Types().struct_of(descriptor, ())
        self._parse = require("google.protobuf.message_factory").GetMessageClass(descriptor)
        self._error = require("google.protobuf.message").DecodeError
        self._table = _Table(descriptor)
        self._bulk = _bulk_of(descriptor, self.type) if self._table.is_plain else None

    def decode(self, payloads: pa.BinaryArray | pa.LargeBinaryArray) -> tuple[pa.Array, Reasons]:
        """Decode payloads without prefix or indexes; see `Decoder`."""
        return decode_blocks(payloads, self.type, self._decode_fast, self.exact)

    def _decode_fast(self, block: Block) -> tuple[pa.Array, Uint8s]:
        """The values of a block, and marks on the rows that the exact reader has to decode."""
        marks = self._table.mark(block)
        if self._bulk is None:
            marks[marks == 0] = ODD
            return pa.nulls(len(marks), self.type), marks
        return self._bulk(block, block.valid[: len(marks)] & (marks == 0)), marks

    def exact(self, payload: bytes) -> dict[str, Any]:
        """One value, decoded by protobuf itself; raises ValueError if it does not decode."""
        try:
            return _object_of(self._parse.FromString(payload))
        except self._error as error:
            raise ValueError(f"not a {self.name}: {error}") from None


# ---- compilation ---------------------------------------------------------------------------------


def _compile(schema: Schema, references: Mapping[str, Schema]) -> Any:
    """The descriptor of a file, in a pool of its own; the same text is compiled once."""
    texts = tuple((name, reference.text) for name, reference in references.items())
    compiled = _compile_file(schema.subject, schema.text, texts)
    if isinstance(compiled, KsegError):
        raise compiled
    return compiled


@lru_cache(maxsize=COMPILED_MAX)
def _compile_file(subject: str, text: str, references: tuple[tuple[str, str], ...]) -> Any:
    """The descriptor of a file, or the error of its compilation."""
    try:
        return _run_compiler(subject, text, dict(references))
    except (SchemaError, LimitExceededError) as error:
        return error


def _run_compiler(subject: str, text: str, references: Mapping[str, str]) -> Any:
    """Compile a file, in a process of its own; returns its descriptor.

    The references are files in the same directory, under the names of their imports, which must not
    lead out of it.

    Args:
        subject: names the schema in errors.
        text: the text of the file.
        references: name of an import -> its text.
    """
    import subprocess

    main = "schema.proto"
    while main in references:
        main = f"_{main}"
    descriptor_pb2 = require("google.protobuf.descriptor_pb2", extra="protobuf")
    require("grpc_tools.protoc", extra="protobuf")
    stored = descriptor_pb2.FileDescriptorSet()
    with TemporaryDirectory(prefix="kseg-") as directory:
        for name, content in {**references, main: text}.items():
            path, parts = PurePosixPath(name), {*PurePosixPath(name).parts, name}
            is_odd = "\0" in name or max(map(len, map(os.fsencode, parts))) > NAME_BYTES_MAX
            if str(path) != name or path.is_absolute() or {"..", "."} & parts or is_odd:
                raise SchemaError(f"{name[:NAME_BYTES_MAX]!r} is not the path of an import")
            if name.startswith(_WELL_KNOWN):
                continue  # the compiler's own
            if not _add_stored(stored, name, content):
                file = Path(directory, "in", name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content, encoding="utf-8", errors="replace")
        Path(directory, "in").mkdir(exist_ok=True)
        Path(directory, "stored").write_bytes(stored.SerializeToString())
        command = [sys.executable, "-P", "-m", "grpc_tools.protoc", "-I.", "--include_imports"]
        command += ["--descriptor_set_in=../stored", "--descriptor_set_out=../out", main]
        try:
            done = subprocess.run(
                command, cwd=Path(directory, "in"), capture_output=True, timeout=COMPILE_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise LimitExceededError(
                f"{subject}: the compiler of Protobuf took {COMPILE_SECONDS} s"
            ) from None
        if done.returncode:
            lines = done.stderr.decode(errors="replace").splitlines()
            said = "; ".join(line for line in lines if not _NOISE.match(line))[:500]
            raise SchemaError(
                f"{subject} does not compile: {said or f'exit code {done.returncode}'}"
            )
        compiled = Path(directory, "out").read_bytes()
    pool = require("google.protobuf.descriptor_pool").DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
            if file.package.startswith("google.protobuf") and not file.name.startswith(_WELL_KNOWN):
                raise SchemaError(f"{subject} takes a package of Protobuf's own")
            pool.Add(file)
        return pool.FindFileByName(main)
    except (TypeError, require("google.protobuf.message").DecodeError) as error:
        raise SchemaError(f"{subject} is refused by protobuf: {error}") from None


def _add_stored(stored: Any, name: str, text: str) -> bool:
    """Add a text that is a descriptor in base64, as some clients register it; else False."""
    try:
        data = b64decode(text, validate=True)
        file = stored.file.add()
        file.MergeFromString(data)
        file.name = name
    except (ValueError, require("google.protobuf.message").DecodeError):
        del stored.file[-1:]
        return False
    return True


def _message_of(file: Any, message: str | tuple[int, ...] | None) -> Any:
    """The descriptor of a message in a file; see `decoder`."""
    if isinstance(message, str):
        with suppress(KeyError):
            return file.pool.FindMessageTypeByName(message)
        names = [
            candidate.full_name for candidate in _messages_in(file.message_types_by_name.values())
        ]
        named = [name for name in names if name.rpartition(".")[2] == message]
        if len(named) != 1:
            listed = ", ".join(named or names[:_LISTED_MAX])
            raise SchemaError(f"the schema has no message {message}; it has {listed}")
        return file.pool.FindMessageTypeByName(named[0])
    descriptor, within = None, [*file.message_types_by_name.values()]
    for index in message or (0,):
        if not 0 <= index < len(within):
            raise SchemaError(f"the schema has no message with indexes {message or (0,)}")
        descriptor = within[index]
        within = [nested for nested in descriptor.nested_types if not nested.GetOptions().map_entry]
    return descriptor


def _messages_in(messages: Iterable[Any]) -> Iterator[Any]:
    """All messages among these and inside them, without the entries of maps."""
    for message in messages:
        if not message.GetOptions().map_entry:
            yield message
            yield from _messages_in(message.nested_types)


# ---- types ---------------------------------------------------------------------------------------


def _fields_of(descriptor: Any) -> list[Any]:
    """The fields of a message in the order of their numbers, as ptars has them."""
    return sorted(descriptor.fields, key=lambda field: field.number)


def _is_wrapper(descriptor: Any) -> bool:
    return bool(descriptor.file.name == f"{_WELL_KNOWN}wrappers.proto")


def _is_map(field: Any) -> bool:
    inner = field.message_type
    return inner is not None and bool(inner.GetOptions().map_entry)


class _Types:
    """Finds the Arrow types of messages, and refuses types that are too large."""

    def __init__(self) -> None:
        self._count = 0

    def struct_of(self, descriptor: Any, above: tuple[Any, ...]) -> pa.DataType:
        """The type of a message; an error for one that holds itself, is too deep or too large."""
        if descriptor in above:
            names = " > ".join(parent.name for parent in (*above, descriptor))
            raise SchemaError(
                f"{descriptor.full_name} holds itself ({names}), and a column has no such type"
            )
        self._count += len(descriptor.fields)
        if self._count > FIELDS_MAX or len(above) >= DEPTH_MAX:
            raise SchemaError(
                f"{(above or (descriptor,))[0].full_name} has more than {FIELDS_MAX} fields in all,"
                f" or is more than {DEPTH_MAX} messages deep"
            )
        inner = (*above, descriptor)
        fields = _fields_of(descriptor)
        return pa.struct([(field.name, self._type_of_field(field, inner)) for field in fields])

    def _type_of_field(self, field: Any, above: tuple[Any, ...]) -> pa.DataType:
        """The type of a field: a map, a list, or a single value."""
        if _is_map(field):
            key, value = _fields_of(field.message_type)
            return pa.map_(self._type_of_value(key, above), self._type_of_value(value, above))
        single = self._type_of_value(field, above)
        return pa.list_(single) if field.is_repeated else single

    def _type_of_value(self, field: Any, above: tuple[Any, ...]) -> pa.DataType:
        """The type of one value of a field; for a wrapper such as `Int32Value`, of its content."""
        inner = field.message_type
        if inner is None:
            return _SCALARS[field.type][0]
        if inner.full_name in _TIMES:
            return _TIMES[inner.full_name][0]
        if _is_wrapper(inner):
            return _SCALARS[inner.fields[0].type][0]
        return self.struct_of(inner, above)


# ---- the exact reader ----------------------------------------------------------------------------


def _object_of(message: Any) -> dict[str, Any]:
    """A message as a value for `pa.array`."""
    return {field.name: _field_of(message, field) for field in message.DESCRIPTOR.fields}


def _field_of(message: Any, field: Any) -> Any:
    """A field of a message as a value for `pa.array`; None if it is not set."""
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if _is_map(field):
        named, entry = _fields_of(field.message_type)
        return [(_value_of(key, named), _value_of(value[key], entry)) for key in value]
    return (
        [_value_of(item, field) for item in value] if field.is_repeated else _value_of(value, field)
    )


def _value_of(value: Any, field: Any) -> Any:
    """One value of a field as a value for `pa.array`.

    Times become microseconds, members of enums their names, messages dicts.
    """
    inner = field.message_type
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    if inner is None:
        # Text of proto2 that is not UTF-8 comes as bytes.
        return value.decode() if field.type == _TEXT and isinstance(value, bytes) else value
    if inner.full_name in _TIMES:
        _, (first, last), (least, most) = _TIMES[inner.full_name]
        if not (first <= value.seconds <= last and least <= value.nanos <= most):
            raise ValueError(f"{field.full_name} is no {inner.name}: {value.seconds} s")
        return value.seconds * 1_000_000 + int(value.nanos / 1000)
    return value.value if _is_wrapper(inner) else _object_of(value)


# ---- the fast reader -----------------------------------------------------------------------------


class _Table:
    """The kernel's table of the fields of a type and of all messages in it.

    Attributes:
        is_plain: whether ptars decodes this type as protobuf does.
    """

    # `_messages` has the type and all messages in it; `_positions` maps the name of each to its
    # index there. `_closed` has the numbers of closed enums, which can have no other numbers.

    def __init__(self, descriptor: Any) -> None:
        """Number the messages, and make the kernel's row of each field."""
        self.is_plain = bool(descriptor.fields)
        self._positions = {descriptor.full_name: 0}
        self._messages = [descriptor]
        self._closed: list[int] = []
        rows: list[tuple[int, ...]] = []
        firsts, last = [0], 0
        for message in self._messages:  # grows on the way
            fields = _fields_of(message)
            self.is_plain &= len(fields) <= SLOTS_MAX and message.full_name not in _OTHERS
            last += max((field.number for field in fields), default=0)
            rows += [self._row(message, field) for field in fields]
            firsts.append(len(rows))
        self.is_plain &= last <= NUMBERS_MAX
        widths = [self._width(message) for message in self._messages]
        self._rows = np.array(rows, np.int64).reshape(len(rows), _COLUMNS)
        self._firsts, self._widths = np.array(firsts, np.int64), np.array(widths, np.int64)
        self._numbers = np.array(self._closed, np.int64)

    def _row(self, message: Any, field: Any) -> tuple[int, ...]:
        """The kernel's row for a field; a message in the field is added to `_messages`.

        Returns:
            Its number; its kind; its slot (fields of one slot exclude each other; -1 for none); the
            index of the inner message; the least and the largest varint; and the range of
            `_closed` that has the numbers of its enum.
        """
        inner, enum, first = field.message_type, field.enum_type, len(self._closed)
        if inner is not None:
            self.is_plain &= field.type != _GROUP
            kind, (low, high) = _ENTRY if _is_map(field) else _MESSAGE, _INT64
            if inner.full_name not in self._positions:
                self._positions[inner.full_name] = len(self._messages)
                self._messages.append(inner)
        else:
            _, kind, (low, high) = _SCALARS[field.type]
        if message.full_name in _TIMES:
            low, high = _TIMES[message.full_name][field.number]
        if enum is not None:
            numbers = {value.number for value in enum.values}
            self.is_plain &= len(enum.values) == len(numbers)  # no number has a second name
            self._closed += numbers if enum.is_closed else ()
        if message.GetOptions().map_entry and field.number == 1:
            self.is_plain &= kind in (_VARINT, _STRING)
        oneof = field.containing_oneof
        slot = -1 if field.is_repeated else oneof.fields[0].index if oneof else field.index
        slot = -1 if slot >= SLOTS_MAX else slot
        target = 0 if inner is None else self._positions[inner.full_name]
        return field.number, kind, slot, target, low, high, first, len(self._closed)

    def _width(self, message: Any) -> int:
        """The number of values of a message in columns; absent messages in it count as well."""
        inner = [field.message_type for field in message.fields if not field.is_repeated]
        return 1 + len(message.fields) + sum(self._width(message) for message in inner if message)

    def mark(self, block: Block) -> Uint8s:
        """Marks of the rows of a block, or of as many first rows as have few enough values."""
        marks = np.zeros(len(block.payloads), np.uint8)
        tables = (self._rows, self._firsts, self._widths, self._numbers)
        done = mark_messages(block.offsets, block.data.data, *tables, VALUES_MAX, marks)
        return marks[:done]


def _bulk_of(descriptor: Any, kind: pa.DataType) -> Callable[[Block, Bools], pa.Array] | None:
    """A function that decodes messages by ptars; None if ptars does not support the type.

    The function takes a block, and bool[n], the rows to decode; the other rows become null.
    """
    ptars = require("ptars", extra="protobuf")
    files = [descriptor.file]
    for file in files:  # grows on the way
        described = require("google.protobuf.descriptor_pb2").FileDescriptorProto()
        file.CopyToProto(described)
        if described.syntax == "editions":
            return None
        files += [dependency for dependency in file.dependencies if dependency not in files]
    nullable = dict.fromkeys(
        ("list_nullable", "map_nullable", "list_value_nullable", "map_value_nullable"), True
    )
    config = ptars.PtarsConfig(
        timestamp_unit="us", duration_unit="us", enum_repr="string", **nullable
    )
    try:
        convert = ptars.HandlerPool([descriptor.file], config).get_for_message(descriptor)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust; no Exception
            raise
        return None

    def bulk(block: Block, plain: Bools) -> pa.Array:
        """Decode the rows of a block that are plain; the other rows become null."""
        bits = pa.py_buffer(np.packbits(plain, bitorder="little"))
        buffers = [bits, pa.py_buffer(block.offsets), pa.py_buffer(block.data)]
        payloads = pa.Array.from_buffers(pa.binary(), len(plain), buffers)
        decoded = convert.array_to_record_batch(payloads).columns
        # ptars has its own flags for nullable fields.
        columns = [column.cast(field.type) for column, field in zip(decoded, kind, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=[*kind], mask=pa.array(~plain))

    return bulk
