"""Spoilt manifests and metadata logs in a process of their own, and what must not be followed."""

from __future__ import annotations

import subprocess
import sys

from tests.shares import WHOLE


def test_spoilt_manifests_and_metadata_are_read_or_refused() -> None:
    """2,000 of each with KSEG_WHOLE=1."""
    words = ["--cases", "2000" if WHOLE else "16", "--seed", "4026"]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.hostile_tiers", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-6_000:]
    assert ran.stdout.count("cases") == 2
