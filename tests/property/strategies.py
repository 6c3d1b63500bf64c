"""What the property tests draw: records, batches of every format, whole logs.

Every batch comes out of `tests/builders.py`; what is drawn is what a broker could have written.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tests import builders
from tests.builders import Record

INT64_MAX = 2**63 - 1

#: Mostly of our days, sometimes at an edge of 64 bits.
timestamps = st.one_of(
    st.integers(1_600_000_000_000, 1_800_000_000_000),
    st.sampled_from([-1, 0, 1, 2**32, INT64_MAX - 1, INT64_MAX]),
)
byte_strings = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=60, max_size=300))
headers = st.lists(
    st.tuples(st.binary(max_size=12), st.one_of(st.none(), st.binary(max_size=12))), max_size=3
)
codecs = st.sampled_from([builders.NONE, builders.GZIP, builders.SNAPPY, builders.LZ4])
base_offsets = st.one_of(st.integers(0, 1000), st.integers(2**31, 2**62))


@st.composite
def record_lists(
    draw: st.DrawFn, base_offset: int, *, magic: int, min_size: int = 1
) -> list[Record]:
    """Records at rising offsets from `base_offset` on, with gaps as compaction leaves them."""
    gaps = draw(st.lists(st.integers(0, 3), min_size=min_size, max_size=8))
    made, offset = [], base_offset
    for gap in gaps:
        offset += gap
        made.append(
            Record(
                draw(byte_strings),
                key=draw(byte_strings),
                headers=draw(headers) if magic == 2 else (),
                timestamp=draw(timestamps),
                offset=offset,
                attributes=draw(st.sampled_from([0, 0, 0, 255])),
                width=draw(st.sampled_from([1, 1, 1, 3])),
            )
        )
        offset += 1
    return made


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Batches of magic 2, emptied ones too."""
    base_offset = draw(base_offsets)
    records = draw(record_lists(base_offset, magic=2, min_size=0))
    has_producer = draw(st.booleans())
    # -1 for a horizon would be told from none by nobody.
    horizon = bool(records) and records[0].timestamp >= 0 and draw(st.booleans())
    return builders.batch(
        records,
        base_offset=base_offset,
        codec=draw(st.one_of(codecs, st.just(builders.ZSTD))),
        leader_epoch=draw(st.integers(-1, 2**31 - 1)),
        producer_id=draw(st.integers(0, INT64_MAX)) if has_producer else -1,
        producer_epoch=draw(st.integers(0, 2**15 - 1)) if has_producer else -1,
        base_sequence=draw(st.integers(0, 2**31 - 1)) if has_producer else -1,
        log_append=draw(st.booleans()),
        transactional=draw(st.booleans()),
        delete_horizon=horizon,
        attributes=draw(st.sampled_from([0, 0, 0x80, 0x7F00])),
    )


@st.composite
def control_batches(draw: st.DrawFn) -> bytes:
    """Transaction markers."""
    return builders.control_batch(
        draw(st.sampled_from([builders.ABORT, builders.COMMIT])),
        base_offset=draw(base_offsets),
        producer_id=draw(st.integers(0, INT64_MAX)),
        coordinator_epoch=draw(st.integers(0, 2**31 - 1)),
    )


@st.composite
def legacy_messages(draw: st.DrawFn) -> bytes:
    """Plain messages and compressed sets of magic 0 and 1."""
    magic = draw(st.sampled_from([0, 1]))
    base_offset = draw(base_offsets)
    records = draw(record_lists(base_offset, magic=magic))
    codec = draw(codecs)
    log_append = draw(st.booleans())
    if codec == builders.NONE:
        return builders.messages(records, magic=magic, log_append=log_append)
    return builders.wrapper(
        records,
        magic=magic,
        codec=codec,
        log_append=log_append,
        key=draw(st.sampled_from([None, b"ignored"])),
    )


parts = st.one_of(batches(), batches(), legacy_messages(), control_batches())
#: Whole logs, formats mixed as upgrades leave them.
logs = st.lists(parts, max_size=5).map(b"".join)
#: What may follow the last whole batch.
tails = st.one_of(st.just(b""), st.binary(max_size=40), st.integers(0, 40).map(bytes))


@st.composite
def logs07(draw: st.DrawFn) -> bytes:
    """Sets of Kafka 0.7: plain, compressed, and compressed within compressed."""
    sets = []
    for payloads in draw(st.lists(st.lists(st.binary(max_size=60), min_size=1), max_size=4)):
        codec = draw(st.sampled_from([builders.NONE, builders.GZIP, builders.SNAPPY]))
        magic = draw(st.sampled_from([0, 1]))
        made = builders.messages07(payloads, magic=magic, codec=codec)
        if codec and draw(st.booleans()):
            made = builders.message07(builders.deflate(codec, made), codec=codec)
        sets.append(made)
    return b"".join(sets)
