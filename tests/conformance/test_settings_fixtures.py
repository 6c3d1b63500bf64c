"""Settings of real brokers: those that their topics were made with, and what their own log says."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

import kseg

RELEASES = ("3.9.1", "4.2.0")
RECORD = re.compile(r'payload: (\{"type":"(?:TOPIC|REMOVE_TOPIC|CONFIG)_RECORD.*\})')


def cases(fixtures_dir: Path, release: str) -> list[Path]:
    """The data directories of one broker, that with its metadata log first."""
    found = sorted((fixtures_dir / "new").glob(f"{release}-*"))
    return sorted(found, key=lambda each: not (each / "__cluster_metadata-0").is_dir())


def known(fixtures_dir: Path, release: str) -> kseg.Settings:
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
            if settings.skipped is not None or settings.topic not in told:
                continue
            wanted = dict(told[settings.topic])
            if "internal.segment.bytes" in wanted:
                wanted["segment.bytes"] = wanted.pop("internal.segment.bytes")
            values = {name: each.value for name, each in settings.values.items()}
            assert {name: values.get(name) for name in wanted} == wanted, path
            assert {settings.values[name].source for name in wanted} <= {"topic"}
            compared += bool(wanted)
    assert compared >= 10


@pytest.mark.parametrize("release", RELEASES)
def test_the_metadata_log_comes_to_what_kafka_printed_of_it(
    fixtures_dir: Path, release: str
) -> None:
    dump = cases(fixtures_dir, release)[0] / "dump" / "__cluster_metadata-0"
    names: dict[str, str] = {}
    configs: dict[tuple[int, str], dict[str, str]] = {}
    for text in RECORD.findall(_dump_of(dump)):
        record = json.loads(text)
        _apply(record["type"], record["data"], names, configs)
    cluster = known(fixtures_dir, release).cluster
    assert cluster is not None
    assert sorted(cluster.topics.values()) == sorted(names.values())
    # Those of consumer groups and clients bear on no log, and are not kept.
    assert cluster.configs == {key: each for key, each in configs.items() if key[0] in (2, 4)}


def _dump_of(directory: Path) -> str:
    path = next(directory.glob("*.log.txt*"))
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def _apply(kind: str, data: dict[str, Any], names: dict[str, str], configs: Any) -> None:
    if kind == "TOPIC_RECORD":
        names[data["topicId"]] = data["name"]
    elif kind == "REMOVE_TOPIC_RECORD":
        configs.pop((2, names.pop(data["topicId"])), None)
    else:
        found = configs.setdefault((data["resourceType"], data["resourceName"]), {})
        found[data["name"]] = data["value"]


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_is_to_go_from_internal_topics(fixtures_dir: Path, release: str) -> None:
    found = known(fixtures_dir, release)
    for path in cases(fixtures_dir, release)[0].glob("__*-0"):
        config = found.of(path).retention_rules().config
        assert "delete" not in config.cleanup_policy or config.retention_ms == -1
