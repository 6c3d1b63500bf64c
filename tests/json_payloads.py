"""JSON of one type, at random and with bytes changed, and a second reader of it in Python."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from kseg._kernels.json import VALUE_DEPTH_MAX
from kseg.decode.json_struct import JSON_TEXT

TYPE = pa.struct(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "amount": pa.float64(),
        "active": pa.bool_(),
        "small": pa.int32(),
        "single": pa.float32(),
        "any": JSON_TEXT,
        "nothing": pa.null(),
        "größe": pa.string(),
        "": pa.int64(),
        "tags": pa.list_(pa.string()),
        "lines": pa.list_(
            pa.struct({"name": pa.string(), "codes": pa.list_(pa.list_(pa.int64()))})
        ),
        "address": pa.struct({"city": pa.string(), "zip": pa.struct({"code": pa.int64()})}),
    }
)
_NUMBERS = (
    0,
    1,
    -1,
    7.5,
    1e300,
    2**31 - 1,
    -(2**31),
    2**63 - 1,
    -(2**63),
    2**63,
    0.1,
    123.456,
    3.0,
)
_TEXTS = ("", "a", "späß€😀", 'q"\\/\b\f\n\r\t', "\0", "x" * 20)
#: What hurts a reader.
_SPLINTERS = (
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"1e5", b"1e400", b"\\u0000", b"\\ud800"),
    *(b"null", b"-", b"0", b".5", b"\xff", b"\xed\xa0\x80", b"[" * 600, b'{"a":' * 600, b" \n"),
    *(
        b"99999999999999999999",
        b"1.0",
        b"9007199254740993.0",
        b"4503599627370497.5",
        b"12300e-2",
        b"-0",
        b"tru",
        b'"id":1,',
        b'"i\\u0064":1,',
        b"NaN",
    ),
)


class Numeral(str):
    """A number as it stands in the text."""


def value(kind: pa.DataType, source: Random) -> Any:
    """A value of a type, or null, or now and then a value of another type."""
    if source.random() < 0.1:
        return None
    if source.random() < 0.005:
        return source.choice(("x", 5, [], {}, True))
    if pa.types.is_struct(kind):
        fields = [each for each in kind if source.random() < 0.7]
        if source.random() < 0.3:
            source.shuffle(fields)
        made = {each.name: value(each.type, source) for each in fields}
        return made if source.random() < 0.8 else {"more": [made], **made}
    if pa.types.is_list(kind):
        return [value(kind.value_type, source) for _ in range(source.randrange(4))]
    if kind in (pa.string(), JSON_TEXT):
        return source.choice(_TEXTS)
    if pa.types.is_boolean(kind):
        return source.random() < 0.5
    if pa.types.is_null(kind):
        return None
    if pa.types.is_floating(kind):
        return source.choice((*_NUMBERS[:4], 0.1, 1e-7, source.random(), source.random() * 1e18))
    return source.choice((0, 1, -1, 2**31 - 1, -(2**31), source.randrange(1000), 3.0))


def text(source: Random) -> bytes:
    """A text of `TYPE`, or nearly so."""
    made = value(TYPE, source)
    separators = source.choice(((",", ":"), (", ", ": "), (" ,\n", "\t: ")))
    return json.dumps(made, ensure_ascii=source.random() < 0.5, separators=separators).encode()


def spoil(data: bytes, source: Random) -> bytes:
    """Change a few bytes."""
    out = bytearray(data)
    for _ in range(source.choice((1, 1, 2))):
        at, what = source.randrange(len(out) + 1), source.randrange(6)
        if what == 0 and at < len(out):
            out[at] = source.randrange(256)
        elif what == 1 and at < len(out):
            out[at] ^= 1 << source.randrange(8)
        elif what == 2:
            del out[at : at + source.randrange(1, 9)]
        else:
            out[at:at] = source.choice(_SPLINTERS)
    return bytes(out)


def read(payload: bytes, kind: pa.DataType = TYPE) -> Any:
    """The value of a payload; ValueError if it has none.

    The text of `JSON_TEXT` comes as what it means.
    """
    decoded = payload.decode()
    if decoded[:1] == "\ufeff":
        raise ValueError("a mark of byte order")
    try:
        parsed = json.loads(
            decoded,
            object_pairs_hook=Pairs,
            parse_int=Numeral,
            parse_float=Numeral,
            parse_constant=_refuse,
        )
    except RecursionError:
        raise ValueError("too deep") from None
    return _fitted(parsed, kind)


class Pairs(list[Any]):
    """The names and values of an object."""


def _refuse(word: str) -> Any:
    raise ValueError(word)


def depth(found: Any) -> int:
    """How many lists and objects are in each other."""
    if isinstance(found, Pairs):
        return 1 + max((depth(each) for _, each in found), default=0)
    return 1 + max(map(depth, found), default=0) if isinstance(found, list) else 0


def _checked(found: Any) -> Any:
    if depth(found) > VALUE_DEPTH_MAX:
        raise ValueError("too deep")
    return found


def _fitted(found: Any, kind: pa.DataType) -> Any:
    if found is None or kind == JSON_TEXT:
        return _checked(found)
    if pa.types.is_struct(kind) and isinstance(found, Pairs):
        types = {each.name: each.type for each in kind}
        asked = [name for name, _ in found if name in types]
        if len(set(asked)) < len(asked):
            raise ValueError("twice")
        made: dict[str, Any] = dict.fromkeys(types)
        for name, each in found:
            if name in types:
                made[name] = _fitted(each, types[name])
            else:
                _checked(each)
        return made
    if pa.types.is_list(kind) and isinstance(found, list) and not isinstance(found, Pairs):
        return [_fitted(each, kind.value_type) for each in found]
    if kind == pa.string() and isinstance(found, str) and not isinstance(found, Numeral):
        found.encode()
        return found
    if pa.types.is_boolean(kind) and isinstance(found, bool):
        return found
    if isinstance(found, Numeral) and pa.types.is_integer(kind):
        return _whole(found, kind.bit_width)
    if isinstance(found, Numeral) and pa.types.is_floating(kind):
        number = float(found)
        number = number if kind == pa.float64() else pa.scalar(number, kind).as_py()
        if math.isfinite(number):
            return number
    raise ValueError("another type")


def _whole(found: Numeral, bits: int) -> int:
    number = Decimal(found)
    if number.adjusted() > 20 or number != number.to_integral_value():
        raise ValueError("not whole")
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError("too large")
    return int(number)
