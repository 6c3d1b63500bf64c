"""Mistakes put into kseg on purpose: each must be seen by the crash runs, or they prove nothing.

Each control is a `with` in which one thing is done wrong, of the kind that reviews miss: a flush
left out, an order turned round, an answer not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal
from unittest.mock import patch

from kseg.files import io, metadata, producer_snapshot
from kseg.files.checkpoints import LeaderEpochs
from kseg.files.log_writer import LogWriter
from kseg.log.recovery import backup
from kseg.log.recovery.overlay import Overlay
from kseg.log.segment.reader import Segment
from kseg.log.writer import flush as flushing
from kseg.log.writer import retention, state, truncate

Run = Literal["power", "kill", "fault"]
Control = Callable[[], Any]

CONTROLS: dict[str, tuple[Run, Control]] = {}


def _shown_by(run: Run) -> Callable[[Control], Control]:
    def register(control: Control) -> Control:
        made = contextmanager(control)
        CONTROLS[control.__name__] = (run, made)
        return made

    return register


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


# ---- files ---------------------------------------------------------------------------------------


@_shown_by("power")
def files_are_not_flushed() -> Iterator[None]:
    with patch.object(io.WriteFile, "flush", _nothing):
        yield


@_shown_by("power")
def directories_are_not_flushed() -> Iterator[None]:
    with patch.object(io, "flush_directory", _nothing):
        yield


@_shown_by("power")
def logs_are_not_flushed_but_all_else_is() -> Iterator[None]:
    with patch.object(LogWriter, "flush", _nothing):
        yield


@_shown_by("power")
def small_files_are_renamed_before_they_are_flushed() -> Iterator[None]:
    plain = io.WriteFile.flush

    def flush(file: io.WriteFile) -> None:
        if not file.path.endswith(".tmp"):
            plain(file)

    with patch.object(io.WriteFile, "flush", flush):
        yield


@_shown_by("fault")
def short_writes_are_taken_for_whole_ones() -> Iterator[None]:
    def write_at(file: io.WriteFile, position: int, *parts: io.Buffer) -> int:
        size = sum(map(len, parts))
        if size:
            with suppress(InterruptedError):
                io._calls.pwritev(file.fd, parts, position)
        return size

    with patch.object(io.WriteFile, "write_at", write_at):
        yield


@_shown_by("fault")
def a_flush_that_fails_is_tried_again() -> Iterator[None]:
    def flush(file: io.WriteFile) -> None:
        try:
            io._calls.fdatasync(file.fd)
        except OSError:
            io._calls.fdatasync(file.fd)

    with patch.object(io.WriteFile, "flush", flush):
        yield


@_shown_by("fault")
def a_flush_that_fails_is_passed_over() -> Iterator[None]:
    def flush(file: io.WriteFile) -> None:
        with suppress(OSError):
            io._calls.fdatasync(file.fd)

    with patch.object(io.WriteFile, "flush", flush):
        yield


# ---- the log -------------------------------------------------------------------------------------


@_shown_by("power")
def a_cut_leaves_the_recovery_point_where_it_was() -> Iterator[None]:
    plain = state.LogState.note_offsets

    def unwritten(log: state.LogState, *, write: bool = False) -> None:
        plain(log, write=False)

    with patch.object(state.LogState, "note_offsets", unwritten):
        yield


@_shown_by("kill")
def the_mark_of_a_clean_stop_stays_when_the_log_is_opened() -> Iterator[None]:
    with patch.object(metadata, "remove_clean_shutdown", _nothing):
        yield


@_shown_by("power")
def a_roll_does_not_flush_what_it_seals() -> Iterator[None]:
    with _without_flushes_in(flushing, "_roll_to"):
        yield


@_shown_by("power")
def the_recovery_point_is_written_before_the_log_is_flushed() -> Iterator[None]:
    plain = flushing._flush_below

    def flush_below(log: state.LogState, target: int, *, whole: bool) -> None:
        log.recovery_point, known = max(log.recovery_point, target), log.recovery_point
        log.note_offsets(write=True)
        log.recovery_point = known
        plain(log, target, whole=whole)

    with patch.object(flushing, "_flush_below", flush_below):
        yield


@_shown_by("power")
def old_segments_go_before_the_new_start_is_written() -> Iterator[None]:
    plain = retention.increment_log_start

    def increment(log: state.LogState, offset: int) -> object:
        with patch.object(state.LogState, "note_offsets", _nothing):
            return plain(log, offset)

    with patch.object(retention, "increment_log_start", increment):
        yield


@_shown_by("power")
def snapshots_of_producers_are_not_flushed() -> Iterator[None]:
    with patch.object(producer_snapshot, "flush", _nothing):
        yield


@_shown_by("power")
def a_cut_is_not_flushed() -> Iterator[None]:
    with _without_flushes_in(truncate, "_truncate"):
        yield


@contextmanager
def _without_flushes_in(module: Any, name: str) -> Iterator[None]:
    plain, flush = getattr(module, name), io.WriteFile.flush

    def unflushed(*args: Any, **more: Any) -> Any:
        with patch.object(io.WriteFile, "flush", _nothing):
            return plain(*args, **more)

    assert io.WriteFile.flush is flush
    with patch.object(module, name, unflushed):
        yield


@_shown_by("kill")
def epochs_are_kept_in_memory_alone() -> Iterator[None]:
    with patch.object(LeaderEpochs, "_write", _nothing):
        yield


@_shown_by("kill")
def what_is_cut_is_not_kept() -> Iterator[None]:
    with (
        patch.object(backup.Backup, "keep_tail", _nothing),
        patch.object(backup.Backup, "keep_file", _nothing),
    ):
        yield


@_shown_by("power")
def recovery_takes_batches_whose_checksum_is_wrong() -> Iterator[None]:
    plain = Segment.walk

    def walk(segment: Segment, *, on_bad_crc: str = "note", **how: Any) -> Any:
        return plain(segment, on_bad_crc="ignore" if on_bad_crc == "stop" else on_bad_crc, **how)

    with patch.object(Segment, "walk", walk):
        yield


@_shown_by("power")
def recovery_leaves_what_it_finds_unflushed() -> Iterator[None]:
    with patch.object(Overlay, "assure", _nothing):
        yield
