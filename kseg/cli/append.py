"""`kseg append`: lines of JSON become batches at the end of a log."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from kseg.cli import output
from kseg.cli.append_lines import AppendOptions, encode_lines
from kseg.cli.failures import Exit, complain, one_line, usage_errors
from kseg.cli.parsing import CODECS, GivenSettings
from kseg.cli.paths import partition_at
from kseg.cli.settings import known_configs
from kseg.constants import Compression
from kseg.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    KsegError,
    NotALogError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
)
from kseg.files.names import parse_partition_dir
from kseg.format.options import BatchOptions
from kseg.log.log import Log
from kseg.log.sub_directories import refuse_cluster_metadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from kseg import AppendResult

#: What the log refuses of the lines themselves; other errors are of what lies there.
_OF_LINES = (
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    RecordBatchTooLargeError,
)
#: Lines with control records that are named one by one.
_NAMED_MAX = 10


def append(
    directory: str,
    encoding: str,
    durable: bool,
    given: GivenSettings,
    as_json: bool,
    **asked: Any,
) -> int:
    """Do what the verb says; returns the exit code."""
    with usage_errors():
        options = _options(encoding, **asked)
    path = Path(directory)
    _check_name(path)
    here = partition_at(path)
    config = known_configs([here], given)[path]
    run = _Run(path, options, given.clock, durable=durable)
    # The clock is the log's too, so that a run with --now can be repeated exactly.
    log = Log.open(path, mode="append", create=True, config=config, now_ms=run.clock)
    try:
        try:
            run.go(sys.stdin.buffer, log)
        finally:
            log.close()
            run.lasting = not log.state.failed
    except _OF_LINES as error:
        complain(f"kseg: {one_line(error)}")
        run.say(as_json=as_json)
        return Exit.USAGE
    except (KsegError, OSError, KeyboardInterrupt):
        run.say_so_far()
        raise
    run.say(as_json=as_json)
    return Exit.OK


def _check_name(path: Path) -> None:
    """Refuse a directory name in which no broker looks for a partition, and KRaft's.

    Raises:
        NotALogError: names the directory, and the form that its name must have.
    """
    refuse_cluster_metadata(path)
    try:
        parse_partition_dir(path.resolve().name)
    except NotALogError as error:
        raise NotALogError(error.reason, path=path) from None


def _options(
    encoding: str,
    *,
    codec: str,
    level: int | None,
    batch_bytes: int,
    batch_records: int | None,
    keep_timestamps: bool,
) -> AppendOptions:
    return AppendOptions(
        encoding=encoding,
        keep_timestamps=keep_timestamps,
        batch=BatchOptions(compression=Compression(CODECS.index(codec)), level=level),
        batch_bytes=batch_bytes,
        batch_records=batch_records,
    )


@dataclass(slots=True)
class _Run:
    """One run: the lines so far, and the offsets they got."""

    path: Path
    options: AppendOptions
    clock: Callable[[], int]
    durable: bool
    first: AppendResult | None = None
    last: AppendResult | None = None
    batches: int = 0
    records: int = 0
    bytes_written: int = 0
    controls: int = 0
    lasting: bool = False

    def go(self, lines: IO[bytes], log: Log) -> None:
        """Append batch by batch, so that memory stays flat however long the input is."""
        for batch in encode_lines(
            lines, self.options, base_offset=0, clock=self.clock, on_control=self._left_out
        ):
            result = log.append(batch, durable=self.durable)
            self.first = self.first or result
            self.last = result
            self.batches += 1
            self.records += batch.record_count
            self.bytes_written += result.valid_bytes

    def _left_out(self, line: int) -> None:
        self.controls += 1
        if self.controls <= _NAMED_MAX:
            complain(f"kseg: line {line}: a control record; left out")

    def say(self, *, as_json: bool) -> None:
        """Print the offsets of the lines."""
        if self.controls > _NAMED_MAX:
            complain(f"kseg: {self.controls} control records in all; left out")
        if as_json:
            output.write_document("append/1", self._document())
        elif self.first is None or self.last is None:
            output.write_line(f"{self.path}: nothing appended")
        else:
            output.write_line(
                f"{self.path}: offsets {self.first.first_offset} to {self.last.last_offset}; "
                f"records: {self.records}, batches: {self.batches}, bytes: {self.bytes_written}"
            )

    def say_so_far(self) -> None:
        """Print what was appended before the run stopped."""
        if self.first is not None and self.last is not None:
            span = f"offsets {self.first.first_offset} to {self.last.last_offset}"
            doubt = "" if self.lasting else ", but it is not known whether they last"
            complain(f"kseg: {span} were appended before{doubt}")

    def _document(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "first_offset": None if self.first is None else self.first.first_offset,
            "last_offset": None if self.last is None else self.last.last_offset,
            "records": self.records,
            "batches": self.batches,
            "bytes": self.bytes_written,
            "control_records_left_out": self.controls,
        }


__all__ = ["append"]
