"""Metadata logs of real brokers come to what Kafka's own tool printed of their records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kseg
from tests.conformance.test_settings_fixtures import LINE, RELEASES, _dump_of

#: Columns of a partition, and the fields of the records that set them.
COLUMNS = {
    "leader": "leader",
    "replicas": "replicas",
    "isr": "isr",
    "elr": "eligibleLeaderReplicas",
    "last_known_elr": "lastKnownElr",
    "directories": "directories",
}


def printed(case: Path) -> dict[str, dict[Any, dict[str, Any]]]:
    """Partitions, configurations and features by key, each with the offset of its last change."""
    names: dict[str, str] = {}
    found: dict[str, dict[Any, dict[str, Any]]] = {"partitions": {}, "configs": {}, "features": {}}
    offset = 0
    for base, text in LINE.findall(_dump_of(case / "dump" / "__cluster_metadata-0")):
        if base:
            offset = int(base)
            continue
        record = json.loads(text)
        kind, data = record["type"], record["data"]
        if kind == "TOPIC_RECORD":
            names[data["topicId"]] = data["name"]
        elif kind == "REMOVE_TOPIC_RECORD":
            gone = names.pop(data["topicId"])
            for table, place in (("partitions", 0), ("configs", 1)):
                kept = {key: row for key, row in found[table].items() if key[place] != gone}
                found[table] = kept
        elif kind in ("PARTITION_RECORD", "PARTITION_CHANGE_RECORD"):
            key = (names[data["topicId"]], data["partitionId"])
            row = found["partitions"].setdefault(key, {"elr": [], "last_known_elr": []})
            told = {column: data.get(name) for column, name in COLUMNS.items()}
            row |= {column: each for column, each in told.items() if each is not None}
            row["offset"] = offset
        elif kind == "CONFIG_RECORD":
            owner = (data["resourceType"], data["resourceName"], data["name"])
            found["configs"][owner] = {"value": data["value"], "offset": offset}
            if data["value"] is None:
                del found["configs"][owner]
        elif kind == "FEATURE_LEVEL_RECORD":
            level = {"level": data["featureLevel"], "offset": offset}
            found["features"][data["name"]] = level
        offset += 1
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_a_log_comes_to_what_kafka_printed_of_it(fixtures_dir: Path, release: str) -> None:
    case = fixtures_dir / "new" / f"{release}-internal"
    wanted, found = printed(case), kseg.metadata(case)
    assert found.findings == ()
    partitions = {(row["topic"], row["partition"]): row for row in found["partitions"]}
    assert partitions.keys() == wanted["partitions"].keys()
    for key, row in wanted["partitions"].items():
        assert {name: partitions[key][name] for name in row} == row, key
    levels = {"topic": 2, "broker": 4, "cluster": 4, "client-metrics": 16, "group": 32}
    configs = {
        (levels[row["level"]], row["resource"], row["config"]): {
            "value": row["value"],
            "offset": row["offset"],
        }
        for row in found["configs"]
    }
    assert configs == wanted["configs"]
    features = {row["feature"]: row for row in found["features"] if row["feature"] != KRAFT}
    assert features.keys() == wanted["features"].keys()
    for name, row in wanted["features"].items():
        assert (features[name]["level"], features[name]["offset"]) == (row["level"], row["offset"])


KRAFT = "kraft.version"


@pytest.mark.parametrize("case", ["2.8.2-internal", "1.1.1-txn", "0.11.0.3-txn"])
def test_zookeepers_era_is_said(fixtures_dir: Path, case: str) -> None:
    with pytest.raises(kseg.NotALogError, match="ZooKeeper"):
        kseg.metadata(fixtures_dir / "new" / case)
