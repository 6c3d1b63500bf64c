"""What the doctor says of damaged directories is what a real broker makes of them.

The rows are those of `situations.py`: each fifth, or all where `KSEG_WHOLE` is set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.interop.broker.situations import SITUATIONS, Situation
from tests.interop.broker.startup import Starts, compared
from tests.interop.kafka import needed

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

STEP = 1 if os.environ.get("KSEG_WHOLE") else 5


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starts]:
    with needed():
        made = Starts(tmp_path_factory.mktemp("starts"))
    yield made
    made.close()


def test_there_are_enough_situations() -> None:
    assert len({each.title for each in SITUATIONS}) == len(SITUATIONS) >= 80


@pytest.mark.parametrize("situation", SITUATIONS[::STEP], ids=lambda one: one.title)
def test_the_doctor_says_what_a_start_makes_of_it(starts: Starts, situation: Situation) -> None:
    differs, _found, _became = compared(starts, situation)
    assert differs == []
