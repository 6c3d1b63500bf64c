from __future__ import annotations

from pathlib import Path

from kseg.files.names import SegmentFiles
from kseg.log.config import LogConfig
from kseg.log.published import SegmentInfo
from kseg.log.retention import LOG_START, SIZE, TIME, LogBounds, choose

DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS
KEEP_ALL = LogConfig(retention_ms=-1)


def row(*sizes: int, first: int = 0, offsets: int = 10) -> list[SegmentInfo]:
    """Segments of so many bytes, `offsets` apart."""
    last = len(sizes) - 1
    return [
        SegmentInfo(
            SegmentFiles(base := first + offsets * index, Path(f"{base:020d}.log")),
            size,
            index == last,
        )
        for index, size in enumerate(sizes)
    ]


def chosen(
    segments: list[SegmentInfo],
    config: LogConfig,
    *,
    start: int = 0,
    high_watermark: int | None = None,
    times: dict[int, int] | None = None,
) -> list[tuple[int, str]]:
    end = segments[-1].base_offset + (10 if segments[-1].size else 0)
    given = times or {}
    retired = choose(
        segments,
        LogBounds(start, end, end if high_watermark is None else high_watermark),
        config=config,
        now_ms=NOW_MS,
        largest_timestamp=lambda info: given.get(info.base_offset, NOW_MS),
    )
    return [(each.base_offset, each.why) for each in retired]


def test_nothing_goes_without_a_reason() -> None:
    assert chosen(row(100, 100, 100), LogConfig()) == []


def test_what_lies_below_the_log_start_goes_whatever_the_policy() -> None:
    compact = LogConfig(cleanup_policy=frozenset({"compact"}))
    for config in (KEEP_ALL, compact):
        assert chosen(row(100, 100, 100), config, start=9) == []
        assert chosen(row(100, 100, 100), config, start=10) == [(0, LOG_START)]
        assert chosen(row(100, 100, 100), config, start=19) == [(0, LOG_START)]
        assert chosen(row(100, 100, 100), config, start=20) == [(0, LOG_START), (10, LOG_START)]


def test_the_last_segment_never_goes_for_the_log_start() -> None:
    assert chosen(row(100), KEEP_ALL, start=10) == []
    assert chosen(row(100, 100), KEEP_ALL, start=20) == [(0, LOG_START)]


def test_only_deleting_policies_ask_for_size_and_time() -> None:
    compact = LogConfig(retention_bytes=0, retention_ms=0, cleanup_policy=frozenset({"compact"}))
    old = {0: 0, 10: 0, 20: 0}
    assert chosen(row(100, 100, 100), compact, times=old) == []
    both = compact.with_changes(cleanup_policy=frozenset({"compact", "delete"}))
    assert len(chosen(row(100, 100, 100), both, times=old)) == 3


def test_size_keeps_at_least_what_it_names() -> None:
    config = KEEP_ALL.with_changes(retention_bytes=150)
    assert chosen(row(100, 100, 50), config) == [(0, SIZE)]
    assert chosen(row(100, 100, 49), config) == []


def test_size_counts_only_what_the_log_start_has_left() -> None:
    config = KEEP_ALL.with_changes(retention_bytes=200)
    assert chosen(row(100, 100, 100, 100), config, start=10) == [(0, LOG_START), (10, SIZE)]
    assert chosen(row(100, 100, 100), config, start=10) == [(0, LOG_START)]


def test_time_is_strict() -> None:
    config = LogConfig(retention_ms=DAY_MS)
    at_limit = {0: NOW_MS - DAY_MS}
    assert chosen(row(100, 100), config, times=at_limit) == []
    assert chosen(row(100, 100), config, times={0: NOW_MS - DAY_MS - 1}) == [(0, TIME)]


def test_a_segment_of_the_future_keeps_those_behind_it() -> None:
    config = LogConfig(retention_ms=DAY_MS)
    times = {0: NOW_MS + DAY_MS, 10: 0}
    assert chosen(row(100, 100, 100), config, times=times) == []
    assert chosen(row(100, 100, 100), config, times=times, start=10) == [(0, LOG_START), (10, TIME)]


def test_nothing_at_the_high_watermark_or_above_goes() -> None:
    config = KEEP_ALL.with_changes(retention_bytes=0)
    for high_watermark, count in ((0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3)):
        found = chosen(row(100, 100, 100), config, high_watermark=high_watermark)
        assert len(found) == count


def test_an_empty_last_segment_stays() -> None:
    config = LogConfig(retention_bytes=0, retention_ms=0)
    assert [base for base, _ in chosen(row(100, 100, 0), config)] == [0, 10]
    assert chosen(row(0), config) == []


def test_the_age_of_what_stays_anyway_is_not_asked_for() -> None:
    asked = []

    def largest_timestamp(info: SegmentInfo) -> int:
        asked.append(info.base_offset)
        return 0 if info.base_offset < 20 else NOW_MS

    choose(
        row(*[100] * 50),
        LogBounds(0, 500, 500),
        config=LogConfig(retention_ms=DAY_MS),
        now_ms=NOW_MS,
        largest_timestamp=largest_timestamp,
    )
    assert asked == [0, 10, 20]
