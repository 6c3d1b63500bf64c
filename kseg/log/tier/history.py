"""The remote history of a partition, and the effect of a local change on it.

A broker deletes a local segment only once the tier has it, and the log's start stays. Remote
segments are deleted by `retention.*`, which counts both parts, or once the log's start has passed
them. Offsets of the tier at or beyond the log's end belong to no lineage: no reader gets them.

Source: Kafka `UnifiedLog.deletableSegments`, `RemoteLogManager.RLMExpirationTask`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from kseg.constants import INT32_MAX, INT64_MAX, StrPath
from kseg.documents import Documented, frozen_dataclass
from kseg.errors import KsegError, NotALogError, TierError
from kseg.files.checkpoints import EpochEntry, joined_epochs
from kseg.log.config import LogConfig
from kseg.log.data_directory import has_tiers, starts_in_tier
from kseg.log.tier.lineage import RemoteSegment, is_within
from kseg.stores.path import local_path_at

if TYPE_CHECKING:
    from kseg.log.tier.tier import TierLike, TierLog


_LOST: Final = "leader-epoch-checkpoint is lost, without which a broker deletes segments of a tier"
_NAME_IT: Final = "Name the tier, which has its entries: --tier URL"


@frozen_dataclass
class RemoteHistory(Documented):
    """The segments of a partition in a tier, and the effect of a change of the local part.

    Attributes:
        source: the source of these facts: "metadata", "manifests" or "names".
        log_start_offset: the start of the log of both parts.
        highest_offset: the last offset in the tier.
        segments, bytes: the number and size of the finished copies.
        copied_bytes: the size of local segments that are also in the tier.
        new_log_start_offset: the start of the log of both parts after the change.
        deleted_segments, deleted_bytes: copies that a broker deletes after the change.
        uncopied_segments, uncopied_bytes: expired local segments that stay, since the tier lacks
            them; a broker copies them first.
        behind: first and last offset in the tier beyond the log's end after the change; None
            if there are none.
    """

    source: str
    log_start_offset: int
    highest_offset: int
    segments: int
    bytes: int
    copied_bytes: int
    new_log_start_offset: int
    deleted_segments: int = 0
    deleted_bytes: int = 0
    uncopied_segments: int = 0
    uncopied_bytes: int = 0
    behind: tuple[int, int] | None = None

    def lines(self, partition: str) -> Iterator[str]:
        """Yield lines of text; `partition` is the name to show in a command."""
        copied = f"; it has {self.copied_bytes} bytes of the local segments, too"
        end = f"up to offset {self.highest_offset}"
        if self.segments and self.highest_offset < 0:
            end = "of no epoch in leader-epoch-checkpoint"
        yield (
            f"in the tier, by {self.source}: {self.segments} segments, {self.bytes} bytes, {end}"
            f"{copied if self.copied_bytes else ''}"
        )
        if self.uncopied_segments:
            yield (
                f"local segments that are due and stay, since the tier lacks them: "
                f"{self.uncopied_segments}, {self.uncopied_bytes} bytes; a broker copies them first"
            )
        if self.deleted_segments:
            yield (
                f"segments in the tier that a broker then deletes: {self.deleted_segments}, "
                f"{self.deleted_bytes} bytes; the log starts at {self.new_log_start_offset}, not "
                f"at {self.log_start_offset}"
            )
        if self.behind is not None:
            first, last = self.behind
            yield (
                f"the tier has offsets {first} to {last} past the log's end; a broker reads none "
                f"of them. In a directory without {partition} this reads them: "
                f"kseg read {partition} --tier URL --offset {first}..{last + 1}"
            )


def tiered(path: StrPath, tier: TierLike | None, *, is_needed: bool = False) -> TierLog | None:
    """A partition with its history in a tier; None if nothing says that it has one.

    Args:
        path: the partition directory.
        tier: None to follow `__remote_log_metadata` beside the partition.
        is_needed: raise as for a tier that was named.

    Raises:
        ValueError: the partition is in a store.
        KsegError, OSError: the tier that was named cannot be read.
    """
    directory = local_path_at(path).resolve()
    if not getattr(tier, "root", tier) and not has_tiers(directory.parent):
        return None
    from kseg.log.tier.tier import Tier, TierLog  # imported late: few logs have a tier

    if isinstance(tier, TierLog):
        return tier
    if not isinstance(tier, Tier):
        tier = Tier.beside() if tier is None else Tier.of(tier)
    try:
        log = tier.log(directory)
    except (KsegError, OSError) as error:
        is_empty = isinstance(error, NotALogError) and str(error.path) == str(directory)
        if (tier.root or is_needed) and not is_empty:
            raise
        return None
    return log if log.finished else None


def history_of(
    log: TierLog,
    *,
    uncopied: Sequence[int] = (),
    deleted: Sequence[RemoteSegment] = (),
    start: int = -1,
    end: int = INT64_MAX,
) -> RemoteHistory:
    """Describe the remote history of a log, and the effect of a change.

    Args:
        log: the partition's log before the change.
        uncopied: bytes of the expired local segments that are not in the tier.
        deleted: copies that a broker deletes.
        start: the new start of the log of both parts, if it is later.
        end: the new end of the log, if it is earlier.
    """
    highest, first = log.highest_remote, log.view.log_start_offset
    local = () if log.local is None else log.local.segments
    ends = (*(info.base_offset for info in local[1:]), log.view.log_end_offset)
    copied = (info.size for info, upper in zip(local, ends, strict=False) if upper - 1 <= highest)
    return RemoteHistory(
        log.source,
        first,
        highest,
        len(log.finished),
        sum(segment.size for segment in log.finished),
        sum(copied),
        max(first, start),
        len(deleted),
        sum(segment.size for segment in deleted),
        len(uncopied),
        sum(uncopied),
        (end, highest) if end <= highest else None,
    )


def unreferenced(
    log: TierLog, epochs: Sequence[EpochEntry], start: int
) -> tuple[RemoteSegment, ...]:
    """The copies that a broker deletes because all their epochs precede the first one of the log.

    Args:
        log: the partition's log.
        epochs: the epochs of its checkpoint; the next leader begins one if it has none.
        start: the first offset of the log; copies before it are deleted anyway.

    Source: Kafka `RemoteLogManager.RLMExpirationTask.cleanupExpiredRemoteLogSegments`.
    """
    first = epochs[0].epoch if epochs else INT32_MAX
    return tuple(
        segment
        for segment in log.finished
        if segment.end_offset >= start and segment.epochs[-1].epoch < first
    )


def with_tier_epochs(
    path: StrPath,
    epochs: Sequence[EpochEntry],
    start: int,
    tier: TierLike | None,
    *,
    is_lost: bool,
) -> tuple[EpochEntry, ...]:
    """The epochs of a log, with earlier epochs from its tier if the log's do not reach its start.

    The tier has the earlier epochs in the epoch object of its newest segment, or else in the
    segments themselves, if all of these are of one lineage. Without a tier nothing is read unless
    the checkpoint is lost.

    Args:
        path: the partition directory.
        epochs: the epochs of its checkpoint or its batches.
        start: the first offset of the log.
        tier: as for `tiered`.
        is_lost: whether the checkpoint is lost, so that nothing else has the earlier epochs.

    Raises:
        TierError: they are lost, and no copy is known, or the copies are of several lineages.
        KsegError, OSError: the tier cannot be read.
    """
    reaches_start = bool(epochs) and epochs[0].start_offset <= start
    if reaches_start or (tier is None and not is_lost):
        return tuple(epochs)
    log = tiered(path, tier, is_needed=is_lost)
    if log is None and not (is_lost and starts_in_tier(path)):
        return tuple(epochs)
    if log is None:
        raise TierError(
            f"{_LOST}: the log starts before its first segment, and nothing here says what "
            f"its tier has. {_NAME_IT}. If it has no tier, remove its line from "
            "log-start-offset-checkpoint",
            path=path,
        )
    copies = [segment for segment in log.finished if segment.end_offset >= start]
    copied = log.copied_epochs
    joined = joined_epochs(
        copied or (entry for segment in copies for entry in segment.epochs), epochs
    )
    if copied or all(is_within(segment, joined) for segment in copies):
        return joined
    if not is_lost:
        return tuple(epochs)
    raise TierError(f"{_LOST}, and the tier has copies of several leaders. {_NAME_IT}", path=path)


def expired(log: TierLog, config: LogConfig, now_ms: int) -> tuple[tuple[RemoteSegment, ...], int]:
    """The copies that a broker deletes by `retention.*`, and where the log starts then.

    A copy whose newest time is not known, and those after it, stay.

    Args:
        log: the partition's log.
        config: its settings; the limits of both parts count.
        now_ms: the clock.
    """
    lineage, end, start = log.lineage, log.view.log_end_offset, log.view.log_start_offset
    local = () if log.local is None else log.local.segments
    valid = {segment.id for segment in log.finished if is_within(segment, lineage, end)}
    excess = 0  # bytes over `retention.bytes`
    if config.retention_bytes >= 0:
        excess = sum(info.size for info in local if info.base_offset >= log.highest_remote)
        excess += (
            sum(segment.size for segment in log.finished if segment.id in valid)
            - config.retention_bytes
        )
    oldest = now_ms - config.retention_ms if config.retention_ms >= 0 else -1
    first_epoch = lineage[0].epoch if lineage else -1
    going, new_start = [], start
    for segment in sorted(log.finished, key=attrgetter("start_offset")):
        # A copy before the log's start, of epochs that are gone from it, goes in any case.
        if segment.end_offset >= start or segment.epochs[-1].epoch > first_epoch:
            if segment.id not in valid:
                continue
            if not (0 <= segment.max_timestamp <= oldest or segment.size <= excess > 0):
                break
            excess -= segment.size
            new_start = max(new_start, segment.end_offset + 1)
        going.append(segment)
    return tuple(going), new_start
