"""`plan_adoption`: what comes in is what was there, and nothing of its producers."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

import kseg
from kseg.broker import AppendOrigin
from kseg.control import ControlType
from kseg.files import checkpoints, producer_snapshot
from kseg.files.checkpoints import EpochEntry, TopicPartition
from kseg.files.metadata import read_clean_shutdown
from kseg.log.log import Log
from kseg.log.segment.reader import Segment
from tests.adopted import Source, served, target
from tests.builders import batch, record, write_segment
from tests.conformance.test_tiered import case_of, rows
from tests.shares import share
from tests.unit.log.settings import made as settings_made
from tests.unit.log.settings.made import FIRST, Broker

#: The begin of a batch.
TORN = bytes(8) + b"\x00\x00\x10\x00abc"
ISOLATIONS = ("read_uncommitted", "read_committed")


def made(tmp_path: Path, seed: int, count: int = 2, steps: int = 120) -> Source:
    source = Source(tmp_path / "old", count, Random(seed))
    source.write(steps)
    return source


def planned(source: Any, broker: Broker, **how: Any) -> kseg.reports.AdoptionPlan:
    """The plan of adopting `old`, of these sources, as `orders`."""
    home = source.home if isinstance(source, Source) else source
    given = {"into": broker.path, "topics": {"old": "orders"}, "undecided": "abort", **how}
    return kseg.plan_adoption(home, **given)


@pytest.mark.parametrize("seed", share(range(6), 3, "served"))
@pytest.mark.parametrize("otherwise", [False, True])
def test_every_record_is_served(tmp_path: Path, seed: int, otherwise: bool) -> None:
    source = made(tmp_path, seed)
    broker = target(tmp_path / "data", 2)
    plan = planned(source, broker, undecided="commit" if otherwise else "abort")
    assert plan.refused == ()
    before = {path: path.read_bytes() for path in source.home.rglob("*") if path.is_file()}
    paths = plan.apply()
    assert paths == (broker.path / "orders-0", broker.path / "orders-1")
    assert before == {path: path.read_bytes() for path in source.home.rglob("*") if path.is_file()}
    for number, path in enumerate(paths):
        assert served(path, "read_uncommitted") == source.expected(number, committed=False)
        assert served(path, "read_committed") == source.expected(
            number, committed=True, otherwise=otherwise
        )
    assert not (tmp_path / "data.kseg-adopt").exists()
    assert kseg.verify(broker.path).ok


def test_the_log_is_the_brokers_own(tmp_path: Path) -> None:
    source = made(tmp_path, 1)
    broker = target(tmp_path / "data", 2, epoch=3)
    plan = planned(source, broker)
    plan.apply()
    points = checkpoints.read_offset_checkpoint(broker.path / "recovery-point-offset-checkpoint")
    for number, each in enumerate(plan.partitions):
        path = broker.path / f"orders-{number}"
        end = each.log_end_offset
        assert points[TopicPartition("orders", number)] == end
        *full, active = sorted(path.glob("*.log"))
        assert int(active.stem) == end
        assert active.stat().st_size == 0
        for log in full:
            with Segment.open(log) as segment:
                assert set(segment.batches().leader_epoch.tolist()) == {3}
        epochs = checkpoints.read_leader_epochs(path / "leader-epoch-checkpoint")
        assert epochs == (EpochEntry(3, 0),)
        (snapshot,) = path.glob("*.snapshot")
        assert int(snapshot.stem) == end
        assert producer_snapshot.read(snapshot) == ()
    assert read_clean_shutdown(broker.path) is not None


@pytest.mark.parametrize("seed", share(range(200), 8, "cuts"))
def test_logs_as_they_stood(tmp_path: Path, seed: int) -> None:
    """Of every other one, records have times in any order."""
    late, bumps = seed // 2 % 2, bool(seed % 4 == 3 or seed % 5)
    source = Source(tmp_path / "old", 3, Random(seed), late_ms=300 * late, bumps=bumps)
    source.write(120)
    if seed % 3:
        source.write_states()
    broker = target(tmp_path / "data", 3)
    at_ms = Random(seed).randint(source.notes[0].time_ms - 5, source.now_ms + 5)
    cut = ("first", "last")[seed % 2]
    plan = planned(source, broker, at=at_ms, cut=cut)
    assert plan.refused == ()
    behind = [source.behind(number, at_ms) for number in range(3)]
    assert [each.behind for each in plan.partitions] == behind
    for number, path in enumerate(plan.apply()):
        for isolation in ISOLATIONS:
            assert served(path, isolation) == source.expected(
                number, committed=isolation == "read_committed", at_ms=at_ms, cut=cut
            )


# ---- refusals ------------------------------------------------------------------------------------


def flip(source: Source, broker: Broker) -> None:
    path = sorted((source.home / "old-0").glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)


def unmark(_source: Source, broker: Broker) -> None:
    (broker.path / ".kafka_cleanshutdown").unlink()


def fill(_source: Source, broker: Broker) -> None:
    with Log.open(broker.path / "orders-1", mode="append") as log:
        log.append({"value": [b"x"]})


def lose_a_segment(source: Source, _broker: Broker) -> None:
    base = sorted((source.home / "old-0").glob("*.log"))[1].stem
    for path in (source.home / "old-0").glob(f"{base}.*"):
        path.unlink()


def lose_the_first_segment(source: Source, _broker: Broker) -> None:
    base = sorted((source.home / "old-0").glob("*.log"))[0].stem
    for path in (source.home / "old-0").glob(f"{base}.*"):
        path.unlink()
    (source.home / "log-start-offset-checkpoint").write_text("0\n1\nold 0 0\n")


def link(_source: Source, broker: Broker) -> None:
    path = broker.path / "orders-0"
    path.rename(broker.path.with_name("elsewhere-0"))
    path.symlink_to(broker.path.with_name("elsewhere-0"))


def lack_in_both_copies(source: Source, broker: Broker) -> None:
    lose_a_segment(source, broker)
    shutil.copytree(source.home / "old-0", source.home.with_name("more") / "old-0")


def contradict(source: Source, _broker: Broker) -> None:
    """Records of one epoch that differ."""
    write_segment(source.home.with_name("more") / "old-0", 0, batch([record(b"other")]))


def damage_both_ends(source: Source, _broker: Broker) -> None:
    path = sorted((source.home / "old-0").glob("*.log"))[-1]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    shutil.copytree(source.home / "old-0", source.home.with_name("more") / "old-0")


def rename_one(source: Source, _broker: Broker) -> None:
    (source.home / "old-1").rename(source.home / "other-1")


def far_offsets(source: Source, _broker: Broker) -> None:
    shutil.rmtree(source.home / "old-1")
    write_segment(source.home / "old-1", 2**62, batch([record(b"x")], base_offset=2**62))


def old_files(source: Source, _broker: Broker) -> None:
    shutil.rmtree(source.home / "old-1")
    write_segment(source.home / "old-1", 0, b"").rename(source.home / "old-1" / f"{0:020d}.kafka")


REFUSALS = {
    flip: "first make a sound copy: kseg salvage .*old-0 -o OUT",
    unmark: "not stopped in good order: type kseg recover .*data --apply",
    fill: "orders-1: the partition has or had records",
    lose_a_segment: "offsets .* are in no segment, so one is missing",
    lose_the_first_segment: "offsets 0 to .* are not in this directory.*name the tier, or type sed",
    link: "the partition is a link",
    lack_in_both_copies: r"offsets \d+ to \d+ are in no copy: .*: kseg merge .* -o OUT",
    contradict: "contradict each other from offset 0 on: .* -o OUT --prefer .*old-0",
    damage_both_ends: r"offsets \d+ to the end are in no copy",
    rename_one: "has 2 partitions in the metadata log, and 1 in the sources",
    far_offsets: "are none that a broker gives",
    old_files: "Kafka 0.7: 'kseg convert' first",
}


@pytest.mark.parametrize("harm", REFUSALS, ids=lambda harm: harm.__name__)
def test_what_cannot_be_adopted_is_refused_with_what_helps(
    tmp_path: Path, harm: Callable[[Source, Broker], None]
) -> None:
    source = made(tmp_path, 1)
    broker = target(tmp_path / "data", 2)
    harm(source, broker)
    before = contents(tmp_path)
    plan = planned([path for path in (source.home, tmp_path / "more") if path.exists()], broker)
    assert re.search(REFUSALS[harm], "\n".join(plan.refused)), plan.refused
    with pytest.raises(kseg.KsegError):
        plan.apply()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("seed", share(range(8), 4, "copies"))
def test_copies_are_joined(tmp_path: Path, seed: int) -> None:
    """Each has other damage, and one ends in an unfinished write."""
    source, chance = made(tmp_path, seed), Random(seed)
    at_ms = None if seed % 2 else chance.randint(source.notes[0].time_ms, source.now_ms)
    homes = [source.home, tmp_path / "second", tmp_path / "third"]
    for home in homes[1:]:
        shutil.copytree(source.home, home)
    logs = sorted((homes[0] / "old-0").glob("*.log"))
    harmed = chance.sample(logs, 2)
    harmed[0].unlink()
    data = bytearray((homes[1] / "old-0" / harmed[1].name).read_bytes())
    data[chance.randrange(70, len(data))] ^= 1
    (homes[1] / "old-0" / harmed[1].name).write_bytes(data)
    torn = homes[2] / "old-0" / logs[-1].name
    torn.write_bytes(torn.read_bytes() + TORN)
    broker = target(tmp_path / "data", 2)
    before = contents(tmp_path)
    plan = planned(homes, broker, at=at_ms)
    assert plan.refused == ()
    assert contents(tmp_path) == before
    assert {*plan.partitions[0].copies} == {home / "old-0" for home in homes}
    for number, path in enumerate(plan.apply()):
        for isolation in ISOLATIONS:
            committed = isolation == "read_committed"
            wanted = source.expected(number, committed=committed, at_ms=at_ms)
            assert served(path, isolation) == wanted
    assert kseg.verify(broker.path).ok


def test_of_copies_that_diverge_the_last_leader_counts(tmp_path: Path) -> None:
    """The other one ends a transaction otherwise, in records that no reader was given."""
    home, copy = tmp_path / "old" / "old-0", tmp_path / "copy" / "old-0"
    for path in (home, copy):
        options = {"producer_id": 4, "producer_epoch": 0, "base_sequence": 0}
        with Log.open(path, mode="append", create=True) as log:
            first = kseg.BatchOptions(transactional=True, **options)
            log.append(kseg.encode_batch({"value": [b"a"], "timestamp": [8]}, first))
            if path == copy:
                builder = kseg.BatchBuilder(
                    producer_id=4, producer_epoch=0, transactional=True, control=True
                )
                builder.append_end_marker(ControlType.COMMIT, 0, timestamp=9)
                log.append(builder.build(), origin=AppendOrigin.COORDINATOR)
            log.append({"value": [b"b", b"c"]}, leader_epoch=int(path == home))
    broker = target(tmp_path / "data", 1)
    plan = planned([copy, home], broker)
    assert plan.refused == ()
    (only,) = plan.partitions
    assert only.source == home
    assert any("leaves the history of the last leader" in text for text in only.left_out)
    (path,) = plan.apply()
    assert [value for _, _, value in served(path, "read_uncommitted")] == [b"a", b"b", b"c"]
    assert [value for _, _, value in served(path, "read_committed")] == [b"b", b"c"]


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"topics": {"old": "new"}}, r"kafka-topics\.sh .* --create --topic new --partitions 2"),
        ({"topics": {"old": "__orders"}}, "not a topic that producers write to"),
        ({"topics": {"old": "../orders"}}, "not a topic that producers write to"),
        ({"topics": {"lost": "orders"}}, "no partition of lost is among the sources"),
        ({"topics": {"old": "one"}}, "has 1 partitions in the metadata log, and 2 in the sources"),
        ({"topics": {"old": "two"}}, "two-0 has a replica on broker 8, which could lead"),
        ({"topics": {"old": "tiered"}}, "remote.*: adopt into another topic"),
        ({"topics": {"old": "orders"}, "partitions": 5}, "no partition to adopt is among"),
        ({"topics": {"old": "orders"}, "undecided": "stop"}, "nothing tells the end"),
    ],
)
def test_topics_that_cannot_be_adopted(tmp_path: Path, how: dict[str, Any], words: str) -> None:
    source = made(tmp_path, 1)
    broker = target(tmp_path / "data", 2)
    said = [
        settings_made.topic("orders"),
        *(settings_made.partition(FIRST, n, [7]) for n in range(2)),
        *(settings_made.topic(name, UUID(int=20 + n)) for n, name in enumerate(OTHERS)),
        settings_made.partition(UUID(int=20), 0, [7]),
        *(settings_made.partition(UUID(int=21), n, [7, 8]) for n in range(2)),
        *(settings_made.partition(UUID(int=22), n, [7]) for n in range(2)),
        settings_made.setting("remote.storage.enable", "true", "tiered"),
    ]
    broker.says(said)
    for number in range(2):
        path = broker.path / f"tiered-{number}"
        Log.open(path, mode="append", create=True, topic_id=UUID(int=22)).close()
    plan = planned(source, broker, **how)
    assert re.search(words, "\n".join(plan.refused)), plan.refused


OTHERS = ("one", "two", "tiered")


def test_a_directory_under_another_name_is_refused_where_it_is_named(tmp_path: Path) -> None:
    source, broker = made(tmp_path, 1), target(tmp_path / "data", 2)
    other = source.home / "old-0.bak"
    shutil.copytree(source.home / "old-0", other)
    plan = planned(source, broker)
    said = f"{other}: not the name of a partition, such as orders-0"
    assert (plan.refused, plan.left_out) == ((), (said,))
    plan = planned([source.home, other], broker)
    assert plan.refused == (said,)


def test_other_replicas_get_the_same_bytes(tmp_path: Path) -> None:
    source = made(tmp_path, 2)
    brokers = [
        target(tmp_path / f"data-{node}", 2, replicas=(7, 8), node_id=node) for node in (7, 8)
    ]
    plan = planned(source, brokers[0], into=[broker.path for broker in brokers])
    assert plan.refused == ()
    assert len(plan.apply()) == 4
    logs = [
        {path.relative_to(broker.path): data for path, data in contents(broker.path).items()}
        for broker in brokers
    ]
    names = [path for path in logs[0] if path.parts[0].startswith("orders")]
    assert len(names) > 8
    assert all(logs[0][name] == logs[1][name] for name in names)
    for number in range(2):
        wanted = source.expected(number, committed=True)
        assert served(brokers[1].path / f"orders-{number}", "read_committed") == wanted


def test_a_broker_has_several_data_directories(tmp_path: Path) -> None:
    source = made(tmp_path, 2)
    broker = target(tmp_path / "data", 2)
    homes = [broker.path]
    for name in ("data-2", "data-3"):
        homes.append(Broker(tmp_path / name).path)
        (homes[-1] / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    (homes[0] / "orders-1").rename(homes[1] / "orders-1")
    plan = planned(source, broker)
    assert "orders-1 is in none of the directories" in plan.refused[0]
    plan = planned(source, broker, into=homes)
    assert plan.refused == ()
    assert plan.apply() == (homes[0] / "orders-0", homes[1] / "orders-1")
    for number in range(2):
        path = homes[number] / f"orders-{number}"
        assert served(path, "read_committed") == source.expected(number, committed=True)
    assert list(tmp_path.glob("*.kseg-adopt")) == []


def test_replicas_are_added_afterwards(tmp_path: Path) -> None:
    source = made(tmp_path, 2)
    broker = target(tmp_path / "data", 2)
    said = [settings_made.topic("orders"), *(settings_made.node(n) for n in (7, 8, 9, 10))]
    said += [settings_made.partition(FIRST, n, [7]) for n in range(2)]
    broker.says([*said, settings_made.setting("retention.ms", "-1")])
    plan = planned(source, broker)
    assert plan.refused == ()
    written, typed = plan.after
    _, text, target_file = shlex.split(written)
    assert target_file == ">replicas.json"
    assert json.loads(text)["partitions"] == [
        {"topic": "orders", "partition": n, "replicas": [7, 8, 9]} for n in range(2)
    ]
    assert typed.startswith("kafka-reassign-partitions.sh")


def test_what_retention_takes_at_once_is_refused_with_the_commands(tmp_path: Path) -> None:
    source = made(tmp_path, 1)
    broker = target(tmp_path / "data", 2, retention=("retention.ms", "60000"))
    plan = planned(source, broker)
    assert "by retention.ms: type the lines" in plan.refused[0]
    assert [line.split("orders ")[1] for line in plan.before] == ["--add-config retention.ms=-1"]
    assert [line.split("orders ")[1] for line in plan.after] == ["--add-config retention.ms=60000"]
    plan = planned(source, broker, let_retention_delete=True)
    assert plan.refused == ()
    broker = target(tmp_path / "compacted", 2, retention=("cleanup.policy", "compact"))
    plan = planned(source, broker)
    assert "by cleanup.policy" in plan.refused[0]


def test_deleted_records_stay_deleted_and_a_torn_end_is_left_out(tmp_path: Path) -> None:
    source = made(tmp_path, 1)
    broker = target(tmp_path / "data", 2)
    path = source.home / "old-0"
    bases = [int(each.stem) for each in sorted(path.glob("*.log"))]
    start = bases[1] + 3
    (source.home / "log-start-offset-checkpoint").write_text(f"0\n1\nold 0 {start}\n")
    wanted = served(path, "read_uncommitted")
    last = sorted(path.glob("*.log"))[-1]
    last.write_bytes(last.read_bytes() + TORN)
    plan = planned(source, broker)
    assert plan.refused == ()
    assert plan.partitions[0].left_out == ("15 bytes after the last whole batch",)
    plan.apply()
    assert served(broker.path / "orders-0", "read_uncommitted") == wanted
    assert wanted[0][0] == start
    starts = checkpoints.read_offset_checkpoint(broker.path / "log-start-offset-checkpoint")
    assert starts == {TopicPartition("orders", 0): start}


def test_a_cut_in_front_of_the_log_start_leaves_no_record(tmp_path: Path) -> None:
    source = made(tmp_path, 1)
    broker = target(tmp_path / "data", 2)
    bases = [int(each.stem) for each in sorted((source.home / "old-0").glob("*.log"))]
    start, at_ms = bases[1] + 3, source.notes[5].time_ms
    (source.home / "log-start-offset-checkpoint").write_text(f"0\n1\nold 0 {start}\n")
    plan = planned(source, broker, at=at_ms)
    empty, other = plan.apply()
    assert served(empty, "read_uncommitted") == []
    assert (plan.partitions[0].records, plan.partitions[0].log_end_offset) == (0, start)
    assert served(other, "read_uncommitted") == source.expected(1, committed=False, at_ms=at_ms)
    with Log.open(empty, mode="append") as log:
        assert (log.log_start_offset, log.log_end_offset) == (start, start)


def test_two_topics_do_not_share_a_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one name in the target"):
        kseg.plan_adoption(tmp_path, into=tmp_path, topics={"a": "c", "b": "c"})


def test_files_that_change_after_the_plan_make_it_stale(tmp_path: Path) -> None:
    source = made(tmp_path, 1)
    broker = target(tmp_path / "data", 2)
    plan = planned(source, broker)
    with Log.open(source.home / "old-0", mode="append") as log:
        log.append({"value": [b"x"]})
    with pytest.raises(kseg.StalePlanError):
        plan.apply()
    plan = planned(source, broker)
    Log.open(broker.path / "orders-0", mode="append").close()
    with pytest.raises(kseg.StalePlanError):
        plan.apply()


def test_a_tier_and_a_store_are_sources_too(tmp_path: Path) -> None:
    import fsspec

    source = made(tmp_path, 1)
    broker = target(tmp_path / "data", 2)
    fsspec.filesystem("memory").put(str(source.home), "/adopt/old", recursive=True)
    plan = planned("memory://adopt/old", broker)
    assert plan.refused == ()
    for number, path in enumerate(plan.apply()):
        assert served(path, "read_uncommitted") == source.expected(number, committed=False)


@pytest.mark.parametrize("topic", ["plain", "txn"])
def test_segments_of_a_tier_become_local_ones(
    tmp_path: Path, fixtures_dir: Path, topic: str
) -> None:
    case = case_of(fixtures_dir / "tiered" / "4.2.0-local")
    log = case.path / "local" / f"{topic}-0"
    broker = target(tmp_path / "data", 1)
    plan = planned(log, broker, topics={topic: "orders"}, tier=case.tier)
    assert plan.refused == ()
    (path,) = plan.apply()
    everything, committed = (case.records[isolation, topic, 0] for isolation in ISOLATIONS)
    assert rows(path) == everything
    # An open transaction held the committed records behind it back.
    assert rows(path, isolation="read_committed")[: len(committed)] == committed
    assert planned(log, broker, topics={topic: "orders"}).refused
