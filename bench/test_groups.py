"""The state of groups out of many commits, beside a read of the same columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import groups_cases

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_groups_run_beside_a_read(contest: Contest, run: Callable[[Contest], None]) -> None:
    run(contest)


def test_each_partition_of_each_group_has_a_commit() -> None:
    from kseg.analysis.groups import groups

    found = groups(groups_cases.partition(groups_cases.COMMITS))
    assert len(found) == groups_cases.GROUPS
    assert len(found.commits) == groups_cases.GROUPS * groups_cases.PARTITIONS
