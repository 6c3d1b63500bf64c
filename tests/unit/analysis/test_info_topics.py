"""`topics`: each partition counts once, however its files are named."""

from __future__ import annotations

import kseg
from tests.tidy import tree

DATA = tree.ROOT / "kseg" / "demo_data"


def test_the_files_of_a_partition_count_it_once() -> None:
    whole = kseg.topics(DATA, topics="orders", partitions=0)
    assert tuple(kseg.topics(f"{DATA}/orders-0/*.log")) == tuple(whole)
    assert (whole[0].partitions, whole[0].segments, whole[0].offsets) == (1, 5, 254)
    assert repr(whole) == "Topics(orders)"
