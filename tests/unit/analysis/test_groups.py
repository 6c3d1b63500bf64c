"""`groups`: states, members, commits, lag, times, share groups, and what cannot be known."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

import kseg
from kseg.analysis.internal_logs import NONE, ColumnTable
from kseg.documents import id_text
from kseg.log.reader import LogView
from kseg.reports import Groups
from tests.coordinators import OFFSETS, SHARE, LogWriter, Pair, commit, group, pair
from tests.internal_schemas import encode_message

DEMO = Path(kseg.__file__).parent / "demo_data"
TOPIC_ID = UUID(int=77)
CONSUMER = "CONSUMER_GROUP"


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


# ---- commits -------------------------------------------------------------------------------------


def test_a_commit_of_an_unusual_form_is_among_the_others(tmp_path: Path) -> None:
    found = read(tmp_path, commit("g", "t", 1, 5, metadata="x" * 300), commit("g", "t", 0, 4))
    assert [(each["offset"], len(each["metadata"])) for each in rows(found)] == [(4, 0), (5, 300)]
    table = found.commits.to_arrow()
    assert table["lag"].null_count == 2
    assert table["offset"].to_pylist() == [4, 5]


# ---- moments -------------------------------------------------------------------------------------


def test_the_end_of_a_lag_is_one_of_two(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lag_to"):
        kseg.groups(tmp_path, lag_to="end")


def test_a_readable_lag_counts_the_records_that_a_consumer_gets() -> None:
    plain, readable = (kseg.groups(DEMO, readable=flag) for flag in (False, True))
    for row in readable.commits.rows():
        place = {"topics": row["topic"], "partitions": row["partition"]}
        rest = kseg.scan(
            DEMO,
            offset=(row["offset"], None),
            isolation="read_committed",
            columns=("offset",),
            **place,
        )
        assert row["lag"] == sum(map(len, rest))
    assert [row["lag"] for row in plain.commits.rows()] == [14, 0, 34]
    assert [row["lag"] for row in readable.commits.rows()] == [14, 0, 32]
    assert (plain[0].lag, readable[0].lag) == (48, 46)


@pytest.mark.filterwarnings("ignore:.*read_committed ends at offset")
def test_a_readable_lag_starts_with_the_log_and_ends_before_an_open_transaction(
    tmp_path: Path,
) -> None:
    shutil.copytree(DEMO / "payments-0", tmp_path / "payments-0")
    commits = [commit(f"g{offset}", "payments", 0, offset) for offset in (0, 100, 143, 999)]
    found = read(tmp_path, *commits, readable=True)
    committed = [
        kseg.scan(tmp_path / "payments-0", offset=(begin, None), isolation="read_committed").count()
        for begin in (0, 100)
    ]
    assert [row["lag"] for row in rows(found)] == [*committed, 0, None]


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


def test_a_table_of_columns_shows_itself(tmp_path: Path) -> None:
    columns = {"group": np.array(["<a>"] * 300, object), "lag": np.array([NONE] * 300, np.int64)}
    table = ColumnTable(columns)
    assert repr(table) == "ColumnTable(300 rows)"
    assert table._repr_html_().count("&lt;a&gt;") == 200
    assert table.table_rows()[0] == {"group": "<a>", "lag": None}


# ---- what cannot be known ------------------------------------------------------------------------


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
