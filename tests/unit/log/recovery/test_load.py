"""Loads: what becomes of temporary files, and the log that is opened for appending."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.errors import NotALogError
from kseg.log.recovery.as_broker import next_offset
from kseg.log.recovery.load_context import clear
from kseg.log.recovery.overlay import Applier, Overlay
from tests.builders import batch, record


def log(*offsets: int) -> bytes:
    return b"".join(batch([record(b"value")], base_offset=offset) for offset in offsets)


def given(directory: Path, **files: bytes) -> Path:
    """Files by their names without leading zeros, `_` for each dot."""
    for short, data in files.items():
        base, _, rest = short.removeprefix("s").partition("_")
        (directory / f"{int(base):020d}.{rest.replace('_', '.')}").write_bytes(data)
    return directory


def cleared(directory: Path, *, careful: bool = True) -> list[str]:
    """The names afterwards, the same in the overlay and on the disk."""
    overlay = Overlay(directory)
    clear(overlay, end_by_index=None if careful else next_offset)
    Applier(directory, None, derived=False).take(overlay.steps)
    found = sorted(path.name for path in directory.iterdir())
    assert found == sorted(overlay.files)
    return [name.lstrip("0") if name[:1] == "0" else name for name in found]


both = pytest.mark.parametrize("careful", [True, False])


@both
def test_indexes_alone_take_their_places_and_cover_nothing(tmp_path: Path, careful: bool) -> None:
    given(tmp_path, s0_log=log(0, 1), s0_index=b"old", s0_index_swap=b"new", s2_log=log(2))
    assert cleared(tmp_path, careful=careful) == [".index", ".log", "2.log"]
    assert (tmp_path / f"{0:020d}.index").read_bytes() == b"new"


def test_half_written_checkpoints_go_where_a_broker_leaves_them(tmp_path: Path) -> None:
    given(tmp_path, s0_log=log(0), s0_index_tmp=b"half")
    (tmp_path / "leader-epoch-checkpoint.tmp").write_bytes(b"0")
    (tmp_path / "strange.tmp").write_bytes(b"")
    assert cleared(tmp_path, careful=False) == [
        ".log",
        "leader-epoch-checkpoint.tmp",
        "strange.tmp",
    ]
    assert cleared(tmp_path) == [".log", "strange.tmp"]


def test_a_name_without_an_offset_is_cleared_where_a_broker_fails(tmp_path: Path) -> None:
    (tmp_path / "abc.log.cleaned").write_bytes(b"")
    with pytest.raises(NotALogError):
        clear(Overlay(tmp_path), end_by_index=next_offset)
    assert cleared(tmp_path) == []
