"""`kseg.info`: what the verb prints, as values; the other questions by their public names."""

from __future__ import annotations

from pathlib import Path

import pytest

import kseg
from tests.builders import COMMIT, batch, control_batch, record, write_segment


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("orders-0", "orders-1"):
        given = [record(b"v", timestamp=1_000 + n) for n in range(3)]
        write_segment(tmp_path / "data" / name, 5, batch(given, base_offset=5))
    return tmp_path / "data"


def test_a_data_directory_is_its_partitions(data: Path) -> None:
    one, other = kseg.info(data)
    assert (one.topic, one.partition, other.partition) == ("orders", 0, 1)
    assert (one.log_start_offset, one.log_end_offset, one.summary.records) == (5, 8, 3)
    assert (one.segments[0].stop, one.faults) == ("END", ())
    assert [*kseg.info([data / "orders-0", data / "orders-1"])] == [one, other]


def test_committed_records_end_at_the_last_stable_offset(tmp_path: Path) -> None:
    producer = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    opened = batch([record()] * 2, base_offset=3, base_sequence=0, **producer)
    write_segment(tmp_path / "t-0", 0, batch([record()] * 3), opened)
    found = kseg.info(tmp_path / "t-0")
    assert [(one.last_stable_offset, one.log_end_offset) for one in found] == [(3, 5)]
    assert [row["last_stable_offset"] for row in found.table_rows()] == [3]
    write_segment(tmp_path / "t-0", 5, control_batch(COMMIT, base_offset=5))
    assert kseg.info(tmp_path / "t-0")[0].document()["last_stable_offset"] == 6
    assert kseg.info(tmp_path / "t-0" / f"{0:020d}.log")[0].last_stable_offset is None


def test_what_is_damaged_is_among_the_faults(data: Path) -> None:
    (path,) = (data / "orders-0").glob("*.log")
    path.with_suffix(".index").write_bytes(b"\xff" * 7)
    (data / "orders-0" / "leader-epoch-checkpoint").write_text("broken")
    one, _other = kseg.info(data)
    assert one.leader_epochs is None
    assert len(one.faults) >= 1


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.index").write_bytes(b"")
    with pytest.raises(kseg.NotALogError, match="kseg dump"):
        kseg.info(tmp_path / "00000000000000000000.index")


def test_the_files_of_a_partition_count_it_once() -> None:
    path = Path(kseg.__file__).parent / "demo_data"
    whole = kseg.topics(path, topics="orders", partitions=0)
    assert tuple(kseg.topics(f"{path}/orders-0/*.log")) == tuple(whole)
    assert (whole[0].partitions, whole[0].segments, whole[0].offsets) == (1, 5, 254)
    assert repr(whole) == "Topics(orders)"
