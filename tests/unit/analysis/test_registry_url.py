"""A registry that is asked over HTTP: its schemas, its credentials, and answers that are none."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import kseg
from kseg.analysis import registry_url
from kseg.analysis.registry_url import TOKEN, USER_INFO
from kseg.errors import NotALogError
from tests.unit.internal.test_registry import INT, STRING, codes

Pages = dict[str, Any]


def schema(subject: str, version: int, number: int, text: str = STRING, **more: Any) -> Any:
    return {"subject": subject, "version": version, "id": number, "schema": text, **more}


#: The answers of a registry with two contexts, a deleted version and a deleted subject.
PAGES: Pages = {
    "/contexts": [".", ".lab"],
    "/subjects?deleted=true": ["orders-value", "gone-key"],
    "/subjects?deleted=true&subjectPrefix=%3A.%3A": ["orders-value", "gone-key"],
    "/subjects?deleted=true&subjectPrefix=%3A.lab%3A": [":.lab:a/b"],
    "/subjects/orders-value/versions?deleted=true": [1, 2],
    "/subjects/orders-value/versions": [2],
    "/subjects/orders-value/versions/1?deleted=true": schema("orders-value", 1, 1, guid="x", ts=5),
    "/subjects/orders-value/versions/2?deleted=true": schema(
        "orders-value",
        2,
        2,
        INT,
        references=[{"name": "k", "subject": "gone-key", "version": 1}],
    ),
    "/subjects/gone-key/versions?deleted=true": [1],
    "/subjects/gone-key/versions/1?deleted=true": schema(
        "gone-key", 1, 3, 'syntax = "proto3";', schemaType="PROTOBUF"
    ),
    "/subjects/%3A.lab%3Aa%2Fb/versions?deleted=true": [1],
    "/subjects/%3A.lab%3Aa%2Fb/versions": [1],
    "/subjects/%3A.lab%3Aa%2Fb/versions/1?deleted=true": schema(":.lab:a/b", 1, 1, INT),
}
#: A page: bytes, a value of JSON, or a function that answers by itself.
Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(
    pages: Pages, asked: list[tuple[str, str | None]], context: Any = None
) -> Iterator[str]:
    """A registry at an address of this machine; it notes what it is asked, and by whom."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization")))
            found = pages.get(self.path)
            if callable(found):
                found(self)
                return
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(found if isinstance(found, bytes) else json.dumps(found).encode())

        def log_message(self, *_arguments: Any) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http{'' if context is None else 's'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (USER_INFO, TOKEN, "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))


def test_the_schemas_of_a_registry_are_a_table() -> None:
    asked: list[Any] = []
    told: list[tuple[int, int]] = []
    with serving(PAGES, asked) as address:
        found = kseg.schemas(f"{address}/", progress=lambda *done: told.append(done))
    assert [(one.subject, one.version, one.id, one.type, one.deleted) for one in found] == [
        (":.lab:a/b", 1, 1, "AVRO", None),
        ("gone-key", 1, 3, "PROTOBUF", "soft"),
        ("orders-value", 1, 1, "AVRO", "soft"),
        ("orders-value", 2, 2, "AVRO", None),
    ]
    assert codes(found) == ["id-in-contexts"]
    assert (found[0].path, found[0].offset, found[0].timestamp_ms) == (address, None, None)
    assert len(found.by_id(3).text) == 18  # type: ignore[union-attr]
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert {page for page, _ in asked} <= {*PAGES, "/subjects/gone-key/versions"}
    assert {by for _, by in asked} == {None}


def test_a_registry_without_contexts_has_one() -> None:
    pages = {page: value for page, value in PAGES.items() if "contexts" not in page}
    with serving(pages, []) as address:
        assert len(kseg.schemas(address)) == 3


def test_what_cannot_be_understood_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    first = "/subjects/orders-value/versions/1?deleted=true"
    wrong: dict[str, Any] = {
        "record-json": b"<html>",
        "record-field": schema("other", 1, 1),
        "too-deep": b"[" * 300,
        "too-large": b"1" * 2_000,
    }
    monkeypatch.setattr("kseg.analysis.registry_url.BYTES_MAX", 1_500)
    monkeypatch.setattr("kseg.internal.registry.BYTES_MAX", 1_500)
    for code, answer in wrong.items():
        with serving({**PAGES, first: answer}, []) as address:
            found = kseg.schemas(address)
        assert codes(found)[0] == code
        assert len(found) == 3


def moved(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(302)
    handler.send_header("Location", "/elsewhere")
    handler.end_headers()


def refused(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(401)
    handler.end_headers()


def silent(handler: BaseHTTPRequestHandler) -> None:
    handler.rfile.read()


def cut(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b"[")


def other(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"SSH-2.0\r\n")


BROKEN: dict[str, tuple[Answer, str]] = {
    "a redirect": (moved, "HTTP status 302$"),
    "no permission": (refused, "HTTP status 401; credentials come from KSEG_REGISTRY_USER_INFO"),
    "no answer": (silent, "timed out"),
    "another protocol": (other, "BadStatusLine"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_registry_that_does_not_answer_is_an_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, message = BROKEN[name]
    monkeypatch.setattr(registry_url, "_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setenv(USER_INFO, "ann:secret")
    asked: list[tuple[str, str | None]] = []
    pages = {"/subjects?deleted=true": answer}
    with serving(pages, asked) as address, pytest.raises(OSError, match=message) as refusal:
        kseg.schemas(address)
    assert address in str(refusal.value)
    assert "secret" not in str(refusal.value)
    assert [page for page, _ in asked] == ["/contexts", "/subjects?deleted=true"]
    with pytest.raises(OSError, match="refused"):
        kseg.schemas(address)


@pytest.mark.parametrize("answer", [b"", b"hello", {"a": 1}, [1], ["a", None], b"[" * 300, cut])
def test_other_pages_are_no_registry(answer: Any) -> None:
    with (
        serving({"/subjects?deleted=true": answer}, []) as address,
        pytest.raises(NotALogError, match="not a schema registry: /subjects"),
    ):
        kseg.schemas(address)


def test_credentials_come_from_the_environment_or_netrc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, str | None]] = []
    place = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(place))
    with serving(PAGES, asked) as address:
        place.write_text("machine localhost login bob password other\n")
        kseg.schemas(address)
        place.write_text("machine 127.0.0.1 login bob password pass\n")
        kseg.schemas(address)
        monkeypatch.setenv(USER_INFO, "ann:päss")
        kseg.schemas(address)
        monkeypatch.setenv(TOKEN, "abc\n")
        kseg.schemas(address)
    given = [f"Basic {b64encode(each.encode()).decode()}" for each in ("bob:pass", "ann:päss")]
    assert list(dict.fromkeys(by for _, by in asked)) == [None, *given, "Bearer abc"]
    monkeypatch.delenv(TOKEN)
    monkeypatch.delenv(USER_INFO)
    place.write_text("machine 127.0.0.1 login bob\nsecret\n")
    with pytest.raises(OSError, match=r"netrc: line \d+ cannot be read") as refusal:
        kseg.schemas(address)
    assert "secret" not in str(refusal.value)


def test_certificates_are_checked(tmp_path: Path) -> None:
    private, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    made = made.public_key(private.public_key()).serial_number(1)
    made = made.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    place = tmp_path / "certificate.pem"
    place.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.sign(private, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place)
    with (
        serving(PAGES, [], context) as address,
        pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        kseg.schemas(address)
