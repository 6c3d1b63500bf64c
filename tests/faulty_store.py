"""A store on the loopback that speaks enough of S3 to be read, and lets requests go wrong.

HEAD, GET with `Range` and `If-Match`, and ListObjectsV2. A fault sees each request with the answer
that the store would give, and gives another one.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from kseg.stores import store as stores

BUCKET = "tier"
ROOT = f"s3://{BUCKET}"
#: What no message may have: the credentials, and headers of the request.
ACCESS_KEY, SECRET = "AKIDFORTESTS", "secret-of-the-tests"
PAGE_KEYS = 1000


class Request(NamedTuple):
    """One request: its number, its method, its key; an empty key is a listing."""

    number: int
    method: str
    key: str
    query: Mapping[str, str]
    start: int | None

    @property
    def is_listing(self) -> bool:
        return self.method == "GET" and not self.key


@dataclass(frozen=True)
class Answer:
    """An answer; `sent` bytes of the body go out, then the connection closes or stalls."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None
    sent: int | None = None
    stalls: bool = False
    is_silent: bool = False


Fault = Callable[[Request, Answer], Answer]


def error(status: int, code: str = "", **headers: str) -> Answer:
    """An error as S3 words it."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>of {SECRET}</Message></Error>"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, body.encode() if code else b"", named)


def etag_of(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class FaultyStore:
    """The objects of one bucket, what was asked of it, and the fault of its answers."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        self.objects = dict(objects)
        self.fault: Fault | None = None
        self.asked: list[Request] = []
        self._released = threading.Event()
        self._lock = threading.Lock()
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                store._answer(self)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_arguments: Any) -> None:
                """Stay silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        # A connection that was left in the middle of an answer is none of the test's concern.
        self._server.handle_error = lambda *_arguments: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def release(self) -> None:
        """Let the answers that stall end."""
        self._released.set()
        self._released = threading.Event()

    def reset(self, fault: Fault | None = None) -> None:
        """Count from 0, with another fault."""
        self.fault, self.asked = fault, []

    # ---- answers ---------------------------------------------------------------------------------

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        _, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        wanted = handler.headers.get("Range", "").removeprefix("bytes=")
        start = int(wanted.partition("-")[0]) if wanted else None
        with self._lock:
            request = Request(len(self.asked), handler.command, key, query, start)
            self.asked.append(request)
        answer = self._right(request, wanted, handler.headers.get("If-Match"))
        if self.fault is not None:
            answer = self.fault(request, answer)
        self._send(handler, request, answer)

    def _send(self, handler: BaseHTTPRequestHandler, request: Request, answer: Answer) -> None:
        if answer.is_silent:
            self._released.wait(60)
            handler.close_connection = True
            return
        body = answer.body if answer.sent is None else answer.body[: answer.sent]
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        length = len(answer.body) if answer.length is None else answer.length
        if "Content-Length" not in answer.headers:
            handler.send_header("Content-Length", str(length))
        handler.end_headers()
        if request.method != "HEAD":
            handler.wfile.write(body)
            handler.wfile.flush()
        if answer.stalls:
            self._released.wait(60)
        if answer.stalls or answer.sent is not None or answer.length is not None:
            handler.close_connection = True

    def _right(self, request: Request, wanted: str, match: str | None) -> Answer:
        """What S3 would answer."""
        if request.is_listing:
            return self._listing(request.query)
        data = self.objects.get(request.key)
        if data is None:
            return error(404, "NoSuchKey")
        headers = {"ETag": etag_of(data), "Last-Modified": "Wed, 25 Nov 2026 00:00:00 GMT"}
        if match is not None and match != headers["ETag"]:
            return error(412, "PreconditionFailed")
        if request.method == "HEAD":
            return Answer(200, b"", headers | {"Content-Length": str(len(data))})
        if not wanted:
            return Answer(200, data, headers)
        first, _, last = wanted.partition("-")
        start, end = int(first), min(int(last or len(data)) + 1, len(data))
        if start >= len(data):
            return error(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        return Answer(206, data[start:end], headers)

    def _listing(self, query: Mapping[str, str]) -> Answer:
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        page = keys[: int(query.get("max-keys", PAGE_KEYS))]
        rows = [(key, len(self.objects[key]), etag_of(self.objects[key])) for key in page]
        return listing(rows, page[-1] if len(page) < len(keys) else None)


def listing(rows: list[tuple[str, int, str]], token: str | None) -> Answer:
    """A page of a listing: keys, sizes, ETags, and where the next page begins."""
    contents = "".join(
        f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size>"
        f"<ETag>{escape(etag)}</ETag><LastModified>2026-11-25T00:00:00.000Z</LastModified>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
        for key, size, etag in rows
    )
    more = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
    body = (
        "<?xml version='1.0'?><ListBucketResult>"
        f"<Name>{BUCKET}</Name><KeyCount>{len(rows)}</KeyCount>"
        f"<IsTruncated>{str(bool(token)).lower()}</IsTruncated>{more}{contents}</ListBucketResult>"
    )
    return Answer(200, body.encode(), {"Content-Type": "application/xml"})


# ---- faults --------------------------------------------------------------------------------------


def at(number: int, fault: Fault) -> Fault:
    """A fault of one request."""
    return lambda request, right: fault(request, right) if request.number == number else right


def since(number: int, fault: Fault) -> Fault:
    """A fault of every request from one on."""
    return lambda request, right: fault(request, right) if request.number >= number else right


def of_key(part: str, fault: Fault) -> Fault:
    """A fault of the requests for objects with this in their keys."""
    return lambda request, right: fault(request, right) if part in request.key else right


def gives(answer: Answer) -> Fault:
    """The same answer to every request."""
    return lambda _request, _right: answer


def cut(_request: Request, right: Answer) -> Answer:
    """An answer whose second half does not come."""
    return replace(right, sent=len(right.body) // 2)


def stalled(_request: Request, right: Answer) -> Answer:
    """A connection that is accepted, and no answer."""
    return replace(right, is_silent=True)


def half_stalled(_request: Request, right: Answer) -> Answer:
    """Half an answer, and then nothing."""
    return replace(right, sent=len(right.body) // 2, stalls=True)


# ---- for tests -----------------------------------------------------------------------------------


def objects_of(directory: Path) -> dict[str, bytes]:
    """The files below a directory, as the objects of a bucket."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


@contextmanager
def serving(
    objects: Mapping[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    *,
    fault: Fault | None = None,
    request_s: float = 30.0,
    deadline_s: float = 0.3,
) -> Iterator[FaultyStore]:
    """A store at `s3://tier`, which this process reads with short deadlines."""
    names = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    store = FaultyStore(objects)
    store.reset(fault)
    try:
        for name, value in (names | {"AWS_ENDPOINT_URL": store.url}).items():
            monkeypatch.setenv(name, value)
        for name in ("AWS_REGION", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(stores, "REQUEST_S", request_s)
        monkeypatch.setattr(stores, "DEADLINE_S", deadline_s)
        stores._open_store.cache_clear()
        yield store
    finally:
        store.close()
        stores._open_store.cache_clear()
