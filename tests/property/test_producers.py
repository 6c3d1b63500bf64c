"""What is known of producers, for any log: against a plain second telling, and whatever it says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import KsegError
from kseg.files.producer_snapshot import read, to_bytes
from kseg.format.header import BatchHeader
from kseg.log.producers.state import ProducerState
from kseg.log.validate.rules import AppendOrigin
from tests.builders import int64
from tests.producing import (
    ABORT,
    COMMIT,
    REPLICATION,
    PlainProducers,
    append,
    data,
    described,
    header,
    marker,
    table,
)


@st.composite
def logs(draw: st.DrawFn) -> list[BatchHeader]:
    made: list[BatchHeader] = []
    offset = 0
    for _ in range(draw(st.integers(0, 60))):
        producer, epoch = draw(st.integers(-1, 2)), draw(st.sampled_from([0, 0, 0, 0, 1]))
        kind = draw(st.sampled_from(["data"] * 8 + ["marker", "marker", "empty", "foreign"]))
        time = draw(st.integers(-1, 50))
        if kind == "data":
            count, transactional = draw(st.integers(1, 3)), draw(st.sampled_from([0, 0, 0, 1]))
            made.append(
                data(
                    draw(st.integers(0, 9)),
                    offset,
                    producer=producer,
                    epoch=epoch,
                    count=count,
                    time=time,
                    transactional=bool(transactional),
                )
            )
        else:
            ending = draw(st.sampled_from([ABORT, COMMIT])) if kind == "marker" else 2
            one = marker(ending, offset, producer=producer, epoch=epoch, time=time, coordinator=3)
            made.append(replace(one, record_count=0) if kind == "empty" else one)
        offset = made[-1].last_offset + 1
    return made


@given(logs(), st.lists(st.integers(0, 60), max_size=3))
def test_feeding_in_pieces_knows_what_a_plain_reader_knows(
    log: list[BatchHeader], cuts: list[int]
) -> None:
    plain = PlainProducers()
    for one in log:
        plain.take(one)
    state, faults, aborted = ProducerState(), [], []
    ends = sorted({0, len(log), *(cut for cut in cuts if cut < len(log))})
    for start, end in pairwise(ends):
        aborted += state.feed(
            table(log[start:end]), on_error=lambda error: faults.append(error.offset)
        )
    assert described(state) == {
        key: (one.epoch, one.coordinator, one.time, one.first, one.batches)
        for key, one in plain.producers.items()
    }
    told = [(t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset) for t in aborted]
    assert told == plain.aborted
    assert set(faults) <= set(plain.faults)
    assert bool(faults) == bool(plain.faults)
    firsts = sorted(one.first for one in plain.producers.values() if one.first is not None)
    assert [place.offset for _, place in state.ongoing] == firsts
    assert state.map_end_offset == (log[-1].last_offset + 1 if log else 0)


@given(logs())
def test_a_replica_is_prepared_from_a_table_as_from_each_of_its_headers(
    log: list[BatchHeader],
) -> None:
    outcomes: list[Any] = []
    for batches in (log, table(log)):
        state = ProducerState()
        append(state, data(0, -9), data(1, -8, epoch=1), origin=REPLICATION)
        try:
            update = state.prepare(table(batches), origin=REPLICATION)
        except KsegError as error:
            outcomes.append((type(error), error.offset))
            continue
        started = sorted((key, place.offset) for key, place in update.started)
        outcomes.append((update.entries, started, update.completed))
    assert outcomes[0] == outcomes[1]


EDGES = [0, -1, 1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
wild = st.builds(
    lambda base, delta, sequence, epoch, time, attributes, producer: header(
        producer_id=producer,
        producer_epoch=epoch,
        base_offset=base,
        last_offset=int64(base + delta),
        base_sequence=sequence,
        max_timestamp=time,
        attributes=attributes,
        control_type=producer - 1,
    ),
    st.sampled_from(EDGES),
    st.sampled_from(EDGES[:5]),
    st.sampled_from(EDGES[:5]),
    st.sampled_from([0, 2**15 - 1, -(2**15)]),
    st.sampled_from(EDGES),
    st.sampled_from([0, 0x10, 0x30]),
    st.integers(0, 2),
)


@given(st.lists(wild, max_size=12))
def test_whatever_headers_say_they_are_taken_in_and_can_be_kept(log: list[BatchHeader]) -> None:
    state = ProducerState()
    state.feed(table(log), on_error=lambda _error: None)
    kept = state.snapshot_entries()
    assert read(to_bytes(kept)) == tuple(kept)
    for one in log:
        for origin in AppendOrigin:
            try:
                state.prepare(table([one]), origin=origin)
            except KsegError as error:
                assert error.offset == one.base_offset  # noqa: PT017
