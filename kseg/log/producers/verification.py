"""Guards that a transaction's first batch is appended only while its coordinator knows of it.

A broker asks the coordinator before it lets a producer begin a transaction. The answer may come
late. Until then the log keeps a guard, and only an append with the same guard may open the
transaction.

Source: Kafka `VerificationStateEntry`, `VerificationGuard` (KIP-890).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, eq=False)
class VerificationGuard:
    """One request to the coordinator; equal to itself only."""


@dataclass(slots=True)
class VerificationEntry:
    """What a producer announced of the transaction that it is about to begin.

    Attributes:
        created_ms: when the guard was made.
        lowest_sequence: the smallest first sequence announced; no batch may come above it first.
        producer_epoch: the newest epoch announced.
        guard: what the append must bring.
    """

    created_ms: int
    lowest_sequence: int
    producer_epoch: int
    guard: VerificationGuard = field(default_factory=VerificationGuard)

    def announce(self, sequence: int, producer_epoch: int) -> None:
        """Note another announcement: of a newer epoch, or of a smaller sequence in the same."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class Verifications:
    """The guards of one log, by producer. Not for several threads at once.

    Attributes:
        entries: what is waited for, by producer id.
    """

    __slots__ = ("entries",)

    def __init__(self) -> None:
        """Begin without any."""
        self.entries: dict[int, VerificationEntry] = {}

    def __len__(self) -> int:
        """How many producers are waited for."""
        return len(self.entries)

    def start(
        self, producer_id: int, sequence: int, producer_epoch: int, now_ms: int
    ) -> VerificationEntry:
        """The producer's entry, made if there is none, with the announcement noted.

        Source: Kafka `ProducerStateManager.maybeCreateVerificationStateEntry`.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = VerificationEntry(now_ms, sequence, producer_epoch)
            self.entries[producer_id] = entry
        entry.announce(sequence, producer_epoch)
        return entry

    def get(self, producer_id: int) -> VerificationEntry | None:
        """The producer's entry, if there is one."""
        return self.entries.get(producer_id)

    def clear(self, producer_id: int) -> None:
        """Forget a producer's: its transaction has begun, or ended."""
        self.entries.pop(producer_id, None)

    def expire(self, now_ms: int, after_ms: int) -> None:
        """Forget those that were made `after_ms` ago or earlier."""
        kept = {k: e for k, e in self.entries.items() if now_ms - e.created_ms < after_ms}
        self.entries = kept


__all__ = ["VerificationEntry", "VerificationGuard", "Verifications"]
