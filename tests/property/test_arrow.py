"""Records to Arrow, out of it again, into batches and read: nothing is lost on the way."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from kseg import arrow
from kseg.constants import Compression
from kseg.format.columns import decode
from kseg.format.encode import encode_batch
from kseg.format.header import scan
from kseg.format.options import BatchOptions
from kseg.format.request import Request
from kseg.format.values import RecordColumns
from tests.builders import Record, batch
from tests.property.oracle import flat

FIELDS = ("offset", "timestamp", "key", "value", "headers")
#: Typed times do not hold every number.
ARROW_FIELDS = ("offset", "timestamp_ms", "key", "value", "headers")
#: What a writer takes; Arrow's headers have text for names.
names = st.text(max_size=6).map(str.encode)
times = st.one_of(st.sampled_from([-1, 0, 2**63 - 1]), st.integers(0, 2**41))
byte_strings = st.none() | st.binary(max_size=20)
records = st.builds(
    Record,
    byte_strings,
    key=byte_strings,
    timestamp=times,
    headers=st.lists(st.tuples(names, byte_strings), max_size=3),
)


def columns_of(data: bytes) -> RecordColumns:
    (columns,) = decode(data, scan(data), Request(columns=FIELDS))
    return columns


@given(given=st.lists(records, min_size=1, max_size=30), codec=st.sampled_from([0, 3, 4]))
@example(given=[Record(None), Record(b"", headers=[(b"", None)])], codec=0)
def test_records_go_through_arrow_and_batches_unchanged(given: list[Record], codec: int) -> None:
    columns = columns_of(batch(given, base_offset=7))
    taken = arrow.to_record_batch(columns, fields=ARROW_FIELDS)
    options = BatchOptions(compression=Compression(codec))
    written = encode_batch(arrow.from_record_batch(taken), options)
    assert (written.base_offset, written.record_count) == (7, len(given))
    assert flat([columns_of(written.data)]) == flat([columns])
    assert encode_batch(columns, options).data == written.data


LAYOUTS = {
    "binary": pa.binary(),
    "large": pa.large_binary(),
    "views": pa.binary_view(),
}


@given(
    given=st.lists(records, min_size=1, max_size=20),
    layout=st.sampled_from(sorted(LAYOUTS)),
    bounds=st.tuples(st.integers(0, 20), st.integers(0, 20)),
)
def test_any_slice_in_any_layout_is_written_alike(
    given: list[Record], layout: str, bounds: tuple[int, int]
) -> None:
    columns = columns_of(batch(given))
    first, end = sorted(min(bound, len(given)) for bound in bounds)
    table = pa.Table.from_batches([arrow.to_record_batch(columns, fields=ARROW_FIELDS)])
    for name in ("key", "value"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table[name].cast(LAYOUTS[layout]))
    piece = arrow.from_record_batch(table.slice(first, end - first))
    expected = encode_batch(columns, BatchOptions(), first=first, end=end, base_offset=first)
    assert encode_batch(piece, BatchOptions(), base_offset=first).data == expected.data
