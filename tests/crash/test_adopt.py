"""An adoption that a kill, a power cut or a fault ends leaves each partition empty or whole."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

import kseg
from kseg.errors import KsegError
from kseg.files import io
from kseg.files.metadata import read_clean_shutdown
from tests.adopted import Source, served, target
from tests.crash.kills import Remarks
from tests.crash.runs import scratch
from tests.crash.test_merge import Making
from tests.crash.test_merge import (  # the same must hold of it
    test_a_call_that_fails_leaves_no_output_and_the_next_run_makes_one as test_faults,
)
from tests.crash.test_merge import (
    test_kills_leave_no_part_of_an_output as test_kills,
)
from tests.crash.test_merge import (
    test_power_cuts_leave_no_part_of_an_output as test_power_cuts,
)
from tests.full_disk import FullDisk
from tests.shares import WHOLE

__all__ = ["test_faults", "test_kills", "test_power_cuts"]

COUNT = 2


@dataclass(frozen=True)
class Adopting(Making):
    """Logs of a source, and the data directory of a stopped broker that they go to."""

    source: Source
    before: Path
    kills, faults, states = (24, 16, 2_000) if WHOLE else (8, 5, 20)

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

    def is_made(self, root: Path) -> bool:
        """Whether each partition is whole."""
        return all(self.whole(root))

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
def merging(tmp_path: Path) -> Adopting:
    source = Source(tmp_path / "old", COUNT, Random(5))
    source.write(60)
    (tmp_path / "before").mkdir()
    target(tmp_path / "before" / "data", COUNT)
    return Adopting(source, tmp_path / "before")


def test_a_full_disk_is_refused_before_anything_changes(merging: Adopting) -> None:
    with scratch() as place:
        root = merging.fresh(place / "run")
        disk = FullDisk(free=1)
        with io.calls_replaced(disk.calls), pytest.raises(OSError, match="no room"):
            merging.run(root, lambda _value: None)
        assert not any(merging.whole(root))
        assert not (root / "data.kseg-adopt").exists()
        merging.mend(root)
