"""`transactions`: every transaction in data directories, joined with `__transaction_state`.

A transaction of a partition is the data of one producer before a marker, by headers alone.

| status | when |
|---|---|
| committed, aborted | its marker is there |
| fenced | aborted by a marker of an epoch that its producer did not have (but see below) |
| prepared | no marker yet, and the coordinator has decided |
| open | no marker, and nothing is known against it |
| hanging | no marker for longer than transactions may take, and no coordinator will write one |

A transaction hangs, as `kafka-transactions.sh find-hanging` decides, if its producer
has no transactional id, its id is not described any more, or its id's partitions lack this one.

With KIP-890 every marker has the next epoch, so a fenced transaction looks like an aborted one, and
is called so.

Source: Kafka `TransactionsCommand.FindHangingTransactionsCommand`, `TransactionMetadata`,
`ProducerStateManager`; KIP-664, KIP-890.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from kseg.analysis.internal_logs import NONE, ColumnTable, Home, LogTaken, Notes, Rows
from kseg.commands import command_line
from kseg.constants import INT64_MAX, ControlType, Int64s, InternalTopic, Progress
from kseg.documents import fields_of, frozen_dataclass
from kseg.files.checkpoints import read_clean_offset
from kseg.files.selection import NothingChosenError, Selection, StrPaths
from kseg.format.header import COLUMN, CONTROL, TRANSACTIONAL, BatchTable
from kseg.format.times import Time, bound_ms
from kseg.frames import Listed
from kseg.internal.coordinators import joined
from kseg.internal.registry import SchemaFinding
from kseg.log.clock import now_of
from kseg.log.data_directory import partition_of
from kseg.log.reader import LogView

#: The longest transaction that Kafka's tool assumes by default.
MAX_TIMEOUT_MINUTES: Final = 15
_MINUTE_MS: Final = 60_000
#: `transactionStatus`.
STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
#: Fields of an undecided transaction that are columns, too.
_OPEN_FIELDS: Final = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "first_offset",
    "last_offset",
    "records",
    "bytes",
    "start_ms",
    "last_ms",
    "transactional_id",
)
_PREPARED: Final = ("PrepareCommit", "PrepareAbort")
STATUSES: Final = ("hanging", "open", "prepared", "fenced", "aborted", "committed")
_SCRIPT: Final = ("kafka-transactions.sh", "--bootstrap-server", "HOST:PORT")


class TransactionalId(NamedTuple):
    """The coordinator's state of a transactional id.

    Attributes:
        transactional_id: the name.
        state: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, Dead or
            PrepareEpochFence.
        producer_id, producer_epoch: of its producer.
        timeout_ms: of its transactions.
        partitions: of the unfinished transaction, as `topic-0`.
        start_ms: when that began; None for none.
        update_ms: of the last change.
        client_transaction_version: 2 for KIP-890; 0 and 1 are older.
        log_partition: the partition of `__transaction_state` that has it.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: tuple[str, ...]
    start_ms: int | None
    update_ms: int
    client_transaction_version: int
    log_partition: int


class Undecided(NamedTuple):
    """A transaction without a marker.

    Attributes:
        topic, partition, producer_id, producer_epoch: whose.
        status: hanging, open or prepared.
        first_offset, last_offset, records, bytes: of its batches.
        start_ms, last_ms: the times of its first and last batch.
        transactional_id: None where no record names one.
        holds: things that wait for it: "last-stable-offset", and "cleaner" if the log is compacted;
            "" if another transaction is before it.
        why: the reason of the status.
        command: ends it; None where nothing is to be typed.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    status: str
    first_offset: int
    last_offset: int
    records: int
    bytes: int
    start_ms: int
    last_ms: int
    transactional_id: str | None
    holds: str
    why: str
    command: str | None


class TransactionRows(ColumnTable):
    """Transactions, a row for each in each partition.

    Its columns:

    - `topic`, `partition`: the partition.
    - `producer_id`, `producer_epoch`: of its last batch.
    - `transactional_id`: of that producer, if the coordinator's log names it.
    - `status`: see `kseg.analysis.transactions`.
    - `first_offset`, `last_offset`, `records`, `bytes`: of its batches.
    - `start_ms`, `last_ms`: the times of its first and last batch.
    - `marker_offset`, `marker_ms`, `marker_epoch`, `coordinator_epoch`: of its marker.
    - `duration_ms`: from the first batch to the marker, or until now.
    """

    __slots__ = ()


@frozen_dataclass(repr=False)
class Transactions(Listed[Undecided]):
    """The answer of `kseg.transactions`; a table with a row for each undecided transaction.

    Attributes:
        transactions: all of them, see `TransactionRows`.
        ids: a table of `TransactionalId`.
        logs: how much of each partition of `__transaction_state` was taken.
        findings: the oddities.
    """

    COLUMNS = " ".join(Undecided._fields)

    transactions: TransactionRows
    ids: Rows
    logs: tuple[LogTaken, ...]
    findings: tuple[SchemaFinding, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """The number of transactions of each status."""
        counts = Counter(self.transactions.columns["status"].tolist())
        return {status: counts[status] for status in STATUSES}

    @property
    def title(self) -> str:
        """The counts in one line."""
        return ", ".join(f"{count} {status}" for status, count in self.counts.items() if count)

    def to_json(self, *, transactions: bool = True) -> dict[str, Any]:
        """The document of `kseg transactions --json`, without `schema` and `path`.

        Args:
            transactions: with all transactions, which may be many.
        """
        rows = {"transactions": list(self.transactions.rows())} if transactions else {}
        return {
            **fields_of(self, "counts undecided=values ids logs findings"),
            **rows,
        }


def transactions(
    paths: StrPaths,
    *,
    topics: str | Iterable[str] | None = None,
    partitions: int | Iterable[int | range] | None = None,
    at: Time | None = None,
    since: Time | None = None,
    max_timeout_minutes: int = MAX_TIMEOUT_MINUTES,
    now: Time | None = None,
    progress: Progress | None = None,
) -> Transactions:
    """Find every transaction of partitions by headers, and the coordinator's state of it.

    Args:
        paths: data directories of one or several brokers, partitions, or globs. Of two replicas of
            a partition, the replica with the newest leader epoch is read.
        topics: only transactions in these: a name or a glob, or several.
        partitions: only in these partitions: a number, or several.
        at: the state at that time: batches are taken whose time is at or before it.
        since: only transactions with a batch or a marker after it.
        max_timeout_minutes: the broker's `transaction.max.timeout.ms`; an open transaction is not
            hanging before its last batch is older.
        now: the end of ages, and the time that "now" and "-7d" refer to; the machine's clock if
            None. With `at`, ages end there.
        progress: called with the bytes of the segments that are walked, and of all of them.

    Raises:
        NotALogError: no partition is here, or they are of several clusters.
        ValueError, TypeError, OSError: as for `kseg.scan`.

    Example:
        >>> transactions(".").counts["committed"] > 0
        True
    """
    selection = Selection.of(topics, partitions)
    at_ms, since_ms = (bound_ms(time, lambda: now_of(now)) for time in (at, since))
    notes = Notes()
    home = Home(paths, notes)
    clock_ms = now_of(now) if at_ms is None else at_ms
    coordinator = _Coordinator(home, at_ms, clock_ms - max_timeout_minutes * _MINUTE_MS)
    chosen = [
        partition
        for partition in home.sources
        if selection.takes(partition.topic, partition.partition)
        and partition.topic != InternalTopic.METADATA
    ]
    if not chosen and any(selection):
        names_here = ((partition.topic, partition.partition) for partition in home.sources)
        raise NothingChosenError(selection.why_nothing(names_here))
    parts, undecided = [NO_TRANSACTIONS], list[Undecided]()
    for _, view in home.walked(chosen, progress):
        with home.noting_unreadable(view.path):
            rows = _batches(view, at_ms, notes)
            if rows is not None:
                part = _part(view, rows, notes)
                undecided += coordinator.judge(view, part)
                part["duration_ms"] = _durations(part, clock_ms)
                parts.append(part)
    columns = joined(parts)
    if since_ms is not None:
        newest = np.maximum(columns["last_ms"], columns["marker_ms"])
        columns = {name: column[newest > since_ms] for name, column in columns.items()}
    return Transactions(
        tuple(undecided),
        TransactionRows(columns),
        Rows(tuple(coordinator.ids), TransactionalId),
        tuple(coordinator.logs),
        notes.finish(),
    )


# ---- batches -------------------------------------------------------------------------------------

#: The header fields by which transactions are followed.
_TAKEN: Final = (
    "producer_id",
    "base_offset",
    "last_offset",
    "record_count",
    "size",
    "producer_epoch",
    "base_timestamp",
    "max_timestamp",
    "control_type",
    "coordinator_epoch",
)
_INDEX: Final = [COLUMN[name] for name in _TAKEN]
#: `control_type` of data.
_DATA: Final = -2
NO_TRANSACTIONS: Final[dict[str, Any]] = {
    **{name: np.empty(0, object) for name in ("topic", "transactional_id", "status")},
    **{
        name: np.empty(0, np.int64)
        for name in (
            "partition",
            "producer_id",
            "producer_epoch",
            "first_offset",
            "last_offset",
            "records",
            "bytes",
            "start_ms",
            "last_ms",
            "marker_offset",
            "marker_ms",
            "marker_epoch",
            "coordinator_epoch",
            "duration_ms",
        )
    },
}


def _batches(view: LogView, at: int | None, notes: Notes) -> Int64s | None:
    """int64[n, 10]: columns as in `_TAKEN` of data in transactions and markers; None for none."""
    tables = list[Int64s]()
    reached = view.log_start_offset
    for info in view.segments:
        with view.open_segment(info) as segment:
            for table in segment.headers():
                if len(table):
                    tables += _relevant_rows(table, reached, at)
                    reached = max(reached, int(table.last_offset.max()) + 1)
            fault = segment.stop_fault(table)
        if fault is not None:
            notes.note("log-damaged", fault.path or info.path, fault.reason, fault.offset)
    return np.concatenate(tables) if tables else None


def _relevant_rows(table: BatchTable, reached: int, at: int | None) -> list[Int64s]:
    """The rows of `_batches` out of one table; none, or one array.

    Args:
        table: headers.
        reached: offsets before it were in segments before.
        at: no later batches, in ms; None for all.
    """
    if not table.attributes_seen & (TRANSACTIONAL | CONTROL):
        return []
    control = table.is_control
    kind = table.control_type
    marks = control & ((kind == ControlType.COMMIT) | (kind == ControlType.ABORT))
    chosen = (table.producer_id >= 0) & (marks | (table.is_transactional & ~control))
    chosen &= table.last_offset >= reached
    chosen &= table.max_timestamp <= (INT64_MAX if at is None else at)
    rows = table.rows[chosen][:, _INDEX]
    rows[~control[chosen], _TAKEN.index("control_type")] = _DATA
    return [rows] if len(rows) else []


def _part(view: LogView, rows: Int64s, notes: Notes) -> dict[str, Any]:
    """The transactions of one partition, by first offset: the columns of `TransactionRows`.

    In place of a status they have `outcome`: the type of the marker, -1 without one.
    """
    producer_id, base_offset, *_ = rows.T
    rows = rows[np.lexsort((base_offset, producer_id))]
    taken = dict(zip(_TAKEN, rows.T, strict=True))
    is_data = taken["control_type"] == _DATA
    # A transaction begins with a producer's first row, and after each marker.
    begins = (taken["producer_id"][1:] != taken["producer_id"][:-1]) | ~is_data[:-1]
    starts = np.flatnonzero(np.concatenate(([True], begins)))
    ends = np.append(starts[1:], len(rows)) - 1
    alone = ~is_data[starts]
    if alone.any():
        offset = int(taken["base_offset"][starts[alone]].min())
        message = f"{int(alone.sum())} markers have no data, which compaction or retention removed"
        notes.note("marker-alone", view.path, message, offset)
    records, sizes = (
        np.add.reduceat(np.where(is_data, taken[name], 0), starts)
        for name in ("record_count", "size")
    )
    has_marker = ~is_data[ends]
    last = ends - has_marker
    marker = {
        name: np.where(has_marker, taken[name][ends], NONE)
        for name in ("base_offset", "max_timestamp", "producer_epoch", "coordinator_epoch")
    }
    outcome = np.where(has_marker, taken["control_type"][ends], -1)
    part: dict[str, Any] = {
        "partition": np.full(len(starts), view.partition or 0, np.int64),
        "producer_id": taken["producer_id"][starts],
        "producer_epoch": taken["producer_epoch"][last],
        "first_offset": taken["base_offset"][starts],
        "last_offset": taken["last_offset"][last],
        "records": records,
        "bytes": sizes,
        "start_ms": taken["base_timestamp"][starts],
        "last_ms": taken["max_timestamp"][last],
        "marker_offset": marker["base_offset"],
        "marker_ms": marker["max_timestamp"],
        "marker_epoch": marker["producer_epoch"],
        "coordinator_epoch": marker["coordinator_epoch"],
        "outcome": outcome,
    }
    order = np.flatnonzero(~alone)
    order = order[np.argsort(part["first_offset"][order], kind="stable")]
    part = {name: column[order] for name, column in part.items()}
    return {"topic": np.full(len(order), view.topic, object), **part}


def _durations(part: Mapping[str, Any], clock_ms: int) -> Int64s:
    ends = np.where(part["marker_ms"] == NONE, clock_ms, part["marker_ms"])
    return np.where(part["start_ms"] < 0, NONE, np.maximum(ends - part["start_ms"], 0))


# ---- the coordinator -----------------------------------------------------------------------------


class _Coordinator:
    """The contents of `__transaction_state`, and their meaning for transactions."""

    def __init__(self, home: Home, at: int | None, old_ms: int) -> None:
        """Read the topic.

        Args:
            home: the partitions.
            at: only records up to this time, ms; all of them if None.
            old_ms: an open transaction may hang if its last batch is older than this time.
        """
        self._old_ms = old_ms
        self.ids: list[TransactionalId] = []
        self.logs: list[LogTaken] = []
        for log, chunks in home.values(InternalTopic.TRANSACTIONS, at, None):
            self.logs.append(log)
            for chunk in chunks:
                for row in home.decoded(InternalTopic.TRANSACTIONS, chunk):
                    if row.record.value is not None:
                        self.ids.append(_transactional_id(row.record, log.partition))
        self.ids.sort()
        self.is_whole = bool(self.logs) and not home.missing[InternalTopic.TRANSACTIONS]
        self._by_producer = {
            state.producer_id: state for state in self.ids if state.state != "Dead"
        }

    def judge(self, view: LogView, part: dict[str, Any]) -> list[Undecided]:
        """Fill in the status of each transaction of a partition; returns the undecided ones."""
        states = [self._by_producer.get(producer) for producer in part["producer_id"].tolist()]
        outcome = part.pop("outcome")
        names = [None if state is None else state.transactional_id for state in states]
        part["transactional_id"] = np.array(names, object)
        # With transaction version 2 each marker raises the epoch by one. An abort that raises it
        # further comes from fencing; of an unknown producer that is never said.
        epoch_bumps = part["marker_epoch"] - part["producer_epoch"]
        versions = [0 if state is None else state.client_transaction_version for state in states]
        is_unknown = [state is None for state in states]
        normal_bump = np.where(is_unknown, INT64_MAX, np.array(versions) >= 2)
        status = np.where(outcome == ControlType.COMMIT, "committed", "aborted").astype(object)
        status[(outcome == ControlType.ABORT) & (epoch_bumps > normal_bump)] = "fenced"
        undecided = list[Undecided]()
        for at in np.flatnonzero(outcome == -1).tolist():
            row: dict[str, Any] = {name: part[name][[at]].tolist()[0] for name in _OPEN_FIELDS}
            # The earliest open transaction alone holds the last stable offset back.
            row["holds"] = "" if undecided else _consequences(view.path)
            undecided.append(self._open_transaction(row, states[at]))
            status[at] = undecided[-1].status
        part["status"] = status
        return undecided

    def _open_transaction(self, row: dict[str, Any], state: TransactionalId | None) -> Undecided:
        """An open transaction, by the rules of `find-hanging`."""
        status = "open"
        why = "its last batch is younger than transactions may take"
        words: tuple[str, ...] = ()
        topic = row["topic"]
        partition = str(row["partition"])
        if state is not None and f"{topic}-{partition}" in state.partitions:
            if state.state in _PREPARED:
                status = "prepared"
                why = f"the coordinator has {state.state}, and will write the marker"
            else:
                why = f"the coordinator has {state.state}, and will end it at its timeout"
                words = ("forceTerminateTransaction", "--transactionalId", state.transactional_id)
        elif row["last_ms"] < self._old_ms and not self.is_whole:
            why = "__transaction_state is not here whole, so nothing says whether it hangs"
        elif row["last_ms"] < self._old_ms:
            status = "hanging"
            why = "no transactional id has its producer"
            if state is not None:
                why = f"the coordinator has {state.state} for its id, without this partition"
            of_partition = ("--topic", topic, "--partition", partition)
            words = ("abort", *of_partition, "--start-offset", str(row["first_offset"]))
        command = command_line(*_SCRIPT, *words) if words else None
        return Undecided(**row, status=status, why=why, command=command)


def _transactional_id(record: Any, log_partition: int) -> TransactionalId:
    """The last state of a transactional id, out of its record."""
    value = record.value
    start = record.value["transactionStartTimestampMs"]
    status = value["transactionStatus"]
    return TransactionalId(
        record.key["transactionalId"],
        STATES[status] if 0 <= status < len(STATES) else str(status),
        value["producerId"],
        value["producerEpoch"],
        value["transactionTimeoutMs"],
        tuple(
            f"{topic['topic']}-{number}"
            for topic in value["transactionPartitions"] or ()
            for number in topic["partitionIds"]
        ),
        None if start < 0 else start,
        value["transactionLastUpdateTimestampMs"],
        value.get("clientTransactionVersion", 0),
        log_partition,
    )


def _consequences(directory: Path) -> str:
    """The consequences of the first open transaction of a partition, in words."""
    is_cleaned = read_clean_offset(directory, partition_of(directory)) is not None
    return "last-stable-offset, cleaner" if is_cleaned else "last-stable-offset"
