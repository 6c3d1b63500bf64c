"""What must hold of a directory that a crash left, once kseg has opened it again.

Everything that was acknowledged is there, in order, and nothing that was never written. Recovering
again changes no byte. What was cut off is kept. The log takes appends, and after a good end it is
opened without a question. What a log holds is read here from its files, batch by batch, by nothing
of kseg's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kseg.errors import UncleanShutdownError
from kseg.log.config import LogConfig
from kseg.log.log import Log
from kseg.log.recovery.recover import plan_recovery, recover
from tests.crash.flushed import check_flushed
from tests.crash.history import Found, History, ViolationError
from tests.crash.knowledge import check_epochs, check_producers
from tests.crash.reading import found_in, ident, logs_of, settled
from tests.crash.states import Contents, snapshot
from tests.crash.stories import now_ms, plain

MARK = "data/.kafka_cleanshutdown"


@dataclass(frozen=True, slots=True)
class Checker:
    """Opens what a crash left, and looks.

    Attributes:
        root: holds `data` and, beside it, what was kept aside.
        config: of the log.
        partition: the directory's name.
    """

    root: Path
    config: LogConfig
    partition: str = "orders-0"

    @property
    def path(self) -> Path:
        return self.root / "data" / self.partition

    @property
    def below(self) -> str:
        return f"data/{self.partition}"

    def check(self, history: History, *, reopen: bool = True) -> Contents:
        """Recover, compare, and use the log again.

        Args:
            history: what may be there.
            reopen: append to it afterwards, too.

        Returns:
            What the directory held after recovery.

        Raises:
            ViolationError: a promise is broken.
        """
        before = settled(snapshot(self.root), self.below)
        if self.below not in before:
            history.check(Found((), 0, 0))
            return before
        if MARK in before:
            self._check_clean(history)
        check_flushed(before, self.below, history)
        after = self.recovered()
        found = found_in(after, self.below)
        history.check(found)
        self.check_kept(before, after)
        check_epochs(after, self.below, found)
        again = self.recovered()
        if again != after:
            raise ViolationError(f"recovering again changes {differing(after, again)}")
        if reopen:
            self._reopen(found)
        return after

    def recovered(self) -> Contents:
        """Recover, and see what is there then."""
        recover(self.path, config=self.config, now_ms=now_ms())
        return snapshot(self.root)

    def _check_clean(self, history: History) -> None:
        """Where the mark of a clean stop is, every log is as it should be.

        Small files may be out of date: snapshots that newer ones have made useless, what a call
        that failed has left. They stay until the next start, as a broker's do.
        """
        plan = plan_recovery(self.path, config=self.config, now_ms=now_ms())
        # A log that was cut inside a batch, and starts in that gap, begins again in another file;
        # what was in the one before lay in front of a start that it was told to have.
        anew = any(one.code == "log-start-ahead" for one in plan.findings)
        start = plan.log_start_offset
        meant = anew and any(one.start == one.end == start for one in history.allowed)
        logs = [one for one in plan.actions if str(one.path).endswith(".log")]
        wrong = [] if meant else [str(one) for one in logs]
        wrong += [str(one) for one in plan.findings if str(one.path).endswith(".log")]
        if wrong:
            raise ViolationError(f"there is the mark of a clean stop, and {wrong}")

    def check_kept(self, before: Contents, after: Contents) -> None:
        """What is no longer in a log file is in a file beside the data directory."""
        kept = [data or b"" for path, data in after.items() if path.startswith("data.kseg-backup")]
        now = logs_of(after, self.below)
        for base, data in logs_of(before, self.below).items():
            left = now.get(base, b"")
            if not data.startswith(left):
                raise ViolationError(f"segment {base} holds other bytes than before")
            gone = data[len(left) :]
            if gone.strip(b"\0") and not any(gone in one or (one in gone and one) for one in kept):
                raise ViolationError(f"{len(gone)} bytes of segment {base} are kept nowhere")

    def _reopen(self, found: Found) -> None:
        with self.open(recover=True) as log:
            seen = (log.log_start_offset, log.log_end_offset)
            if seen != (found.start, found.end):
                raise ViolationError(f"opened with {seen}, the files say {found}")
            data = plain(1)
            if log.append(data).first_offset != found.end:
                raise ViolationError("the next record has another offset than the log's end")
        expected = (*found.batches, ident(data, found.end))
        closed = snapshot(self.root)
        now = found_in(closed, self.below)
        check_epochs(closed, self.below, now)
        check_producers(closed, self.below, now)
        if now.batches != expected:
            raise ViolationError(f"{now} after one more append, not {expected[-3:]}")
        try:
            self.open(recover=False).close()
        except UncleanShutdownError as error:
            raise ViolationError("a log that was closed asks for recovery") from error

    def open(self, *, recover: bool) -> Log:
        """The log, for appending."""
        return Log.open(
            self.path, mode="append", config=self.config, now_ms=now_ms, recover=recover
        )


def differing(before: Contents, after: Contents) -> Sequence[str]:
    """Paths whose bytes are not the same, or that are in one of them alone."""
    paths: Iterable[str] = sorted(before.keys() | after.keys())
    return [path for path in paths if before.get(path, 0) != after.get(path, 0)]
