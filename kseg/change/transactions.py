"""The end of transactions that are open where a log is cut: as their coordinator decided.

A transaction has one end in all partitions. Three things tell it, the first that does counts:

    __transaction_state   the last state of its producer, up to the moment; PrepareCommit and
                          CompleteCommit commit, all others abort
    a marker              of the producer in any partition of the sources, up to the moment
    the caller            "abort" or "commit"; "stop" leaves it undecided

A marker of a commit beside a state that aborts contradicts it: copies of different moments. Such a
transaction is the caller's to decide, too.

Source: Kafka `TransactionMetadata`, `TransactionState`, KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from kseg.constants import INT64_MAX, ControlType, Int64s, InternalTopic
from kseg.documents import Documented
from kseg.errors import FormatError, InvalidRecordError
from kseg.format.header import BatchHeader
from kseg.frozen import frozen_dataclass
from kseg.internal.records import decode
from kseg.log.reader.view import LogView

#: `transactionStatus` of PrepareCommit and CompleteCommit; and of all that end a transaction.
_COMMITS: Final = (2, 4)
_ENDS: Final = (2, 3, 4, 5, 7)
#: Where a value of `__transaction_state` has the producer's id.
_PRODUCER_ID: Final = slice(2, 10)


#: The id and the epoch of a producer, which name one transaction at a time.
_Name = tuple[int, int]


@frozen_dataclass
class AdoptedTransaction(Documented):
    """A transaction that is open at the end of what is taken from a log.

    Attributes:
        partition: as the source names it.
        producer_id, producer_epoch: of its last batch.
        coordinator_epoch: of the last marker of the producer; 0 without one.
        first_offset, first_timestamp: of its first record; -1 for no time.
        commits: its end; None where nothing decides it.
        why: what decides it, in words.
    """

    partition: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    first_timestamp: int
    commits: bool | None = None
    why: str = ""

    @property
    def question(self) -> str:
        """The transaction, and that nothing decides it, in words."""
        return (
            f"{self.partition}: nothing tells the end of the transaction of producer "
            f"{self.producer_id} from offset {self.first_offset} on{self.why}: --undecided abort, "
            "or commit, ends it"
        )


def decide(
    transactions: Iterable[AdoptedTransaction],
    sources: Sequence[LogView],
    at_ms: int | None,
    undecided: str,
) -> dict[AdoptedTransaction, AdoptedTransaction]:
    """Decide open transactions, each alike in all partitions.

    Args:
        transactions: that are open in one partition or several.
        sources: all logs, `__transaction_state` among them if it is there.
        at_ms: the moment; None for the end of the sources.
        undecided: "abort", "commit" or "stop".

    Returns:
        Each transaction with its end.

    Raises:
        KsegError, OSError: a source cannot be read.
    """

    def key(one: AdoptedTransaction) -> _Name:
        return one.producer_id, one.producer_epoch

    ordered = sorted(transactions, key=key)
    groups = {name: list(group) for name, group in groupby(ordered, key=key)}
    if not groups:
        return {}
    end_ms = INT64_MAX if at_ms is None else at_ms
    states, markers = _states(sources, groups, end_ms), _markers(sources, groups, end_ms)
    otherwise = {"abort": False, "commit": True}.get(undecided)
    decided = dict[AdoptedTransaction, AdoptedTransaction]()
    for name, group in groups.items():
        commits, marker = states.get(name), markers.get(name)
        why, doubt = "the state of its coordinator", ""
        if commits is None:
            commits, why = marker, "a marker in another partition"
        elif marker is not None and marker != commits:
            commits, doubt = None, ", and a marker contradicts the state of its coordinator"
        if commits is None:
            commits, why = otherwise, doubt if otherwise is None else "the caller"
        decided |= {each: replace(each, commits=commits, why=why) for each in group}
    return decided


class _State(NamedTuple):
    """A record of `__transaction_state`: `transactionStatus`, and the time of the change in ms."""

    status: int
    update_ms: int


def _states(
    sources: Sequence[LogView], groups: Mapping[_Name, Sequence[AdoptedTransaction]], end_ms: int
) -> dict[_Name, bool]:
    """The ends of transactions by the states of their producers.

    Since KIP-890 the end of a transaction has the next epoch, in which the next one begins.
    """
    producers = {producer_id for producer_id, _ in groups}
    ends, last = dict[_Name, _State](), dict[_Name, _State]()
    for view in sources:
        if view.topic != InternalTopic.TRANSACTIONS:
            continue
        found = dict[_Name, _State]()
        try:
            for name, state in _records(view, producers, end_ms):
                found[name] = state
                if state.status in _ENDS:
                    ends.setdefault(name, state)
        except FormatError:  # an end may lie behind the damage
            found = {name: state for name, state in found.items() if state.status in _ENDS}
        last |= found
    decided = {}
    for (producer_id, epoch), group in groups.items():
        began_ms = max(each.first_timestamp for each in group)
        own, end = last.get((producer_id, epoch)), ends.get((producer_id, epoch + 1))
        if end is not None:
            decided[producer_id, epoch] = end.status in _COMMITS
        elif own is not None and (own.status not in _ENDS or own.update_ms >= began_ms):
            decided[producer_id, epoch] = own.status in _COMMITS  # and of no earlier transaction
    return decided


def _records(view: LogView, producers: Set[int], end_ms: int) -> Iterator[tuple[_Name, _State]]:
    """The states of some producers, each with its epoch, in the order of the log."""
    for columns in view.read(columns=("key", "value", "timestamp")):
        times = columns["timestamp_ms"].tolist()
        for name, value, time_ms in zip(columns["key"], columns["value"], times, strict=True):
            if value is None or time_ms > end_ms:
                continue
            if int.from_bytes(value[_PRODUCER_ID], "big", signed=True) in producers:
                yield from _state_of(name, value)


def _state_of(name: bytes | None, value: bytes) -> Iterator[tuple[_Name, _State]]:
    with suppress(InvalidRecordError):
        fields = decode(InternalTopic.TRANSACTIONS, name, value).value
        if isinstance(fields, dict):
            state = _State(fields["transactionStatus"], fields["transactionLastUpdateTimestampMs"])
            yield (fields["producerId"], fields["producerEpoch"]), state


def _markers(
    sources: Sequence[LogView], groups: Mapping[_Name, Sequence[AdoptedTransaction]], end_ms: int
) -> dict[_Name, bool]:
    """The ends of transactions by the earliest marker of each in any partition.

    A marker is of the transaction whose batches stand in front of it: since KIP-890 its own epoch
    is that of the next one.
    """
    producers = np.array([producer_id for producer_id, _ in groups])
    earliest: dict[_Name, tuple[int, bool]] = {}
    for view in sources:
        place = f"{view.topic}-{view.partition}"
        epochs = dict[int, int]()
        for header in _batches_of(view, producers):
            if not header.is_control:
                epochs[header.producer_id] = header.producer_epoch
                continue
            name = (header.producer_id, epochs.pop(header.producer_id, -1))
            if header.max_timestamp <= end_ms and _may_end(header, place, groups.get(name, ())):
                end = (header.max_timestamp, header.control_type == ControlType.COMMIT)
                earliest[name] = min(earliest.get(name, end), end)
    return {name: commits for name, (_time, commits) in earliest.items()}


def _batches_of(view: LogView, producers: Int64s) -> Iterator[BatchHeader]:
    """The batches and markers of the transactions of some producers."""
    for info in view.segments:
        with view.open_segment(info) as segment:
            for table in segment.headers():
                yield from table[table.is_transactional & np.isin(table.producer_id, producers)]


def _may_end(header: BatchHeader, place: str, transactions: Sequence[AdoptedTransaction]) -> bool:
    """Whether a control batch in a partition may be the end of a transaction."""
    return (
        bool(transactions)
        and header.control_type in (ControlType.COMMIT, ControlType.ABORT)
        and all(header.max_timestamp >= each.first_timestamp for each in transactions)
        and all(
            header.base_offset > each.first_offset
            for each in transactions
            if each.partition == place
        )
    )
