from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.errors import CorruptIndexError, LimitExceededError
from kseg.files.checkpoints import (
    CHECKPOINT_BYTES_MAX,
    EpochEntry,
    assign_epochs,
    read_leader_epochs,
    read_offset_checkpoint,
)


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("text", ["", "0\n", "0", "0\n0\n", "0\n0"])
def test_an_empty_checkpoint_means_nothing(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "x", text)
    assert read_offset_checkpoint(path) == {}
    assert read_leader_epochs(path) == ()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("gap", [" ", "\t", "  \t "])
def test_fields_stand_apart_by_white_space(tmp_path: Path, end: str, gap: str) -> None:
    path = write(tmp_path / "x", end.join(["0", "2", f"a.b-c{gap}3{gap}7", f"töpic{gap}0{gap}0 "]))
    assert read_offset_checkpoint(path) == {("a.b-c", 3): 7, ("töpic", 0): 0}


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("1\n0\n", 0),
        ("x\n0\n", 0),
        (" 0\n0\n", 0),
        ("\n", 0),
        ("0\nx\n", 2),
        ("0\n\n", 2),
        ("0\n-1\n", 5),
        ("0\n1\n", 4),
        ("0\n1\na 1 2\nb 1 2\n", 16),
        ("0\n1\na 1\n", 4),
        ("0\n1\na 1 2 3\n", 4),
        ("0\n1\n a 1 2\n", 4),
        ("0\n1\na 1 2\n\n", 10),
        ("0\n1\na one 2\n", 4),
        ("0\n1\na 1 two\n", 4),
        ("0\n1\na 1 2.0\n", 4),
        ("0\n1\na 1_0 2\n", 4),
        ("0\n1\na 2147483648 2\n", 4),
        ("0\n1\na 1 9223372036854775808\n", 4),
        ("0\n1\na 1 " + "9" * 5000, 4),
        (b"0\n1\n\xff 1 2\n", 4),
        ("0\n99999999999\n", 2),
        ("0\n2147483647\na 1 2\n", 19),
    ],
)
def test_what_is_malformed_says_where(tmp_path: Path, text: str | bytes, position: int) -> None:
    path = write(tmp_path / "x", text)
    with pytest.raises(CorruptIndexError) as caught:
        read_offset_checkpoint(path)
    assert (caught.value.path, caught.value.position) == (str(path), position)


@pytest.mark.parametrize("entry", ["0 0 0", "a b", "-1 0", "0 -1", "0", "2147483648 0"])
def test_epoch_entries_are_two_numbers_from_zero_on(tmp_path: Path, entry: str) -> None:
    with pytest.raises(CorruptIndexError):
        read_leader_epochs(write(tmp_path / "x", f"0\n1\n{entry}\n"))


def test_a_file_that_is_too_long_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.truncate(CHECKPOINT_BYTES_MAX + 1)
    with pytest.raises(LimitExceededError):
        read_offset_checkpoint(tmp_path / "x")


numbers = st.integers(0, 9)


@given(st.lists(st.builds(EpochEntry, numbers, numbers), max_size=12))
def test_effective_epochs_ascend_in_both_numbers(made: list[EpochEntry]) -> None:
    kept = assign_epochs(made)
    assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(kept))
    assert set(kept) <= set(made)
    assert assign_epochs(kept) == kept


@given(st.binary(max_size=60) | st.text("0123 \n-a", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = write(tmp_path_factory.mktemp("text") / "x", data)
    for read in (read_offset_checkpoint, read_leader_epochs):
        try:
            read(path)
        except CorruptIndexError as error:
            assert 0 <= error.position <= len(data)  # noqa: PT017
