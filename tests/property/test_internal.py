"""Laws of records of internal topics: what a schema can say is read back, and no bytes break it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kseg.arrow import from_record_batch
from kseg.errors import InvalidRecordError
from kseg.format.values import RecordColumns
from kseg.internal import InternalRecord, decode, record_batches
from tests.internal_schemas import SCHEMAS, Field, encode_message, frame, layout

NUMBERS: dict[str, Any] = {
    **{
        f"int{bits}": st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        for bits in (8, 16, 32, 64)
    },
    **{f"uint{bits}": st.integers(0, 2**bits - 1) for bits in (16, 32)},
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.uuids(),
}
#: Every layout: topic, record type, version of its value.
LAYOUTS = [
    (topic, record, version)
    for topic, known in SCHEMAS["topics"].items()
    for record in known["records"]
    for version in range(record["value_versions"][0], record["value_versions"][1] + 1)
]


@cache
def messages(message: str, version: int) -> Any:
    return structs(layout(message, version)[0])


def structs(fields: list[Field]) -> Any:
    return st.fixed_dictionaries({each["name"]: values(each) for each in fields})


def values(field: Field) -> Any:
    kind = field["type"].removeprefix("compact_")
    if kind == "struct":
        found = structs(field["fields"])
    elif kind == "array":
        found = st.lists(values(field["items"]), max_size=3).map(tuple)
    elif kind == "string":
        found = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
    else:
        found = NUMBERS[kind] if kind in NUMBERS else st.binary(max_size=9)
    return st.none() | found if field.get("nullable") else found


@pytest.mark.parametrize(
    ("topic", "record", "version"), LAYOUTS, ids=[f"{r['name']}-{v}" for _, r, v in LAYOUTS]
)
@settings(max_examples=5)
@given(data=st.data())
def test_what_a_schema_can_say_is_read_back(
    topic: str, record: dict[str, Any], version: int, data: st.DataObject
) -> None:
    key = value = None
    if "key" in record:
        key = data.draw(messages(record["key"], 0))
    value = data.draw(messages(record["value"], version))
    made = _bytes(topic, record, version, key, value)
    (table,) = record_batches(columns_of([made]), topic).values()
    assert table["value"].null_count == 0
    assert table.num_rows == 1
    found = decode(topic, *made)
    assert (found.name, found.version, found.reason) == (record["name"], version, None)
    assert found.key == key
    if record["value"] not in SCHEMAS["embedded"]:
        assert found.value == value


@given(layout=st.sampled_from(LAYOUTS), data=st.data())
def test_damaged_records_are_refused_or_read_but_nothing_else(
    layout: tuple[str, dict[str, Any], int], data: st.DataObject
) -> None:
    topic, record, version = layout
    key = data.draw(messages(record["key"], 0)) if "key" in record else None
    key_bytes, value = _bytes(
        topic, record, version, key, data.draw(messages(record["value"], version))
    )
    damaged = bytearray(value)
    damaged[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(value)))
    for each in (bytes(damaged), value[:cut]):
        _is_read_or_refused(topic, key_bytes, each)


@given(
    st.sampled_from(list(SCHEMAS["topics"])),
    st.lists(st.tuples(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=80))),
)
def test_any_records_are_rows_of_some_table(
    topic: str, given: list[tuple[bytes | None, bytes | None]]
) -> None:
    found = record_batches(columns_of(given), topic, on_error="raw")
    assert sum(batch.num_rows for batch in found.values()) == len(given)


def columns_of(given: list[tuple[bytes | None, bytes | None]]) -> RecordColumns:
    """Record columns of these keys and values."""
    keys, values = (pa.array([pair[at] for pair in given], pa.binary()) for at in (0, 1))
    numbers = pa.array(range(len(given)), pa.int64())
    names = ("offset", "timestamp_ms", "key", "value")
    return from_record_batch(pa.record_batch([numbers, numbers, keys, values], list(names)))


def _is_read_or_refused(topic: str, key: bytes | None, value: bytes) -> None:
    try:
        found = decode(topic, key, value)
    except InvalidRecordError as error:
        refused = error
    else:
        assert isinstance(found, InternalRecord)
        return
    position = refused.position
    assert position is None or 0 <= position <= max(len(key or b""), len(value))


def _bytes(
    topic: str, record: dict[str, Any], version: int, key: Any, value: Any
) -> tuple[bytes | None, bytes]:
    key_bytes = encode_message(record["key"], 0, key) if "key" in record else None
    return frame(
        topic, record["type"], version, key_bytes, encode_message(record["value"], version, value)
    )
