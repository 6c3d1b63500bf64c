"""Verify against directories that real brokers left: healthy, killed, and damaged in known ways.

Each damaged directory must give the finding that names its damage, at the byte where it lies; every
other one, a killed broker's too, must give no error. What cannot be told is listed, with reasons.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kseg.analysis.verify import Finding, Report, verify

# Damage of the `new/*-damaged` cases, by name: the codes that must be found, and the pattern in
# `case.json` that says in which file and at which byte.

_AT_BATCH = r"of (?P<file>\S+\.log) \(batch at (?P<position>\d+)"
_CUT = r"(?P<file>\S+\.log) cut .*starts at (?P<position>\d+)"
ERRORS: dict[str, tuple[set[str], str | None]] = {
    "dmg-flip": ({"batch-crc"}, _AT_BATCH),
    "dmg-flip-full": ({"batch-crc"}, _AT_BATCH),
    "dmg-length": ({"batch-crc"}, r"length at (?P<position>\d+) of (?P<file>\S+\.log)"),
    "dmg-noindex": ({"index-missing"}, None),
    "dmg-garbled-index": ({"index-order", "time-index-length", "index-length"}, None),
    "dmg-garbled-snapshot": ({"snapshot-crc", "snapshot-format"}, None),
    "dmg-noepochs": ({"epochs-missing"}, None),
    "dmg-badepochs": ({"epochs-wrong"}, None),
    "dmg-txnindex": ({"txn-index-torn", "txn-index-incomplete"}, None),
    "dmg-emptylast": ({"snapshot-ahead"}, None),
}
#: Noise at the end: whatever its first bytes look like, rarely a torn batch.
GARBAGE = {"batch-length", "batch-magic", "torn-tail", "batch-crc"}
#: Named and placed, but a warning by itself: it is what a crash leaves, and a broker mends.
WARNINGS: dict[str, tuple[set[str], str | None]] = {
    "dmg-zeros": ({"zero-tail"}, None),
    "dmg-zeros-big": ({"zero-tail"}, None),
    "dmg-left-swap": ({"leftover"}, None),
    "dmg-left-cleaned": ({"leftover"}, None),
    "dmg-left-deleted": ({"leftover"}, None),
}
#: Cut inside the last batch. Where an index still names what is gone, that is an error.
CUTS: dict[str, tuple[set[str], str]] = {
    "dmg-cut": ({"torn-tail"}, _CUT),
    # The first bytes of a batch are those of its offset, mostly zero.
    "dmg-cut-header": ({"torn-tail", "zero-tail"}, _CUT),
}
UNTELLABLE = {
    "dmg-nosnapshot": "older brokers keep the last two only, so absence says nothing",
}
#: What the broker did not repair: it looks at nothing below the recovery point.
NOT_REPAIRED = {
    "dmg-garbled-index": "indexes of flushed segments are trusted",
    "dmg-txnindex": "indexes of flushed segments are trusted; a cut one passes",
    "dmg-badepochs": "only entries beyond the log are removed",
}

OLD_ERRORS = {"flip": {"batch-crc"}, "garbage": GARBAGE, "noindex": {"index-missing"}}
OLD_WARNINGS = {"torn": {"torn-tail", "zero-tail"}}

# Malformed contents under a good checksum, all in the batch that `kafka-says.json` names. Kafka's
# reader takes these, which break a rule that a broker keeps to on append:
STRICTER = {
    "base-offset-negative": "offset-range",
    "batch-length-48": "batch-length",
    "control-key-null": "control-record",
    "control-key-short": "control-record",
    "control-two-records": "record-offset",
    "last-offset-delta-negative": "offset-range",
    "last-offset-delta-small": "batch-count",
    "magic-3": "batch-magic",
    "offset-delta-above-last": "record-offset",
    "offset-delta-falls": "record-offset",
    "offset-delta-negative": "record-offset",
    "offset-delta-repeats": "record-offset",
    "old-v0-key-minus2": "record-structure",
    "old-v1-inner-bad-crc": "record-crc",
    "old-v1-key-past-end": "record-structure",
}


@dataclass(frozen=True)
class Place:
    """A partition directory of a case: `topic` is its name without number and suffix."""

    path: Path
    topic: str
    recovered: bool


def segments(partition: Path) -> list[Path]:
    return [path for path in partition.iterdir() if path.suffix in (".log", ".kafka")]


def partitions(case: Path) -> Iterator[Place]:
    for path in sorted(case.iterdir()):
        match = re.fullmatch(r"(.+)-\d+(\..*)?", path.name)
        if match and path.is_dir() and any(segments(path)):
            yield Place(path, match[1], path.name.endswith(".recovered"))


def errors(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity == "error"]


def described(case: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((case / "case.json").read_text())
    return content


def test_what_brokers_left_has_no_errors(fixture_case: Path) -> None:
    case = described(fixture_case)
    if fixture_case.name.endswith("malformed"):
        return
    for place in partitions(fixture_case):
        damaged = "damage" in case and not place.recovered
        if damaged or place.topic in NOT_REPAIRED:
            continue
        report = verify(place.path, deep=True)
        assert report.ok, errors(report)
        assert report.batches or not any(log.stat().st_size for log in segments(place.path))


def test_a_whole_data_directory_has_no_errors(fixture_case: Path) -> None:
    if "damage" in described(fixture_case) or fixture_case.name.endswith("malformed"):
        return
    if not any(partitions(fixture_case)):
        return
    assert errors(verify(fixture_case)) == []


def test_damage_since_0_11_is_named_where_it_lies(fixture_case: Path) -> None:
    case = described(fixture_case)
    if not fixture_case.name.endswith("-damaged"):
        return
    for place in partitions(fixture_case):
        if place.recovered or place.topic in UNTELLABLE:
            continue
        report = verify(place.path)
        if place.topic == "dmg-garbage-tail":
            assert {finding.code for finding in report.findings} & GARBAGE
            continue
        table = next(table for table in (ERRORS, CUTS, WARNINGS) if place.topic in table)
        wanted, pattern = table[place.topic]
        severity = "error" if table is ERRORS else "warning"
        found = [f for f in report.findings if f.severity == severity and f.code in wanted]
        assert found, (place, report.findings)
        fine = table is not ERRORS and not names_what_is_gone(report)
        assert report.ok == fine, (place, report.findings)
        if table is ERRORS:
            assert {finding.code for finding in found} == wanted
        if pattern is not None:
            told = re.search(pattern, case["damage"][place.topic])
            assert told
            spots = {(Path(finding.path).name, finding.position) for finding in found}
            assert (told["file"], int(told["position"])) in spots


def names_what_is_gone(report: Report) -> bool:
    """Whether an index leads beyond the log: a crash alone leaves no such thing."""
    return any(f.code.endswith("index-points-nowhere") for f in report.findings)


def test_damage_before_0_11_is_named_where_it_lies(fixture_case: Path) -> None:
    case = described(fixture_case)
    damage = case.get("damage", {})
    if "last_good_end" not in damage:
        return
    report = verify(fixture_case / f"{case['topic']}-0")
    kind = next(word for word in ("flip", "garbage", "noindex", "torn") if word in case["case"])
    wanted = OLD_ERRORS.get(kind) or OLD_WARNINGS[kind]
    found = [finding for finding in report.findings if finding.code in wanted]
    assert found, report.findings
    if kind in OLD_WARNINGS:
        assert report.ok == (not names_what_is_gone(report)), report.findings
    elif kind != "garbage":
        assert not report.ok
    if kind != "noindex":
        spots = {(Path(finding.path).name, finding.position) for finding in found}
        assert (damage["file"], damage["last_good_end"]) in spots


def test_what_the_broker_did_not_repair_is_still_found(fixture_case: Path) -> None:
    if not fixture_case.name.endswith("-damaged"):
        return
    for place in partitions(fixture_case):
        before = place.path.with_name(place.path.name.removesuffix(".recovered"))
        if place.recovered and place.topic in NOT_REPAIRED:
            still = {finding.code for finding in errors(verify(place.path))}
            assert still <= {finding.code for finding in errors(verify(before))}


def test_malformed_batches_are_found_where_kafka_finds_them(fixture_case: Path) -> None:
    says = fixture_case / "kafka-says.json"
    if not says.exists():
        return
    for variety, answer in json.loads(says.read_text()).items():
        report = verify(fixture_case / f"mal-{variety}-0", deep=True)
        found = {f.code for f in errors(report) if f.position == answer["bad_batch_at"]}
        refused = any("error" in batch for batch in answer["iterator"])
        if variety in STRICTER:
            assert STRICTER[variety] in found, (variety, report.findings)
        elif refused:
            assert found, variety
        else:
            assert report.ok, (variety, report.findings)


@pytest.mark.parametrize("jobs", [2])
def test_several_processes_give_the_same_report(fixtures_dir: Path, jobs: int) -> None:
    cases = [path.parent for path in sorted(fixtures_dir.glob("new/*-damaged/case.json"))[:1]]
    assert cases
    assert verify(cases, threads=jobs) == verify(cases)
