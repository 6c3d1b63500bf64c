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
        producer_id, producer_epoch: the id and the epoch of its producer.
        timeout_ms: the timeout of its transactions.
        partitions: the partitions of the unfinished transaction, as `topic-0`.
        start_ms: when that transaction began; None if there is none.
        update_ms: the time of the last change.
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
        topic, partition, producer_id, producer_epoch: its partition and its producer.
        status: hanging, open or prepared.
        first_offset, last_offset, records, bytes: the numbers of its batches.
        start_ms, last_ms: the times of its first and last batch.
        transactional_id: the id of the producer; None where no record names one.
        holds: what waits for it: "last-stable-offset", and "cleaner" if the log is compacted; "" if
            another transaction is before it.
        why: the reason for the status.
        command: the command that ends it; None if the user has nothing to do.
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
        transactions: all transactions, see `TransactionRows`.
        ids: a table of `TransactionalId`.
        logs: how much of each partition of `__transaction_state` was read.
        findings: what is odd in the logs.
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
            transactions: include all transactions, which may be many.
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

#: The header fields from which transactions are put together: the columns of `_batches`.
_KEPT_COLUMNS: Final = (
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
_KEPT_COLUMN_NUMBERS: Final = [COLUMN[name] for name in _KEPT_COLUMNS]
#: The `control_type` of batches of data, in rows of `_batches`.
_NOT_A_MARKER: Final = -2
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
    """The batches of a log that are data in transactions, or markers of their ends.

    Args:
        view: the log.
        at: the time of the last batches that count, in ms; None for all.
        notes: receives damage as findings.

    Returns:
        int64[n, 10] with the columns `_KEPT_COLUMNS`; None if there are no such batches.
    """
    tables = list[Int64s]()
    next_offset = view.log_start_offset
    for info in view.segments:
        with view.open_segment(info) as segment:
            for table in segment.headers():
                if len(table):
                    tables += _relevant_rows(table, next_offset, at)
                    next_offset = max(next_offset, int(table.last_offset.max()) + 1)
            fault = segment.stop_fault(table)
        if fault is not None:
            notes.note("log-damaged", fault.path or info.path, fault.reason, fault.offset)
    return np.concatenate(tables) if tables else None


def _relevant_rows(table: BatchTable, next_offset: int, at: int | None) -> list[Int64s]:
    """The rows of `_batches` from one table: a list of one array, or empty if there are none.

    Args:
        table: the headers of batches.
        next_offset: batches that end before this offset were in earlier tables.
        at: the time of the last batches that count, in ms; None for all.
    """
    if not table.attributes_seen & (TRANSACTIONAL | CONTROL):
        return []
    control = table.is_control
    kind = table.control_type
    is_marker = control & ((kind == ControlType.COMMIT) | (kind == ControlType.ABORT))
    chosen = (table.producer_id >= 0) & (is_marker | (table.is_transactional & ~control))
    chosen &= table.last_offset >= next_offset
    chosen &= table.max_timestamp <= (INT64_MAX if at is None else at)
    rows = table.rows[chosen][:, _KEPT_COLUMN_NUMBERS]
    rows[~control[chosen], _KEPT_COLUMNS.index("control_type")] = _NOT_A_MARKER
    return [rows] if len(rows) else []


def _part(view: LogView, rows: Int64s, notes: Notes) -> dict[str, Any]:
    """The transactions of one partition, sorted by first offset: the columns of `TransactionRows`.

    In place of a status they have `outcome`: the type of the marker, -1 if there is none.

    Args:
        view: the log.
        rows: its batches, as `_batches` returns them.
        notes: receives markers without data as a finding.
    """
    producer_id, base_offset, *_ = rows.T
    rows = rows[np.lexsort((base_offset, producer_id))]
    batches = dict(zip(_KEPT_COLUMNS, rows.T, strict=True))
    is_data = batches["control_type"] == _NOT_A_MARKER
    # A transaction begins with a producer's first row, and after each marker.
    begins = (batches["producer_id"][1:] != batches["producer_id"][:-1]) | ~is_data[:-1]
    starts = np.flatnonzero(np.concatenate(([True], begins)))
    ends = np.append(starts[1:], len(rows)) - 1
    lacks_data = ~is_data[starts]
    if lacks_data.any():
        offset = int(batches["base_offset"][starts[lacks_data]].min())
        count = int(lacks_data.sum())
        message = f"{count} markers have no data, which compaction or retention removed"
        notes.note("marker-alone", view.path, message, offset)
    records, sizes = (
        np.add.reduceat(np.where(is_data, batches[name], 0), starts)
        for name in ("record_count", "size")
    )
    has_marker = ~is_data[ends]
    last = ends - has_marker  # the last batch of data
    marker = {
        name: np.where(has_marker, batches[name][ends], NONE)
        for name in ("base_offset", "max_timestamp", "producer_epoch", "coordinator_epoch")
    }
    outcome = np.where(has_marker, batches["control_type"][ends], -1)
    part: dict[str, Any] = {
        "partition": np.full(len(starts), view.partition or 0, np.int64),
        "producer_id": batches["producer_id"][starts],
        "producer_epoch": batches["producer_epoch"][last],
        "first_offset": batches["base_offset"][starts],
        "last_offset": batches["last_offset"][last],
        "records": records,
        "bytes": sizes,
        "start_ms": batches["base_timestamp"][starts],
        "last_ms": batches["max_timestamp"][last],
        "marker_offset": marker["base_offset"],
        "marker_ms": marker["max_timestamp"],
        "marker_epoch": marker["producer_epoch"],
        "coordinator_epoch": marker["coordinator_epoch"],
        "outcome": outcome,
    }
    order = np.flatnonzero(~lacks_data)
    order = order[np.argsort(part["first_offset"][order], kind="stable")]
    part = {name: column[order] for name, column in part.items()}
    return {"topic": np.full(len(order), view.topic, object), **part}


def _durations(part: Mapping[str, Any], clock_ms: int) -> Int64s:
    """int64[n]: the ms from the first batch to the marker, or to the clock if there is none."""
    ends = np.where(part["marker_ms"] == NONE, clock_ms, part["marker_ms"])
    return np.where(part["start_ms"] < 0, NONE, np.maximum(ends - part["start_ms"], 0))


# ---- the coordinator -----------------------------------------------------------------------------


class _Coordinator:
    """The contents of `__transaction_state`, and the status of transactions according to it."""

    def __init__(self, home: Home, at: int | None, old_ms: int) -> None:
        """Read the topic.

        Args:
            home: the partitions.
            at: the time of the last records that count, in ms; None for all.
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
        """Fill in the status of each transaction of a partition; returns the undecided ones.

        Args:
            view: the log.
            part: the transactions, as `_part` returns them.
        """
        states = [self._by_producer.get(producer) for producer in part["producer_id"].tolist()]
        outcome = part.pop("outcome")
        names = [None if state is None else state.transactional_id for state in states]
        part["transactional_id"] = np.array(names, object)
        # With transaction version 2 each marker raises the epoch by one. An abort that raises it
        # further comes from fencing. If the producer is unknown, no transaction counts as fenced.
        epoch_bumps = part["marker_epoch"] - part["producer_epoch"]
        versions = [0 if state is None else state.client_transaction_version for state in states]
        is_unknown = [state is None for state in states]
        normal_bump = np.where(is_unknown, INT64_MAX, np.array(versions) >= 2)
        status = np.where(outcome == ControlType.COMMIT, "committed", "aborted").astype(object)
        status[(outcome == ControlType.ABORT) & (epoch_bumps > normal_bump)] = "fenced"
        undecided = list[Undecided]()
        for number in np.flatnonzero(outcome == -1).tolist():
            row: dict[str, Any] = {name: part[name][[number]].tolist()[0] for name in _OPEN_FIELDS}
            # Only the earliest open transaction holds the last stable offset back.
            row["holds"] = "" if undecided else _consequences(view.path)
            undecided.append(self._open_transaction(row, states[number]))
            status[number] = undecided[-1].status
        part["status"] = status
        return undecided

    def _open_transaction(self, row: dict[str, Any], state: TransactionalId | None) -> Undecided:
        """The status of an open transaction, by the rules of `find-hanging`.

        Args:
            row: its fields so far.
            state: the coordinator's state of its producer; None if it has none.
        """
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
    """The state of a transactional id, from its last record."""
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
    """The value of `Undecided.holds` for the first open transaction of a partition."""
    is_cleaned = read_clean_offset(directory, partition_of(directory)) is not None
    return "last-stable-offset, cleaner" if is_cleaned else "last-stable-offset"
