"""Searches beside scans, and what they look for is really not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.case import made
from bench.grep_cases import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_searches_run_beside_scans(contest: Contest, run: Callable[[Contest], None]) -> None:
    run(contest)


def test_no_record_holds_what_is_looked_for() -> None:
    data = made("v2-plain-100-16k").log.read_bytes()
    assert not [needle for needle in ABSENT[3:] if needle in data]
