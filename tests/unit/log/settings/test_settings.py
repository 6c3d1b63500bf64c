"""Settings come from where the broker has them, the strongest source first."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg import Log, LogConfig, LogDirectory
from kseg.log.settings import PartitionSettings, SettingSources, group_by_broker
from tests.builders import batch, record
from tests.unit.log.settings.made import (
    FIRST,
    NO_OP,
    SECOND,
    Broker,
    Said,
    setting,
    snapshot,
    topic,
)

RETENTION = "retention.ms"
POLICY = "cleanup.policy"
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


def test_the_broker_s_directory_of_a_test_has_smaller_segments(broker: Broker) -> None:
    records = [setting("segment.bytes", "1048576"), setting("internal.segment.bytes", "3000")]
    broker.says([topic("orders"), *records])
    assert of_orders(broker).config.segment_bytes == 3000


# ---- where there is no metadata log --------------------------------------------------------------


def test_a_partition_is_asked_of_the_directory_that_has_it(tmp_path: Path) -> None:
    origin = Broker(tmp_path / "meta").says([topic("orders"), setting(RETENTION, "1")])
    with pytest.raises(ValueError, match="is in none of the data directories"):
        kseg.settings(origin.path).of(Broker(tmp_path / "data").has())
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


# ---- compaction ----------------------------------------------------------------------------------


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
