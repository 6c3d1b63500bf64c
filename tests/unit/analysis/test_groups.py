"""`groups`: states, members, commits, lag, times, share groups, and what cannot be known."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import kseg
from kseg.analysis.internal_logs import NONE, ColumnTable
from kseg.files.checkpoints import TopicPartition, write_offset_checkpoint
from kseg.internal.ids import id_text
from kseg.log.reader import LogView
from kseg.reports import Groups
from tests import builders
from tests.coordinators import OFFSETS, SHARE, LogWriter, Pair, commit, group, pair
from tests.internal_schemas import encode_message

TOPIC_ID = UUID(int=77)
MINUTE = 60_000


def consumer_message(name: str, **fields: Any) -> bytes:
    return bytes(2) + encode_message(name, 0, fields)


def classic(name: str, *topics: str, time: int = -1, kind: str = "consumer") -> Pair:
    """A classic group with a member for each topic."""
    members = [
        {
            "memberId": f"m-{topic}",
            "clientId": "c",
            "clientHost": "/h",
            "subscription": consumer_message(
                "ConsumerProtocolSubscription", topics=[topic], userData=b"abc"
            ),
            "assignment": consumer_message(
                "ConsumerProtocolAssignment",
                assignedPartitions=[{"topic": topic, "partitions": [0, 1]}],
                userData=None,
            ),
        }
        for topic in topics
    ]
    value = {
        "protocolType": kind,
        "generation": 3,
        "protocol": "range" if topics else None,
        "currentStateTimestamp": time,
        "members": members,
    }
    return pair(OFFSETS, "GROUP_METADATA", {"group": name}, value, 3)


def member(kind: str, name: str, member_id: str, *, epoch: int, state: int, **value: Any) -> Any:
    """A member of a newer group: its metadata and what it has."""
    parts = [{"topicId": TOPIC_ID, "partitions": [4]}]
    tasks = [{"subtopologyId": "0", "partitions": [4]}]
    current = {"memberEpoch": epoch, "state": state, "assignedPartitions": parts}
    return [
        group(
            f"{kind}_MEMBER_METADATA",
            name,
            {"clientId": "c", "clientHost": "/h", **value},
            memberId=member_id,
        ),
        group(
            f"{kind}_CURRENT_MEMBER_ASSIGNMENT",
            name,
            current | {"activeTasks": tasks},
            memberId=member_id,
        ),
    ]


def modern(kind: str, name: str, epoch: int, target: int, **value: Any) -> list[Pair]:
    return [
        group(f"{kind}_METADATA", name, {"epoch": epoch, **value}),
        group(f"{kind}_TARGET_ASSIGNMENT_METADATA", name, {"assignmentEpoch": target}),
    ]


def read(directory: Path, *pairs: Pair, **options: Any) -> Groups:
    LogWriter(directory / f"{OFFSETS}-0").add(pairs, 1000).write()
    return kseg.groups(directory, **options)


def plain_log(directory: Path, count: int = 10) -> None:
    """A partition with a record each second from 100 s on."""
    times = [100_000 + 1000 * at for at in range(count)]
    with kseg.Log.open(directory, mode="append", create=True) as log:
        for time in times:
            log.append({"value": [b"v"], "timestamp": [time]})


def rows(found: Groups) -> list[dict[str, Any]]:
    return list(found.commits.rows())


# ---- states --------------------------------------------------------------------------------------

STREAMS = "STREAMS_GROUP"
CONSUMER = "CONSUMER_GROUP"
STATES: dict[str, tuple[list[Pair], tuple[str, str]]] = {
    "stable": ([classic("g", "t")], ("Classic", "Stable")),
    "empty": ([classic("g")], ("Classic", "Empty")),
    "of commits alone": ([commit("g", "t", 0, 1)], ("Classic", "Empty")),
    "dead": (
        [classic("g"), pair(OFFSETS, "GROUP_METADATA", {"group": "g"}, None)],
        ("", "Dead"),
    ),
    "consumer, empty": (modern(CONSUMER, "g", 2, 1), ("Consumer", "Empty")),
    "consumer, stable": (
        [*modern(CONSUMER, "g", 2, 2), *member(CONSUMER, "g", "m", epoch=2, state=0)],
        ("Consumer", "Stable"),
    ),
    "consumer, assigning": (
        [*modern(CONSUMER, "g", 3, 2), *member(CONSUMER, "g", "m", epoch=2, state=0)],
        ("Consumer", "Assigning"),
    ),
    "consumer, reconciling": (
        [*modern(CONSUMER, "g", 2, 2), *member(CONSUMER, "g", "m", epoch=1, state=0)],
        ("Consumer", "Reconciling"),
    ),
    "consumer, revoking": (
        [*modern(CONSUMER, "g", 2, 2), *member(CONSUMER, "g", "m", epoch=2, state=1)],
        ("Consumer", "Reconciling"),
    ),
    "share": (
        [*modern("SHARE_GROUP", "g", 3, 2), *member("SHARE_GROUP", "g", "m", epoch=1, state=0)],
        ("Share", "Stable"),
    ),
    "streams without a topology": (
        [*modern(STREAMS, "g", 2, 2), *member(STREAMS, "g", "m", epoch=2, state=1)],
        ("Streams", "NotReady"),
    ),
    "streams": (
        [
            *modern(STREAMS, "g", 2, 2, validatedTopologyEpoch=1),
            *member(STREAMS, "g", "m", epoch=2, state=1),
            group("STREAMS_GROUP_TOPOLOGY", "g", {"epoch": 1}),
        ],
        ("Streams", "Stable"),
    ),
}


@pytest.mark.parametrize("case", STATES)
def test_a_state_is_that_of_the_records(case: str, tmp_path: Path) -> None:
    pairs, wanted = STATES[case]
    found = read(tmp_path, *pairs)
    assert [(each.type, each.state) for each in found] == [wanted]
    assert found.findings == ()


def test_members_have_names_topics_and_partitions(tmp_path: Path) -> None:
    (tmp_path / "names-0").mkdir(parents=True)
    (tmp_path / "names-0" / "partition.metadata").write_text(
        f"version: 0\ntopic_id: {id_text(TOPIC_ID)}\n"
    )
    builders.write_segment(tmp_path / "names-0", 0)
    found = read(
        tmp_path,
        classic("a", "t"),
        *modern(CONSUMER, "b", 2, 2),
        *member(CONSUMER, "b", "m", epoch=2, state=0, subscribedTopicRegex="n.*"),
        *modern(STREAMS, "c", 2, 2),
        *member(STREAMS, "c", "m", epoch=2, state=1),
    )
    one, two, three = found.members
    assert (one.topics, one.user_data_bytes, one.host) == (("t",), 3, "/h")
    assert one.assignment == ({"topic": "t", "partitions": [0, 1], "role": None},)
    assert two.assignment == ({"topic": "names", "partitions": [4], "role": None},)
    assert (two.regex, two.epoch) == ("n.*", 2)
    assert three.assignment == ({"topic": "0", "partitions": [4], "role": "active"},)
    assert pl.DataFrame(found)["members"].to_list() == [1, 1, 1]
    assert pa.table(found.members).num_rows == 3


# ---- commits -------------------------------------------------------------------------------------


def test_lag_ends_at_the_high_watermark_or_the_end(tmp_path: Path) -> None:
    plain_log(tmp_path / "t-0")
    # Without a checkpoint the log ends at its end; the writer of the log has left one.
    (tmp_path / "replication-offset-checkpoint").unlink(missing_ok=True)
    pairs = [commit("g", "t", 0, 4), commit("h", "t", 0, 12), commit("h", "u", 0, 1)]
    first, second, third = rows(read(tmp_path, *pairs))
    assert (first["end_offset"], first["end_from"], first["lag"]) == (10, "log-end", 6)
    assert first["lag_ms"] == 5000
    assert (second["lag"], second["outside"]) == (None, "behind-end")
    assert (third["lag"], third["end_from"], third["outside"]) == (None, None, None)
    path = tmp_path / "replication-offset-checkpoint"
    write_offset_checkpoint(path, {TopicPartition("t", 0): 6})
    first = rows(kseg.groups(tmp_path))[0]
    assert (first["end_offset"], first["end_from"], first["lag"]) == (6, "high-watermark", 2)
    assert [each.lag for each in kseg.groups(tmp_path)] == [2, None]
    first = rows(kseg.groups(tmp_path, lag_to="last-stable-offset"))[0]
    assert (first["end_offset"], first["end_from"]) == (10, "last-stable-offset")
    first = rows(kseg.groups(tmp_path, at=104_000))[0]
    assert (first["end_offset"], first["end_from"], first["lag"]) == (5, "time", 1)
    with pytest.raises(ValueError, match="lag_to"):
        kseg.groups(tmp_path, lag_to="end")


def test_a_commit_in_a_transaction_counts_from_its_marker(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / f"{OFFSETS}-0")
    log.add([commit("g", "t", 0, 1), commit("g", "t", 1, 1)], 1000)
    log.add([commit("g", "t", 0, 2), commit("g", "t", 1, 2)], 2000, producer_id=9)
    log.add([commit("g", "t", 1, 3)], 3000).end_transaction(9, 4000, commits=True)
    log.add([commit("g", "t", 0, 5)], 5000, producer_id=9).end_transaction(9, 6000, commits=False)
    log.add([commit("g", "t", 0, 7)], 7000, producer_id=8).write()

    def at(time: int) -> list[tuple[int, int, int | None]]:
        found = rows(kseg.groups(tmp_path, at=time))
        return [(each["partition"], each["offset"], each["pending"]) for each in found]

    assert at(2000) == [(0, 1, None), (0, 2, 9), (1, 1, None), (1, 2, 9)]
    assert at(3500) == [(0, 1, None), (0, 2, 9), (1, 3, None), (1, 2, 9)]
    assert at(4000) == [(0, 2, None), (1, 3, None)]
    assert at(6000) == [(0, 2, None), (1, 3, None)]
    (found,) = kseg.groups(tmp_path)
    assert (found.commits, found.pending) == (2, 1)


def test_commits_expire_by_the_rules_of_their_group(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        *(classic("empty", time=5000), commit("empty", "t", 0, 1, commitTimestamp=1)),
        *(classic("old"), commit("old", "t", 0, 1, commitTimestamp=2)),
        classic("stable", "t"),
        *(commit("stable", topic, 0, 1, commitTimestamp=3) for topic in ("t", "u")),
        *(classic("other", "t", kind="connect"), commit("other", "t", 0, 1)),
        commit("simple", "t", 0, 1, commitTimestamp=4),
        commit("own", "t", 0, 1, commitTimestamp=5, expireTimestamp=99, version=1),
        *modern(CONSUMER, "new", 2, 2),
        *member(CONSUMER, "new", "m", epoch=2, state=0, subscribedTopicNames=["t"]),
        *(commit("new", topic, 0, 1, commitTimestamp=6) for topic in ("t", "u")),
        retention_minutes=1,
    )
    committed = [row for row in rows(found) if row["offset"] is not None]
    assert {(row["group"], row["topic"]): row["expires_ms"] for row in committed} == {
        ("empty", "t"): 5000 + MINUTE,
        ("old", "t"): 2 + MINUTE,
        ("stable", "t"): None,
        ("stable", "u"): 3 + MINUTE,
        ("other", "t"): None,
        ("simple", "t"): 4 + MINUTE,
        ("own", "t"): 99,
        ("new", "t"): None,
        ("new", "u"): 6 + MINUTE,
    }
    assert {each.group: each.expires_ms for each in found}["stable"] == 3 + MINUTE


def test_a_commit_of_an_unusual_form_is_among_the_others(tmp_path: Path) -> None:
    found = read(tmp_path, commit("g", "t", 1, 5, metadata="x" * 300), commit("g", "t", 0, 4))
    assert [(each["offset"], len(each["metadata"])) for each in rows(found)] == [(4, 0), (5, 300)]
    table = found.commits.to_arrow()
    assert table["lag"].null_count == 2
    assert table["offset"].to_pylist() == [4, 5]


def test_only_groups_of_the_glob_are_there(tmp_path: Path) -> None:
    found = read(
        tmp_path, classic("a", "t"), classic("b", "t"), commit("bb", "t", 0, 1), group="b*"
    )
    assert [each.group for each in found] == ["b", "bb"]
    assert {each.group for each in found.members} == {"b"}
    assert {row["group"] for row in rows(found)} == {"b", "bb"}


def test_a_partition_of_a_member_without_a_commit_has_a_row_and_no_lag(tmp_path: Path) -> None:
    plain_log(tmp_path / "t-0")
    found = read(tmp_path, classic("g", "t"), commit("g", "t", 0, 4))
    assert [(row["partition"], row["offset"], row["lag"]) for row in rows(found)] == [
        (0, 4, 6),
        (1, None, None),
    ]
    (group,) = found
    assert (group.commits, group.lag) == (1, None)
    assert found.commits.to_arrow().column("offset").null_count == 1


# ---- moments -------------------------------------------------------------------------------------


def test_a_moment_names_the_last_batch_and_what_changed(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / f"{OFFSETS}-0").add([classic("g", "t")], 1000)
    log.add([commit("g", "t", 0, 1)], 2000).add([classic("g"), commit("g", "t", 0, 2)], 3000)
    log.add([pair(OFFSETS, "GROUP_METADATA", {"group": "h"}, None)], 4000).write()
    found = kseg.groups(tmp_path, at=3000, since=2500)
    (taken,) = found.logs
    assert (taken.base_offset, taken.last_offset, taken.timestamp_ms) == (2, 3, 3000)
    assert (taken.log_end_offset, taken.compacted) == (5, False)
    assert [tuple(each)[1:] for each in found.changes] == [
        (None, None, "state", "Stable", "Empty"),
        (None, None, "members", 1, 0),
        ("t", 0, "offset", 1, 2),
    ]
    assert kseg.groups(tmp_path, at="1970-01-01T00:00:00.500Z").logs[0].last_offset is None


def test_what_compaction_removed_since_is_said(tmp_path: Path) -> None:
    directory = tmp_path / f"{OFFSETS}-0"
    parts = [
        builders.batch(
            [builders.record(value, key=key, timestamp=time)], base_offset=offset, leader_epoch=0
        )
        for offset, time, (key, value) in (
            (1, 1000, commit("g", "t", 0, 1)),
            (5, 2000, commit("h", "t", 0, 1)),
        )
    ]
    builders.write_segment(directory, 0, *parts)
    (found,) = kseg.groups(tmp_path, at=1500).findings
    assert (found.code, found.severity, found.offset) == ("compacted-since", "warning", 5)
    assert kseg.groups(tmp_path).findings == ()
    path = tmp_path / "cleaner-offset-checkpoint"
    write_offset_checkpoint(path, {TopicPartition(OFFSETS, 0): 5})
    assert kseg.groups(tmp_path, at=1500).logs[0].compacted is False
    write_offset_checkpoint(path, {TopicPartition(OFFSETS, 0): 6})
    assert kseg.groups(tmp_path, at=1500).logs[0].compacted is True


# ---- share groups --------------------------------------------------------------------------------


def share(name: str, value: Any) -> Pair:
    key = {"groupId": "s", "topicId": TOPIC_ID, "partition": 0}
    return pair(SHARE, name, key, value)


def batch(first: int, last: int, state: int, count: int = 1) -> dict[str, int]:
    names = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")
    return dict(zip(names, (first, last, state, count), strict=True))


def test_updates_change_the_snapshot_before_them(tmp_path: Path) -> None:
    plain_log(tmp_path / "t-0", 30)
    (tmp_path / "t-0" / "partition.metadata").write_text(
        f"version: 0\ntopic_id: {id_text(TOPIC_ID)}\n"
    )
    (tmp_path / "replication-offset-checkpoint").unlink(missing_ok=True)
    log = LogWriter(tmp_path / f"{SHARE}-0")
    log.add([share("SHARE_SNAPSHOT", {"startOffset": 1, "stateBatches": [batch(0, 99, 2)]})])
    log.add(
        [
            share(
                "SHARE_SNAPSHOT",
                {
                    "snapshotEpoch": 1,
                    "stateEpoch": 2,
                    "startOffset": 10,
                    "stateBatches": [batch(10, 19, 0), batch(12, 13, 2)],
                },
            ),
            share(
                "SHARE_UPDATE",
                {
                    "startOffset": -1,
                    "leaderEpoch": -1,
                    "stateBatches": [batch(15, 16, 4, 2), batch(14, 17, 0, 2)],
                },
            ),
            share(
                "SHARE_UPDATE",
                {"startOffset": 11, "leaderEpoch": 7, "deliveryCompleteCount": 4},
            ),
        ]
    ).write()
    (found,) = kseg.groups(tmp_path).share
    assert (found.group, found.topic, found.start_offset, found.end_offset) == ("s", "t", 11, 30)
    assert (found.in_flight, found.available, found.acknowledged, found.archived) == (9, 5, 2, 2)
    assert (found.lag, found.delivery_complete_count) == (15, 4)
    assert (found.snapshot_epoch, found.state_epoch, found.leader_epoch) == (1, 2, 7)
    log.add([share("SHARE_SNAPSHOT", None)]).write()
    assert len(kseg.groups(tmp_path).share) == 0


# ---- what cannot be known ------------------------------------------------------------------------


def test_partitions_that_are_missing_are_said(tmp_path: Path) -> None:
    LogWriter(tmp_path / f"{OFFSETS}-3").add([classic("g")]).write()
    (found,) = kseg.groups(tmp_path).findings
    assert found.code == "partition-missing"
    assert "3 partitions are not here: 0, 1, 2" in found.message
    assert kseg.groups(tmp_path)[0].log_partition == 3


def test_damage_and_unknown_records_are_findings(tmp_path: Path) -> None:
    key, value = commit("g", "t", 0, 1)
    assert value is not None
    unknown = [(b"\x00\x63", b"\0\0"), (key, b"\0\x63" + value[2:]), (None, b"")]
    damaged = [(b"\x00\x02\xff", b"\0\0")]
    found = read(tmp_path, commit("h", "t", 0, 1), *unknown, *damaged)  # type: ignore[arg-type]
    codes = sorted(each.code for each in found.findings)
    assert codes == ["record-damaged", "record-unkeyed", "record-unknown", "record-unknown"]
    assert [each.group for each in found] == ["h"]
    path = tmp_path / f"{OFFSETS}-0" / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    (found_one, *_) = kseg.groups(tmp_path).findings
    assert found_one.code == "log-damaged"


def test_the_newest_copy_of_a_partition_counts(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    LogWriter(one / f"{OFFSETS}-0").add([classic("g")]).write()
    LogWriter(two / f"{OFFSETS}-0").add([classic("g", "t")]).add([classic("h")]).write()
    assert [each.state for each in kseg.groups([one, two])] == ["Stable", "Empty"]
    assert [each.state for each in kseg.groups([two, one])] == ["Stable", "Empty"]


def test_directories_of_two_clusters_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        LogWriter(tmp_path / name / f"{OFFSETS}-{int(name == 'two')}").add([classic(name)]).write()
        (tmp_path / name / "meta.properties").write_text(
            f"version=1\ncluster.id={name}\nnode.id=1\n"
        )
    with pytest.raises(kseg.NotALogError, match="several clusters: one, two"):
        kseg.groups([tmp_path / "one", tmp_path / "two"])


def test_a_directory_without_the_topics_has_no_groups(tmp_path: Path) -> None:
    plain_log(tmp_path / "t-0")
    assert (len(kseg.groups(tmp_path)), kseg.groups(tmp_path).findings) == (0, ())
    shutil.rmtree(tmp_path / "t-0")
    with pytest.raises(kseg.NotALogError):
        kseg.groups(tmp_path)


def test_a_table_of_columns_shows_itself(tmp_path: Path) -> None:
    columns = {"group": np.array(["<a>"] * 300, object), "lag": np.array([NONE] * 300, np.int64)}
    table = ColumnTable(columns)
    assert repr(table) == "ColumnTable(300 rows)"
    assert table._repr_html_().count("&lt;a&gt;") == 200
    assert table.table_rows()[0] == {"group": "<a>", "lag": None}


def test_a_log_that_cannot_be_read_costs_its_own_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("t-0", "u-0"):
        plain_log(tmp_path / name)
    opened = LogView.open

    def refusing(path: Any, **options: Any) -> LogView:
        if Path(path).name == "t-0":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, **options)

    monkeypatch.setattr(LogView, "open", refusing)
    found = read(tmp_path, commit("g", "t", 0, 4), commit("g", "u", 0, 4))
    assert [row["lag"] for row in rows(found)] == [None, 6]
    assert [each.code for each in found.findings] == ["log-unreadable"]
    transactions = kseg.transactions(tmp_path)
    assert [each.code for each in transactions.findings] == ["log-unreadable"]
    assert kseg.report(tmp_path).transactions is not None
