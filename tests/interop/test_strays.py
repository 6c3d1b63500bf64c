"""What `kseg doctor` calls stray, and what Kafka does: `LogManager.isStrayKraftReplica`.

It needs Maven and a Java compiler; without them these tests are skipped, but never where CI is set.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg import doctor
from tests.interop.kafka import Kafka
from tests.unit.log.settings import made

#: What a metadata log says of a topic's partitions.
ASSIGNED: dict[str, list[made.Said | bytes]] = {
    "here": [made.partition(made.FIRST, 0, [7, 8])],
    "elsewhere": [made.partition(made.FIRST, 0, [8])],
    "no such one": [made.partition(made.FIRST, 1, [7])],
    "moved away": [made.partition(made.FIRST, 0, [7]), made.moved(made.FIRST, 0, [8, 9])],
    "moved here": [made.partition(made.FIRST, 0, [8]), made.moved(made.FIRST, 0, [8, 7])],
    "changed": [made.partition(made.FIRST, 0, [7]), made.moved(made.FIRST, 0, None)],
}

#: The records of a metadata log, and the id in the partition's directory.
CASES: dict[str, tuple[list[made.Said | bytes], made.UUID | None]] = {
    **{name: ([made.topic("orders"), *told], made.FIRST) for name, told in ASSIGNED.items()},
    "another topic": ([made.topic("orders", made.SECOND)], made.FIRST),
    "removed": (
        [
            *(made.topic("orders"), made.partition(made.FIRST, 0, [7])),
            made.removed(made.FIRST),
        ],
        made.FIRST,
    ),
    "made again": (
        [
            *(made.topic("orders"), made.partition(made.FIRST, 0, [7]), made.removed(made.FIRST)),
            *(made.topic("orders", made.SECOND), made.partition(made.SECOND, 0, [7])),
        ],
        made.FIRST,
    ),
    "no id": ([made.topic("orders"), made.partition(made.FIRST, 0, [7])], None),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_stray_is_so_to_kafka(kafka_logs: Kafka, tmp_path: Path, name: str) -> None:
    told, topic_id = CASES[name]
    broker = made.Broker(tmp_path / "data")
    broker.says(told)
    path = broker.has(topic_id=topic_id)
    found = {one.code for one in doctor(broker.path).all_findings()}
    records = [each if isinstance(each, bytes) else made.encoded(each) for each in told]
    (answer,) = kafka_logs.ask([{"op": "stray", "dir": str(path), "node": 7, "records": records}])
    assert answer == {"stray": bool(found & {"stray", "partition-lost"})}
