"""The reading methods of `Log`, for every mode: each takes a view of this moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from kseg.files.mapping import private_memory
from kseg.format.request import FETCH_BYTES, FIELDS_DEFAULT, Request, RequestOptions
from kseg.format.workspace import Workspace

if TYPE_CHECKING:
    from threading import Event

    from kseg.files.checkpoints import EpochEntry
    from kseg.files.names import PartitionFiles
    from kseg.format.times import Time
    from kseg.format.values import Record, RecordColumns
    from kseg.log.reader.fetch import Fetched
    from kseg.log.reader.find import EpochEnd, ReadableLog, TimestampOffset
    from kseg.log.reader.follow import Wait
    from kseg.log.reader.version import SegmentInfo
    from kseg.log.reader.view import LogView
    from kseg.log.segment.reader import BatchLocation, RecordLocation, Segment


@cache
def _fetch() -> Callable[..., Fetched]:
    """`kseg.log.reader.fetch`, imported once: the statement takes a microsecond each time."""
    from kseg.log.reader.fetch import fetch

    return fetch


class LogReading:
    """A base class of `Log`, split off for its size: the methods that a `LogView` answers."""

    __slots__ = ()

    @property
    def view(self) -> LogView:
        """The log at this moment, which does not change any more."""
        raise NotImplementedError

    @property
    def leader_epochs(self) -> tuple[EpochEntry, ...]:
        """Epochs and their start offsets, ascending; empty without a checkpoint."""
        raise NotImplementedError

    def source(self, isolation: str) -> ReadableLog:
        """The log as fetches need it: its version, or the files as they were."""
        raise NotImplementedError

    def followed(self, isolation: str) -> tuple[ReadableLog, Wait]:
        """The log as a follower needs it, and how to wait for more of it."""
        raise NotImplementedError

    @property
    def path(self) -> Path:
        """The partition directory."""
        return self.view.path

    @property
    def files(self) -> PartitionFiles:
        """What lies in the directory."""
        return self.view.files

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """The segments, rising, each with how much of it there is."""
        return self.view.segments

    @property
    def topic(self) -> str | None:
        """From the directory's name; None for a copy under another name."""
        return self.view.topic

    @property
    def partition(self) -> int | None:
        """From the directory's name; None for a copy under another name."""
        return self.view.partition

    @property
    def first_offset(self) -> int:
        """Base offset of the first segment; 0 without segments."""
        return self.view.first_offset

    @property
    def log_start_offset(self) -> int:
        """The first offset to be read: the first segment's, or a later one after DeleteRecords."""
        return self.view.log_start_offset

    def open_segment(self, info: SegmentInfo) -> Segment:
        """Open one segment, no further than it goes here."""
        return self.view.open_segment(info)

    def segments_from(self, offset: int) -> tuple[SegmentInfo, ...]:
        """The segment that can hold `offset`, and those after it."""
        return self.view.segments_from(offset)

    def lookup(self, offset: int) -> BatchLocation:
        """The batch that holds `offset`; see `LogView.lookup`."""
        return self.view.lookup(offset)

    def lookup_time(self, timestamp: Time) -> RecordLocation | None:
        """The first record at or after a time; None if there is none."""
        return self.view.lookup_time(timestamp)

    def read(
        self,
        request: Request | None = None,
        *,
        workspace: Workspace | None = None,
        **options: Unpack[RequestOptions],
    ) -> Iterator[RecordColumns]:
        """The records of the partition as columns, a bounded piece at a time; see `LogView.read`.

        Records appended meanwhile are not read. A high watermark that the caller has set bounds
        "read_committed" alone; "read_uncommitted" gives all that the log holds, unlike `fetch`.
        """
        return self.view.read(request, workspace=workspace, **options)

    def records(self, **options: Unpack[RequestOptions]) -> Iterator[Record]:
        """Each record as an object; the options are those of `read`, except `columns`."""
        return self.view.records(**options)

    def fetch(
        self,
        start_offset: int,
        *,
        max_bytes: int = FETCH_BYTES,
        isolation: str = "read_uncommitted",
        min_one_message: bool = True,
        with_data: bool = True,
    ) -> Fetched:
        """Stored bytes from an offset on, out of one segment; see `kseg.log.reader.fetch.fetch`."""
        return _fetch()(
            self.source(isolation),
            start_offset,
            max_bytes=max_bytes,
            isolation=isolation,
            min_one_message=min_one_message,
            with_data=with_data,
        )

    def follow(
        self,
        start_offset: int | None = None,
        *,
        timeout: float | None = None,
        stop: Event | None = None,
        **options: Unpack[RequestOptions],
    ) -> Iterator[RecordColumns]:
        """The records as columns, as they are written; see `kseg.log.reader.follow.follow`.

        A log open for reading is looked at anew, whatever it was when it was opened.
        """
        from kseg.log.reader import follow

        log, wait = self.followed(options.get("isolation", "read_uncommitted"))
        return follow.follow(log, wait, start_offset, timeout=timeout, stop=stop, **options)

    def offset_for_timestamp(self, timestamp: Time) -> TimestampOffset | None:
        """The first record at or after a time, or an end of the log.

        See `kseg.log.reader.find.offset_for_timestamp`.
        """
        from kseg.log.reader import find

        return find.offset_for_timestamp(
            self.source("log_end"), timestamp, epochs=self.leader_epochs
        )

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd | None:
        """Where the records of a leader's epoch end; see `kseg.log.reader.find`."""
        from kseg.log.reader import find

        return find.end_offset_for_epoch(self.source("log_end"), epoch, epochs=self.leader_epochs)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The records as an Arrow stream; each call starts a new reader."""
        from kseg import arrow

        pieces = self.read(workspace=Workspace(use="streamed", fresh=private_memory))
        return arrow.stream(pieces, FIELDS_DEFAULT, requested_schema)


__all__ = ["LogReading"]
