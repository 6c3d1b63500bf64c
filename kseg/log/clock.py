"""The clock of a log: the machine's, or a given one, limited to 64 bits."""

from __future__ import annotations

from collections.abc import Callable
from time import time_ns

from kseg.constants import INT64_MAX
from kseg.format.request import RequestOptions
from kseg.format.times import Time, time_ms


def machine_ms() -> int:
    """The machine's time, in ms."""
    return time_ns() // 1_000_000


def clock_of(ask: Callable[[], int] | None) -> Callable[[], int]:
    """A clock in ms; None for the machine's.

    Raises, whenever it is asked:
        ValueError: the function returns a time that no record can have.
    """
    if ask is None:
        return machine_ms

    def clock() -> int:
        now_ms = ask()
        if not 0 <= now_ms <= INT64_MAX:
            raise ValueError(f"a clock answers 0 to 2^63 - 1 ms, not {now_ms}")
        return now_ms

    return clock


def now_of(now: Time | None, ask: Callable[[], int] = machine_ms) -> int:
    """A time in ms: the clock's if None."""
    return ask() if now is None else time_ms(now)


def with_now(options: RequestOptions) -> RequestOptions:
    """Options of a read, with the machine's time if a bound may count from it."""
    if "now" in options or "time" not in options:
        return options
    return {**options, "now": machine_ms()}
