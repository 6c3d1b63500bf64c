"""Whether the indexes of a partition are as after a close, by the rules of `index_rules`.

A broker makes room for 10 MB of entries beside the segment that it appends to, and cuts that off
when it closes the segment. A mark of a clean stop may stand only over indexes without such room.
"""

from __future__ import annotations

import os

from kseg.errors import KsegError
from kseg.files import io
from kseg.files.log_file import LogFile
from kseg.files.names import FileKind, SegmentFiles, list_partition
from kseg.log.findings import Finding
from kseg.log.index_rules import IndexPlace, fault_at_ends


def fault_in(files: SegmentFiles) -> Finding | None:
    """The fault at the ends of the indexes of a segment; None if they are as after a close.

    A missing index is not a fault: a broker rebuilds it.

    Raises:
        OSError: something cannot be read.
    """
    if files.index is None:
        return None
    paths = {FileKind.INDEX: files.index, FileKind.TIMEINDEX: files.time_index}

    def read(kind: FileKind, position: int, size: int) -> bytes:
        path = paths[kind]
        assert path is not None
        with io.opened(path) as fd:
            return io.read_at(fd, position, size, path)

    with LogFile.open(files.log, "never") as log:
        sizes = {kind: os.stat(path).st_size if path else 0 for kind, path in paths.items()}
        place = IndexPlace(
            str(files.log), files.base_offset, is_last=False, log_bytes=log.size, believed=True
        )
        return fault_at_ends(
            place, sizes, read, lambda start: log.headers(start=start), lambda: (0, 0)
        )


def is_as_closed(partition: io.StrPath) -> bool:
    """Whether the indexes of all segments of a partition are as after a close.

    Indexes that cannot be read do not count.
    """
    try:
        segments = list_partition(partition).segments
        return all(each.kafka07 or fault_in(each) is None for each in segments)
    except (KsegError, OSError):
        return False
