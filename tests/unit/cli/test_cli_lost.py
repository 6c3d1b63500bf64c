"""What damage costs, as `verify` and `recover` say it in a line and as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import batch, record, write_segment
from tests.unit.cli.conftest import Kseg


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Offsets 0 to 59 in twenty batches; the length of the fifth is far too large."""
    parts = [bytearray(batch([record(b"x" * 20)] * 3, base_offset=3 * at)) for at in range(20)]
    parts[4][8:12] = (2**30).to_bytes(4, "big")
    return write_segment(tmp_path / "data" / "t-0", 0, *map(bytes, parts)).parent


def test_verify_says_what_cannot_be_read_and_what_is_sound_behind(
    kseg: Kseg, directory: Path
) -> None:
    ran = kseg("verify", directory)
    assert ran.code == 1
    assert "torn-tail" not in ran.text
    assert "offsets 12 to 14 (3 records, " in ran.text
    assert (
        "cannot be read; 45 records in 15 good batches behind: a broker's recovery would cut"
        in ran.text
    )
    (lost,) = kseg("verify", "--json", directory).document["lost"]
    numbers = ("first_offset", "last_offset", "records", "batches", "sound_behind")
    assert [lost[name] for name in numbers] == [12, 14, 3, 1, 15]


def test_a_count_of_no_records_is_not_believed_of_a_batch_with_bytes_of_records(
    kseg: Kseg, tmp_path: Path
) -> None:
    parts = [bytearray(batch([record(b"x")] * 3, base_offset=3 * at)) for at in range(3)]
    parts[1][57:61] = bytes(4)  # the count; the checksum is that of before
    path = write_segment(tmp_path / "data" / "t-0", 0, *map(bytes, parts))
    ran = kseg("verify", path.parent)
    assert f"offsets 3 to 5 (at most 3 records, {len(parts[1])} bytes) cannot be read" in ran.text
    (lost,) = kseg("verify", "--json", path.parent).document["lost"]
    assert lost["records"] is None
