"""Results as one table for people and as JSON for `bench.compare`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.goals import LIMITS, goal, verdict

if TYPE_CHECKING:
    from bench.cases import Case
    from bench.pairs import Result

PACKAGES = (
    *("kseg", "aiokafka", "kafka-python", "crc32c", "numpy"),
    *("pyarrow", "lz4", "backports.zstd", "cramjam", "isal"),
)
HEADER = (
    f"{'case':37} {'':5} {'against':20} {'median':>8} {'middle half':>17} {'goal':>5}"
    f" {'kseg':>11}  verdict"
)
#: Units per nanosecond are shown as GB or millions a second.
SCALE = {
    "byte": (1, "GB/s"),
    "lookup": (1e3, "M/s"),
    "record": (1e3, "M/s"),
    "batch": (1e3, "M/s"),
    "segment": (1e6, "k/s"),
}


def line(case: Case, result: Result) -> str:
    """One row: the ratio, its middle half, the goal, and a rate that is only good for an idea."""
    low, high = result.quartiles
    scale, unit = SCALE[case.unit]
    rate = scale / sorted(result.subject_ns)[len(result.subject_ns) // 2]
    wanted = goal(case.name, result.peer)
    return (
        f"{case.name:37} {kind(result.peer):5} {result.peer:20} {result.median:7.2f}x"
        f" {low:7.2f} .. {high:6.2f} {_number(wanted):>5} {rate:6.2f} {unit:4}"
        f"  {verdict(wanted, result.median)}"
    ).rstrip()


def kind(peer: str) -> str:
    """Whether nothing can be faster, or somebody could take it instead."""
    return "limit" if peer in LIMITS else "peer"


def rows(case: Case, results: list[Result]) -> list[dict[str, Any]]:
    """The same, for JSON: every round is kept."""
    found = []
    for result in results:
        wanted = goal(case.name, result.peer)
        found.append(
            {
                "group": case.group,
                "case": case.name,
                "unit": case.unit,
                "peer": result.peer,
                "kind": kind(result.peer),
                "median": result.median,
                "quartiles": result.quartiles,
                "goal": wanted,
                "met": None if wanted is None else result.median >= wanted,
                "ratios": result.ratios,
                "subject_ns": result.subject_ns,
                "peer_ns": result.peer_ns,
            }
        )
    return found


def machine() -> dict[str, Any]:
    """What the figures belong to."""
    return {
        "cpu": _cpu(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "codecs": _codecs(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    pairs = (part.split(":", 1) for part in lines if ":" in part)
    named = {key.strip(): value.strip() for key, value in pairs}
    name = named.get("model name", platform.processor())
    return f"{name} (family {named.get('cpu family')}, model {named.get('model')})"


def _codecs() -> str:
    """Which library inflates what."""
    import kseg

    return ", ".join(
        f"{codec.name.lower()} by {' '.join(filter(None, (by.name, by.version)))}"
        for codec, by in kseg.codecs().items()
    )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
