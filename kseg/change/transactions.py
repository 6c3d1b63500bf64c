"""The end of transactions that are open where a log is cut: as their coordinator decided.

A transaction has one end in all partitions. Three things tell it, the first that does counts:

    __transaction_state   the last state of its producer, up to the moment; PrepareCommit and
                          CompleteCommit commit, all others abort
    a marker              of the producer in any partition of the sources, up to the moment; one
                          that follows the transaction in its own partition counts first
    the caller            "abort" or "commit"; "stop" leaves it undecided

A marker of a commit beside a state that aborts contradicts it: copies of different moments. Such a
transaction is the caller's to decide, too.

Source: Kafka `TransactionMetadata`, `TransactionState`, KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
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
#: `clientTransactionVersion` since KIP-890.
_BUMPS: Final = 2
#: Where a value of `__transaction_state` has the producer's id.
_PRODUCER_ID: Final = slice(2, 10)


#: The id and the epoch of a producer, which name one transaction at a time.
_Name = tuple[int, int]
#: A marker, and the partition that it is in.
_Marker = tuple[str, BatchHeader]


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
    sources: Sequence[tuple[LogView, int]],
    at_ms: int | None,
    undecided: str,
) -> dict[AdoptedTransaction, AdoptedTransaction]:
    """Decide open transactions, each alike in all partitions.

    Args:
        transactions: that are open in one partition or several.
        sources: all logs, each with the offset in front of which it is taken, 0 for none of it;
            `__transaction_state` among them if it is there.
        at_ms: the moment; None for the end of the sources. For a producer with a later marker in
            what is taken, that is the moment.
        undecided: "abort", "commit" or "stop".

    Returns:
        Each transaction with its end.

    Raises:
        KsegError, OSError: a source cannot be read.
    """
    key = attrgetter("producer_id", "producer_epoch")
    ordered = sorted(transactions, key=key)
    groups = {name: list(group) for name, group in groupby(ordered, key=key)}
    if not groups:
        return {}
    moments = dict.fromkeys((name[0] for name in groups), INT64_MAX if at_ms is None else at_ms)
    markers = _markers(sources, moments)
    states = _states([view for view, _ in sources], moments)
    otherwise = {"abort": False, "commit": True}.get(undecided)
    decided = dict[AdoptedTransaction, AdoptedTransaction]()
    for name, group in groups.items():
        began_ms = max(transaction.first_timestamp for transaction in group)
        end_ms = moments[name[0]]
        begins = {transaction.partition: transaction.first_offset for transaction in group}
        ends = [
            (header.max_timestamp, header.control_type == ControlType.COMMIT, place in begins)
            for place, header in markers.get(name, ())
            if header.base_offset > begins.get(place, -1)
        ]
        its_own = [end for end in ends if end[2]]  # in a partition where it is open
        is_open = bool(its_own) and min(its_own)[0] > end_ms
        others = [end for end in ends if began_ms <= end[0] <= end_ms]
        marker = None if is_open else min(its_own or others, default=None)
        commits = _by_state(name, began_ms, states, is_open=is_open)
        why, doubt = "the state of its coordinator", ""
        if marker is not None and (commits is None or its_own):
            commits, why = marker[1], "a marker"
        elif marker is not None and marker[1] != commits:
            commits, doubt = None, ", and a marker contradicts the state of its coordinator"
        if commits is None:
            commits, why = otherwise, doubt if otherwise is None else "the caller"
        decided |= {
            transaction: replace(transaction, commits=commits, why=why) for transaction in group
        }
    return decided


class _State(NamedTuple):
    """A record of `__transaction_state`.

    Attributes:
        status: `transactionStatus`.
        update_ms: the time of the change, in ms.
        bumps: whether the producer's epoch rises at the end of each transaction.
    """

    status: int
    update_ms: int
    bumps: bool


def _states(
    sources: Sequence[LogView], moments: Mapping[int, int]
) -> tuple[dict[_Name, _State], dict[_Name, _State]]:
    """The first end of each transaction, and the last state, up to the moments of producers."""
    ends, last = dict[_Name, _State](), dict[_Name, _State]()
    for view in sources:
        if view.topic != InternalTopic.TRANSACTIONS:
            continue
        states = dict[_Name, _State]()
        try:
            for name, state in _records(view, moments):
                states[name] = state
                if state.status in _ENDS:
                    ends.setdefault(name, state)
        except FormatError:  # an end may lie behind the damage
            states = {name: state for name, state in states.items() if state.status in _ENDS}
        last |= states
    return ends, last


def _by_state(
    name: _Name,
    began_ms: int,
    states: tuple[Mapping[_Name, _State], Mapping[_Name, _State]],
    *,
    is_open: bool,
) -> bool | None:
    """The end of a transaction by the states of its producer; None if they do not tell.

    Since KIP-890 the end of a transaction has the next epoch, in which the next one begins. If all
    its markers are later, a state that says that all are written is of an earlier one.
    """
    ends, last = states
    own, end = last.get(name), ends.get((name[0], name[1] + 1))
    if end is not None:
        return end.status in _COMMITS
    if own is None:
        return None
    if is_open:
        return own.status == _COMMITS[0]
    if own.status in _ENDS and (own.bumps or own.update_ms < began_ms):
        return None  # of an earlier transaction
    return own.status in _COMMITS


def _records(view: LogView, moments: Mapping[int, int]) -> Iterator[tuple[_Name, _State]]:
    """The states of some producers, each with its epoch, in the order of the log."""
    for columns in view.read(columns=("key", "value", "timestamp")):
        times = columns["timestamp_ms"].tolist()
        for name, value, time_ms in zip(columns["key"], columns["value"], times, strict=True):
            if value is None:
                continue
            producer_id = int.from_bytes(value[_PRODUCER_ID], "big", signed=True)
            if time_ms > moments.get(producer_id, -1):
                continue
            with suppress(InvalidRecordError):
                fields = decode(InternalTopic.TRANSACTIONS, name, value).value
                if isinstance(fields, dict):
                    yield (
                        (fields["producerId"], fields["producerEpoch"]),
                        _State(
                            fields["transactionStatus"],
                            fields["transactionLastUpdateTimestampMs"],
                            fields.get("clientTransactionVersion", 0) >= _BUMPS,
                        ),
                    )


def _markers(
    sources: Sequence[tuple[LogView, int]], moments: dict[int, int]
) -> dict[_Name, list[_Marker]]:
    """The markers of some producers; moves their moments to their last markers that are taken.

    A marker is of the transaction whose batches stand in front of it: since KIP-890 its own epoch
    is that of the next one.
    """
    producers, markers = np.array(list(moments)), dict[_Name, list[_Marker]]()
    for view, end in sources:
        place, epochs = f"{view.topic}-{view.partition}", dict[int, int]()
        for header in _batches_of(view, producers):
            producer_id = header.producer_id
            if not header.is_control:
                epochs[producer_id] = header.producer_epoch
            elif header.control_type in (ControlType.COMMIT, ControlType.ABORT):
                name = producer_id, epochs.pop(producer_id, -1)
                markers.setdefault(name, []).append((place, header))
                if header.base_offset < end:
                    moments[producer_id] = max(moments[producer_id], header.max_timestamp)
    return markers


def _batches_of(view: LogView, producers: Int64s) -> Iterator[BatchHeader]:
    """The batches and markers of the transactions of some producers."""
    for info in view.segments:
        with view.open_segment(info) as segment:
            for table in segment.headers():
                yield from table[table.is_transactional & np.isin(table.producer_id, producers)]
