"""A log under random operations beside a plain list, closed and opened and cut off in between."""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kseg.errors import KsegError
from kseg.files import io
from tests import places
from tests.builders import ABORT, COMMIT
from tests.crash.checks import Checker, found_in
from tests.crash.history import History, Ident, Version
from tests.crash.oplog import Recorder
from tests.crash.states import drawn, killed, materialise, points, snapshot
from tests.crash.stories import (
    CONFIG,
    Append,
    DeleteRecords,
    Flush,
    Follow,
    NewEpoch,
    Reopen,
    Restart,
    Retain,
    Roll,
    Teller,
    Truncate,
    ident,
    marker,
    plain,
    produced,
)
from tests.shares import WHOLE


class LogMachine(RuleBasedStateMachine):
    """The model is a `Version`: a row of batches, where it starts and where it ends."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="kseg-model-", dir=places.in_memory()))
        self.stack = ExitStack()
        self.number = 0
        self.generation = 0
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()
        self.markers: set[Ident] = set()
        self.values: dict[int, list[bytes]] = {}
        self.lasting = Version()
        self.lives = 0

    @initialize()
    def begin(self) -> None:
        self._live(Version(), epoch=0)

    def _live(self, version: Version, epoch: int) -> None:
        """Open what lies in a new root, noting its calls from here on."""
        home = self.root / str(self.lives)
        (home / "data").mkdir(parents=True, exist_ok=True)
        self.recorder = Recorder(home)
        self.stack = ExitStack()
        self.stack.enter_context(io.calls_replaced(self.recorder.calls))
        self.teller = Teller(home, self.recorder.remark, CONFIG, version=version, epoch=epoch)
        self.lasting = version
        self.teller.open()

    @property
    def version(self) -> Version:
        return self.teller.version

    # ---- operations ------------------------------------------------------------------------------

    @rule(count=st.integers(1, 3), durable=st.booleans(), records=st.integers(1, 3))
    def append(self, count: int, durable: bool, records: int) -> None:
        self.teller.take(Append(tuple(self._plain(records) for _ in range(count)), durable))

    @rule(count=st.integers(1, 3))
    def follow(self, count: int) -> None:
        self.teller.take(Follow(tuple(self._plain(1) for _ in range(count))))

    def _plain(self, records: int) -> bytes:
        self.number += 1
        data = plain(self.number, records=records, size=40)
        values = [b"%08d-%d" % (self.number, at) + b"." * 40 for at in range(records)]
        self.values[ident(data, 0).crc] = values
        return data

    @rule(producer=st.integers(1, 4))
    def produce(self, producer: int) -> None:
        self.number += 1
        producer += self.generation * 10
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        transactional = producer % 2 == 0
        if transactional:
            self.open.add(producer)
        data = produced(self.number, producer, sequence, records=1, transactional=transactional)
        self.values[ident(data, 0).crc] = [b"%08d-0" % self.number]
        self.teller.take(Append((data,)))

    @precondition(lambda self: self.open)
    @rule(commit=st.booleans())
    def end_transaction(self, commit: bool) -> None:
        step = marker(COMMIT if commit else ABORT, self.open.pop())
        self.markers.add(ident(step.batches[0], self.version.end))
        self.teller.take(step)

    @rule()
    def new_epoch(self) -> None:
        self.teller.take(NewEpoch())

    @rule()
    def flush(self) -> None:
        self.teller.take(Flush())

    @rule()
    def roll(self) -> None:
        self.teller.take(Roll())

    @precondition(lambda self: len(self.version.batches) > 1)
    @rule(batches=st.integers(1, 4), inside=st.booleans())
    def truncate(self, batches: int, inside: bool) -> None:
        self._forget_producers()
        self.teller.take(Truncate(min(batches, len(self.version.batches)), inside))

    @rule(ahead=st.sampled_from((0, 5)))
    def restart(self, ahead: int) -> None:
        self._forget_producers()
        self.teller.take(Restart(ahead))

    def _forget_producers(self) -> None:
        """How far the log knows them after a cut is another test's matter: here come new ones."""
        self.generation += 1
        self.sequences, self.open = {}, set()

    @precondition(lambda self: self.version.batches)
    @rule(keep=st.integers(0, 3))
    def delete_records(self, keep: int) -> None:
        self.teller.take(DeleteRecords(keep))

    @rule()
    def retain(self) -> None:
        self.teller.take(Retain())

    @rule()
    def reopen(self) -> None:
        self.teller.take(Reopen())

    @rule(seed=st.integers(0, 2**32), power=st.booleans())
    def crash(self, seed: int, power: bool) -> None:
        """The process dies, or the power goes; the log is recovered elsewhere and goes on."""
        self.stack.close()
        last = points(self.recorder.before, self.recorder.ops)[-1]
        state = drawn(last, random.Random(seed)) if power else killed(last)
        told = list(self.recorder.remarks())
        with suppress(OSError, KsegError):
            self.teller.close()
        self.lives += 1
        checker = Checker(self.root / str(self.lives), CONFIG)
        materialise(state.contents(), checker.root)
        history = History.of(told, log=self.teller.name, killed=not power, begin=self.lasting)
        checker.check(history, reopen=False)
        found = found_in(snapshot(checker.root), checker.below)
        self._forget_producers()
        self._live(Version(found.batches, found.start, found.end), self.teller.epoch + 1)

    # ---- what always holds -----------------------------------------------------------------------

    @invariant()
    def offsets_are_those_of_the_model(self) -> None:
        log = self.teller.log
        assert log is not None
        assert (log.log_start_offset, log.log_end_offset) == (self.version.start, self.version.end)

    @invariant()
    def the_records_are_those_of_the_model(self) -> None:
        log = self.teller.log
        assert log is not None
        read = [(one.offset, one.value) for one in log.records()]
        start = self.version.start
        told = [
            (offset, self.values[batch.crc][offset - batch.base_offset])
            for batch in self.version.batches
            if batch not in self.markers
            for offset in range(max(batch.base_offset, start), batch.last_offset + 1)
        ]
        assert read == told

    def teardown(self) -> None:
        self.stack.close()
        with suppress(OSError, KsegError):
            self.teller.close()
        shutil.rmtree(self.root, ignore_errors=True)


TestLogBesideItsModel = LogMachine.TestCase
TestLogBesideItsModel.settings = settings(
    settings.get_profile("ci"), max_examples=40 if WHOLE else 15, stateful_step_count=30
)
