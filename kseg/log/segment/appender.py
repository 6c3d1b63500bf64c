"""The last step of the lane of usual appends: the writes into a segment that need not roll.

Such an append is written whole, with its index entries, or not at all. `Places` says beforehand
where the entries go, so the appender asks the files nothing. Any other change of the segment drops
the appender; the next append makes a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kseg._kernels.placement import Places
from kseg.constants import INT64_MAX
from kseg.files import io
from kseg.files.index_writer import OffsetIndexWriter
from kseg.files.log_writer import LogWriter
from kseg.files.time_index import TimeIndexEntry
from kseg.log.config import LogConfig
from kseg.log.segment.files import WrittenFiles
from kseg.log.segment.index_entries import Indexed, Latest

#: Makes a named tuple in half the time that its own call takes.
_tuple: Final = tuple.__new__


class SegmentAppender:
    """Three files of a segment, and where they stand.

    Attributes:
        config: of the log; another config needs another appender.
        places: judges each append, and says where it goes; see `Places.lead` and `Places.follow`.
    """

    __slots__ = ("_index", "_log", "_times", "config", "places")

    def __init__(
        self,
        files: WrittenFiles,
        config: LogConfig,
        position: int,
        since: int,
        latest: Latest,
        newest_ms: int,
    ) -> None:
        """Go on where the files stand; makes missing indexes.

        Args:
            files: of the segment.
            config: of the log.
            position: the size of the segment.
            since: bytes since the last entry.
            latest: the largest timestamp so far.
            newest_ms: an append with a later timestamp, in ms, has to roll.
        """
        self._log: Final = files.log
        self._index: Final = files.offset_index
        self._times: Final = files.time_index
        self.config: Final = config
        indexed = indexed_so_far(files)
        self.places: Final = Places(
            end=config.segment_bytes,
            latest_max=min(newest_ms, INT64_MAX),
            base=self._index.base_offset,
            interval=config.index_interval_bytes,
            position=position,
            since=since,
            latest=latest,
            indexed=indexed.offset,
            offset_room=indexed.offset_room,
            indexed_time=indexed.time,
            time_room=indexed.time_room,
        )

    def write(self, parts: Sequence[io.Bytes], size: int) -> None:
        """Write batches that `places` has placed, and their entries, or change nothing.

        Args:
            parts: their bytes, one behind the other.
            size: how many that is.

        Raises:
            LimitExceededError: no file may become so long.
            PoisonedFileError: an error before could not be undone.
            OSError: the disk refuses.
        """
        places, index = self.places, self._index
        offsets, times = places.offsets, places.times
        count = index.count if offsets else -1
        try:
            self._log.append_parts(parts, size)
            if offsets:
                index.append_packed(offsets, places.indexed)
                if times:
                    self._times.append_packed(times, _tuple(TimeIndexEntry, places.indexed_time))
        except BaseException as error:
            undo(self._log, index, places.position, count, error)
            raise
        places.settle()


def indexed_so_far(files: WrittenFiles) -> Indexed:
    """Where both indexes stand; makes missing ones."""
    offset, room = files.offset_index.stand()
    last, time_room = files.time_index.stand()
    return Indexed(offset, last, room, max(time_room, 0))


def undo(
    log: LogWriter, index: OffsetIndexWriter, position: int, count: int, error: BaseException
) -> None:
    """Take back what an append has written before `error` ended it.

    Args:
        log, index: of the segment; the time index is written last, so it has no new entry yet.
        position: where the log ended before.
        count: entries that the offset index had; -1 if it was not written yet.
        error: what happened.

    Raises:
        OSError: the undo failed; if it failed on the log file, that is poisoned.
    """
    if log.size != position:
        log.cut_back(position, error)
    if count >= 0:
        index.truncate_to_count(count)


__all__ = ["SegmentAppender", "indexed_so_far", "undo"]
