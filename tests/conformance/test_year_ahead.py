"""`retain` and `compact` over the data directories of real brokers, with a clock a year ahead.

What goes, and what stays, is told by `tests.reference` and by the settings that a case's topics
were made with, not by kseg. Metadata logs are in the `internal` cases alone: those of a broker's
other cases are joined with that of its release.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests import reference
from tests.unit.cli.conftest import Kseg, Ran
from tests.unit.cli.conftest import kseg as kseg

YEARS_AHEAD: Final = ("2027-11-22", "2029-11-22")
#: Settings for every topic, which are weaker than its own.
GREEDY: Final = ("cleanup.policy=delete", "retention.ms=1")
INTERNAL: Final = "__"
PARTITION: Final = re.compile(r"(?P<topic>.+)-(?P<number>\d+)(?:\.(?P<home>\w+))?")

LastValues = dict[bytes, tuple[int, bytes | None]]


# ---- data directories ----------------------------------------------------------------------------


def homes_of(case: Path, root: Path) -> list[Path]:
    """The data directories of a case, copied: its own, and those under `NAME.HOME`."""
    homes: dict[str, Path] = {}
    for path in sorted(case.iterdir()):
        match = PARTITION.fullmatch(path.name)
        if match is None or not path.is_dir():
            continue
        home = homes.setdefault(match["home"] or "", root / f"data-{len(homes)}")
        shutil.copytree(path, home / f"{match['topic']}-{match['number']}")
    for name, home in homes.items():
        _copy_files(case if not name else case / f"logdir.{name}", home)
    return list(homes.values())


def _copy_files(origin: Path, home: Path) -> None:
    for path in sorted(origin.iterdir()) if origin.is_dir() else ():
        if path.is_file() and path.suffix not in (".json", ".jsonl", ".gz"):
            shutil.copy2(path, home / path.name)


def own_settings(case: Path) -> dict[str, dict[str, str]]:
    """What each topic of a case was made with."""
    facts = json.loads((case / "case.json").read_text())
    if "topic" in facts:
        return {facts["topic"]: _texts(facts.get("topic_config") or {})}
    topics = facts["topics"]
    return {name: _texts(topics[name]) for name in topics}


def _texts(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in settings.items()}


class Given:
    """What a run is told of the settings, and what they keep.

    Where it is not greedy, only metadata logs say anything; where there is none, nothing does.
    """

    def __init__(self, case: Path, fixtures: Path, home: Path, *, greedy: bool) -> None:
        release = case.name.partition("-")[0]
        origin = fixtures / "new" / f"{release}-internal"
        self.topics = {path.name.rpartition("-")[0] for path in home.iterdir() if path.is_dir()}
        self.own = {name: own_settings(case).get(name, {}) for name in self.topics}
        self.greedy = greedy
        self.words: list[object] = []
        if (origin / "__cluster_metadata-0").is_dir() and (home / "meta.properties").exists():
            self.words += ["--metadata-dir", origin]
        elif greedy:
            for topic, settings in self.own.items():
                self._give(settings.items(), f"{topic}:")
        if greedy:
            self._give((each.split("=") for each in GREEDY), "")

    def _give(self, settings: Any, prefix: str) -> None:
        for name, value in settings:
            name = {"internal.segment.bytes": "segment.bytes"}.get(name, name)
            self.words += ["--config", f"{prefix}{name}={value}"]

    def keeps(self, topic: str) -> bool:
        """Whether nothing of a topic may be taken for too old, or too much."""
        own = self.own[topic]
        if not self.greedy and not (self.words and "cleanup.policy" in own):
            return True  # nobody knows its policy
        policy = own.get("cleanup.policy", "delete")
        limits = own.get("retention.ms", "1"), own.get("retention.bytes", "-1")
        return topic.startswith(INTERNAL) or policy == "compact" or limits == ("-1", "-1")


@pytest.fixture(params=[False, True], ids=["as-they-lie", "greedy"])
def greedy(request: pytest.FixtureRequest) -> bool:
    return request.param


def in_good_order(kseg: Kseg, home: Path) -> bool:
    """Recover what was killed or damaged; false for what no verb that changes logs takes."""
    if not (home / ".kafka_cleanshutdown").exists():
        ran = kseg("recover", home, "--apply", "--no-backup")
        assert ran.code in (0, 1, 3), ran.err
    return (home / ".kafka_cleanshutdown").exists()


def partitions_of(home: Path) -> list[Path]:
    return [path for path in sorted(home.iterdir()) if path.is_dir()]


@pytest.mark.damages("brokers have left faults")
@pytest.mark.one_case_in(10)
def test_a_year_ahead_nothing_goes_that_settings_keep_and_no_last_value(
    kseg: Kseg, fixture_case: Path, fixtures_dir: Path, tmp_path: Path, greedy: bool
) -> None:
    for home in homes_of(fixture_case, tmp_path):
        if in_good_order(kseg, home):
            given = Given(fixture_case, fixtures_dir, home, greedy=greedy)
            retained(kseg, home, given)
            compacted(kseg, home, given)


# ---- retention -----------------------------------------------------------------------------------


def retained(kseg: Kseg, home: Path, given: Given) -> None:
    """No byte goes that settings keep, but what lies before the log's start."""
    before = {path: logs_of(path) for path in partitions_of(home)}
    words = ("--now", YEARS_AHEAD[0], "--apply", "--no-backup", "--json", *given.words)
    rows = rows_of(kseg("retain", home, *words))
    for path, logs in before.items():
        left = logs_of(path)
        gone = logs.keys() - left.keys()
        assert {name: logs[name] for name in logs.keys() - gone}.items() <= left.items()
        if given.keeps(path.name.rpartition("-")[0]):
            start = rows[str(path)]["log_start_offset"] if gone else 0
            first = max((each for each in map(base_of, logs) if each <= start), default=0)
            assert all(base_of(name) < first for name in gone), path


def rows_of(ran: Ran) -> dict[str, dict[str, Any]]:
    assert ran.code in (0, 1), ran.err
    return {row["path"]: row for row in ran.document["partitions"]}


def logs_of(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.glob("*.log")}


def base_of(name: str) -> int:
    return int(name.partition(".")[0])


# ---- compaction ----------------------------------------------------------------------------------


def compacted(kseg: Kseg, home: Path, given: Given) -> None:
    """The last value of each key stays; where it is greedy, every topic is compacted."""
    words = list(given.words)
    for topic in given.topics - {"__cluster_metadata"} if given.greedy else ():
        words += ["--config", f"{topic}:cleanup.policy=compact"]
    before = {path: (last_values(path), logs_of(path)) for path in partitions_of(home)}
    for year in YEARS_AHEAD:
        how = ("--all", "--force", "--now", year, "--apply", "--json", *words)
        rows = rows_of(kseg("compact", home, *how))
        for path, (values, logs) in before.items():
            if values is None:  # damage stops a partition
                assert logs_of(path) == logs
                continue
            row = rows.get(str(path), {})
            policy = row.get("settings", {}).get("cleanup.policy", {}).get("value", "")
            start = row["log_start_offset"] if "delete" in policy else 0
            check_keys(values, last_values(path) or {}, start)


def last_values(path: Path) -> LastValues | None:
    """The last record of each key, of those that no transaction has aborted; None for damage."""
    with suppress(reference.RefusedError):
        return _last_values(path)
    return None


def _last_values(path: Path) -> LastValues:
    found: LastValues = {}
    batches = [
        batch
        for log in sorted(path.glob("*.log"))
        for batch in reference.walk(log.read_bytes()).batches
    ]
    aborted = reference.aborted_batches(batches)
    for number, batch in enumerate(batches):
        if not batch.is_control and number not in aborted:
            for record in reference.records(batch):
                if record.key is not None:
                    found[record.key] = record.offset, record.value
    return found


def check_keys(before: LastValues, after: LastValues, start: int) -> None:
    """What is left has the last value; a key is gone with its tombstone, or before the start."""
    assert {key: before[key] for key in after} == after
    for key in before.keys() - after.keys():
        offset, value = before[key]
        assert value is None or offset < start
