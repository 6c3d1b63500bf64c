"""What tests of several analyses share."""

from __future__ import annotations

import pytest

from kseg.analysis import units_run


@pytest.fixture(params=[False, True], ids=["threads", "forks"])
def either_workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of workers share the work, however little it is."""
    monkeypatch.setattr(units_run, "SEGMENTS_MIN", 1)
    monkeypatch.setattr(units_run, "can_fork", lambda: request.param)
