"""One store: requests with retries and a deadline, errors in words, listings a page at a time."""

from __future__ import annotations

import configparser
import errno
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from kseg.errors import CorruptRecordError, LimitExceededError, MissingExtraError, os_reason
from kseg.extras import check_memory, require
from kseg.files.mapping import HUGE_BYTES, private_memory
from kseg.stores.url import SCHEMES, check_url

#: The schemes that obstore knows; fsspec has the others.
_OBSTORE: Final = ("s3", "gs", "abfs", "az", "adl", "http", "https")
#: Seconds for one request, and for one with all its repetitions.
REQUEST_S: Final = 30.0
DEADLINE_S: Final = 90.0
_RETRIES: Final = 4
#: Keys in one page of a listing, and the keys that a listing may have.
PAGE_KEYS: Final = 1_000
LISTED_MAX: Final = 10_000_000
#: Of an answer, at least so many bytes are taken at a time: little, since they are copied.
_PART_BYTES: Final = 64 << 10

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as the store described it.

    Attributes:
        url: of the object.
        size: in bytes.
        etag: changes with the contents; None where the store has none.
        modified_ms: the time of the last change, in ms; -1 where the store does not say.
    """

    url: str
    size: int
    etag: str | None = None
    modified_ms: int = -1


class _Said(NamedTuple):
    """A store's description of an object, by its key."""

    key: str
    size: int
    etag: str | None
    modified_ms: int

    def at(self, url: str) -> StoredObject:
        """The object at a URL."""
        return StoredObject(url, self.size, self.etag, self.modified_ms)


class _Backend(Protocol):
    """A library that speaks with a store. Keys have no slash in front."""

    errors: tuple[type[Exception], ...]

    def head(self, key: str) -> _Said:
        """Describe an object."""

    def read(self, key: str, start: int, end: int, etag: str | None) -> memoryview:
        """Bytes of an object; an error if its ETag is another."""

    def pages(self, key: str) -> Iterator[Sequence[_Said]]:
        """All objects below a key."""


class _Obstore:
    """obstore: S3, Google's and Microsoft's stores, web servers."""

    def __init__(self, root: str) -> None:
        obstore = require("obstore", extra="cloud")
        from obstore.store import from_url

        seconds = timedelta(seconds=REQUEST_S)
        self._module = obstore
        config: Any = _aws_config() if root.startswith("s3:") else {}
        self._store = from_url(
            root,
            client_options={"allow_http": True, "timeout": seconds, "connect_timeout": seconds / 3},
            retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=DEADLINE_S)},
            **config,
        )
        self.errors: tuple[type[Exception], ...] = (obstore.exceptions.BaseError, OSError)

    def head(self, key: str) -> _Said:
        return _said(self._module.head(self._store, key))

    def read(self, key: str, start: int, end: int, etag: str | None) -> memoryview:
        options: dict[str, Any] = {"range": (start, end)}
        if etag is not None:
            options["if_match"] = etag
        found = self._module.get(self._store, key, options=options)
        if end - start < HUGE_BYTES:
            return memoryview(found.bytes())
        # Heaps of threads would keep what blocks leave free in them. One byte more: for an answer
        # that is too long.
        room, filled = end - start + 1, 0
        data = private_memory(room, ((0, room),)).data
        for part in found.stream(_PART_BYTES):
            taken = part[: room - filled]
            data[filled : filled + len(taken)] = taken
            filled += len(taken)
        return data[:filled].toreadonly()

    def pages(self, key: str) -> Iterator[Sequence[_Said]]:
        for page in self._module.list(self._store, key or None, chunk_size=PAGE_KEYS):
            yield [_said(one) for one in page]


def _said(one: Any) -> _Said:
    return _Said(one["path"], int(one["size"]), one["e_tag"], _ms(one["last_modified"]))


class _Fsspec:
    """fsspec: every other store."""

    errors: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, root: str) -> None:
        require("fsspec", extra="cloud")
        from fsspec.core import url_to_fs

        scheme = urlsplit(root).scheme
        try:
            # Listings that others have cached may be out of date.
            self._system, self._top = url_to_fs(root, use_listings_cache=False)
        except ImportError as error:
            check_memory(error)
            package = error.name or scheme
            raise MissingExtraError(
                f"{package} is not installed; pip install {package} brings it"
            ) from error
        except ValueError as error:
            raise ValueError(f"kseg: {root}: neither a file nor in a store: {error}") from None

    def _path(self, key: str) -> str:
        return f"{self._top.rstrip('/')}/{key}"

    def head(self, key: str) -> _Said:
        said = self._system.info(self._path(key))
        if said.get("type") != "file":
            raise FileNotFoundError(errno.ENOENT, "not an object")
        return self._known(said)

    def _known(self, said: dict[str, Any]) -> _Said:
        name = str(said["name"]).removeprefix(self._top.rstrip("/")).lstrip("/")
        etag = said.get("ETag")
        when = _ms(said.get("created") or said.get("mtime"))
        return _Said(name, int(said["size"]), etag, when)

    def read(self, key: str, start: int, end: int, etag: str | None) -> memoryview:
        if etag is not None and self.head(key)[2] != etag:
            raise OSError(errno.ESTALE, _CHANGED)
        return memoryview(self._system.cat_file(self._path(key), start=start, end=end))

    def pages(self, key: str) -> Iterator[Sequence[_Said]]:
        found = self._system.find(self._path(key), detail=True)
        yield [self._known(said) for said in found.values() if said.get("type") == "file"]


def _ms(when: object) -> int:
    if isinstance(when, (int, float)):
        return int(when * 1000)
    return int(when.timestamp() * 1000) if isinstance(when, datetime) else -1


def _aws_config() -> dict[str, str]:
    """Credentials and region from the files of AWS, in addition to the environment."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE")
    home, profile = Path.home() / ".aws", os.environ.get("AWS_PROFILE", "default")
    found: dict[str, str] = {}
    files = [("AWS_CONFIG_FILE", "config", f"profile {profile}")]
    if not any(map(os.environ.get, names)):
        files.append(("AWS_SHARED_CREDENTIALS_FILE", "credentials", profile))
    for variable, name, other in files:
        parser = configparser.RawConfigParser()
        parser.read(os.environ.get(variable, home / name))
        section = other if parser.has_section(other) else profile
        found |= dict(parser.items(section)) if parser.has_section(section) else {}
    wanted = {f"aws_{name}": f"aws_{name}" for name in ("access_key_id", "secret_access_key")}
    wanted |= {"aws_session_token": "aws_session_token"}
    if not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        wanted |= {"region": "aws_region"}
    return {given: found[name] for name, given in wanted.items() if name in found}


# ---- errors --------------------------------------------------------------------------------------

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
_CHANGED: Final = "the object changed while it was read; open it again"
#: Statuses, and the error and words for each.
_STATUSES: Final = {
    301: (errno.EREMOTE, "the bucket is in another region: set AWS_REGION or AWS_ENDPOINT_URL"),
    401: (errno.EACCES, "the store does not accept the credentials"),
    403: (errno.EACCES, "the store refuses access"),
    404: (errno.ENOENT, "no such object"),
    416: (errno.ESTALE, _CHANGED),
    412: (errno.ESTALE, _CHANGED),
    429: (errno.EBUSY, "the store is too busy"),
    503: (errno.EBUSY, "the store is too busy"),
}
#: The same for the store's own words.
_CODES: Final = {
    "InvalidObjectState": (errno.EACCES, "the object is in an archive class; restore it first"),
    "ExpiredToken": (errno.EACCES, "the credentials have expired"),
    "NoSuchBucket": (errno.ENOENT, "no such bucket"),
}


def _told(error: Exception, url: str) -> Exception:
    """The error of a library, in our words: neither the request nor its headers appear."""
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    number, words = errno.EIO, ""
    if status is not None:
        number, words = _STATUSES.get(int(status[1]), (errno.EIO, "the store failed"))
        if code is not None:
            number, words = _CODES.get(code[1], (number, words))
        words += f" ({status[1]}{'' if code is None else ' ' + code[1]})"
    elif isinstance(error, OSError) and error.errno is not None:
        number, words = error.errno, os_reason(error)
    elif isinstance(error, FileNotFoundError):
        number, words = _STATUSES[404]
    elif isinstance(error, PermissionError):
        number, words = _STATUSES[403]
    else:
        last = text.split("\n")[0].split(" - ")[-1]
        words = f"the store does not answer: {re.sub(r'[^ ]*://[^ ]*', 'URL', last)[:200]}"
    if number == errno.ESTALE:
        return CorruptRecordError(words, path=url)
    return OSError(number, words, url)


# ---- the store -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Store:
    """One store, with a count of requests and bytes.

    Attributes:
        root: scheme and bucket.
        requests: since the store was opened, repetitions left out.
        bytes: that were read.
    """

    root: str
    _backend: _Backend
    requests: int = 0
    bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, url: str) -> Store:
        """The store of a URL; the same one for each URL of a bucket.

        Raises:
            MissingExtraError: the package for this store is not installed.
            ValueError: no package supports this store, or the URL has credentials.
        """
        check_url(url)
        scheme, _, rest = url.partition("://")
        scheme = scheme.lower()
        return _opened(f"{SCHEMES.get(scheme, scheme)}://{rest.partition('/')[0]}")

    def describe(self, url: str) -> StoredObject:
        """Size and ETag of an object: one request.

        Raises:
            OSError: the object does not exist, or the store refuses.
        """
        return self._ask(url, lambda: self._backend.head(_key_of(url))).at(url)

    def read(self, stored: StoredObject, start: int, end: int) -> memoryview:
        """A range of an object, which lies in it.

        Raises:
            CorruptRecordError: the object is another one now, or gave fewer bytes again and again.
            OSError: the store refuses, or did not answer in time.
        """
        key = _key_of(stored.url)
        for _ in range(_RETRIES):
            data = self._ask(
                stored.url, lambda: self._backend.read(key, start, end, stored.etag), end - start
            )
            if len(data) == end - start:
                return data
        raise CorruptRecordError(
            f"the store gave {len(data)} bytes of {end - start}, {_RETRIES} times",
            path=stored.url,
            position=start,
        )

    def listed(self, url: str) -> Iterator[StoredObject]:
        """Every object below a URL: one request for a thousand.

        Raises:
            LimitExceededError: the listing has too many objects.
            OSError: the store refuses, or did not answer in time.
        """
        seen, pages = 0, iter(self._backend.pages(_key_of(url).rstrip("/")))
        while True:
            page = self._ask(url, lambda: _in_time(lambda: next(pages, None), url))
            if page is None:
                return
            seen += len(page)
            if seen > LISTED_MAX:
                raise LimitExceededError(f"more than {LISTED_MAX} objects", path=url)
            for said in page:
                yield said.at(f"{self.root}/{said.key}")

    def _ask(self, url: str, call: Callable[[], _Answer], size: int = 0) -> _Answer:
        """Make a request; a lasting error is an `OSError` with the URL."""
        end, pause = time.monotonic() + DEADLINE_S, 0.1
        for attempt in range(_RETRIES):
            try:
                answer = call()
                break
            except self._backend.errors as error:
                told = _told(error, url)
                # obstore repeats a request with a bad answer, not a request that was cut short.
                again = isinstance(told, OSError) and told.errno == errno.EIO
                again &= _STATUS.search(str(error)) is None
                if not again or attempt == _RETRIES - 1 or time.monotonic() + pause > end:
                    raise told from None
            time.sleep(pause)
            pause *= 2
        with self._lock:
            self.requests += 1
            self.bytes += size
        return answer


def _in_time(call: Callable[[], _Answer], url: str) -> _Answer:
    """Call in a thread that is left alone if it takes longer than a request may."""
    answers: list[_Answer] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # handed to the caller's thread
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True, name="kseg-listing")
    thread.start()
    thread.join(DEADLINE_S)
    if failed:
        raise failed[0]
    if not answers:
        raise OSError(errno.ETIMEDOUT, f"the listing had no end after {DEADLINE_S:.0f} s", url)
    return answers[0]


def _key_of(url: str) -> str:
    return url.partition("://")[2].partition("/")[2]


@lru_cache(64)
def _opened(root: str) -> Store:
    scheme = root.partition(":")[0]
    backend: _Backend = _Obstore(root) if scheme in _OBSTORE else _Fsspec(root)
    return Store(root, backend)


__all__ = ["Store", "StoredObject"]
