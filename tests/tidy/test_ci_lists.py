"""Lists written by hand name what is there: a moved file or a new verb would stop CI late.

They are read when the wheel is tested, the last of the stages.
"""

from __future__ import annotations

from kseg.cli.main import VERBS
from tests.tidy import tree
from tools import check_installed


def test_the_tests_that_the_wheel_must_pass_are_there() -> None:
    names = (tree.ROOT / "tools" / "kernel_tests.txt").read_text(encoding="utf-8").split()
    assert [name for name in names if not (tree.ROOT / "tests" / "unit" / name).is_file()] == []
    assert len(names) > len(list((tree.ROOT / "kseg" / "_kernels").glob("*.pyx")))


def test_each_verb_is_run_from_the_wheel() -> None:
    assert set(check_installed.VERBS) == set(VERBS)
