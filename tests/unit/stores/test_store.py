"""One store: its errors in words, repetitions, limits."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Iterator, Sequence

import pytest

from kseg.errors import CorruptRecordError, LimitExceededError, MissingExtraError
from kseg.stores import store as stores
from kseg.stores.store import Store, StoredObject

ONE = StoredObject("s3://bucket/key", 100, '"etag"')


class Backend:
    """A library that fails as it is told."""

    errors: tuple[type[Exception], ...] = (OSError, RuntimeError)

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.calls = 0

    def head(self, key: str) -> StoredObject:
        raise AssertionError

    def read(self, key: str, start: int, end: int, stored: StoredObject) -> memoryview:
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, bytes)
        return memoryview(answer)

    def pages(self, key: str, after: str | None) -> Iterator[Sequence[StoredObject]]:
        while True:
            if self.answers == ["stall"]:
                time.sleep(5)
            self.calls += 1
            yield [StoredObject(f"{key}/{self.calls}-{n}", 1, None, -1) for n in range(1000)]


def status(number: int, code: str = "") -> RuntimeError:
    body = f"<Error><Code>{code}</Code><Key>signature</Key></Error>" if code else ""
    return RuntimeError(
        f"Error performing GET https://host/key?X-Signature=secret in 3ms - Server returned "
        f"non-2xx status code: {number} Words: {body}\n\nDebug source: secret"
    )


@pytest.mark.parametrize(
    ("error", "number", "words"),
    [
        (status(301), errno.EREMOTE, "another region"),
        (
            status(403),
            errno.EACCES,
            r"refuses access .* \(403\)",
        ),
        (status(403, "InvalidObjectState"), errno.EACCES, "archive class"),
        (status(400, "ExpiredToken"), errno.EACCES, "have expired"),
        (status(404, "NoSuchKey"), errno.ENOENT, r"no such object \(404 NoSuchKey\)"),
        (status(404, "NoSuchBucket"), errno.ENOENT, "no such bucket"),
        (status(429), errno.EBUSY, "too busy"),
        (status(500, "InternalError"), errno.EIO, r"failed \(500 InternalError\)"),
        (FileNotFoundError("gone"), errno.ENOENT, "no such object"),
        (PermissionError("https://secret"), errno.EACCES, "refuses access"),
        (RuntimeError("GET https://host/?secret - HTTP error: timed out"), errno.EIO, "timed out"),
    ],
)
def test_an_error_is_one_line_with_the_object_and_without_the_request(
    monkeypatch: pytest.MonkeyPatch, error: Exception, number: int, words: str
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    with pytest.raises(OSError, match=words) as caught:
        Store("s3://bucket", Backend(error)).read(ONE, 0, 10)
    assert (caught.value.errno, caught.value.filename) == (number, ONE.url)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", [412, 416])
def test_an_object_that_changed_is_damage(number: int) -> None:
    with pytest.raises(CorruptRecordError, match=r"^s3://bucket/key: the object changed"):
        Store("s3://bucket", Backend(status(number))).read(ONE, 0, 10)


def test_a_range_that_is_cut_short_is_asked_for_again() -> None:
    backend = Backend(b"12345", RuntimeError("connection reset"), b"1234567890")
    store = Store("s3://bucket", backend)
    assert store.read(ONE, 0, 10) == b"1234567890"
    assert (backend.calls, store.requests) == (3, 2)
    with pytest.raises(OSError, match="gave 3 bytes of 10 at 0, 4 times"):
        Store("s3://bucket", Backend(b"123")).read(ONE, 0, 10)


def test_a_listing_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "LISTED_MAX", 5_000)
    with pytest.raises(LimitExceededError, match="more than 5000 objects"):
        list(Store("s3://bucket", Backend("endless")).listed("s3://bucket/a"))
    monkeypatch.setattr(stores, "DEADLINE_S", 0.05)
    monkeypatch.setattr(stores, "REQUEST_S", 0.05)
    with pytest.raises(OSError, match="no end after") as caught:
        list(Store("s3://bucket", Backend("stall")).listed("s3://bucket/a"))
    assert caught.value.errno == errno.ETIMEDOUT


class Interrupted(Backend):
    """Six objects, two in a page; a listing fails at its second page, and one at the first."""

    def pages(self, key: str, after: str | None) -> Iterator[Sequence[StoredObject]]:
        self.calls += 1
        if self.calls == 1:
            raise OSError(errno.EIO, "no answer")
        keys = [
            f"{key}/{number}" for number in range(6) if after is None or f"{key}/{number}" > after
        ]
        yield [StoredObject(one, 1, None, -1) for one in keys[:2]]
        if len(keys) > 2:
            raise OSError(errno.EIO, "cut short")


def test_a_listing_that_fails_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    backend = Interrupted()
    found = [one.url for one in Store("s3://bucket", backend).listed("s3://bucket/a/")]
    assert found == [f"s3://bucket/a/{number}" for number in range(6)]
    assert backend.calls == 4


def test_keys_that_lie_elsewhere_are_left_out() -> None:
    class Stray(Backend):
        def pages(self, key: str, after: str | None) -> Iterator[Sequence[StoredObject]]:
            names = ("a/../b", "/a/b", "a//b", "a/./b", "ab/c", "b", "a", "a/b", "a/b/", "a/c/d")
            yield [StoredObject(name, 1, None, -1) for name in names]

    found = [one.url for one in Store("s3://bucket", Stray()).listed("s3://bucket/a")]
    assert found == ["s3://bucket/a/b", "s3://bucket/a/c/d"]


def test_the_same_objects_again_are_a_listing_without_an_end() -> None:
    class Again(Backend):
        def pages(self, key: str, after: str | None) -> Iterator[Sequence[StoredObject]]:
            while True:
                yield [StoredObject("a/b", 1, None, -1), StoredObject("a/c", 1, None, -1)]

    with pytest.raises(OSError, match="lists objects twice") as caught:
        list(Store("s3://bucket", Again()).listed("s3://bucket/a"))
    assert caught.value.filename == "s3://bucket/a"


@pytest.mark.parametrize(
    ("package", "url"), [("obstore", "s3://no-package/x"), ("fsspec", "nfs4://no-package/x")]
)
def test_a_missing_package_is_a_line_with_the_command(
    monkeypatch: pytest.MonkeyPatch, package: str, url: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=f"^{package} .* pip install 'kseg\\[cloud\\]'"):
        Store.of(url)


def test_files_of_the_provider_have_what_the_environment_leaves_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    from pathlib import Path

    home = Path(str(tmp_path))
    (home / "credentials").write_text("[work]\naws_access_key_id = A\naws_secret_access_key = B%\n")
    (home / "config").write_text("[profile work]\nregion = eu-west-9\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(home / "config"))
    wanted = {"aws_access_key_id": "A", "aws_secret_access_key": "B%", "aws_region": "eu-west-9"}
    assert stores._aws_config() == wanted
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert stores._aws_config() == {}
