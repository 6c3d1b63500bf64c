from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kseg.log.producers.entry import OffsetMetadata
from kseg.log.producers.open_transactions import TransactionsByOffset

steps = st.lists(st.tuples(st.sampled_from("++++-k"), st.integers(0, 8), st.integers(0, 3)))


@given(steps)
def test_transactions_are_told_in_the_order_of_their_offsets(
    done: list[tuple[str, int, int]],
) -> None:
    kept, plain = TransactionsByOffset(), dict[int, int]()
    for step, offset, producer in done:
        if step == "+":
            kept.put(producer, OffsetMetadata(offset))
            plain[offset] = producer
        elif step == "-":
            found = kept.remove(offset)
            assert (found and found[0]) == plain.pop(offset, None)
        else:
            kept.keep({o for o in plain if o >= offset})
            plain = {o: p for o, p in plain.items() if o >= offset}
        told = [(place.offset, owner) for owner, place in kept]
        assert told == sorted(plain.items())
        assert len(kept) == len(plain)
        oldest = kept.oldest
        assert (oldest and oldest[1].offset) == min(plain, default=None)
        others = [o for o, p in plain.items() if p != producer]
        other = kept.oldest_of_another(producer)
        assert (other and other.offset) == min(others, default=None)
    kept.clear()
    assert (len(kept), kept.oldest) == (0, None)
