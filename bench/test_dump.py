"""Dumps beside those of Kafka's own tool, where a kit runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench import dump_cases
from bench.case import made

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.pairs import Contest


def test_dumps_run_beside_kafkas(contest: Contest, run: Callable[[Contest], None]) -> None:
    run(contest)


@pytest.mark.parametrize("form", dump_cases.FORMS)
def test_every_record_has_a_line(form: str) -> None:
    log = made(dump_cases.VALUES["1 KB"])
    assert dump_cases.dumped(form, log.log, log.records) == log.records
