"""Searches beside scans of the same keys and values, and for a key beside aiokafka's walk."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from bench import peers
from bench.case import Case, made, per_record
from bench.pairs import Contest, Versus
from kseg.records.scan import grep, scan

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

#: Texts that no record holds, of 1 to 20 bytes; one call looks for one after the other.
ABSENT: Final = (
    b"~",
    b"Zq",
    b"ee~",
    b"QQQQ",
    b"erorr",
    b"id_0000a",
    b"timestamps",
    b"abcabcabcabca",
    b'"status": "nowhe',
    b"ffffffffffffffffffff",
)
_LOGS: Final = {
    "plain, 16 KB batches": "v2-plain-100-16k",
    "plain, 1 KB values": "v2-plain-1000-16k",
    "zstd, 16 KB batches": "v2-zstd-100-16k",
    "zstd, 1 MB batches": "v2-zstd-100-1m",
}


def grep_cases() -> list[Case]:
    """An absent text in plain and in compressed batches, and an absent key."""
    return [
        *(Case("grep", f"grep {label}", "record", _absent(name)) for label, name in _LOGS.items()),
        Case("grep", "grep an exact key", "record", _exact_key),
    ]


def _absent(name: str) -> Callable[[ExitStack], Contest]:
    """Looks for texts that are not there beside a scan, on as many threads: one."""

    def prepare(_stack: ExitStack) -> Contest:
        log = made(name)

        def search() -> int:
            for needle in ABSENT:
                assert sum(map(len, grep(needle, log.log, columns="offset"))) == 0
            return log.records * len(ABSENT)

        def pairs() -> int:
            return sum(map(len, scan(log.log, columns=("key", "value"))))

        return Contest(search, (Versus("scan of keys and values", pairs),))

    return prepare


def _exact_key(_stack: ExitStack) -> Contest:
    log = made(_LOGS["plain, 16 KB batches"])
    data = log.log.read_bytes()

    def search() -> int:
        assert sum(map(len, scan(log.log, key=b"0123456789abcdef", columns="offset"))) == 0
        return log.records

    walk = per_record("aiokafka", partial(peers.aiokafka_records, data, log.records), log)
    return Contest(search, (walk,))
