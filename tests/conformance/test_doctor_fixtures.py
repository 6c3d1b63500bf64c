"""What the doctor says of damaged and killed directories is what brokers then made of them."""

from __future__ import annotations

from pathlib import Path

from kseg.analysis.doctor import Outcome, PartitionOutlook
from kseg.analysis.doctor.partitions import PartitionUnit, examine
from tests.conformance.test_recovered_fixtures import CLEANED, Pair, end_offset, logs, pairs
from tests.reference import walk


def outlook_of(pair: Pair) -> PartitionOutlook:
    """The doctor's word on a directory that was not closed in good order."""
    unit = PartitionUnit(
        str(pair.before),
        clean=False,
        recovery_point=pair.recovery_point,
        log_start_offset=pair.log_start_offset,
        config=pair.config,
        now_ms=0,  # no producer has expired
        cost=0,
    )
    return examine(unit)


def records(directory: Path) -> int:
    """Records of whole batches that match their checksums, as another reader counts them."""
    return sum(
        batch.record_count if batch.magic >= 2 else 1
        for data in logs(directory).values()
        for batch in walk(data).batches
        if batch.crc_ok
    )


def cut_bytes(pair: Pair) -> int:
    before, after = logs(pair.before), logs(pair.after)
    return sum(map(len, before.values())) - sum(map(len, after.values()))


def test_each_directory_that_a_broker_loaded_starts_and_ends_where_its_log_ended(
    fixture_case: Path,
) -> None:
    for pair in pairs(fixture_case):
        outlook = outlook_of(pair)
        codes = {one.code for one in outlook.findings}
        expected = Outcome.UNKNOWN if "not-imitated" in codes else Outcome.STARTS
        assert (outlook.outcome, "load-fails" in codes) == (expected, False), pair.before
        assert outlook.log_end_offset == end_offset(pair.after), pair.before


def test_what_is_told_to_go_is_what_the_broker_cut(fixture_case: Path) -> None:
    for pair in pairs(fixture_case):
        if pair.topic in CLEANED:
            continue
        outlook, gone = outlook_of(pair), cut_bytes(pair)
        expected = (gone, end_offset(pair.after) if gone else None)
        assert (outlook.truncated_bytes, outlook.cut_offset) == expected, pair.before


def test_all_records_that_went_are_told_of(fixture_case: Path) -> None:
    """Their number is unknown only in a torn end, and in damaged messages that are compressed.

    It counts what lies in damaged bytes, too, which another reader may not see.
    """
    for pair in pairs(fixture_case):
        if pair.topic in CLEANED:
            continue
        outlook, gone = outlook_of(pair), records(pair.before) - records(pair.after)
        if outlook.lost_records is None:
            is_torn = any(lost.last_offset is None for lost in outlook.lost)
            assert is_torn or outlook.outcome is Outcome.UNKNOWN, pair.before
        else:
            assert outlook.lost_records >= gone, pair.before


def test_enough_directories_lose_something(fixture_cases: list[Path]) -> None:
    found = [pair for case in fixture_cases for pair in pairs(case) if cut_bytes(pair)]
    assert len(found) >= 20
