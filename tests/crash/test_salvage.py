"""A salvage that a kill or a power cut ends leaves its output whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from kseg import plan_salvage
from tests.crash.kills import Remarks
from tests.crash.test_merge import Making, is_whole
from tests.crash.test_merge import (  # the same must hold of it
    test_a_call_that_fails_leaves_no_output_and_the_next_run_makes_one as test_faults,
)
from tests.crash.test_merge import (
    test_kills_leave_no_part_of_an_output as test_kills,
)
from tests.crash.test_merge import (
    test_power_cuts_leave_no_part_of_an_output as test_power_cuts,
)
from tests.unit.analysis.copied import told, write_copy

__all__ = ["test_faults", "test_kills", "test_power_cuts"]

BASE = told(12)


@dataclass(frozen=True)
class Salvaging(Making):
    """A damaged log, and what becomes of it in `root / "out"`."""

    source: Path

    def run(self, root: Path, remark: Remarks) -> None:
        plan_salvage(self.source, out=root / "out").apply()
        remark("made")

    def is_made(self, root: Path) -> bool:
        """Whether there is an output; it is whole then, with all beside it."""
        beside = root / "out.kseg-salvage"
        if not is_whole(root, b"".join(one.data for one in BASE if one.first != 2)):
            return False
        assert (beside / "quarantine" / "t-0" / f"{0:020d}.log").stat().st_size == len(BASE[1].data)
        return True


@pytest.fixture
def merging(tmp_path: Path) -> Salvaging:
    """In the place of what those tests merge."""
    source = write_copy(tmp_path / "in" / "t-0", BASE, per_segment=6, topic_id=3)
    path = source / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(BASE[0].data) + 17] ^= 1
    path.write_bytes(data)
    return Salvaging(source)
