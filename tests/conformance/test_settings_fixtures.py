"""Settings of real brokers: those that their topics were made with, and what their own log says.

The collection has no output of kafka-configs, and no broker's own log lines about settings: a real
broker is asked for both in `tests/interop/broker/test_settings.py`.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import kseg

RELEASES = ("3.9.1", "4.2.0", "4.4.0")
#: A topic whose settings were changed afterwards.
CHANGED = {"cfg44"}
LINE = re.compile(r"baseOffset: (\d+) | payload: (\{.*\})")
#: Of a broker and its topics; those of consumer groups and clients bear on no log.
KINDS = (2, 4)


def cases(fixtures_dir: Path, release: str) -> list[Path]:
    """The data directories of one broker, that with its metadata log first."""
    every = sorted((fixtures_dir / "new").glob(f"{release}-*"))
    found = [each for each in every if not each.name.endswith("-controllers")]  # another cluster
    return sorted(found, key=lambda each: not (each / "__cluster_metadata-0").is_dir())


def known(fixtures_dir: Path, release: str) -> kseg.reports.Settings:
    origin, *others = cases(fixtures_dir, release)
    return kseg.settings([origin, *others], metadata_directory=origin)


@pytest.mark.parametrize("release", RELEASES)
def test_topics_have_the_settings_that_they_were_made_with(
    fixtures_dir: Path, release: str
) -> None:
    found, compared = known(fixtures_dir, release), 0
    assert found.findings == ()
    for case in cases(fixtures_dir, release):
        told = json.loads((case / "case.json").read_text())["topics"]
        for path in sorted(case.glob("*-0")):
            settings = found.of(path)
            if settings.skipped is not None or settings.topic not in {*told} - CHANGED:
                continue
            if settings.topic_id is None:  # nothing says whose directory it is
                continue
            wanted = {
                name: text
                for name, text in told[settings.topic].items()
                if not name.startswith(("errors.", "remote.copy."))  # they bear on no log
            }
            if "internal.segment.bytes" in wanted:
                wanted["segment.bytes"] = wanted.pop("internal.segment.bytes")
            values = {name: each.value for name, each in settings.values.items()}
            assert {name: values.get(name) for name in wanted} == wanted, path
            assert {settings.values[name].source for name in wanted} <= {"topic"}
            compared += bool(wanted)
    assert compared >= 10


def test_a_store_says_what_a_disk_says(fixtures_dir: Path) -> None:
    import fsspec

    here, system = cases(fixtures_dir, "4.2.0")[0], fsspec.filesystem("memory")
    system.put(str(here), "/settings/data", recursive=True)
    url = "memory://settings/data"
    try:
        for given in ({}, {"metadata_directory": url}):
            found, wanted = kseg.settings(url, **given), kseg.settings(here)
            rows = [{**row, "directory": row["directory"].replace(url, str(here))}
                    for row in found.table_rows()]  # fmt: skip
            assert rows == wanted.table_rows()
            for one, other in zip(found, wanted, strict=True):
                assert (one.skipped, one.notes) == (other.skipped, other.notes)
                assert found.of(str(one.path)).values == one.values
        assert {row["source"] for row in rows} >= {"default", "topic"}
    finally:
        system.rm("/settings", recursive=True)


@pytest.mark.parametrize("release", RELEASES)
def test_the_metadata_log_comes_to_what_kafka_printed_of_it(
    fixtures_dir: Path, release: str
) -> None:
    names, configs = printed(fixtures_dir, release)
    cluster = known(fixtures_dir, release).cluster
    assert cluster is not None
    assert sorted(cluster.topics.values()) == sorted(names.values())
    assert values_of(cluster.configs) == configs


@pytest.mark.parametrize("release", RELEASES)
def test_each_snapshot_comes_to_what_kafka_printed_of_the_log_before_it(
    fixtures_dir: Path, tmp_path: Path, release: str
) -> None:
    origin = cases(fixtures_dir, release)[0] / "__cluster_metadata-0"
    snapshots = sorted(origin.glob("*.checkpoint"))
    assert snapshots
    for snapshot in snapshots:
        home = tmp_path / snapshot.stem
        (home / origin.name).mkdir(parents=True)
        shutil.copy(snapshot, home / origin.name)
        cluster = kseg.settings(home).cluster
        assert cluster is not None
        assert cluster.trusted
        names, configs = printed(fixtures_dir, release, int(snapshot.name.partition("-")[0]))
        assert sorted(cluster.topics.values()) == sorted(names.values())
        assert values_of(cluster.configs) == configs


def values_of(configs: dict[tuple[int, str], dict[str, Any]]) -> Any:
    """Of topics and brokers, without the place of each record."""
    return {
        owner: {name: each.value for name, each in found.items()}
        for owner, found in configs.items()
        if owner[0] in KINDS
    }


def printed(
    fixtures_dir: Path, release: str, end: int | None = None
) -> tuple[dict[str, str], dict[tuple[int, str], dict[str, str]]]:
    """Topics by id, and settings, of what Kafka printed of the log, up to an offset."""
    dump = cases(fixtures_dir, release)[0] / "dump" / "__cluster_metadata-0"
    names: dict[str, str] = {}
    configs: dict[tuple[int, str], dict[str, str]] = {}
    offset = 0
    for base, text in LINE.findall(_dump_of(dump)):
        if base:
            offset = int(base)
        elif end is None or offset < end:
            record = json.loads(text)
            _apply(record["type"], record["data"], names, configs)
            offset += 1
    return names, {key: each for key, each in configs.items() if key[0] in KINDS}


def _dump_of(directory: Path) -> str:
    path = next(directory.glob("*.log.txt*"))
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def _apply(kind: str, data: dict[str, Any], names: dict[str, str], configs: Any) -> None:
    if kind == "TOPIC_RECORD":
        names[data["topicId"]] = data["name"]
    elif kind == "REMOVE_TOPIC_RECORD":
        configs.pop((2, names.pop(data["topicId"])), None)
    elif kind == "CONFIG_RECORD":
        found = configs.setdefault((data["resourceType"], data["resourceName"]), {})
        found[data["name"]] = data["value"]
        if data["value"] is None:
            del found[data["name"]]


def test_each_directory_is_of_the_topic_with_its_id(fixtures_dir: Path) -> None:
    """No topic of the collection was made again: see `tests/interop/broker/test_settings.py`."""
    compared = 0
    for release in RELEASES:
        found = known(fixtures_dir, release)
        assert found.cluster is not None
        for settings in found:
            if settings.skipped is None and settings.topic in found.cluster.ids:
                assert found.cluster.ids[settings.topic] == settings.topic_id
                compared += 1
    assert compared > 20


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_is_to_go_from_internal_topics(fixtures_dir: Path, release: str) -> None:
    found = known(fixtures_dir, release)
    for path in cases(fixtures_dir, release)[0].glob("__*-0"):
        config = found.of(path).retention_rules().config
        assert "delete" not in config.cleanup_policy or config.retention_ms == -1
