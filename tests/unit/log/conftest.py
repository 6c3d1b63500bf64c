"""The log that most tests of recovery damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.unit.log import damaged
from tests.verified import closes, verified  # noqa: F401


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that was closed in good order; not to be touched."""
    return damaged.write(tmp_path_factory.mktemp("written") / "data")


@pytest.fixture
def partition(written: Path, tmp_path: Path) -> Path:
    """A copy of it, in a data directory without a mark or a checkpoint."""
    return Path(shutil.copytree(written, tmp_path / "data" / "t-0"))
