"""Logs that are served from this machine and made while they are read: of any size, on no disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar, Final

import numpy as np

from tests.builders import batch, record
from tests.memory.files import sealed


class Repeated:
    """A log of the same batch, over and over, with rising offsets.

    Attributes:
        size: in bytes.
        records: how many it has.
    """

    _each: Final = 64

    def __init__(self, size: int, base_offset: int = 0) -> None:
        self._batch: Final = np.frombuffer(
            sealed(batch([record(bytes(1000))] * self._each, crc=0)), np.uint8
        )
        self.size = size // len(self._batch) * len(self._batch)
        self.records = self.size // len(self._batch) * self._each
        self._base_offset: Final = base_offset

    def read(self, start: int, end: int) -> memoryview:
        """Its bytes from one position to another."""
        one = len(self._batch)
        numbers = np.arange(start // one, -(-end // one))
        made = np.tile(self._batch, (len(numbers), 1))
        offsets = (self._base_offset + numbers * self._each).astype(">i8")
        made[:, :8] = offsets.view(np.uint8).reshape(-1, 8)
        return memoryview(made.reshape(-1))[start - numbers[0] * one :][: end - start]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: ClassVar[Mapping[str, Repeated]] = {}

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        served = self.objects.get(self.path)
        if served is None:
            self.send_error(404)
            return
        start, end = 0, served.size
        asked = self.headers.get("Range", "").removeprefix("bytes=")
        if asked:
            first, _, last = asked.partition("-")
            start, end = int(first), min(int(last) + 1, served.size)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(end - start))
        self.send_header("Last-Modified", "Wed, 25 Nov 2026 00:00:00 GMT")
        self.send_header("Content-Range", f"bytes {start}-{end - 1}/{served.size}")
        self.end_headers()
        if self.command == "GET":
            self.connection.sendall(served.read(start, end))


@contextmanager
def serving(objects: Mapping[str, Repeated]) -> Iterator[str]:
    """A server of objects by their paths; its address."""
    handler = type("_Of", (_Handler,), {"objects": objects})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
