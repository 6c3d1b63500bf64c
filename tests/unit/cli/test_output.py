"""What is known of standard output before anything is written to it."""

from __future__ import annotations

import io
import os
from pathlib import Path

from kseg.cli.output import takes_at_once


def test_files_take_lines_at_once_and_readers_of_pipes_and_terminals_do_not(tmp_path: Path) -> None:
    assert not takes_at_once(io.BytesIO())
    for path in (tmp_path / "out", Path(os.devnull)):
        with path.open("wb") as file:
            assert takes_at_once(file)
    for ends in (os.pipe(), os.openpty()):
        with open(ends[0], "rb", buffering=0), open(ends[1], "wb", buffering=0) as out:
            assert not takes_at_once(out)
