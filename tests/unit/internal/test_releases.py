"""Which values of configurations an output may have: those of known names that are no passwords."""

from __future__ import annotations

import pytest

from kseg.internal.releases import config_types, refused_settings, shown


@pytest.mark.parametrize(
    ("name", "is_shown"),
    [
        ("retention.ms", True),
        ("leader.replication.throttled.replicas", True),
        ("follower.replication.throttled.rate", True),
        ("share.record.lock.duration.ms", True),
        ("metrics", True),
        ("message.format.version", True),  # of 3.9 alone
        ("ssl.keystore.location", True),
        ("listener.name.internal.ssl.keystore.location", True),
        ("ssl.key.password", False),
        ("listener.name.internal.ssl.key.password", False),
        ("sasl.jaas.config", False),
        ("listener.name.internal.scram-sha-256.sasl.jaas.config", False),
        ("listener.name.retention.ms", False),
        ("sasl.oauthbearer.client.credentials.client.secret", False),
        ("my.plugin.url", False),
        ("RETENTION.MS", False),
        ("", False),
    ],
)
def test_a_value_is_shown_if_its_name_is_known_and_no_password(
    name: str, *, is_shown: bool
) -> None:
    assert shown(name, "hunter2") == ("hunter2" if is_shown else None)
    assert shown(name, "hunter2", show_secrets=True) == "hunter2"


def test_each_name_has_one_type() -> None:
    types = config_types()
    assert len(types) > 400
    assert set(types.values()) == {
        *("BOOLEAN", "CLASS", "DOUBLE", "INT", "LIST", "LONG", "PASSWORD", "SHORT", "STRING")
    }
    assert [name for name, kind in types.items() if kind == "PASSWORD" and "." not in name] == []


#: A setting of brokers, a value, and whether 3.9.1 and 4.2.0 take it (o) or not (x): answers of
#: `KafkaConfig.fromProps` of these releases.
ANSWERS = [
    ("log.cleaner.dedupe.buffer.size", "100", "xx"),
    ("log.cleaner.dedupe.buffer.size", "1048576", "xx"),
    ("log.cleaner.dedupe.buffer.size", "1048577", "oo"),
    ("log.retention.ms", "0", "xx"),
    ("log.retention.minutes", "0", "xx"),
    ("log.retention.hours", "0", "xx"),
    ("log.retention.hours", "-7", "oo"),
    ("log.roll.ms", "0", "xx"),
    ("log.roll.hours", "0", "xx"),
    ("log.roll.jitter.ms", "-1", "xx"),
    ("replica.fetch.wait.max.ms", "40000", "xx"),
    ("replica.fetch.wait.max.ms", "30001", "xx"),
    ("log.local.retention.ms", "99999999999", "oo"),
    ("group.min.session.timeout.ms", "900000000", "oo"),
    ("group.consumer.heartbeat.interval.ms", "999999", "xx"),
    ("group.consumer.min.session.timeout.ms", "70000", "xx"),
    ("group.share.session.timeout.ms", "100", "xx"),
    ("log.cleanup.policy", "", "oo"),
    ("log.cleanup.policy", "deleted", "xx"),
    ("log.cleanup.policy", "compact,compact", "oo"),
    ("log.cleanup.policy", "delete , compact", "oo"),
    ("log.cleanup.policy", ",", "xx"),
    ("log.message.timestamp.type", "createtime", "xx"),
    ("compression.type", "lz5", "xx"),
    ("compression.type", "GZIP", "xx"),
    ("compression.gzip.level", "0", "xx"),
    ("compression.gzip.level", "-1", "oo"),
    ("compression.zstd.level", "23", "xx"),
    ("log.preallocate", "yes", "xx"),
    ("log.preallocate", "TRUE ", "oo"),
    ("log.segment.bytes", "1000", "ox"),
    ("log.segment.bytes", " 1048576 ", "oo"),
    ("log.segment.bytes", "+1048576", "oo"),
    ("log.segment.bytes", "1_048_576", "xx"),
    ("log.segment.bytes", "1e9", "xx"),
    ("log.flush.interval.ms", "abc", "xx"),
    ("log.cleaner.min.cleanable.ratio", "0.5f", "oo"),
    ("log.cleaner.min.cleanable.ratio", "NaN", "oo"),
    ("log.cleaner.min.cleanable.ratio", "1.5", "xx"),
    ("delete.topic.enable", "", "xx"),
    ("process.roles", "brokr", "xx"),
    ("num.recovery.threads.per.data.dir", "0", "xx"),
    ("log.index.size.max.bytes", "4", "oo"),
    ("log.index.size.max.bytes", "3", "xx"),
    ("min.insync.replicas", "0", "xx"),
    ("log.cleaner.io.buffer.load.factor", "", "xx"),
    ("unclean.leader.election.enable", "1", "xx"),
]


@pytest.mark.parametrize(("name", "value", "answers"), ANSWERS)
def test_a_value_is_refused_where_kafka_refuses_it(name: str, value: str, answers: str) -> None:
    for release, answer in zip(("3.9", "4.2"), answers, strict=True):
        assert bool(refused_settings("broker", {name: value}, release)) == (answer == "x")


def test_nothing_is_refused_by_releases_of_which_no_setting_is_known() -> None:
    assert refused_settings("broker", {"log.retention.ms": "x"}, "2.8") == {}
    assert refused_settings("broker", {"log.retention.ms": "x"}, "5.0")
