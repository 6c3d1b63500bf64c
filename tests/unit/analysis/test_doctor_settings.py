"""The doctor and the settings with which a broker does not start, in its file and of topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.analysis.doctor import Outcome, doctor
from tests.unit.log.settings.made import Broker, setting, topic

ROLES = "process.roles=broker\nnode.id=7\n"


def codes_of(tmp_path: Path, text: str, release: str = "4.2") -> dict[str, str]:
    tmp_path.mkdir(exist_ok=True)
    broker = Broker(tmp_path / "data").says([topic("orders")])
    properties = tmp_path / "server.properties"
    properties.write_bytes(text.encode())
    report = doctor(broker.path, broker_config=properties, release=release)
    codes = {one.code: one.message for one in report.findings if "setting" in one.code}
    assert (report.outcome is Outcome.FAILS) == ("setting-refused" in codes)
    return codes


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("log.retention.hours=999999999999", "setting-refused", "below 2147483648"),
        ("log.retention.hours=0", "setting-refused", "at most -1 or at least 1"),
        ("log.retention.hours=48 # two days", "setting-refused", "not shown"),
        ("log.retention.ms=", "setting-refused", "a whole number"),
        ("log.segment.bytes=1000", "setting-refused", "at least 1048576"),
        ("log.cleaner.dedupe.buffer.size=100", "setting-refused", "log.cleaner.threads"),
        ("log.retention.hours=${env:H}\nconfig.providers=env", "setting-refused", "not shown"),
        ("\N{ZERO WIDTH NO-BREAK SPACE}log.dirs=/data", "setting-ignored", "byte-order mark"),
        ("retention.ms=5", "setting-ignored", "a setting of topics"),
    ],
)
def test_a_setting_that_kafka_refuses_or_ignores_is_named(
    tmp_path: Path, line: str, code: str, words: str
) -> None:
    codes = codes_of(tmp_path, f"{line}\n{ROLES}")
    assert set(codes) == {code}
    assert words in codes[code]


@pytest.mark.parametrize(
    "line",
    [
        "log.retention.hours: 48\r",
        "log.retention.hours=48   ",
        "log.retention.ms=-5",
        "log.retention.hours=1\nlog.retention.hours=48",
        "log.retention.hours=${env:H}\nconfig.providers.env.class=x.Env",
        "my.plugin.retention=forever",
    ],
)
def test_a_setting_that_kafka_takes_is_not_named(tmp_path: Path, line: str) -> None:
    assert codes_of(tmp_path, f"{line}\n{ROLES}") == {}


def test_a_file_without_roles_is_refused_by_brokers_of_kraft_alone(tmp_path: Path) -> None:
    assert set(codes_of(tmp_path / "new", "node.id=7\n")) == {"setting-missing"}
    assert codes_of(tmp_path / "old", "node.id=7\n", "3.9") == {}


@pytest.mark.parametrize(
    ("name", "value", "release", "outcome"),
    [
        ("delete.retention.ms", "-1", "4.2", Outcome.FAILS),
        ("cleanup.policy", "deleted", "4.2", Outcome.FAILS),
        ("cleanup.policy", "deleted", "3.9", Outcome.FAILS),
        ("segment.bytes", "1000", "4.2", Outcome.FAILS),
        ("segment.bytes", "1000", "3.9", Outcome.STARTS),
        ("retention.ms", "-1", "4.2", Outcome.STARTS),
        ("no.such.setting", "x", "4.2", Outcome.STARTS),
    ],
)
def test_a_setting_of_a_topic_is_judged_by_the_release(
    tmp_path: Path, name: str, value: str, release: str, outcome: Outcome
) -> None:
    broker = Broker(tmp_path / "data").says([topic("orders"), setting(name, value)])
    report = doctor(broker.path, release=release)
    refused = [one for one in report.findings if one.code == "setting-refused"]
    assert bool(refused) == (outcome is Outcome.FAILS)
    assert report.outcome in (outcome, Outcome.UNKNOWN)
    assert all(f"{name} is {value!r} in topic orders;" in one.message for one in refused)


@pytest.mark.parametrize("value", ["true", "false"])
def test_tiered_topics_of_a_broker_without_a_tier_are_named(tmp_path: Path, value: str) -> None:
    enabled = setting("remote.storage.enable", "true")
    broker = Broker(tmp_path / "data").says([topic("orders"), enabled])
    properties = tmp_path / "server.properties"
    properties.write_text(f"{ROLES}remote.log.storage.system.enable={value}\n")
    codes = [one.code for one in doctor(broker.path, broker_config=properties).findings]
    assert ("tier-off" in codes) == (value == "false")
