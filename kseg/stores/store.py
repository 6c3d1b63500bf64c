"""One store: requests with retries and a deadline, errors in words, listings a page at a time."""

from __future__ import annotations

import configparser
import errno
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from kseg.documents import frozen_dataclass
from kseg.errors import CorruptRecordError, LimitExceededError, MissingExtraError, os_reason
from kseg.extras import check_memory, require
from kseg.files.mapping import HUGE_BYTES, private_memory

#: The schemes that obstore knows; fsspec has the others.
_OBSTORE: Final = ("s3", "gs", "abfs", "az", "adl", "http", "https")
#: Seconds for one request, and for one with all its repetitions.
REQUEST_S: Final = 30.0
DEADLINE_S: Final = 90.0
_RETRIES: Final = 4
#: Keys in one page of a listing, and the keys that a listing may have.
PAGE_KEYS: Final = 1_000
LISTED_MAX: Final = 1_000_000
#: The least bytes of an answer to receive at a time: a part is copied, and each costs a call.
_ANSWER_BYTES: Final = 1 << 20
#: The size of a part of a new object, and the parts of one object in flight.
PART_BYTES: Final = 8 << 20
_PARTS_IN_FLIGHT: Final = 4
MADE_MEANWHILE: Final = (
    "it appeared meanwhile, by another program or by a request whose answer was lost, and stays"
)

_Answer = TypeVar("_Answer")


@frozen_dataclass
class StoredObject:
    """An object as the store described it.

    Attributes:
        url: the URL of the object, or its key, where a library describes it.
        size: its size in bytes.
        etag: changes with the contents; None if the store has none.
        modified_ms: the time of the last change, in ms; -1 where the store does not say.
    """

    url: str
    size: int
    etag: str | None = None
    modified_ms: int = -1


class _Backend(Protocol):
    """A library that speaks with a store. Keys have no leading slash."""

    errors: tuple[type[Exception], ...]

    def head(self, key: str) -> StoredObject:
        """Describe an object."""

    def read(self, key: str, start: int, end: int, stored: StoredObject) -> memoryview:
        """Bytes of an object; raises if the object has changed."""

    def pages(self, key: str, after: str | None) -> Iterator[Sequence[StoredObject]]:
        """All objects below a key; those after another key, if the store lists in order."""

    def put(self, key: str, data: bytearray, *, new: bool) -> None:
        """Write an object with one request; FileExistsError if it must be new, and exists."""

    def upload(self, key: str) -> Upload:
        """Begin an object of several parts."""


class Upload(NamedTuple):
    """An object that is written part by part; no reader sees it before it is complete.

    Attributes:
        write: adds a part, of `PART_BYTES` except the last; may raise an earlier part's error.
        complete: makes the object appear; it replaces an object of the same name.
        abort: removes all parts.
    """

    write: Callable[[bytearray], object]
    complete: Callable[[], object]
    abort: Callable[[], object]


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

    def head(self, key: str) -> StoredObject:
        return _stored_object(self._module.head(self._store, key))

    def read(self, key: str, start: int, end: int, stored: StoredObject) -> memoryview:
        options: dict[str, Any] = {"range": (start, end)}
        # A weak ETag never matches: the answer must be compared.
        if stored.etag is not None and not stored.etag.startswith("W/"):
            options["if_match"] = stored.etag
        answer = self._module.get(self._store, key, options=options)
        _refuse_changed(_stored_object(answer.meta), stored)
        # One byte more reveals an answer that is too long: no more of it is taken. Heaps of threads
        # would keep the room of freed large blocks.
        room, filled = end - start + 1, 0
        is_large = room > HUGE_BYTES
        data = private_memory(room, ((0, room),)).data if is_large else memoryview(bytearray(room))
        for part in answer.stream(_ANSWER_BYTES):
            chunk = part[: room - filled]
            data[filled : filled + len(chunk)] = chunk
            filled += len(chunk)
            if filled == room:
                break
        return data[:filled].toreadonly()

    def pages(self, key: str, after: str | None) -> Iterator[Sequence[StoredObject]]:
        stream = self._module.list(self._store, key or None, offset=after, chunk_size=PAGE_KEYS)
        for page in stream:
            yield [_stored_object(entry) for entry in page]

    def put(self, key: str, data: bytearray, *, new: bool) -> None:
        mode = "create" if new else "overwrite"
        try:
            self._module.put(self._store, key, data, mode=mode, use_multipart=False)
        except self._module.exceptions.AlreadyExistsError:
            raise FileExistsError(errno.EEXIST, MADE_MEANWHILE) from None

    def upload(self, key: str) -> Upload:
        writer = self._module.open_writer(
            self._store, key, buffer_size=PART_BYTES, max_concurrency=_PARTS_IN_FLIGHT
        )
        # To leave with an exception aborts the upload.
        abort = partial(writer.__exit__, BaseException, None, None)
        return Upload(writer.write, writer.close, abort)


def _stored_object(entry: Any) -> StoredObject:
    return StoredObject(
        entry["path"], int(entry["size"]), entry["e_tag"], _ms(entry["last_modified"])
    )


def _refuse_changed(described: StoredObject, stored: StoredObject) -> None:
    """Compare an object with its earlier description: a store may ignore `If-Match`.

    Raises:
        OSError: it has changed.
    """
    tag, stored_tag = (
        (etag or "").removeprefix("W/").strip('"') for etag in (described.etag, stored.etag)
    )
    is_other_time = described.modified_ms // 1000 != stored.modified_ms // 1000
    is_other = tag != stored_tag if tag and stored_tag else is_other_time
    if described.size != stored.size or is_other:
        raise OSError(errno.ESTALE, _CHANGED)


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

    def head(self, key: str) -> StoredObject:
        info = self._system.info(self._path(key))
        if info.get("type") != "file":
            raise FileNotFoundError(errno.ENOENT, "not an object")
        return self._stored_object(info)

    def _stored_object(self, info: dict[str, Any]) -> StoredObject:
        name = str(info["name"]).removeprefix(self._top.rstrip("/")).lstrip("/")
        modified_ms = _ms(info.get("created") or info.get("mtime"))
        return StoredObject(name, int(info["size"]), info.get("ETag"), modified_ms)

    def read(self, key: str, start: int, end: int, stored: StoredObject) -> memoryview:
        _refuse_changed(self.head(key), stored)
        return memoryview(self._system.cat_file(self._path(key), start=start, end=end))

    def pages(self, key: str, after: str | None) -> Iterator[Sequence[StoredObject]]:
        entries = self._system.find(self._path(key), detail=True)
        yield [self._stored_object(info) for info in entries.values() if info.get("type") == "file"]

    def put(self, key: str, data: bytearray, *, new: bool) -> None:
        if new and self._system.exists(self._path(key)):
            raise FileExistsError(errno.EEXIST, MADE_MEANWHILE)
        upload = self.upload(key)
        try:
            upload.write(data)
            upload.complete()
        except BaseException:
            upload.abort()
            raise

    def upload(self, key: str) -> Upload:
        # Not every file system of fsspec can hold a file back until it is complete; all can move.
        target = self._path(key)
        above, _, name = target.rpartition("/")
        beside = f"{above}/.{name}.{uuid4().hex[:16]}.kseg-part"
        self._system.makedirs(above, exist_ok=True)
        file = self._system.open(beside, "wb", block_size=PART_BYTES)

        def complete() -> None:
            file.close()
            self._system.mv(beside, target)

        def abort() -> None:
            file.close()
            self._system.rm_file(beside)

        return Upload(file.write, complete, abort)


def _ms(when: object) -> int:
    """A time in ms, out of seconds or a `datetime`; -1 for anything else."""
    if isinstance(when, (int, float)):
        return int(when * 1000)
    return int(when.timestamp() * 1000) if isinstance(when, datetime) else -1


def _aws_config() -> dict[str, str]:
    """Credentials and region from the files of AWS, in addition to the environment."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE")
    home, profile = Path.home() / ".aws", os.environ.get("AWS_PROFILE", "default")
    values: dict[str, str] = {}
    files = [("AWS_CONFIG_FILE", "config", f"profile {profile}")]
    if not any(map(os.environ.get, names)):
        files.append(("AWS_SHARED_CREDENTIALS_FILE", "credentials", profile))
    for variable, name, other in files:
        parser = configparser.RawConfigParser()
        parser.read(os.environ.get(variable, home / name))
        section = other if parser.has_section(other) else profile
        values |= dict(parser.items(section)) if parser.has_section(section) else {}
    option_names = {f"aws_{name}": f"aws_{name}" for name in ("access_key_id", "secret_access_key")}
    option_names |= {"aws_session_token": "aws_session_token"}
    if not (os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        option_names |= {"region": "aws_region"}
    return {own_name: values[name] for name, own_name in option_names.items() if name in values}


# ---- errors --------------------------------------------------------------------------------------

_STATUS: Final = re.compile(r"status code: (\d{3})|redirect without LOCATION")
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
#: A library's words for a fault of the connection, and ours.
_REASONS: Final = {
    "TimedOut": "it gave no answer in time",
    "ConnectionRefused": "nothing answers at its address; see AWS_ENDPOINT_URL",
    "dns error": "its name has no address; see AWS_ENDPOINT_URL",
    "TooManyRedirects": "it sends from one address to the next without end",
    "IncompleteBody": "its answer was cut short",
    "NotPartial": "it does not give parts of objects",
}
_CHANGED: Final = "the object changed while it was read; open it again"
#: Statuses, and the error and words for each.
_STATUSES: Final = {
    301: (errno.EREMOTE, "the bucket is in another region: set AWS_REGION or AWS_ENDPOINT_URL"),
    401: (errno.EACCES, "the store does not accept the credentials in the environment"),
    403: (errno.EACCES, "the store refuses access with the credentials in the environment"),
    404: (errno.ENOENT, "no such object"),
    416: (errno.ESTALE, _CHANGED),
    412: (errno.ESTALE, _CHANGED),
    429: (errno.EBUSY, "the store is too busy; try again later"),
    501: (errno.ENOTSUP, "the store has no conditional requests; --replace writes without them"),
    503: (errno.EBUSY, "the store is too busy; try again later"),
}
#: The same for the store's own words.
_CODES: Final = {
    "InvalidObjectState": (errno.EACCES, "the object is in an archive class; restore it first"),
    "ExpiredToken": (errno.EACCES, "the credentials have expired; get new ones"),
    "NoSuchBucket": (errno.ENOENT, "no such bucket"),
}


def _our_error(error: Exception, url: str) -> Exception:
    """A library's error in our words: it shows neither the request nor its headers.

    The store's own error code is used before the status, since it says more.
    """
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    reason = next((words for sign, words in _REASONS.items() if sign in text), None)
    number, words = errno.EIO, ""
    if status is not None:
        number, words = _STATUSES.get(int(status[1] or 301), (errno.EIO, "the store failed"))
        if code is not None:
            number, words = _CODES.get(code[1], (number, words))
        words += f" ({status[1] or 301}{'' if code is None else ' ' + code[1]})"
    elif isinstance(error, OSError) and error.errno is not None:
        number, words = error.errno, os_reason(error)
    elif isinstance(error, FileNotFoundError):
        number, words = _STATUSES[404]
    elif isinstance(error, PermissionError):
        number, words = _STATUSES[403]
    else:
        last = re.sub(r"[^ ]*://[^ ]*", "URL", text.split("\n")[0].split(" - ")[-1])
        words = f"the store cannot be read: {reason or last[:200]}"
    if number == errno.ESTALE:
        return CorruptRecordError(words, path=url)
    return OSError(number, words, url)


# ---- the store -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Store:
    """One store, with a count of requests and bytes.

    Attributes:
        root: scheme and bucket.
        requests: the number of requests since the store was opened, without repetitions.
        bytes: the number of bytes read and written.
    """

    root: str
    _backend: _Backend
    requests: int = 0
    bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, url: str) -> Store:
        """The store of a URL; the same object for each URL of a bucket.

        Raises:
            MissingExtraError: the package for this store is not installed.
            ValueError: no package supports this store, or the URL has credentials.
        """
        check_url(url)
        scheme, _, rest = url.partition("://")
        scheme = scheme.lower()
        return _open_store(f"{SCHEMES.get(scheme, scheme)}://{rest.partition('/')[0]}")

    def describe(self, url: str) -> StoredObject:
        """Size and ETag of an object: one request.

        Raises:
            OSError: the object does not exist, or the store refuses.
        """
        return replace(self._request(url, lambda: self._backend.head(_key_of(url))), url=url)

    def read(self, stored: StoredObject, start: int, end: int) -> memoryview:
        """Read a range of an object, all of which must be inside of the object.

        Raises:
            CorruptRecordError: the object is another one now.
            OSError: the store refuses, did not answer in time, or gave fewer bytes again and again.
        """
        key = _key_of(stored.url)
        for _ in range(_RETRIES):
            data = self._request(
                stored.url, lambda: self._backend.read(key, start, end, stored), end - start
            )
            if len(data) == end - start:
                return data
        raise OSError(
            errno.EIO,
            f"the store gave {len(data)} bytes of {end - start} at {start}, {_RETRIES} times",
            stored.url,
        )

    def listed(self, url: str) -> Iterator[StoredObject]:
        """Every object below a URL: one request for a thousand.

        Keys outside of the URL, or with an empty part, `.` or `..`, are left out.

        Raises:
            LimitExceededError: the listing has too many objects.
            OSError: the store refuses, did not answer in time, or repeats objects.
        """
        key, seen, last = _key_of(url).rstrip("/"), 0, None
        pages: list[Iterator[Sequence[StoredObject]]] = []

        def page() -> Sequence[StoredObject] | None:
            if not pages:
                pages.append(iter(self._backend.pages(key, last)))
            try:
                return next(pages[0], None)
            except BaseException:
                pages.clear()  # the error has ended it; another try continues after `last`
                raise

        while (objects := self._request(url, lambda: _in_time(page, url))) is not None:
            keys = {stored.url for stored in objects}
            if last in keys or len(keys) < len(objects):
                raise OSError(errno.EIO, "the store lists objects twice, without an end", url)
            last, seen = objects[-1].url if objects else last, seen + len(objects)
            if seen > LISTED_MAX:
                raise LimitExceededError(
                    f"more than {LISTED_MAX} objects; name a URL with fewer below it", path=url
                )
            for stored in objects:
                is_plain = not {"", ".", ".."} & set(stored.url.split("/"))
                if is_plain and stored.url.startswith(f"{key}/" if key else ""):
                    yield replace(stored, url=f"{self.root}/{stored.url}")

    def put(self, url: str, data: bytearray, *, new: bool) -> None:
        """Write an object of few bytes: one request.

        Args:
            url: the URL of the object.
            data: all of its contents.
            new: refuse an object that is there; where a store cannot, another may still appear at
                the same time.

        Raises:
            FileExistsError: there is one.
            OSError: the store refuses.
        """
        key = _key_of(url)
        self._request(url, lambda: self._backend.put(key, data, new=new), len(data), tries=1)

    def upload(self, url: str) -> Upload:
        """Begin an object of several parts, each of them one request.

        Raises:
            OSError: the store refuses; so do the functions of the upload.
        """

        def asked(call: Callable[..., object]) -> Callable[..., object]:
            return lambda *part: self._request(
                url, lambda: call(*part), sum(map(len, part)), tries=1
            )

        begun = self._request(url, lambda: self._backend.upload(_key_of(url)), tries=1)
        return Upload(asked(begun.write), asked(begun.complete), asked(begun.abort))

    def _request(
        self, url: str, call: Callable[[], _Answer], size: int = 0, *, tries: int = _RETRIES
    ) -> _Answer:
        """Make a request; a lasting error is an `OSError` with the URL.

        Args:
            url: the URL of the object.
            call: makes the request.
            size: bytes that it reads or writes, for the count.
            tries: how often it may be made; 1 where a repetition could do harm.
        """
        end, pause = time.monotonic() + DEADLINE_S, 0.1
        for attempt in range(tries):
            try:
                answer = call()
                break
            except self._backend.errors as error:
                ours = _our_error(error, url)
                # obstore repeats a request with a bad answer, not a request that was cut short.
                may_repeat = isinstance(ours, OSError) and ours.errno == errno.EIO
                may_repeat &= _STATUS.search(str(error)) is None
                if not may_repeat or attempt == tries - 1 or time.monotonic() + pause > end:
                    raise ours from None
            time.sleep(pause)
            pause *= 2
        with self._lock:
            self.requests += 1
            self.bytes += size
        return answer


def _in_time(call: Callable[[], _Answer], url: str) -> _Answer:
    """Call in a thread that is abandoned if it takes longer than a request may."""
    answers: list[_Answer] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # handed to the caller's thread
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True, name="kseg-listing")
    thread.start()
    thread.join(DEADLINE_S + REQUEST_S)
    if failed:
        raise failed[0]
    if not answers:
        raise OSError(
            errno.ETIMEDOUT,
            f"the listing had no end after {DEADLINE_S + REQUEST_S:.0f} s",
            url,
        )
    return answers[0]


def _key_of(url: str) -> str:
    """The key of an object in its bucket: the URL after the bucket's name."""
    return url.partition("://")[2].partition("/")[2]


@lru_cache(64)
def _open_store(root: str) -> Store:
    scheme = root.partition(":")[0]
    backend: _Backend = _Obstore(root) if scheme in _OBSTORE else _Fsspec(root)
    return Store(root, backend)


#: Other names of a scheme, which Hadoop and others use.
SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "azure": "az"}


def check_url(url: str) -> None:
    """Refuse a URL that has credentials or a query.

    Raises:
        ValueError: it has one; the message does not repeat them.
    """
    parts = urlsplit(url)
    is_container = SCHEMES.get(parts.scheme, parts.scheme) in ("abfs", "az")
    has_query = parts.scheme in ("http", "https") and bool(parts.query or parts.fragment)
    if has_query or ("@" in parts.netloc and not is_container):
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        raise ValueError(
            f"kseg: {place}: a URL has no user, password, query or fragment: credentials come "
            "from the environment, and a URL appears in messages"
        )
