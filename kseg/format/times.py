"""Times as callers give and want them; a log has whole milliseconds since 1970 in UTC.

Python, the command line and Spark share this one parser. It reads no clock: `now`, `yesterday` and
`-1h` are counted from a time that is given, and refused without one.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kseg.constants import INT64_MAX, NO_TIMESTAMP

if TYPE_CHECKING:
    import numpy as np


#: A time that `time_ms` accepts.
Time: TypeAlias = "int | str | date | np.datetime64"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
DAY_MS: Final = 86_400_000
_INTEGER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_AGO: Final = re.compile(r"-([0-9]{1,12})(ms|s|m|h|d|w)", re.ASCII)
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": DAY_MS,
    "w": 7 * DAY_MS,
}
#: How many of a finer unit of numpy's make a millisecond.
_PER_MS: Final = {"us": 10**3, "ns": 10**6, "ps": 10**9, "fs": 10**12, "as": 10**15}
#: Days before today.
_DAYS: Final = {"today": 0, "yesterday": 1}
#: Milliseconds of the years that a datetime can hold, 1 to 9999.
DATETIMES_MS: Final = range(-62_135_596_800_000, 253_402_300_800_000)


def duration_ms(text: str) -> int | None:
    """A span of time with a unit in milliseconds; None for other text.

    >>> duration_ms("7d"), duration_ms("-1")
    (604800000, None)
    """
    span = _AGO.fullmatch(f"-{text}")
    return None if span is None else int(span[1]) * _UNITS_MS[span[2]]


def time_ms(time: Time, *, round_up: bool = False, now_ms: Callable[[], int] | None = None) -> int:
    """Milliseconds since 1970 in UTC.

    Args:
        time: milliseconds; a `datetime`, in UTC unless it has a zone; a `date`, its 00:00 UTC; a
            `numpy.datetime64`; or text: milliseconds, or ISO 8601, in UTC unless it has a zone.
        round_up: round a time between two milliseconds to the later one, as bounds need it; if
            false, to the earlier one, as Kafka's producers do.
        now_ms: the clock for the texts `now`, `today` and `yesterday` (their 00:00 UTC), and
            `-90s`, `-15m`, `-1h`, `-7d`, `-2w`; refused if None.

    Raises:
        ValueError: text that is not a time, or NaT.
        TypeError: anything else.

    Example:
        >>> time_ms("2025-10-09T08:53:20Z"), time_ms(date(1970, 1, 2))
        (1760000000000, 86400000)
        >>> time_ms("-1h", now_ms=lambda: 1760000000000)
        1759996400000
    """
    if type(time) is int:
        return time
    if isinstance(time, str):
        return _ms_of_text(time.strip(), round_up, now_ms)
    if isinstance(time, datetime):
        return _ms_of_datetime(time, round_up)
    if isinstance(time, date):
        return (time.toordinal() - _EPOCH.toordinal()) * DAY_MS
    if getattr(getattr(time, "dtype", None), "kind", None) == "M":
        import numpy as np

        if np.isnat(time):
            raise ValueError("NaT is no time")
        count, per_ms, ms_each = _datetime_units(time)
        whole = int(count) * ms_each
        return -(-whole // per_ms) if round_up else whole // per_ms
    try:
        return operator.index(time)  # type: ignore[arg-type]  # a numpy integer has it
    except TypeError:
        kinds = "an integer of ms, a datetime, a date, a datetime64 or ISO 8601"
        raise TypeError(f"a time is {kinds}, not {time!r}") from None


def bound_ms(value: Time | None, now_ms: Callable[[], int] | None = None) -> int | None:
    """A bound of a range, as `time_ms` accepts it, rounded up so that it fits start and end."""
    if value is None or type(value) is int:
        return value
    return time_ms(value, round_up=True, now_ms=now_ms)


def is_span(text: str) -> bool:
    """Whether text is a span of time before now, such as "-7d"."""
    return _AGO.fullmatch(text.strip()) is not None


def is_day(value: str | date) -> bool:
    """Whether text or a date names a whole day: "2025-11-14", "today"; not an instant."""
    if isinstance(value, str):
        return value.strip() in _DAYS or _DAY.fullmatch(value.strip()) is not None
    return not isinstance(value, datetime)


def as_datetime(timestamp: int) -> datetime | None:
    """A timestamp of a record as a `datetime` in UTC; None for -1, which means no time.

    Raises:
        ValueError: it is outside the years 1 to 9999.

    Example:
        >>> as_datetime(1760000000007)
        datetime.datetime(2025, 10, 9, 8, 53, 20, 7000, tzinfo=datetime.timezone.utc)
    """
    if timestamp == NO_TIMESTAMP:
        return None
    if timestamp not in DATETIMES_MS:
        raise ValueError(f"{timestamp} ms lie outside the years 1 to 9999")
    return _EPOCH + timedelta(milliseconds=timestamp)


def cell_of(timestamp: int | None) -> datetime | None:
    """A timestamp in a table: a `datetime` in UTC; None for no time or outside years 1 to 9999."""
    return as_datetime(timestamp) if timestamp is not None and timestamp in DATETIMES_MS else None


def iso_text(timestamp: int | None) -> str | None:
    """`2025-10-09T08:53:20.000Z`; a plain number outside the years 1 to 9999; None: no time."""
    if timestamp is not None and timestamp != NO_TIMESTAMP and timestamp not in DATETIMES_MS:
        return str(timestamp)
    moment = None if timestamp is None else as_datetime(timestamp)
    if moment is None:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _ms_of_text(text: str, round_up: bool, now_ms: Callable[[], int] | None) -> int:
    """A time in ms: digits, a time that counts from the clock, or ISO 8601."""
    if _INTEGER.fullmatch(text):
        if abs(int(text)) > INT64_MAX:
            raise ValueError(f"{text!r} is not a 64-bit integer")
        return int(text)
    ago = _AGO.fullmatch(text)
    if text in ("now", *_DAYS) or ago:
        if now_ms is None:
            raise ValueError(f"{text!r} counts from a clock; give a datetime, ISO 8601 or ms here")
        if ago:
            return now_ms() - int(ago[1]) * _UNITS_MS[ago[2]]
        now = now_ms()
        return now if text == "now" else (now // DAY_MS - _DAYS[text]) * DAY_MS
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        words = "" if now_ms is None else ", nor now, today, yesterday or such as -90s, -1h, -7d"
        raise ValueError(
            f"{text!r} is neither a number of ms nor a time in ISO 8601{words}"
        ) from None
    return _ms_of_datetime(moment.replace(tzinfo=moment.tzinfo or UTC), round_up)


def _ms_of_datetime(moment: datetime, round_up: bool) -> int:
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return -(-since // _MS) if round_up else since // _MS


def datetimes_ms(column: Any) -> Any:
    """int64[n]: ms, rounded down, of datetime64[n] of any unit; -1 for NaT.

    Raises:
        ValueError: a time is beyond 64 bits in ms.
    """
    import numpy as np

    counts, per_ms, ms_each = _datetime_units(column)
    has_time = ~np.isnat(column)
    if ms_each > 1 and (np.abs(counts[has_time]) > INT64_MAX // ms_each).any():
        raise ValueError("a time has more milliseconds than 64 bits hold")
    return np.where(has_time, counts * ms_each // per_ms, NO_TIMESTAMP)


def _datetime_units(value: Any) -> tuple[Any, int, int]:
    """int64 of a datetime64, how many of it make a millisecond, and how many ms each of it is."""
    import numpy as np

    unit, step = np.datetime_data(value.dtype)
    if unit in ("Y", "M", "W", "generic"):
        value, unit, step = value.astype("datetime64[D]"), "D", 1
    counts = value.astype(np.int64)
    if unit in _PER_MS:
        return counts, _PER_MS[unit], step
    return counts, 1, _UNITS_MS[unit.lower()] * step
