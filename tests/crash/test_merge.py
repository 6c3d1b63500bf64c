"""A merge that a kill or a power cut ends leaves its output whole or not at all."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import kseg
from kseg.errors import KsegError
from kseg.files import io
from kseg.log.copies.merge import plan_merge
from tests.crash.kills import Remarks, calls_of, counted, every_kill, run_killed
from tests.crash.oplog import Recorder
from tests.crash.runs import scratch
from tests.crash.states import Contents, Sampler, materialise
from tests.shares import WHOLE, share
from tests.unit.analysis.copied import told, write_copy

BASE = told(24)


def is_whole(root: Path, records: bytes) -> bool:
    """Whether there is an output; it is whole then, and has these batches."""
    out = root / "out"
    if not out.exists() or not any(out.iterdir()):
        return False
    found = b"".join(path.read_bytes() for path in sorted(out.glob("t-0/*.log")))
    assert found == records
    assert kseg.verify(out, deep=True).ok
    assert (root / "out.kseg-salvage" / "report.json").stat().st_size > 0
    return True


class Making:
    """What makes `root / "out"`, and can tell whether it did; and how often it is ended."""

    kills, faults, states = (12, 8, 2_000) if WHOLE else (6, 4, 20)

    def fresh(self, root: Path) -> Path:
        """Where there is no output yet."""
        materialise({}, root)
        return root

    def run(self, root: Path, remark: Remarks) -> None:
        """Make it, and say "made" then."""
        raise NotImplementedError

    def is_made(self, root: Path) -> bool:
        """Whether it is made; nothing of it is there else."""
        raise NotImplementedError

    def mend(self, root: Path) -> None:
        """The next run makes it, whatever the one before has left."""
        if not self.is_made(root):
            self.run(root, lambda _value: None)
        assert self.is_made(root)


@dataclass(frozen=True)
class Merging(Making):
    """Two damaged copies, and what becomes of them in `root / "made"`."""

    copies: tuple[Path, Path]

    @classmethod
    def of(cls, root: Path) -> Merging:
        copies = tuple(
            write_copy(root / name / "t-0", BASE, per_segment=8, topic_id=3) for name in "ab"
        )
        for at, copy in enumerate(copies):
            path = sorted(copy.glob("*.log"))[at]
            data = bytearray(path.read_bytes())
            data[80] ^= 1
            path.write_bytes(data)
        return cls((copies[0], copies[1]))

    def run(self, root: Path, remark: Remarks) -> None:
        plan_merge(*self.copies, out=root / "out").apply()
        remark("made")

    def is_made(self, root: Path) -> bool:
        """Whether there is an output; it is whole then."""
        return is_whole(root, b"".join(one.data for one in BASE))


@pytest.fixture
def merging(tmp_path: Path) -> Merging:
    return Merging.of(tmp_path)


def test_kills_leave_no_part_of_an_output(merging: Making) -> None:
    with scratch() as place:
        names = calls_of(merging.run, merging.fresh(place / "run"))
        killed = 0
        for kill in share(every_kill(names), merging.kills, "merge"):
            root = merging.fresh(place / "run")
            outcome = run_killed(merging.run, root, kill)
            killed += outcome.killed
            assert merging.is_made(root) >= bool(outcome.remarks), kill
            merging.mend(root)
    assert killed >= merging.kills


def test_power_cuts_leave_no_part_of_an_output(merging: Making) -> None:
    with scratch() as place:
        root = place / "run"
        recorder = Recorder(merging.fresh(root))
        with io.calls_replaced(recorder.calls):
            merging.run(root, recorder.remark)
        said = [0, *recorder.remarks()]
        sampler = Sampler(recorder.before, recorder.ops, "merge")
        seen: set[tuple[tuple[str, bytes | None], ...]] = set()
        for _ in range(merging.states):
            state = sampler.draw()
            contents: Contents = state.contents()
            key = tuple(sorted(contents.items()))
            if key in seen:
                continue
            seen.add(key)
            materialise(contents, root)
            made = merging.is_made(root)
            assert made or said[state.point.remarks] != "made"
            merging.mend(root)
        assert len(seen) > 5


@pytest.mark.parametrize("code", [5, 28], ids=["EIO", "ENOSPC"])
def test_a_call_that_fails_leaves_no_output_and_the_next_run_makes_one(
    merging: Making, code: int
) -> None:
    with scratch() as place:
        names = calls_of(merging.run, merging.fresh(place / "run"))
        for call in share(range(len(names)), merging.faults, f"faults {code}"):
            root = merging.fresh(place / "run")

            def refuse(number: int, *_call: object, first: int = call) -> None:
                if number >= first:
                    raise OSError(code, "it fails")

            with suppress(OSError, KsegError), io.calls_replaced(counted(io.Calls(), refuse)):
                merging.run(root, lambda _value: None)
            merging.mend(root)
