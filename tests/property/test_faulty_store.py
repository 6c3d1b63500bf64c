"""A store whose answers are wrong: the verbs say so in a line, or give the right records.

About half of the faults by default, all of them with KSEG_WHOLE=1.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import kseg as library
from kseg.stores import store as stores
from tests.faulty_store import (
    ACCESS_KEY,
    ROOT,
    SECRET,
    Answer,
    Fault,
    Request,
    at,
    cut,
    error,
    gives,
    half_stalled,
    listing,
    objects_of,
    of_key,
    serving,
    stalled,
)
from tests.shares import share
from tests.unit.cli.conftest import Kseg, Ran, kseg  # noqa: F401

#: Deadlines that a stall reaches soon.
STALLS = {"request_s": 0.4, "deadline_s": 0.8}


@pytest.fixture
def served(fixtures_dir: Path) -> dict[str, bytes]:
    """A tier, and the same partition as plain objects."""
    case = fixtures_dir / "tiered" / "4.2.0-local"
    found = {key: data for key, data in objects_of(case / "remote").items() if "/plain-0-" in key}
    local = objects_of(case / "original" / "plain-0")
    return found | {f"data/plain-0/{name}": data for name, data in local.items()}


@pytest.fixture
def ran(kseg: Kseg) -> Kseg:  # noqa: F811
    """A command line in this process; the store is opened anew."""

    def go(*words: str) -> Ran:
        stores._open_store.cache_clear()
        return kseg(*words)

    return go


TIERED = ("plain-0", "--tier", ROOT)
PLAIN = (f"{ROOT}/data/plain-0",)


def swapped(**headers: str) -> Fault:
    """Other headers of ranges."""

    def fault(request: Request, right: Answer) -> Answer:
        is_range = request.start is not None and right.status == 206
        return replace(right, headers={**right.headers, **headers}) if is_range else right

    return fault


def grown(_request: Request, right: Answer) -> Answer:
    """The object is longer than it was."""
    content = right.headers.get("Content-Range", "")
    headers = {**right.headers, "Content-Range": re.sub(r"/\d+$", "/9999999", content)}
    return replace(right, headers=headers) if content else right


def whole(request: Request, right: Answer) -> Answer:
    """All of the object, though a part was asked for."""
    if right.status != 206:
        return right
    headers = {name: text for name, text in right.headers.items() if name != "Content-Range"}
    return Answer(200, right.body * 2, headers)


def again(request: Request, right: Answer) -> Answer:
    """The same page for ever."""
    return listing([("k/a.log", 5, '"x"')], "token") if request.is_listing else right


def ever_new(request: Request, right: Answer) -> Answer:
    """A next page for ever."""
    rows = [(f"k/{request.number:09d}-{n}.log", 5, '"x"') for n in range(100)]
    return listing(rows, f"{request.number}") if request.is_listing else right


def to_itself(request: Request, _right: Answer) -> Answer:
    return error(302, "", Location=f"/tier/{request.key}")


def shorter(_request: Request, right: Answer) -> Answer:
    return replace(right, length=max(len(right.body) - 9, 0))


def flooded(_request: Request, right: Answer) -> Answer:
    return replace(right, body=right.body + bytes(1 << 20))


def longer(_request: Request, right: Answer) -> Answer:
    return replace(right, length=len(right.body) + 9)


#: Name: the fault, the words of the message. The credentials are right, and the bucket is there.
EVERYWHERE: dict[str, tuple[Fault, str]] = {
    "another region": (gives(error(301, "PermanentRedirect")), "another region: set AWS_REGION"),
    "no answer to the credentials": (gives(error(401, "")), "does not accept the credentials"),
    "refused": (gives(error(403, "AccessDenied")), r"refuses access .*\(403 AccessDenied\)"),
    "no bucket": (gives(error(404, "NoSuchBucket")), "no such bucket"),
    "expired": (gives(error(403, "ExpiredToken")), "have expired; get new ones"),
    "expired, as a bad request": (gives(error(400, "ExpiredToken")), "have expired; get new ones"),
    "too many requests": (gives(error(429, "SlowDown")), r"too busy; try again later \(429"),
    "told to wait": (gives(error(429, "SlowDown", Retry_After="60")), "too busy; try again later"),
    "broken": (gives(error(500, "InternalError")), r"failed \(500 InternalError\)"),
    "down": (gives(error(503, "ServiceUnavailable")), "too busy; try again later"),
    "a loop": (to_itself, "from one address to the next"),
    "the same page": (again, "lists objects twice|had no end"),
    "a next page": (ever_new, "more than 3000 objects; name a URL|had no end"),
    "a listing that is cut": (cut, "cut short"),
    "a key that leads out": (
        gives(listing([("a/../../b.log", 5, '"x"')], None)),
        r"invalid path.*a/\.\./\.\./b\.log",
    ),
    "a key with an empty part": (gives(listing([("a//b.log", 5, '"x"')], None)), "invalid path"),
}
#: The same for the objects that hold records.
OF_LOGS: dict[str, tuple[Fault, str]] = {
    "gone": (gives(error(404, "NoSuchKey")), "no such object|file is gone"),
    "archived": (gives(error(403, "InvalidObjectState")), "archive class; restore it first"),
    "cut": (cut, "cut short"),
    "too short": (shorter, "the store gave"),
    "too long": (longer, "cut short"),
    "without an end": (flooded, r"the store gave (\d+) bytes of \d+"),
    "changed": (gives(error(412, "PreconditionFailed")), "object changed"),
    "changed, and nobody says so": (swapped(ETag='"other"'), "object changed"),
    "grown": (grown, "object changed"),
    "whole": (whole, "does not give parts"),
    "broken": (gives(error(500, "InternalError")), r"failed \(500 InternalError\)"),
}


def checked(found: Ran, words: str, *, name: str) -> Ran:
    """One line or findings, with an object, without the request."""
    text = found.text + found.err
    assert found.code in (1, 3, 4), text
    assert re.search(words, text), text
    assert f"{ROOT}/{name}" in text or f"{ROOT}:" in text
    for secret in (SECRET, ACCESS_KEY, "Traceback", "http://", "Authorization", "X-Amz"):
        assert secret not in text
    assert all(line.startswith("kseg: ") for line in found.err.splitlines())
    return found


@pytest.mark.parametrize("name", share(EVERYWHERE, 3, "everywhere"))
def test_a_store_that_cannot_be_read_is_a_line_that_says_why(
    monkeypatch: pytest.MonkeyPatch,
    ran: Kseg,
    served: dict[str, bytes],
    name: str,
) -> None:
    fault, words = EVERYWHERE[name]
    monkeypatch.setattr(stores, "LISTED_MAX", 3_000)
    monkeypatch.setattr(stores.time, "sleep", lambda _seconds: None)
    with serving(served, monkeypatch, fault=fault) as store:
        for place in (TIERED, PLAIN):
            for verb in share(("info", "verify", "read"), 1, f"{name} {place}"):
                found = checked(ran(verb, *place), words, name="data/plain-0")
                assert found.code in (3, 4)
                assert not found.text
                assert found.err.count("\n") == 1
        assert store.asked


@pytest.mark.parametrize("name", share(OF_LOGS, 2, "of logs"))
def test_objects_that_cannot_be_read_are_named_and_the_rest_is_verified(
    monkeypatch: pytest.MonkeyPatch,
    ran: Kseg,
    served: dict[str, bytes],
    name: str,
) -> None:
    fault, words = OF_LOGS[name]
    monkeypatch.setattr(stores.time, "sleep", lambda _seconds: None)
    logs = sorted(key for key in served if key.endswith(".log"))
    tiered = [key for key in logs if "data/" not in key]
    with serving(served, monkeypatch) as store:
        right = ran("read", *TIERED)
        assert right.code == 0
        for place, key in ((TIERED, tiered[1]), (PLAIN, logs[1])):
            store.reset(of_key(key, fault))
            found = checked(ran("read", *place), words, name=key)
            assert right.text.startswith(found.text)
            assert found.err.count("\n") == 1
            found = checked(ran("verify", *place), words, name=key)
            records = int(re.search(r"(\d+) records?:", found.text)[1])  # type: ignore[index]
            assert 0 < records < right.text.count("\n")
            checked(ran("info", *place), words, name=key)


@pytest.mark.parametrize("fault", [stalled, half_stalled])
def test_a_store_that_stalls_is_left(
    monkeypatch: pytest.MonkeyPatch,
    ran: Kseg,
    served: dict[str, bytes],
    fault: Fault,
) -> None:
    monkeypatch.setattr(stores.time, "sleep", lambda _seconds: None)
    with serving(served, monkeypatch, fault=fault, **STALLS) as store:
        for place in (TIERED, PLAIN):
            found = ran("read", *place)
            checked(found, "no answer in time|had no end", name="data")
            store.release()


def test_one_bad_answer_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, served: dict[str, bytes], tmp_path: Path
) -> None:
    monkeypatch.setattr(stores.time, "sleep", lambda _seconds: None)
    with serving(served, monkeypatch, deadline_s=30) as store:
        wanted = rows(tmp_path)
        total = len(store.asked)
        for number in share(range(total), 2, "numbers"):
            for fault in (cut, shorter, gives(error(500)), gives(error(429, "SlowDown"))):
                store.reset(at(number, fault))
                assert rows(tmp_path) == wanted


def rows(tmp_path: Path) -> list[tuple[int, bytes | None]]:
    stores._open_store.cache_clear()
    scan = library.scan(tmp_path / "plain-0", tier=ROOT, columns=("offset", "value"))
    return [
        (offset, None if value is None else bytes(value))
        for piece in scan
        for offset, value in zip(piece["offset"].tolist(), piece["value"], strict=True)
    ]


def test_a_weak_etag_is_compared_and_not_sent(
    monkeypatch: pytest.MonkeyPatch, served: dict[str, bytes], tmp_path: Path
) -> None:
    """A server may refuse each request with a weak ETag in `If-Match`."""

    def weakened(request: Request, right: Answer) -> Answer:
        if request.is_listing:
            body = right.body.replace(b'<ETag>"', b'<ETag>W/"')
            return replace(right, body=body)
        return replace(right, headers={**right.headers, "ETag": f"W/{right.headers['ETag']}"})

    def other(request: Request, right: Answer) -> Answer:
        weak = weakened(request, right)
        return (
            weak if request.is_listing else replace(weak, headers={**weak.headers, "ETag": "W/1"})
        )

    with serving(served, monkeypatch) as store:
        wanted = rows(tmp_path)
        store.reset(weakened)
        assert rows(tmp_path) == wanted
        store.reset(other)
        with pytest.raises(library.CorruptRecordError, match="object changed"):
            rows(tmp_path)
