"""Tiers in a store whose N-th request fails: right records or an error, in every layout."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kseg
from kseg.errors import KsegError
from kseg.log.tier.tier import Tier
from kseg.stores import store as stores
from tests.faulty_store import (
    ROOT,
    Fault,
    FaultyStore,
    at,
    cut,
    error,
    gives,
    half_stalled,
    objects_of,
    serving,
    since,
    stalled,
)
from tests.shares import WHOLE, share

Rows = list[tuple[int, bytes | None]]
#: Case, its tree, the partition.
LAYOUTS = {
    "local": ("4.2.0-local", "remote", "txn-0"),
    "aiven": ("4.2.0-aiven-chunked", "remote", "txn-0"),
    "aiven, sealed": ("4.2.0-aiven-zstd-encrypted", "remote", "txn-0"),
    "pinterest": ("pinterest", "remote-flat", "txn-0"),
}
CHANGED = error(412, "PreconditionFailed")
#: Faults of one request, and of all from one on.
FAULTS: dict[str, Callable[[int], Fault]] = {
    "once broken": lambda number: at(number, gives(error(500, "InternalError"))),
    "once cut": lambda number: at(number, cut),
    "once changed": lambda number: at(number, gives(CHANGED)),
    "once gone": lambda number: at(number, gives(error(404, "NoSuchKey"))),
    "broken": lambda number: since(number, gives(error(500, "InternalError"))),
    "cut": lambda number: since(number, cut),
    "changed": lambda number: since(number, gives(CHANGED)),
    "denied": lambda number: since(number, gives(error(403, "AccessDenied"))),
}
STALLS: dict[str, Callable[[int], Fault]] = {
    "once stalled": lambda number: at(number, stalled),
    "stalled": lambda number: since(number, half_stalled),
}


class Layout(NamedTuple):
    objects: dict[str, bytes]
    keys: dict[str, str]
    path: Path

    def rows(self, isolation: str = "read_uncommitted", **options: Any) -> Rows:
        """Offsets and values; the store is opened anew."""
        stores._open_store.cache_clear()
        scan = kseg.scan(
            self.path,
            tier=Tier.of(ROOT, keys=self.keys),
            isolation=isolation,
            open_transactions="abort",
            columns=("offset", "value"),
            **options,
        )
        return [
            (offset, None if value is None else bytes(value))
            for piece in scan
            for offset, value in zip(piece["offset"].tolist(), piece["value"], strict=True)
        ]


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest, fixtures_dir: Path, tmp_path: Path) -> Layout:
    name, tree, partition = LAYOUTS[request.param]
    case = fixtures_dir / "tiered" / name
    keys = {file.name.partition(".")[0]: str(file) for file in case.glob("keys/*.private.pem")}
    found = objects_of(case / tree)
    wanted = {key: data for key, data in found.items() if partition.partition("-")[0] in key}
    return Layout(wanted, keys, tmp_path / partition)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores.time, "sleep", lambda _seconds: None)


def faulty(
    layout: Layout, store: FaultyStore, faults: dict[str, Callable[[int], Fault]], count: int
) -> Iterator[tuple[str, int, str]]:
    """Read with a fault at each request: right records, or an error that names an object."""
    for isolation in ("read_uncommitted", "read_committed"):
        store.reset()
        wanted = layout.rows(isolation)
        assert len(wanted) > 100
        numbers = range(len(store.asked))
        cases = [(name, number) for name in faults for number in numbers]
        for name, number in share(cases, count, f"{layout.path} {isolation}"):
            store.reset(faults[name](number))
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    assert layout.rows(isolation) == wanted, (name, number, isolation)
                except (KsegError, OSError) as failed:
                    assert "tier" in str(failed)  # noqa: PT017
                    yield name, number, "error"
                else:
                    yield name, number, "right"
            store.release()


@pytest.mark.timeout(1800)
def test_a_fault_at_any_request_gives_right_records_or_an_error(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fault at every request with KSEG_WHOLE=1."""
    with serving(layout.objects, monkeypatch, deadline_s=0.0) as store:
        for name, number, came in faulty(layout, store, FAULTS, 2):
            # Without time left for a repetition a bad answer is an error; the last may be right.
            assert came == "error" or name.startswith("once") or number > 0, (name, number)


@pytest.mark.timeout(1800)
def test_a_stall_at_any_request_ends(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request with KSEG_WHOLE=1."""
    if not WHOLE and len(layout.keys) == 0:
        return
    with serving(layout.objects, monkeypatch, request_s=0.5, deadline_s=0.6) as store:
        for name, number, came in faulty(layout, store, STALLS, 1):
            assert came == "error" or name.startswith("once") or number > 0, (name, number)
