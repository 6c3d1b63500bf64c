"""A shell for each user."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.first_hours.terminal import Terminal


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """A shell in a new directory."""
    return Terminal.open(tmp_path)
