"""The first cases of `fuzz_borders`; all of them are for `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.errors import KsegError
from tests.fuzz import borders
from tests.fuzz.fuzz_borders import search

CASES = 400
STEP = 400


@pytest.mark.parametrize("first", range(0, CASES, STEP))
def test_numbers_at_borders_are_answered_or_refused(
    first: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done, findings = search("suite", first, first + STEP, tmp_path)
    assert findings == 0, capsys.readouterr().out
    assert set(done) == {kind.__name__ for kind in borders.KINDS}


def test_only_what_is_told_counts_as_a_refusal() -> None:
    def numpy_refuses() -> None:
        [].index(1)

    for kind in (OverflowError, TypeError, AssertionError):
        assert not borders.refusal(_raised(kind("x")))
    assert borders.refusal(_raised(KsegError("x")))
    assert borders.refusal(_raised(OSError("x")))
    assert not borders.refusal(_raised(ValueError("x")))
    with pytest.raises(ValueError, match="not in list"):
        borders.may(numpy_refuses)


def _raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:  # as a fuzz target catches it
        return caught
