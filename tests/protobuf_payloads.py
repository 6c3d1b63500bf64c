"""Protobuf messages with everything in them, at random, and the same with bytes changed."""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from kseg.internal.registry import Schema

MONEY = 'syntax = "proto3"; package common; message Money { string currency = 1; int64 units = 2; }'
SHOP = """
syntax = "proto3";
package shop.v1;
import "google/protobuf/duration.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "common/money.proto";
message Order {
  message Line {
    string name = 1;
    repeated int32 codes = 2;
    message Deep { sint64 zigzag = 1; bytes raw = 2; }
    Deep deep = 3;
  }
  message Empty {}
  enum Color { RED = 0; GREEN = 1; BLUE = 7; }
  int32 int32 = 1; int64 int64 = 2; uint32 uint32 = 3; uint64 uint64 = 4;
  sint32 sint32 = 5; sint64 sint64 = 6; fixed32 fixed32 = 7; fixed64 fixed64 = 8;
  sfixed32 sfixed32 = 9; sfixed64 sfixed64 = 10; float float = 11; double double = 12;
  bool bool = 13; string text = 14; bytes raw = 15; Color color = 16;
  optional int32 some_number = 17; optional string some_text = 18;
  oneof choice { string chosen_text = 20; int64 chosen_number = 21; Line chosen_line = 22; }
  Line line = 23; repeated Line lines = 24; Empty empty = 19;
  map<string, int64> counts = 25; map<int32, Line> by_id = 26; map<string, Color> colors = 27;
  google.protobuf.Timestamp time = 28; repeated google.protobuf.Timestamp times = 29;
  google.protobuf.Duration took = 30; google.protobuf.Int64Value whole = 31;
  google.protobuf.StringValue words = 32; repeated google.protobuf.BoolValue bools = 33;
  repeated double doubles = 34; repeated fixed32 fixed = 35;
  repeated sint32 unpacked = 36 [packed = false]; repeated string texts = 37;
  repeated Color palette = 38; common.Money price = 39;
  map<string, google.protobuf.Timestamp> visits = 40; google.protobuf.BytesValue more = 41;
  google.protobuf.DoubleValue rate = 42; map<bool, string> flags = 271;
}
"""
OLD = """
syntax = "proto2";
package old;
message First { optional int32 x = 1; }
message Order {
  message Line {
    required string name = 1;
    optional int32 n = 2 [default = 5];
    extensions 100 to 200;
  }
  map<string, int32> before = 20;
  enum Odd { A = 1; B = 5; C = -3; }
  enum Zero { Z = 0; Y = 9; }
  required int64 id = 1; optional string name = 2 [default = "x"]; repeated Odd odds = 3;
  optional Odd odd = 4 [default = B]; repeated Odd packed = 5 [packed = true];
  optional Line line = 6; repeated Line lines = 7; map<int32, Zero> zeros = 8;
  oneof choice { Odd chosen_odd = 9; string chosen_text = 10; Line chosen_line = 11; }
  optional bytes raw = 12; optional float f = 13 [default = 2.5]; optional bool b = 14;
}
extend Order.Line { optional string more = 100; }
"""
#: By the type of a field in descriptor.proto, values near the bounds.
_INT32, _INT64 = (0, 1, -1, 2**31 - 1, -(2**31)), (0, 1, -1, 2**63 - 1, -(2**63), 654_321)
_VALUES: dict[int, tuple[Any, ...]] = {
    **dict.fromkeys((1, 2), (0.0, 1.5, -2.25, 123.125)),
    **dict.fromkeys((3, 16, 18), _INT64),
    **dict.fromkeys((4, 6), (0, 1, 2**64 - 1)),
    **dict.fromkeys((5, 15, 17), _INT32),
    **dict.fromkeys((7, 13), (0, 1, 2**32 - 1)),
    8: (False, True),
    9: ("", "a", "späß€😀", "x" * 20),
    12: (b"", b"\xff\0", b"abc"),
}
_SECONDS = (0, -62_135_596_800, 253_402_300_799, 1_700_000_000)
#: What hurts a reader: varints too long, groups, lengths that lie.
_SPLINTERS = (
    *(b"\xff" * 9 + b"\x01", b"\x80\x00", b"\xff" * 10, b"\x0b\x0c", b"\x0b" * 200),
    *(
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\xfa\x01" + b"\xff" * 9 + b"\x01",
        b"\x12" + b"\xff" * 9 + b"\x01",
    ),
)


def schema(text: str, subject: str = "orders-value") -> Schema:
    return Schema(subject, 1, 1, None, "PROTOBUF", text)


REFERENCES = {"common/money.proto": schema(MONEY, "money")}


def message(cls: Any, source: Random) -> Any:
    """A message with about half of its fields."""
    made = cls()
    if made.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        return cls(seconds=source.choice(_SECONDS), nanos=source.choice((0, 1500, 999_999_999)))
    if made.DESCRIPTOR.full_name == "google.protobuf.Duration":
        return cls(seconds=source.choice((0, 5)), nanos=source.choice((0, 1500)))
    for field in made.DESCRIPTOR.fields:
        if source.random() < 0.4:
            continue
        inner = field.message_type
        if inner and inner.GetOptions().map_entry:
            key, value = inner.fields_by_name["key"], inner.fields_by_name["value"]
            for _ in range(source.randrange(4)):
                entries, at = getattr(made, field.name), _value(key, source)
                if value.message_type:
                    entries[at].CopyFrom(_value(value, source))
                else:
                    entries[at] = _value(value, source)
        elif field.is_repeated:
            some = [_value(field, source) for _ in range(source.randrange(4))]
            getattr(made, field.name).extend(some)
        elif inner:
            getattr(made, field.name).CopyFrom(_value(field, source))
        else:
            setattr(made, field.name, _value(field, source))
    return made


def _value(field: Any, source: Random) -> Any:
    if field.message_type:
        return message(GetMessageClass(field.message_type), source)
    if field.enum_type:
        known = [value.number for value in field.enum_type.values]
        return source.choice(known if field.enum_type.is_closed else [*known, 5, -3])
    return source.choice(_VALUES[field.type])


def spoil(data: bytes, source: Random) -> bytes:
    """Change a few bytes."""
    out = bytearray(data)
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        at, what = source.randrange(len(out) + 1), source.randrange(6)
        end = min(len(out), at + source.randrange(1, 8))
        if what == 0 and at < len(out):
            out[at] = source.randrange(256)
        elif what == 1 and at < len(out):
            out[at] ^= 1 << source.randrange(8)
        elif what == 2:
            del out[at:]
        elif what == 3:
            out[at:at] = source.randbytes(source.randrange(1, 5))
        elif what == 4:
            out[at:at] = out[at:end]
        else:
            out[at:at] = source.choice(_SPLINTERS)
    return bytes(out)
