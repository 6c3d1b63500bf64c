"""The options of reading have names: one that there is not is refused before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg


def test_a_misspelt_option_is_refused_at_once_with_those_that_there_are(tmp_path: Path) -> None:
    with kseg.Log.open(tmp_path / "t-0", mode="append", create=True) as log:
        with pytest.raises(TypeError, match="no option max_row; there are: start_timestamp, "):
            log.read(max_row=5)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="no option"):
            list(log.records(limit=5))  # type: ignore[call-arg]
