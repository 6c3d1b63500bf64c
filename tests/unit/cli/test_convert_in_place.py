"""`kseg convert` without `-o`: closed segments in another codec, in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.change.recode import RecodingPlan
from tests.golden import made
from tests.unit.cli.conftest import Kseg, made_in


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return made_in(tmp_path, made.recodable)


def test_an_interrupted_run_says_what_stays(
    kseg: Kseg, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RecodingPlan, "do", interrupt)
    ran = kseg("convert", data, "--codec", "zstd", "--apply")
    assert ran.code == 130
    assert "finished segments stay, the others are as they were" in ran.err
