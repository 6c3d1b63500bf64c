"""A few verbs over logs that change in place: `make soak` gives all of them ten minutes."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz import changing
from tests.shares import share

NAMES = ("dump records", "export", "scan", "append of changing bytes", "compact")


def test_no_process_ends_by_a_signal_while_its_files_change(tmp_path: Path) -> None:
    assert changing.search(tmp_path, share(NAMES, 3, "changing"), 0, turn_seconds=0.3) == []
