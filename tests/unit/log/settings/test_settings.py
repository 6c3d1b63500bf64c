"""Settings come from where the broker has them, the strongest source first."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import kseg
from kseg import Log, LogConfig, LogDirectory
from kseg.log.settings import PartitionSettings, SettingSources, group_by_broker
from kseg.log.topic_policy import POLICY_UNKNOWN
from tests.builders import batch, record
from tests.unit.log.settings.made import (
    FIRST,
    NEWER_BROKER,
    NO_OP,
    SECOND,
    Broker,
    Said,
    removed,
    setting,
    snapshot,
    topic,
    turn,
    value,
)

RETENTION = "retention.ms"
POLICY = "cleanup.policy"
DELETED = setting(POLICY, "delete")
LIMIT = setting(RETENTION, "5")


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "data")


def of_orders(broker: Broker, **given: Any) -> PartitionSettings:
    path = broker.path / "orders-0"
    if not path.exists():
        broker.has()
    return kseg.settings(broker.path, **given).of(path)


# ---- the order of the sources --------------------------------------------------------------------


def test_each_source_gives_way_to_the_stronger_one(broker: Broker, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.ms=5\nlog.cleanup.policy=delete\n")
    records = [topic("orders"), setting(RETENTION, "2"), DELETED]
    of_broker = setting("log.retention.ms", "3", "7", 4)
    of_cluster = setting("log.retention.ms", "4", "", 4)
    given = {
        "config": {RETENTION: "6"},
        "broker_config": properties,
        "topic_config": {"orders": {RETENTION: "1"}},
    }
    broker.says(records, [of_broker, of_cluster])
    assert of_orders(broker, **given).values[RETENTION] == value("1", "config-topic")
    del given["topic_config"]
    assert of_orders(broker, **given).values[RETENTION] == value("2", "topic")
    broker.says([topic("orders")], [of_broker, of_cluster])
    assert of_orders(broker, **given).values[RETENTION] == value("3", "broker")
    broker.says([topic("orders")], [of_cluster])
    assert of_orders(broker, **given).values[RETENTION] == value("4", "cluster")
    broker.says([topic("orders")])
    assert of_orders(broker, **given).values[RETENTION] == value("5", "broker-config")
    properties.write_text("num.io.threads=8\n")
    assert of_orders(broker, **given).values[RETENTION] == value("6", "config")
    del given["config"]
    assert of_orders(broker, **given).values[RETENTION] == value("604800000", "default")
    given = {"config": {RETENTION: "6"}}
    found = of_orders(broker, **given)
    assert found.values[RETENTION] == value("6", "config")
    assert RETENTION not in of_orders(broker).values
    assert of_orders(broker).values["segment.bytes"] == value("1073741824", "default")


def test_another_brokers_configuration_is_not_this_ones(broker: Broker) -> None:
    broker.says([topic("orders"), setting("log.retention.ms", "3", "8", 4)])
    assert RETENTION not in of_orders(broker).values


@pytest.mark.parametrize(
    ("lines", "name", "text"),
    [
        ("log.retention.hours=2\nlog.retention.minutes=3", RETENTION, "180000"),
        ("log.retention.hours=2\nlog.retention.minutes=3\nlog.retention.ms=4", RETENTION, "4"),
        ("log.retention.hours=-1", RETENTION, "-1"),
        ("log.retention.ms=-5", RETENTION, "-1"),
        ("log.roll.hours=1", "segment.ms", "3600000"),
        ("log.flush.scheduler.interval.ms=9", "flush.ms", "9"),
        ("message.max.bytes=77", "max.message.bytes", "77"),
        ("log.cleaner.min.cleanable.ratio=0.25", "min.cleanable.dirty.ratio", "0.25"),
        ("log.cleaner.delete.retention.ms=8", "delete.retention.ms", "8"),
    ],
)
def test_a_brokers_names_and_units_are_understood(
    broker: Broker, tmp_path: Path, lines: str, name: str, text: str
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(lines)
    broker.says([topic("orders")])
    found = of_orders(broker, broker_config=properties)
    assert found.values[name] == value(text, "broker-config")


def test_limits_of_the_broker_are_named_where_the_topic_may_have_its_own(
    broker: Broker, tmp_path: Path
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.hours=1\nlog.segment.bytes=1048576\n")
    found = of_orders(broker, broker_config=properties)
    rules = found.retention_rules()
    assert rules.skipped == POLICY_UNKNOWN
    assert "; retention.ms=3600000 of the broker does not count: the topic may have" in rules.why
    assert "segment.bytes" not in rules.why


def test_no_other_property_of_a_broker_is_kept(broker: Broker, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("ssl.key.password=hunter2\nlog.retention.ms=x-hunter3\n")
    broker.says([topic("orders")])
    found = kseg.settings(broker.path, broker_config=properties)
    shown = f"{found.of(broker.has()).to_json()} {vars(found)}"
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    "line",
    [
        "log.retention.ms=12\\\n  hunter2",
        "log.retention.hours hunter2",
        "log.cleanup.policy=delete,hunter2",
        "compression.type=hunter2",
        "log.preallocate=hunter2",
        "log.message.timestamp.type=hunter2",
        "log.cleaner.min.cleanable.ratio=hunter2",
    ],
)
def test_a_value_of_the_broker_s_file_that_may_be_a_password_is_not_shown(
    broker: Broker, tmp_path: Path, line: str
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"{line}\n")
    found = of_orders(broker, broker_config=properties)
    assert "hunter2" not in repr(found) + str(found.to_json())
    assert "has a value that Kafka refuses" in str(found.findings[0])


def test_a_number_of_the_broker_s_file_is_shown(broker: Broker, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("log.segment.bytes=-7\n")
    assert "-7" in str(of_orders(broker, broker_config=properties).findings[0])


def test_the_broker_s_directory_of_a_test_has_smaller_segments(broker: Broker) -> None:
    records = [setting("segment.bytes", "1048576"), setting("internal.segment.bytes", "3000")]
    broker.says([topic("orders"), *records])
    assert of_orders(broker).config.segment_bytes == 3000


def test_a_limit_of_the_topic_names_no_policy_for_the_broker_may_have_another(
    broker: Broker,
) -> None:
    broker.says([topic("orders"), setting(RETENTION, "1")])
    rules = of_orders(broker).retention_rules()
    assert (rules.skipped, rules.config.retention_ms) == ("policy-unknown", -1)
    rules = of_orders(broker, config={POLICY: "delete"}).retention_rules()
    assert (rules.skipped, rules.config.retention_ms) == (None, 1)


# ---- which topic a directory is of ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "topic_id", "skipped", "why"),
    [
        ([topic("orders")], FIRST, None, ""),
        ([topic("orders"), removed(FIRST)], FIRST, "stray", "no longer belongs to the cluster"),
        ([topic("clicks", SECOND)], FIRST, "stray", "no longer belongs to the cluster"),
        ([topic("orders"), removed(FIRST), topic("orders", SECOND)], FIRST, "stray", "another id"),
        ([topic("orders"), removed(FIRST), topic("orders", SECOND)], SECOND, None, ""),
        ([topic("orders"), topic("orders", SECOND)], FIRST, "stray", "another id"),
        ([topic("orders")], None, "policy-unknown", "partition.metadata is missing"),
    ],
)
def test_a_directory_is_of_the_topic_with_its_id(
    broker: Broker, records: list[Said], topic_id: UUID | None, skipped: str | None, why: str
) -> None:
    broker.says(records).has("orders-0", topic_id)
    found = of_orders(broker)
    assert found.skipped == skipped
    assert why in found.why


def test_a_topic_made_again_does_not_have_the_settings_of_the_first(broker: Broker) -> None:
    first = [topic("orders"), setting(RETENTION, "1"), DELETED]
    broker.says(first, [removed(FIRST)], [topic("orders", SECOND)]).has("orders-0", SECOND)
    assert DELETED_NAMES.isdisjoint(of_orders(broker).values)


DELETED_NAMES = {RETENTION, POLICY, "retention.bytes"}


def test_nothing_goes_from_a_stray_directory_whatever_was_given(broker: Broker) -> None:
    broker.says([topic("clicks", SECOND)])
    own = {"orders": {RETENTION: "1", POLICY: "delete"}}
    rules = of_orders(broker, topic_config=own).retention_rules()
    assert (rules.skipped, rules.config.cleanup_policy) == ("stray", frozenset())


# ---- transactions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([turn("BEGIN"), setting(RETENTION, "1"), turn("END")], "1"),
        ([turn("BEGIN"), setting(RETENTION, "1"), turn("ABORT")], "9"),
        ([turn("BEGIN"), setting(RETENTION, "1"), NO_OP], "9"),
        ([setting(RETENTION, None)], None),
    ],
)
def test_only_ended_transactions_are_applied(
    broker: Broker, records: list[Said], text: str | None
) -> None:
    broker.says([topic("orders"), setting(RETENTION, "9")], records)
    found = of_orders(broker).values.get(RETENTION)
    assert (None if found is None else found.value) == text


# ---- snapshots, damage, what is not known --------------------------------------------------------


def test_the_newest_snapshot_is_taken_and_the_log_behind_it(broker: Broker) -> None:
    broker.has_snapshot(3, snapshot([[topic("orders"), setting(RETENTION, "3")]]))
    broker.has_snapshot(5, snapshot([[topic("orders"), setting(RETENTION, "5")]]))
    assert of_orders(broker).values[RETENTION].value == "5"
    broker.says([setting(RETENTION, "7")], base_offset=5)
    assert of_orders(broker).values[RETENTION].value == "7"


@pytest.mark.parametrize(
    "broken",
    [
        snapshot([[topic("orders"), setting(RETENTION, "5")]], footer=False),
        snapshot([[topic("orders")]])[:-9],
        b"",
        snapshot([[topic("orders"), setting(RETENTION, "5")]]).replace(b"orders", b"ordres"),
    ],
)
def test_a_damaged_snapshot_is_a_finding_and_an_older_one_is_taken(
    broker: Broker, broken: bytes
) -> None:
    broker.has_snapshot(3, snapshot([[topic("orders"), setting(RETENTION, "3")]]))
    broker.has_snapshot(5, broken).says([NO_OP, NO_OP], base_offset=3)
    found = kseg.settings(broker.path)
    assert found.of(broker.has()).values[RETENTION].value == "3"
    assert len(found.findings) == 1


NEWER_CONFIG = bytes.fromhex("010401") + b"\x00" * 9
UNKNOWN_TYPE = bytes.fromhex("01637f00")


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([NEWER_CONFIG], "version 1 of CONFIG_RECORD is not known"),
        ([UNKNOWN_TYPE], "type 99 is not known"),
        ([b"\x01\x02\x00\x09A"], "name has 8 bytes"),
        ([turn("END")], "END_TRANSACTION_RECORD outside a transaction"),
        ([turn("BEGIN"), turn("BEGIN")], "BEGIN_TRANSACTION_RECORD inside a transaction"),
    ],
)
def test_nothing_is_decided_on_records_that_are_not_understood(
    broker: Broker, records: list[Any], reason: str
) -> None:
    broker.says([topic("orders"), setting(RETENTION, "1"), DELETED], records)
    plain = {RETENTION: "1", POLICY: "delete"}
    found = of_orders(broker, config=plain)
    assert reason in found.why
    assert found.retention_rules().skipped == "policy-unknown"
    named = of_orders(broker, topic_config={"orders": plain})
    assert named.retention_rules().config.retention_ms == 1


def test_a_newer_record_of_another_kind_is_a_finding_alone(broker: Broker) -> None:
    broker.says([topic("orders"), setting(RETENTION, "1"), NEWER_BROKER])
    found = kseg.settings(broker.path)
    assert found.of(broker.has()).values[RETENTION].value == "1"
    assert "REGISTER_BROKER_RECORD" in str(found.findings[0])


def test_a_gap_in_the_metadata_log_decides_nothing(broker: Broker) -> None:
    broker.says([topic("orders"), setting(RETENTION, "1")], base_offset=4)
    assert "offset 4 follows where 0 should" in of_orders(broker).why


def test_damage_in_the_metadata_log_decides_nothing(broker: Broker) -> None:
    broker.says([topic("orders")], [setting(RETENTION, "1")])
    log = broker.log / f"{0:020d}.log"
    log.write_bytes(log.read_bytes().replace(b"retention.ms", b"retention.mS"))
    assert of_orders(broker).skipped == "policy-unknown"


def test_an_empty_metadata_log_decides_nothing(broker: Broker) -> None:
    broker.log.mkdir()
    assert of_orders(broker).skipped == "policy-unknown"


@pytest.mark.parametrize(("name", "text"), [(RETENTION, "soon"), ("segment.bytes", "-3")])
def test_a_value_that_is_none_is_a_finding_and_nothing_goes(
    broker: Broker, name: str, text: str
) -> None:
    broker.says([topic("orders"), setting(RETENTION, "1"), DELETED, setting(name, text)])
    found = of_orders(broker)
    assert name in str(found.findings[0]).replace("_", ".")
    assert (found.skipped, found.retention_rules().skipped) == ("invalid-setting",) * 2


def test_topics_in_a_remote_store_are_left_alone(broker: Broker) -> None:
    remote = setting("remote.storage.enable", "true")
    local = setting("local.retention.ms", "7")
    broker.says([topic("orders"), setting(RETENTION, "1000"), DELETED, remote, local])
    found = of_orders(broker)
    rules = found.retention_rules()
    assert rules.skipped == "remote-storage"
    # They count where it is known what the tier has; a log that is opened deletes nothing by them.
    assert (rules.config.retention_ms, rules.config.local.retention_ms) == (1000, 7)
    assert (found.log_config.retention_ms, found.log_config.local.retention_ms) == (-1, -1)
    assert found.values["local.retention.ms"] == ("7", "topic")


# ---- where there is no metadata log --------------------------------------------------------------


def test_a_directory_of_zookeepers_era_says_that_it_has_no_settings(broker: Broker) -> None:
    found = of_orders(broker)
    assert "ZooKeeper" in found.why
    assert "ZooKeeper" in found.retention_rules().why
    assert "ZooKeeper" in found.compaction_rules().why


def test_a_brokers_file_deletes_nothing_where_the_topic_may_say_otherwise(
    broker: Broker, tmp_path: Path
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.ms=1\nlog.cleanup.policy=delete\nlog.segment.bytes=99\n")
    found = of_orders(broker, broker_config=properties)
    assert found.retention_rules().skipped == "policy-unknown"
    assert found.values["segment.bytes"] == value("99", "broker-config")


def test_the_metadata_log_may_lie_in_another_directory_of_the_cluster(tmp_path: Path) -> None:
    origin = Broker(tmp_path / "meta").says([topic("orders"), setting(RETENTION, "1")])
    path = Broker(tmp_path / "data").has()
    for given in (origin.path, origin.log):
        found = kseg.settings(path.parent, metadata_directory=given).of(path)
        assert found.values[RETENTION].value == "1"
    other = Broker(tmp_path / "other", cluster="c2").has()
    found = kseg.settings(other.parent, metadata_directory=origin.path).of(other)
    assert "another cluster" in found.why
    with pytest.raises(ValueError, match="is in none of the data directories"):
        kseg.settings(origin.path).of(path)
    second = Broker(tmp_path / "second").says([NO_OP])
    with pytest.raises(ValueError, match="have a metadata log each"):
        kseg.settings([origin.path, second.path])


# ---- Kafka's defaults of what deletes ------------------------------------------------------------

WEEK_MS = 604_800_000
#: Policy and limit, as retention goes by them; for a question, and where files are changed.
Known = tuple[set[str], int, str | None]
DEFAULTS: Known = ({"delete"}, WEEK_MS, None)
UNKNOWN: Known = (set(), -1, "policy-unknown")
COMPACTED: Known = ({"compact"}, -1, None)


def rules_of(found: PartitionSettings) -> Known:
    rules = found.retention_rules()
    limit = rules.config.retention_ms if rules.config.deletes else -1
    return set(rules.config.cleanup_policy), limit, rules.skipped


@pytest.mark.parametrize(
    ("name", "asked", "changed"),
    [
        ("all was read", DEFAULTS, DEFAULTS),
        ("a compacted topic", COMPACTED, COMPACTED),
        ("a topic with a limit", ({"delete"}, 5, None), ({"delete"}, 5, None)),
        ("no broker's file", UNKNOWN, UNKNOWN),
        ("no metadata log", UNKNOWN, UNKNOWN),
        ("no node id", UNKNOWN, UNKNOWN),
        ("no topic id", UNKNOWN, UNKNOWN),
        ("another topic id", (set(), -1, "stray"), (set(), -1, "stray")),
        ("a torn end of the metadata log", DEFAULTS, UNKNOWN),
        ("zeros at the end of the metadata log", DEFAULTS, UNKNOWN),
        ("a metadata log that ends before its snapshot", DEFAULTS, UNKNOWN),
        ("a flipped bit in the metadata log", UNKNOWN, UNKNOWN),
        ("a topic of Kafka's own", DEFAULTS, UNKNOWN),
    ],
)
def test_kafkas_defaults_count_where_all_that_goes_before_them_was_read(
    broker: Broker, tmp_path: Path, name: str, asked: Known, changed: Known
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("num.io.threads=8\n")
    of = "__mine" if name == "a topic of Kafka's own" else "orders"
    own = {"a compacted topic": [setting(POLICY, "compact")], "a topic with a limit": [LIMIT]}
    ids = {"no topic id": None, "another topic id": SECOND}
    path = broker.has(f"{of}-0", ids.get(name, FIRST))
    log = broker.says([topic(of), *own.get(name, [])]).log / f"{0:020d}.log"
    data = log.read_bytes()
    if name == "no metadata log":
        shutil.rmtree(broker.log)
    elif name == "no node id":
        (broker.path / "meta.properties").write_text("version=1\ncluster.id=c1\n")
    elif name == "a torn end of the metadata log":
        log.write_bytes(data + data[:40])
    elif name == "zeros at the end of the metadata log":
        log.write_bytes(data + bytes(4096))
    elif name == "a metadata log that ends before its snapshot":
        broker.has_snapshot(9, snapshot([[topic(of)]]))
    elif name == "a flipped bit in the metadata log":
        log.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    given = None if name == "no broker's file" else properties
    found = kseg.settings(broker.path, broker_config=given)
    assert rules_of(found.of(path)) == changed
    assert rules_of(found.supposing({}).of(path)) == asked


@pytest.mark.parametrize(
    ("own", "supposed", "then"),
    [
        ([], {RETENTION: "5"}, ({"delete"}, 5, None)),
        ([LIMIT], {RETENTION: "6"}, ({"delete"}, 5, None)),  # its own goes before
        ([setting(POLICY, "compact")], {RETENTION: "6"}, COMPACTED),
        ([setting(POLICY, "compact")], {POLICY: "delete"}, COMPACTED),
        ([LIMIT], {POLICY: "compact"}, COMPACTED),
    ],
)
def test_what_is_supposed_gives_way_to_the_topics_own(
    broker: Broker, tmp_path: Path, own: list[Said], supposed: dict[str, str], then: Known
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.ms=7\n")
    path = broker.says([topic("orders"), *own]).has()
    found = kseg.settings(broker.path, broker_config=properties).supposing(supposed)
    assert rules_of(found.of(path)) == then


# ---- changes that may not be committed -----------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "count"),
    [
        ([setting(RETENTION, "5")], 1),
        ([setting(RETENTION, "99")], 0),
        ([setting(RETENTION, None)], 1),
        ([setting(POLICY, "compact,delete")], 1),
        ([setting(POLICY, None)], 1),
        ([setting(POLICY, "")], 0),
        ([setting("remote.storage.enable", "false")], 1),
        ([setting("remote.storage.enable", "true")], 0),
        ([setting("delete.retention.ms", "5")], 1),
        ([setting("min.compaction.lag.ms", "3")], 1),
        ([setting("min.compaction.lag.ms", "5")], 0),
        ([setting("log.cleaner.delete.retention.ms", "5", "7", 4)], 1),
        ([setting("log.retention.ms", "5", "", 4)], 0),
        ([setting("segment.bytes", "99999")], 0),
        ([setting("log.retention.bytes", "5", "", 4)], 1),
    ],
)
def test_a_change_towards_deletion_behind_the_snapshot_is_said(
    broker: Broker, records: list[Said], count: int
) -> None:
    told = [
        topic("orders"),
        setting(RETENTION, "9"),
        setting(POLICY, "compact"),
        setting("remote.storage.enable", "true"),
        setting("min.compaction.lag.ms", "4"),
    ]
    broker.has_snapshot(5, snapshot([told])).says(records, base_offset=5)
    notes = of_orders(broker).notes
    assert len(notes) == count
    assert all("at offset 5 of the metadata log, which may not be committed" in x for x in notes)


@pytest.mark.parametrize(
    ("records", "told"),
    [
        (["5", "9"], []),  # taken back
        (["12", "5"], ["from 9 to 5 at offset 2"]),
        (["5", "8"], ["from 9 to 8 at offset 2"]),
        (["12", "9"], ["from 12 to 9 at offset 3"]),
        ([None], ["from 9 to 7 at offset 2"]),  # the broker's
        ([None, "7"], ["from 9 to 7 at offset 2"]),
        (["12", None], ["from 9 to 7 at offset 2"]),
        (["12"], []),
    ],
)
def test_a_change_is_compared_with_the_value_in_force(
    broker: Broker, tmp_path: Path, records: list[str | None], told: list[str]
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("log.retention.ms=7\n")
    broker.has_snapshot(2, snapshot([[topic("orders"), setting(RETENTION, "9")]]))
    broker.says([setting(RETENTION, text) for text in records], base_offset=2)
    notes = of_orders(broker, broker_config=properties).notes
    assert [note.partition("changed ")[2].partition(" of the")[0] for note in notes] == told


def test_the_first_settings_of_a_topic_are_no_change(broker: Broker) -> None:
    broker.says([topic("orders"), setting(RETENTION, "9"), DELETED])
    assert of_orders(broker).notes == ()


# ---- compaction ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "skipped"),
    [
        ([setting(POLICY, "compact"), setting("min.compaction.lag.ms", "9")], None),
        ([setting(POLICY, "delete")], "not-compacted"),
        ([], "policy-unknown"),
        ([setting(POLICY, "compact"), removed(FIRST)], "stray"),
        ([setting(POLICY, "compact"), setting("remote.storage.enable", "true")], "remote-storage"),
        ([setting(POLICY, "compact"), UNKNOWN_TYPE], "policy-unknown"),
    ],
)
def test_compaction_goes_by_the_same_settings(
    broker: Broker, records: list[Any], skipped: str | None
) -> None:
    broker.says([topic("orders"), *records])
    rules = of_orders(broker).compaction_rules()
    assert rules.skipped == skipped
    if skipped is None:
        assert (rules.config.compacted, rules.config.min_compaction_lag_ms) == (True, 9)


LATER_MS = 2**41
LIMITS = [setting("retention.ms", "1000"), setting("cleanup.policy", "delete")]
SMALL = setting("segment.bytes", "300")
GREEDY = LogConfig(retention_ms=1, named=frozenset({"cleanup_policy"}))


def filled(broker: Broker, name: str = "orders-0") -> Path:
    """Three segments, closed in good order."""
    path = broker.has(name)
    with Log.open(path, mode="append", config=LogConfig(segment_bytes=300)) as log:
        for _ in range(3):
            log.append(batch([record(b"v" * 200, timestamp=1)], leader_epoch=-1))
    (broker.path / "replication-offset-checkpoint").write_text("0\n1\norders 0 3\n")
    return path


def bases(path: Path) -> list[int]:
    return sorted(int(each.stem) for each in path.glob("*.log"))


def test_a_log_is_opened_with_its_topic_s_settings(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data").says([topic("orders"), SMALL, *LIMITS])
    path = filled(broker)
    known = kseg.settings(broker.path)
    with Log.open(path, mode="append", config=known, now_ms=lambda: LATER_MS) as log:
        assert log.config == known.of(path).config
        assert log.delete_old_segments().segments_count == 3
    with pytest.raises(ValueError, match="none of the data directories"):
        Log.open(tmp_path / "elsewhere" / "orders-0", mode="append", create=True, config=known)


@pytest.mark.parametrize(
    "records",
    [
        [topic("orders"), *LIMITS, setting("remote.storage.enable", "true")],
        [topic("orders", SECOND), *LIMITS],
        [topic("orders"), *LIMITS, setting("flush.ms", "soon")],
    ],
    ids=["remote", "stray", "invalid"],
)
def test_what_is_left_alone_loses_nothing_when_it_is_open(
    tmp_path: Path, records: list[Any]
) -> None:
    broker = Broker(tmp_path / "data").says(records)
    path = filled(broker)
    known = kseg.settings(broker.path)
    with Log.open(path, mode="append", config=known, now_ms=lambda: LATER_MS) as log:
        assert log.delete_old_segments().segments_count == 0
    assert bases(path) == [0, 1, 2]


@pytest.mark.parametrize(
    ("records", "config", "left"),
    [
        ([*LIMITS], None, [3]),
        ([setting("retention.ms", "-1")], GREEDY, [0, 1, 2]),
        ([], GREEDY, [3]),
        ([setting("cleanup.policy", "compact")], GREEDY, [0, 1, 2]),
        ([setting("remote.storage.enable", "true")], GREEDY, [0, 1, 2]),
    ],
    ids=["of the topic", "kept", "filled in", "compacted", "remote"],
)
@pytest.mark.parametrize("explicit", [False, True])
def test_a_data_directory_is_retained_by_its_topics_settings(
    tmp_path: Path, records: list[Any], config: LogConfig | None, left: list[int], explicit: bool
) -> None:
    broker = Broker(tmp_path / "data").says([topic("orders"), *records])
    path = filled(broker)
    given: Any = config
    if explicit:
        plain = {} if config is None else config.to_kafka(named=True)
        given = kseg.settings(broker.path, config=plain)
    with LogDirectory.open(
        broker.path, mode="append", config=given, now_ms=lambda: LATER_MS
    ) as directory:
        directory.retain()
    assert bases(path) == left


def test_a_function_of_the_caller_s_goes_before_the_metadata_log(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data").says([topic("orders", FIRST), setting("retention.ms", "-1")])
    path = filled(broker)
    with LogDirectory.open(
        broker.path, mode="append", config=lambda _: GREEDY, now_ms=lambda: LATER_MS
    ) as directory:
        directory.retain()
    assert bases(path) == [3]


def homes(root: Path, told: str) -> list[Path]:
    """Data directories by their brokers' numbers: `m` has a metadata log, `?` has no ids."""
    found = []
    for number, each in enumerate(told.split()):
        broker = Broker(root / f"d{number}", node_id=int(each[0]) if each[0] != "?" else 0)
        if each[0] == "?":
            (broker.path / "meta.properties").unlink()
        if each.endswith("m"):
            broker.says([topic("orders"), setting("retention.ms", str(number + 1))])
        found.append(broker.path)
    return found


@pytest.mark.parametrize(
    ("told", "groups"),
    [
        ("1 2 ?", [[0, 1, 2]]),
        ("1m 1 2 ?", [[0, 1, 2, 3]]),
        ("1m 1 2m 2 ?", [[0, 1], [2, 3], [4]]),
        ("1m 2m 1 ? ?m", [[0, 2], [1], [3], [4]]),
        ("1m 1m 1 2m 2", [[0], [1], [2], [3, 4]]),
    ],
)
def test_directories_share_the_log_of_their_broker(
    tmp_path: Path, told: str, groups: list[list[int]]
) -> None:
    found = homes(tmp_path, told)
    expected = [[found[number] for number in group] for group in groups]
    assert SettingSources().groups(found) == expected
    named = SettingSources(metadata_directory=found[0])
    assert named.groups(found) == [found]


def test_each_directory_has_the_settings_of_its_brokers_log(tmp_path: Path) -> None:
    found = homes(tmp_path, "1m 1 2m")
    for home in found:
        Broker(home, node_id=2 if home == found[2] else 1).has()
    known = SettingSources().by_home(found)
    values = [known[home].of(home / "orders-0").values["retention.ms"].value for home in found]
    assert values == ["1", "1", "3"]


def test_brokers_are_told_apart_by_cluster_and_node(tmp_path: Path) -> None:
    first, second = Broker(tmp_path / "a", node_id=1), Broker(tmp_path / "b", node_id=1)
    other = Broker(tmp_path / "c", cluster="c2", node_id=1)
    malformed = Broker(tmp_path / "d", node_id=1)
    (malformed.path / "meta.properties").write_text("version=9\n")
    places = [first.path, other.path, malformed.path, second.path, tmp_path / "none"]
    assert group_by_broker(places) == [
        [first.path, second.path],
        [other.path],
        [malformed.path],
        [tmp_path / "none"],
    ]


def test_what_is_no_setting_is_refused_before_a_partition_asks(tmp_path: Path) -> None:
    for sources in (
        SettingSources(config={"retention.ms": "soon"}),
        SettingSources(topic_config={"orders": {"colour": "red"}}),
    ):
        with pytest.raises(ValueError, match=r"soon|colour"):
            sources.check()
    assert SettingSources().groups([]) == []
