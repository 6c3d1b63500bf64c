"""An adoption that a kill, a power cut or a fault ends leaves each partition empty or whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

import kseg
from kseg.errors import KsegError
from kseg.files import io
from kseg.files.metadata import read_clean_shutdown
from tests.adopted import Source, served, target
from tests.crash.kills import Remarks, calls_of, every_kill, run_killed
from tests.crash.oplog import Recorder
from tests.crash.runs import scratch
from tests.crash.states import Sampler, materialise
from tests.full_disk import FullDisk
from tests.shares import WHOLE, share

COUNT = 2
_STATES = 2_000 if WHOLE else 60


@dataclass(frozen=True)
class Adopting:
    """Logs of a source, and the data directory of a stopped broker that they go to."""

    source: Source
    before: Path

    def fresh(self, root: Path) -> Path:
        """The broker as it was, in `root / "data"`."""
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.before, root)
        return root

    def run(self, root: Path, remark: Remarks) -> None:
        plan = kseg.plan_adoption(
            self.source.home,
            into=root / "data",
            topics={"old": "orders"},
            undecided="abort",
            compare_checksums=False,  # as the command line does with --apply
        )
        assert plan.refused == ()
        plan.apply()
        remark("made")

    def make_others(self, root: Path) -> None:
        """Do what the message says."""
        shutil.rmtree(root / "data.kseg-adopt")
        for number, is_whole in enumerate(self.whole(root)):
            path = root / "data" / f"orders-{number}"
            if not path.is_dir():  # a broker makes it
                shutil.copytree(self.before / "data" / path.name, path)
            if not is_whole:
                kseg.plan_adoption(
                    self.source.home,
                    into=root / "data",
                    topics={"old": "orders"},
                    partitions=number,
                    undecided="abort",
                ).apply()

    def whole(self, root: Path) -> list[bool]:
        """Whether each partition is whole; else it is empty, or its directory is to be made."""
        home = root / "data"
        assert read_clean_shutdown(home) is not None
        assert {path.name for path in home.iterdir() if path.is_dir()} <= {
            "__cluster_metadata-0",
            *(f"orders-{number}" for number in range(COUNT)),
        }
        return [self._is_whole(home / f"orders-{number}", number) for number in range(COUNT)]

    def _is_whole(self, path: Path, number: int) -> bool:
        if not any(log.stat().st_size for log in path.glob("*.log")):
            return False
        assert served(path, "read_uncommitted") == self.source.expected(number, committed=False)
        assert served(path, "read_committed") == self.source.expected(number, committed=True)
        return True

    def mend(self, root: Path) -> None:
        """The next run goes on, whatever the one before has left."""
        if not all(self.whole(root)) or (root / "data.kseg-adopt" / "ready.json").exists():
            try:
                self.run(root, lambda _value: None)
            except KsegError as error:  # as a power cut may leave it
                assert "remove " in str(error)  # noqa: PT017
                self.make_others(root)
        assert all(self.whole(root))
        assert kseg.verify(root / "data", deep=True).ok


@pytest.fixture
def adopting(tmp_path: Path) -> Adopting:
    source = Source(tmp_path / "old", COUNT, Random(5))
    source.write(60)
    (tmp_path / "before").mkdir()
    target(tmp_path / "before" / "data", COUNT)
    return Adopting(source, tmp_path / "before")


def test_kills_leave_each_partition_empty_or_whole(adopting: Adopting) -> None:
    with scratch() as place:
        names = calls_of(adopting.run, adopting.fresh(place / "run"))
        killed = 0
        for kill in share(every_kill(names), 24, "adopt"):
            root = adopting.fresh(place / "run")
            outcome = run_killed(adopting.run, root, kill)
            killed += outcome.killed
            assert all(adopting.whole(root)) >= bool(outcome.remarks), kill
            adopting.mend(root)
        assert killed >= 24


def test_power_cuts_leave_each_partition_empty_or_whole(adopting: Adopting) -> None:
    with scratch() as place:
        root = place / "run"
        recorder = Recorder(adopting.fresh(root))
        with io.calls_replaced(recorder.calls):
            adopting.run(root, recorder.remark)
        said = [0, *recorder.remarks()]
        sampler = Sampler(recorder.before, recorder.ops, "adopt")
        seen: set[tuple[tuple[str, bytes | None], ...]] = set()
        for _ in range(_STATES):
            state = sampler.draw()
            contents = state.contents()
            key = tuple(sorted(contents.items()))
            if key in seen:
                continue
            seen.add(key)
            materialise(contents, root)
            whole = all(adopting.whole(root))
            assert whole or said[state.point.remarks] != "made"
            adopting.mend(root)
        assert len(seen) > 20


def failing(left: int, error: Callable[[], OSError]) -> io.Calls:
    """Calls that fail from one of them on."""

    def wrapped(name: str) -> Callable[..., object]:
        call = getattr(io.Calls(), name)

        def made(*args: object, **named: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise error()
            return call(*args, **named)

        return made

    return io.Calls(**{name: wrapped(name) for name in io.Calls.__dataclass_fields__})


@pytest.mark.parametrize("number", [5, 28], ids=["EIO", "ENOSPC"])
def test_a_fault_leaves_each_partition_empty_or_whole(adopting: Adopting, number: int) -> None:
    with scratch() as place:
        names = calls_of(adopting.run, adopting.fresh(place / "run"))
        for call in share(range(len(names)), 16, f"faults {number}"):
            root = adopting.fresh(place / "run")
            try:
                with io.calls_replaced(failing(call, lambda: OSError(number, "it fails"))):
                    adopting.run(root, lambda _value: None)
            except (OSError, KsegError):
                pass
            adopting.whole(root)
            adopting.mend(root)


def test_a_full_disk_is_refused_before_anything_changes(adopting: Adopting) -> None:
    with scratch() as place:
        root = adopting.fresh(place / "run")
        disk = FullDisk(free=1)
        with io.calls_replaced(disk.calls), pytest.raises(OSError, match="no room"):
            adopting.run(root, lambda _value: None)
        assert not any(adopting.whole(root))
        assert not (root / "data.kseg-adopt").exists()
        adopting.mend(root)
