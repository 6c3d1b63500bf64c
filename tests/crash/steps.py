"""What can be done to a log: the steps of a story, every byte decided beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from kseg.constants import Compression
from kseg.log.validate.rules import AppendOrigin


@dataclass(frozen=True, slots=True)
class Append:
    """As a leader: one batch, or several at once."""

    batches: tuple[bytes, ...]
    durable: bool = False
    origin: AppendOrigin = AppendOrigin.CLIENT


@dataclass(frozen=True, slots=True)
class Follow:
    """As a follower: batches whose offsets are put in where the log ends."""

    batches: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """Another leader."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Everything so far is to last."""


@dataclass(frozen=True, slots=True)
class Roll:
    """Another segment."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut back by so many batches; `inside` into the middle of the last of them.

    The log that is open is cut, or a closed one by a plan.
    """

    batches: int
    inside: bool = False
    planned: bool = False


@dataclass(frozen=True, slots=True)
class Restart:
    """Empty the log and begin so far behind its end, as a follower that was left behind."""

    ahead: int


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """Let the log start so many batches before its end."""

    keep: int


@dataclass(frozen=True, slots=True)
class Retain:
    """Give up old segments, as the settings say.

    Those of the log that is open, or of one whose process died, by a plan and without a recovery.
    """

    planned: bool = False


@dataclass(frozen=True, slots=True)
class Reopen:
    """Close, and open again."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """The process dies, and the machine does not; the next one recovers the log and goes on.

    Attributes:
        loose: it has just rolled, and not flushed what it sealed: a broker leaves that for later.
    """

    loose: bool = False


@dataclass(frozen=True, slots=True)
class Tear:
    """The process dies in the middle of a write, with so many bytes of it in the log."""

    size: int = 12_000


@dataclass(frozen=True, slots=True)
class FillUp:
    """From here on the disk has no block but those that are freed."""


@dataclass(frozen=True, slots=True)
class Mend:
    """Recover the log of a process that died, keep nothing of what goes, and open it."""


@dataclass(frozen=True, slots=True)
class Compact:
    """The cleaner comes: of each key the last record stays, and every segment that may be is anew.

    Attributes:
        later_ms: how much later it comes.
        map_bytes: memory for keys.
    """

    later_ms: int = 0
    map_bytes: int = 1 << 16


@dataclass(frozen=True, slots=True)
class Recode:
    """The closed segments get another codec, as `kseg convert --apply` writes them."""

    codec: Compression = Compression.ZSTD


@dataclass(frozen=True, slots=True)
class Erase:
    """The records of a key go, as `kseg erase --apply` takes them out."""

    key: bytes


Step = (
    Append
    | Follow
    | NewEpoch
    | Flush
    | Roll
    | Truncate
    | Restart
    | DeleteRecords
    | Retain
    | Reopen
    | Abandon
    | Tear
    | FillUp
    | Mend
    | Compact
    | Recode
    | Erase
)
