"""A merge that a kill or a power cut ends leaves its output whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

import kseg
from kseg.errors import KsegError
from kseg.files import io
from kseg.log.copies.merge import plan_merge
from tests.crash.kills import Remarks, calls_of, every_kill, run_killed
from tests.crash.oplog import Recorder
from tests.crash.runs import scratch
from tests.crash.states import Contents, Sampler, materialise
from tests.shares import WHOLE, share
from tests.unit.analysis.copied import told, write_copy

BASE = told(24)
_STATES = 2_000 if WHOLE else 30


class Making(Protocol):
    """What makes `root / "out"`, and can tell whether it did."""

    def run(self, root: Path, remark: Remarks) -> None: ...
    def is_made(self, root: Path) -> bool: ...


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


def mend(making: Making, root: Path) -> None:
    """The next run makes it, whatever the one before has left."""
    if not making.is_made(root):
        making.run(root, lambda _value: None)
    assert making.is_made(root)


@dataclass(frozen=True)
class Merging:
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


def fresh(root: Path) -> Path:
    materialise({}, root)
    return root


def test_kills_leave_no_part_of_an_output(merging: Making) -> None:
    with scratch() as place:
        names = calls_of(merging.run, fresh(place / "run"))
        killed = 0
        for kill in share(every_kill(names), 12, "merge"):
            root = fresh(place / "run")
            outcome = run_killed(merging.run, root, kill)
            killed += outcome.killed
            assert merging.is_made(root) >= bool(outcome.remarks), kill
            mend(merging, root)
    assert killed >= 12


def test_power_cuts_leave_no_part_of_an_output(merging: Making) -> None:
    with scratch() as place:
        recorder = Recorder(fresh(place / "run"))
        with io.calls_replaced(recorder.calls):
            merging.run(place / "run", recorder.remark)
        said = [0, *recorder.remarks()]
        sampler = Sampler(recorder.before, recorder.ops, "merge")
        seen: set[tuple[tuple[str, bytes | None], ...]] = set()
        for _ in range(_STATES):
            state = sampler.draw()
            contents: Contents = state.contents()
            key = tuple(sorted(contents.items()))
            if key in seen:
                continue
            seen.add(key)
            root = place / "state"
            materialise(contents, root)
            made = merging.is_made(root)
            assert made or said[state.point.remarks] != "made"
            mend(merging, root)
        assert len(seen) > 10


def test_a_call_that_fails_leaves_no_output_and_the_next_run_makes_one(merging: Making) -> None:
    with scratch() as place:
        names = calls_of(merging.run, fresh(place / "run"))
        for number in share(range(len(names)), 8, "faults"):
            root, left = fresh(place / "run"), number

            def failing(name: str) -> object:
                call = getattr(io.Calls(), name)

                def made(*args: object, **named: object) -> object:
                    nonlocal left
                    left -= 1
                    if left < 0:
                        raise OSError(5, "Input/output error")
                    return call(*args, **named)

                return made

            calls = io.Calls(**{name: failing(name) for name in io.Calls.__dataclass_fields__})
            try:
                with io.calls_replaced(calls):
                    merging.run(root, lambda _value: None)
            except (OSError, KsegError):
                pass
            mend(merging, root)
