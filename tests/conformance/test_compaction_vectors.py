"""The rewrite of compaction: what Kafka's MemoryRecords.filterTo makes of each vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kseg.errors import BuilderStateError
from kseg.format.header import BatchTable
from kseg.format.located import Retention, Verdict
from kseg.format.retain import Filtered, filter_batches
from kseg.format.values import RecordColumns
from tests.conformance.outputs import same_output

REFUSALS = {"IllegalStateException": BuilderStateError}
KEEP: dict[str, Callable[[RecordColumns], Any]] = {
    "all": lambda columns: np.ones(len(columns), np.bool_),
    "none": lambda columns: np.zeros(len(columns), np.bool_),
    "keyed": lambda columns: columns["key"].is_valid(),
}
COUNTERS = (
    "bytes_read",
    "bytes_retained",
    "messages_read",
    "messages_retained",
    "max_offset",
    "max_timestamp",
    "shallow_offset_of_max_timestamp",
)


def filtered(vector: dict[str, Any], rules: str) -> Filtered:
    params = vector["params"]
    retention = Retention[params["batch_retention"]]

    def decide(table: BatchTable) -> Verdict:
        count = len(table)
        verdict = Verdict.same(retention, count)
        return Verdict(verdict.retention, np.full(count, params["marker_of_empty_txn"]))

    return filter_batches(
        bytes.fromhex(vector["hex"]),
        decide,
        KEEP[params["keep"]],
        now_ms=params["now"],
        delete_retention_ms=params["delete_retention_ms"],
        rules=rules,
    )


@pytest.mark.parametrize("rules", ["3.9", "4.0"])
def test_the_bytes_and_the_counters_are_kafka_s(
    compaction_vector: dict[str, Any], rules: str
) -> None:
    if compaction_vector.get("kafka", rules) not in (rules, f"until {rules}", f"since {rules}"):
        pytest.skip(f"differs in {rules}")
    if "error" in compaction_vector:
        with pytest.raises(REFUSALS[compaction_vector["error"]["error"]]):
            filtered(compaction_vector, rules)
        return
    expect = compaction_vector["expect"]
    result = filtered(compaction_vector, rules)
    same_output(result.data, expect)
    got = {name: getattr(result, name) for name in COUNTERS if name in expect}
    assert got == {name: expect[name] for name in got}
    assert result.bytes_retained == len(result.data)
    assert result.complete
