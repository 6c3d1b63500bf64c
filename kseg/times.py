"""Times of records: milliseconds since 1970 in UTC, and the forms that callers give and want."""

from __future__ import annotations

from kseg.format.times import Time, as_datetime, time_ms

__all__ = ["Time", "as_datetime", "time_ms"]
