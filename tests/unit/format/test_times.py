"""Times as people give and want them, in Python, on the command line and in Spark's options."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kseg
from kseg.format.encode import encode_batch
from kseg.format.options import BatchOptions
from kseg.format.times import bound_ms, datetimes_ms, iso_text

MOMENT = 1_760_000_000_000  # 2025-10-09T08:53:20Z
BERLIN = timezone(timedelta(hours=2))
HALF_A_MS = timedelta(microseconds=500)

SAME: list[Any] = [
    MOMENT,
    np.int64(MOMENT),
    str(MOMENT),
    "2025-10-09T08:53:20Z",
    " 2025-10-09T08:53:20 ",
    "2025-10-09T10:53:20+02:00",
    datetime(2025, 10, 9, 8, 53, 20, tzinfo=UTC),
    datetime(2025, 10, 9, 10, 53, 20, tzinfo=BERLIN),
    np.datetime64("2025-10-09T08:53:20"),
    np.datetime64("2025-10-09T08:53:20.000000000"),
]


@pytest.mark.parametrize("given", SAME, ids=repr)
def test_each_way_to_say_a_time_gives_the_same_milliseconds(given: Any) -> None:
    assert kseg.times.time_ms(given) == bound_ms(given) == MOMENT


@pytest.mark.parametrize(
    "given", [date(2025, 10, 9), np.datetime64("2025-10-09"), "2025-10-09", "20251009"]
)
def test_a_day_is_its_first_moment_in_utc(given: Any) -> None:
    # Digits alone are milliseconds, whatever they look like.
    wanted = 20_251_009 if given == "20251009" else MOMENT - MOMENT % 86_400_000
    assert kseg.times.time_ms(given) == wanted


@pytest.mark.parametrize("year", [1969, 2025])
def test_records_take_the_millisecond_before_and_bounds_the_one_after(year: int) -> None:
    moment = datetime(year, 1, 1, tzinfo=UTC)
    whole, between = kseg.times.time_ms(moment), moment + HALF_A_MS
    for given in (between, between.isoformat(), np.datetime64(between.replace(tzinfo=None))):
        assert kseg.times.time_ms(given) == whole
        assert bound_ms(given) == whole + 1


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (np.datetime64("NaT"), ValueError, "NaT is no time"),
    (1.5, TypeError, "an integer of ms"),
    (None, TypeError, "not None"),
    ("-1h", ValueError, "counts from a clock"),
    ("yesterday", ValueError, "counts from a clock"),
    ("soon", ValueError, "neither a number of ms nor a time in ISO 8601"),
    ("-1y", ValueError, "ISO 8601"),
    ("9" * 19, ValueError, "not a 64-bit integer"),
]


@pytest.mark.parametrize(("given", "kind", "reason"), REFUSED, ids=lambda one: repr(one)[:30])
def test_what_is_no_time_is_refused_with_the_reason(
    given: Any, kind: type[Exception], reason: str
) -> None:
    with pytest.raises(kind, match=reason):
        kseg.times.time_ms(given)


def test_words_count_from_the_clock_that_is_given() -> None:
    midnight = MOMENT - MOMENT % 86_400_000
    words = {
        "now": MOMENT,
        "today": midnight,
        "yesterday": midnight - 86_400_000,
        "-5ms": MOMENT - 5,
        "-90s": MOMENT - 90_000,
        "-15m": MOMENT - 900_000,
        "-1h": MOMENT - 3_600_000,
        "-7d": MOMENT - 7 * 86_400_000,
        "-2w": MOMENT - 14 * 86_400_000,
    }
    assert {word: kseg.times.time_ms(word, now_ms=lambda: MOMENT) for word in words} == words


def test_a_timestamp_comes_out_as_a_datetime_or_as_text() -> None:
    assert kseg.times.as_datetime(MOMENT + 7) == datetime(2025, 10, 9, 8, 53, 20, 7000, tzinfo=UTC)
    assert kseg.times.as_datetime(-1) is None
    assert (iso_text(MOMENT), iso_text(-1), iso_text(None), iso_text(2**62)) == (
        "2025-10-09T08:53:20.000Z",
        None,
        None,
        str(2**62),
    )
    with pytest.raises(ValueError, match="outside the years 1 to 9999"):
        kseg.times.as_datetime(2**62)


@pytest.mark.parametrize(
    "unit", ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "2s", "25us"]
)
def test_columns_of_datetime64_of_any_unit_are_milliseconds(unit: str) -> None:
    column = np.array(["2025-10-09T08:53:20", "1969-12-31T23:59:59", "NaT"], f"datetime64[{unit}]")
    whole = column.astype("datetime64[ms]").astype(np.int64)
    assert datetimes_ms(column).tolist() == [*whole[:2].tolist(), -1]


def test_a_time_that_milliseconds_of_64_bits_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match="than 64 bits hold"):
        datetimes_ms(np.array([2**60], "datetime64[s]"))


TIMES = [1_000, 2_000, 3_000, 4_000]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "orders-0"
    with kseg.Log.open(path, mode="append", create=True) as opened:
        opened.append(encode_batch({"timestamp": TIMES}, BatchOptions()))
    return path


START, END = datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), "1970-01-01T00:00:04"


def test_every_reader_takes_times_as_its_bounds(log: Path) -> None:
    wanted = TIMES[1:3]
    bounds: dict[str, Any] = {"time": (START, END)}
    assert kseg.scan(log, time=(START, END)).to_arrow()["offset"].to_pylist() == [1, 2]
    with kseg.Log.open(log) as opened, opened.open_segment(opened.segments[0]) as segment:
        assert [one.timestamp for one in opened.records(**bounds)] == wanted
        assert [one.timestamp for one in segment.records(**bounds)] == wanted
        for found in (opened.lookup_time(START), opened.offset_for_timestamp(START)):
            assert found is not None
            assert found.offset == 1


def test_a_time_without_a_zone_is_in_utc(log: Path) -> None:
    naive, aware = datetime(1970, 1, 1, 0, 0, 2), datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert kseg.times.time_ms(naive) == kseg.times.time_ms(aware) == 2_000
    assert kseg.scan(log, time=(naive, None)).count() == kseg.scan(log, time=(aware, None)).count()
    for wrong in (START, (START,)):
        with pytest.raises(TypeError, match="time is one day"):
            kseg.scan(log, time=wrong)  # type: ignore[arg-type]


def test_plans_take_a_time_for_now(log: Path) -> None:
    config = kseg.LogConfig(retention_ms=1_000)
    with kseg.Log.open(log) as opened:
        plan = kseg.plan_retention(opened, config=config, now_ms=START)
    assert plan.now_ms == 2_000


def test_a_record_without_a_timestamp_has_no_time(tmp_path: Path) -> None:
    given = [None, "1970-01-01T00:00:01", START, date(1970, 1, 2), 5]
    batch = encode_batch({"timestamp": given}, BatchOptions())
    with kseg.Log.open(tmp_path / "t-0", mode="append", create=True) as opened:
        opened.append(batch)
        (columns,) = opened.read()
    assert columns.timestamp_ms.tolist() == [-1, 1_000, 2_000, 86_400_000, 5]
    assert np.isnat(columns.timestamp).tolist() == [True, False, False, False, False]
    assert next(columns.records()).time is None


@pytest.mark.parametrize("given", [[b"1"], [1.5], ["soon"]], ids=repr)
def test_a_timestamp_to_be_written_that_is_no_time_is_refused(given: list[Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=r"a time is|ISO 8601"):
        encode_batch({"timestamp": given}, BatchOptions())
